//! JSON lines on standard output.

use std::io::Write as _;

use crate::document::Event;

/// Writes one line. A reader that went away ends the process: nobody is left to measure for.
pub(crate) fn emit(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("plain data, whose keys are strings");
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(1);
    }
}
