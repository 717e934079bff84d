//! The document on the first line of standard input, and the commands on the lines after it.

use std::{
    io::{BufRead as _, IsTerminal as _, Read as _},
    time::Duration,
};

use serde::de::DeserializeOwned;

use iotax_node::failure::Failure;

use crate::{failure, lease};

/// Maximum length of a document.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;
/// The caller has the document ready when it starts a process; a lease begins only with the document.
const DOCUMENT_WITHIN: Duration = Duration::from_secs(15);

pub(crate) fn read_document<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut line = String::new();
    let mut read = || std::io::stdin().lock().take(DOCUMENT_BYTES_MAX).read_line(&mut line);
    let typed = std::io::stdin().is_terminal();
    let outcome = if typed { read() } else { lease::within(DOCUMENT_WITHIN, read) };
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
