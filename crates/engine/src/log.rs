//! Lines for people, on standard error. They may be lost; they never hold a thread up and never end the process, whatever
//! becomes of whoever reads them.

use std::{
    io::Write as _,
    sync::{
        OnceLock,
        mpsc::{self, SyncSender},
    },
    time::Duration,
};

/// Lines that wait for a reader that is slow; more are dropped.
const WAITING_MAX: usize = 256;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(200);

enum Entry {
    Line(String),
    /// All lines before it are written.
    Mark(mpsc::Sender<()>),
}

static LOG: OnceLock<Option<SyncSender<Entry>>> = OnceLock::new();

/// Writes a line, some time.
pub(crate) fn line(text: String) {
    if let Some(log) = LOG.get_or_init(start) {
        let _ = log.try_send(Entry::Line(text));
    }
}

/// Gives the lines that wait a moment to be written, before the process ends.
pub(crate) fn finish() {
    if let Some(Some(log)) = LOG.get() {
        let (mark, written) = mpsc::channel();
        if log.try_send(Entry::Mark(mark)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

/// The thread that writes: standard error may be a pipe that nobody empties, or a file on a full disk.
fn start() -> Option<SyncSender<Entry>> {
    let (sender, entries) = mpsc::sync_channel(WAITING_MAX);
    let write = move || {
        while let Ok(entry) = entries.recv() {
            match entry {
                Entry::Line(text) => {
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
                Entry::Mark(mark) => {
                    let _ = mark.send(());
                }
            }
        }
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(write).ok().map(|_| sender)
}
