//! Ends a process whose master is gone without its input having ended: a host that lost its network keeps the connection for hours.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use iotax_node::failure::{Failure, FailureKind};
use iotax_runtime::Clock;

use crate::{document::Event, failure, log, output};

/// How many times in its length a lease is looked at.
const LOOKS: u32 = 8;

/// How long the last line may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs `wait`, which waits for whoever started this process; ends the process where that takes longer than `limit`.
pub(crate) fn within<T>(limit: Duration, wait: impl FnOnce() -> T) -> T {
    let (came, waiting) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            give_up(limit);
        }
    });
    let value = wait();
    drop(came);
    value
}

/// Renewed by each line received. Without a length it never ends.
#[derive(Clone)]
pub(crate) struct Lease {
    clock: Clock,
    heard_ns: Arc<AtomicU64>,
}

impl Lease {
    /// From now on the process ends when nothing is received for `lease_ns`.
    pub(crate) fn start(lease_ns: Option<u64>) -> Self {
        let lease = Self { clock: Clock::start(), heard_ns: Arc::default() };
        if let Some(lease_ns) = lease_ns {
            let watched = lease.clone();
            std::thread::spawn(move || watched.watch(lease_ns));
        }
        lease
    }

    pub(crate) fn renew(&self) {
        self.heard_ns.store(self.clock.now().0, Ordering::Relaxed);
    }

    fn watch(&self, lease_ns: u64) {
        loop {
            std::thread::sleep(Duration::from_nanos(lease_ns) / LOOKS);
            if self.clock.now().0.saturating_sub(self.heard_ns.load(Ordering::Relaxed)) > lease_ns {
                give_up(Duration::from_nanos(lease_ns));
            }
        }
    }
}

fn give_up(silent: Duration) -> ! {
    end(format!("heard nothing for {} s: whoever started this is gone", silent.as_secs_f64()))
}

/// Standard input ended before the task did: the caller is gone.
pub(crate) fn input_ended() -> ! {
    end("standard input ended before the task did: keep it open until the result has come".to_owned())
}

fn end(message: String) -> ! {
    // Nobody may be left to read it, and then writing waits: the end does not.
    std::thread::spawn(move || {
        let failure = Failure::new(FailureKind::Lost, message, "standard input");
        output::emit_last(&Event::Error(failure::event(&failure)));
        log::finish();
        std::process::exit(1);
    });
    std::thread::sleep(LAST_WORDS);
    log::finish();
    std::process::exit(1);
}
