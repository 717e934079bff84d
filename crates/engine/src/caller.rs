//! The interface to the caller: a document on the first line of standard input, commands on the lines after it, and JSON
//! lines on standard output.
//!
//! The caller may be gone although its input has not ended: if a host loses its network, the connection may stay open for
//! hours. Then a lease ends the process.

use std::{
    io::{BufRead as _, IsTerminal as _, Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use iotax_node::failure::{Failure, FailureKind};
use iotax_runtime::Clock;
use serde::de::DeserializeOwned;

use crate::{
    document::{ErrorEvent, Event},
    failure, log,
};

/// Maximum length of a document.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;
/// The caller has the document ready when it starts a process; a lease begins only with the document.
const DOCUMENT_WITHIN: Duration = Duration::from_secs(15);

pub(crate) fn read_document<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut line = String::new();
    let mut read = || std::io::stdin().lock().take(DOCUMENT_BYTES_MAX).read_line(&mut line);
    let typed = std::io::stdin().is_terminal();
    let outcome = if typed { read() } else { within(DOCUMENT_WITHIN, read) };
    outcome.map_err(|error| failure::io(&error, "standard input"))?;
    parse(&line)
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T, Failure> {
    if line.trim().is_empty() {
        return Err(Failure::usage("no document: the first line must be a JSON object", "standard input"));
    }
    serde_json::from_str(line)
        .map_err(|error| Failure::usage(error.to_string(), format!("standard input, column {}", error.column())))
}

/// Calls `handle` with every further line, and once with `None` at the end of input. It runs on a separate thread.
pub(crate) fn follow(mut handle: impl FnMut(Option<&str>) + Send + 'static) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) => handle(Some(line.trim())),
                Err(_) => break,
            }
        }
        handle(None);
    });
}

/// Writes one JSON document that is not an event.
pub(crate) fn print(document: &serde_json::Value) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{document:#}").map_err(|error| failure::io(&error, "standard output"))
}

/// Writes the last line: other threads that want to write from now on wait until the process ends.
pub(crate) fn emit_last(event: &Event) {
    let stdout = std::io::stdout().lock();
    emit(event);
    std::mem::forget(stdout);
}

/// Writes one line. If the reader is gone, the process ends, because the caller is gone.
pub(crate) fn emit(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("plain data, whose keys are strings");
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(1);
    }
}

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
        emit_last(&Event::Error(ErrorEvent::of(&failure)));
        log::finish();
        std::process::exit(1);
    });
    std::thread::sleep(LAST_WORDS);
    log::finish();
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::LoadDocument;

    #[test]
    fn document_with_an_unknown_field_is_refused_by_name() {
        let failure = parse::<LoadDocument>(r#"{"task":"idle","runtime_ns":1,"outstandig":4}"#).unwrap_err();
        assert!(failure.message.contains("unknown field `outstandig`"), "{}", failure.message);
    }
}
