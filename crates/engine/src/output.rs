//! JSON lines on standard output.

use std::io::Write as _;

use iotax_node::failure::Failure;

use crate::{document::Event, failure};

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
