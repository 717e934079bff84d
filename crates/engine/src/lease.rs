//! Ends a process whose caller is gone although its input has not ended: if a host loses its network, the connection
//! may stay open for hours.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use iotax_node::failure::{Failure, FailureKind};
use iotax_runtime::Clock;

use crate::{document::Event, failure, log, output};

/// Number of checks of a lease within its length.
const LOOKS: u32 = 8;

/// Maximum time for writing the last line.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs `wait`, which waits for the caller; ends the process if that takes longer than `limit`.
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

/// A lease, renewed by each line received. Without a length it never expires.
#[derive(Clone)]
pub(crate) struct Lease {
    clock: Clock,
    heard_ns: Arc<AtomicU64>,
    held: Arc<AtomicBool>,
}

impl Lease {
    /// Starts a lease: the process ends when no line is received for `lease_ns`.
    pub(crate) fn start(lease_ns: Option<u64>) -> Self {
        let lease = Self { clock: Clock::start(), heard_ns: Arc::default(), held: Arc::default() };
        if let Some(lease_ns) = lease_ns {
            let watched = lease.clone();
            std::thread::spawn(move || watched.watch(lease_ns));
        }
        lease
    }

    pub(crate) fn renew(&self) {
        self.heard_ns.store(self.clock.now().0, Ordering::Relaxed);
    }

    /// From now on it never expires.
    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn watch(&self, lease_ns: u64) {
        loop {
            std::thread::sleep(Duration::from_nanos(lease_ns) / LOOKS);
            if self.is_held() {
                return;
            }
            if self.clock.now().0.saturating_sub(self.heard_ns.load(Ordering::Relaxed)) > lease_ns {
                give_up(Duration::from_nanos(lease_ns));
            }
        }
    }
}

fn give_up(silent: Duration) -> ! {
    end(format!("received nothing for {} s: the caller is gone", silent.as_secs_f64()))
}

/// Ends the process because standard input ended before the task: the caller is gone.
pub(crate) fn input_ended() -> ! {
    end("standard input ended before the task: keep it open until the result is printed".to_owned())
}

fn end(message: String) -> ! {
    // The reader may be gone, and then writing blocks; the process must end anyway.
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
