//! The lifetime of a connection. A target's connection ends after the initiator leaves or is silent for too long, when
//! everything queued for the initiator has been sent. A silent target is sent an ECHO, and given up after the same time
//! again.

use core::time::Duration;

use super::{Link, login};
use crate::{Instant, Violation};

/// How often an idle connection checks whether another connection ended its login or commands of it.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Lifetime {
    stage: Stage,
    login_timeout: Duration,
    silence: Duration,
    /// Deadline of the login, or of the connection's end.
    deadline: Instant,
    last_heard: Instant,
    next_look: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// No new commands are started.
    Leaving,
    Closed,
}

impl Lifetime {
    /// `login_timeout` limits the time from the start of the connection to the end of its login, and also the time that
    /// its end takes. `silence` limits how long an initiator may be silent.
    pub fn new(now: Instant, login_timeout: Duration, silence: Duration) -> Self {
        Self {
            stage: Stage::Open,
            login_timeout,
            silence,
            deadline: now + login_timeout,
            last_heard: now,
            next_look: now + LOOK,
        }
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.stage == Stage::Leaving
    }

    /// Whether the next frame may be processed: the connection is open, and there is space for the response.
    #[inline]
    pub fn may_go_on(&self, link: &Link) -> bool {
        !self.is_closed() && !link.transmit.is_full()
    }

    #[inline]
    pub fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Notes that the initiator leaves. The connection closes when everything that waits for credit has been sent,
    /// above all the answer to the logout.
    #[cold]
    pub fn leave(&mut self, now: Instant, link: &Link) {
        if self.stage == Stage::Open {
            (self.stage, self.deadline) = (Stage::Leaving, now + self.login_timeout);
        }
        self.settle(link);
    }

    /// Closes the connection if it is leaving and nothing waits for credit.
    #[inline]
    pub fn settle(&mut self, link: &Link) {
        if self.is_leaving() && link.waiting() == 0 {
            self.stage = Stage::Closed;
        }
    }

    pub fn close(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Schedules a check at this time or earlier, because something waits for a response.
    #[inline]
    pub fn look_by(&mut self, when: Instant) {
        self.next_look = self.next_look.min(when);
    }

    pub fn poll_timeout(&self, is_logged_in: bool) -> Option<Instant> {
        match self.stage {
            Stage::Closed => None,
            _ if is_logged_in => Some(self.next_look),
            Stage::Open | Stage::Leaving => Some(self.deadline),
        }
    }

    /// Notes a check. The next one is after [`LOOK`], unless `look_by` schedules it earlier.
    pub fn looked(&mut self, now: Instant) {
        self.next_look = now + LOOK;
    }

    /// Checks whether the initiator takes too long.
    pub fn check(&self, now: Instant, is_logged_in: bool) -> Result<(), Violation> {
        let is_late = match self.stage {
            Stage::Closed => false,
            _ if is_logged_in => now.since(self.last_heard) >= self.silence,
            Stage::Open | Stage::Leaving => now >= self.deadline,
        };
        if is_late { Err(Violation::timed_out("the initiator is silent")) } else { Ok(()) }
    }
}

#[derive(Debug)]
pub struct Silence {
    interval: Duration,
    last_heard: Instant,
    echoed: bool,
}

impl Silence {
    pub fn new(now: Instant, interval: Duration) -> Self {
        Self { interval, last_heard: now, echoed: false }
    }

    #[inline]
    pub fn heard(&mut self, now: Instant) {
        (self.last_heard, self.echoed) = (now, false);
    }

    /// When to send an ECHO to the target, or to give it up.
    pub fn ends(&self) -> Instant {
        self.last_heard + self.interval * if self.echoed { 2 } else { 1 }
    }

    /// Sends an ECHO to the target, or gives it up, if it is time.
    pub fn check(&mut self, now: Instant, link: &mut Link) -> Result<(), Violation> {
        if now < self.ends() {
            return Ok(());
        }
        if self.echoed {
            return Err(Violation::timed_out("the target is silent"));
        }
        self.echoed = true;
        login::echo(link);
        Ok(())
    }
}
