//! Lines for people, on standard error. They may be lost. They never delay a thread or end the process, even if the
//! reader is gone.

use std::{
    io::Write as _,
    sync::{
        OnceLock,
        mpsc::{self, SyncSender},
    },
    time::{Duration, Instant},
};

/// Maximum number of lines that wait for a slow reader; more are dropped.
const WAITING_MAX: usize = 256;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(200);

/// Maximum number of lines about peers per second, so that a peer that keeps sending invalid data does not fill a disk.
const OF_PEERS_MAX: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

enum Entry {
    Line(String),
    /// A line that a peer caused.
    OfPeer(String),
    /// Confirms that all earlier lines are written.
    Mark(mpsc::Sender<()>),
}

static LOG: OnceLock<Option<SyncSender<Entry>>> = OnceLock::new();

/// Queues a line to be written.
pub(crate) fn line(text: String) {
    send(Entry::Line(text));
}

/// Queues a line that a peer caused, unless there are too many.
pub(crate) fn line_of_peer(text: String) {
    send(Entry::OfPeer(text));
}

fn send(entry: Entry) {
    if let Some(log) = LOG.get_or_init(start) {
        let _ = log.try_send(entry);
    }
}

/// Gives waiting lines a moment to be written before the process ends.
pub(crate) fn finish() {
    if let Some(Some(log)) = LOG.get() {
        let (mark, written) = mpsc::channel();
        if log.try_send(Entry::Mark(mark)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

/// Starts the thread that writes: standard error may be a pipe without a reader, or a file on a full disk.
fn start() -> Option<SyncSender<Entry>> {
    let (sender, entries) = mpsc::sync_channel(WAITING_MAX);
    let write = move || {
        let mut of_peers = Limit::new(Instant::now());
        while let Ok(entry) = entries.recv() {
            match entry {
                Entry::Line(text) => {
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
                Entry::OfPeer(text) => {
                    for line in of_peers.lines(text, Instant::now()) {
                        let _ = writeln!(std::io::stderr(), "{line}");
                    }
                }
                Entry::Mark(mark) => {
                    let _ = mark.send(());
                }
            }
        }
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(write).ok().map(|_| sender)
}

/// Limits the lines about peers.
struct Limit {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Limit {
    fn new(now: Instant) -> Self {
        Self { since: now, written: 0, left_out: 0 }
    }

    /// The lines to write: this line if there is room for it, and before it the number of lines left out.
    fn lines(&mut self, line: String, now: Instant) -> Vec<String> {
        if now.duration_since(self.since) >= SECOND {
            let before = std::mem::replace(self, Self::new(now));
            self.written = 1;
            let left_out =
                (before.left_out > 0).then(|| format!("{} more lines about peers left out", before.left_out));
            return left_out.into_iter().chain([line]).collect();
        }
        if self.written == OF_PEERS_MAX {
            self.left_out += 1;
            return Vec::new();
        }
        self.written += 1;
        vec![line]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_peers_are_limited_within_a_second_and_the_others_counted() {
        let begin = Instant::now();
        let mut limit = Limit::new(begin);
        let written: usize = (0..1000).map(|_| limit.lines("odd".to_owned(), begin).len()).sum();
        assert_eq!(written, OF_PEERS_MAX as usize);
        assert_eq!(limit.lines("odd".to_owned(), begin + SECOND), ["980 more lines about peers left out", "odd"]);
        assert_eq!(limit.lines("odd".to_owned(), begin + 2 * SECOND), ["odd"]);
    }
}
