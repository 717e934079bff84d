//! Handles the lines after the document of a session or an event: when to start, requests for the clock, and renewals
//! of the lease.

use std::{sync::mpsc, time::Duration};

use iotax_node::failure::{Failure, FailureKind};
use iotax_proto::Instant;
use iotax_runtime::{Clock, clock::WallClock};

use super::BEGIN_AFTER;
use crate::{
    caller::{self, Lease},
    document::{ClockEvent, ErrorEvent, Event, SessionCommand, StartedEvent},
    failure,
};

pub(crate) struct Commands {
    starts: mpsc::Receiver<u64>,
    gone: mpsc::Receiver<()>,
    lease: Lease,
}

impl Commands {
    /// Answers lines as they arrive. The end of the input ends the process, because the caller is gone.
    pub(crate) fn follow(lease_ns: Option<u64>) -> Self {
        let (sender, starts) = mpsc::channel();
        let (left, gone) = mpsc::channel();
        let lease = Lease::start(lease_ns);
        let renewed = lease.clone();
        caller::follow(move |line| {
            renewed.renew();
            match line.map(serde_json::from_str) {
                None if renewed.is_held() => _ = left.send(()),
                None => caller::input_ended(),
                // A session that has ended receives nothing more.
                Some(Ok(SessionCommand::Start { at_unix_ns })) => _ = sender.send(at_unix_ns),
                Some(Ok(SessionCommand::Clock)) => {
                    let WallClock { unix_ns, error_ns } = WallClock::read();
                    caller::emit(&Event::Clock(ClockEvent { unix_ns, error_ns }));
                }
                Some(Ok(SessionCommand::Renew)) => {}
                Some(Err(error)) => {
                    let failure = Failure::usage(error.to_string(), "standard input");
                    caller::emit(&Event::Error(ErrorEvent::of(&failure)));
                }
            }
        });
        Self { starts, gone, lease }
    }

    /// From now on silence does not show that the caller is gone, and the end of the input does not end the process.
    pub(crate) fn hold(&self) {
        self.lease.hold();
    }

    /// After `hold`: waits so long, and returns whether the input ended meanwhile.
    pub(crate) fn is_gone_within(&self, limit: Duration) -> bool {
        self.gone.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Waits for the start command. Returns the clock, labelled by the wall clock as it is set now, and the start.
    pub(crate) fn start(&self, clock: Clock) -> Result<(Clock, Option<Instant>), Failure> {
        let at_unix_ns = self.starts.recv().map_err(failure::internal)?;
        let clock = clock.with_wall_of_now();
        let now = clock.now();
        let in_time = clock.at_unix_ns(at_unix_ns).filter(|at| at.since(now) >= BEGIN_AFTER);
        let at = in_time.ok_or_else(|| {
            let late_ns = WallClock::read().unix_ns.saturating_sub(at_unix_ns);
            Failure::new(FailureKind::Late, format!("the start command came {late_ns} ns too late"), "start")
        })?;
        let left_ns = u64::try_from(at.since(now).as_nanos()).unwrap_or(u64::MAX);
        caller::emit(&Event::Started(StartedEvent { at_unix_ns, left_ns }));
        Ok((clock, Some(at)))
    }
}
