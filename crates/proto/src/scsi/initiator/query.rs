//! Commands before I/O: what is sent, and their answers as they arrive.

use alloc::vec::Vec;

use super::CdbBytes;
use crate::{IoError, Refusal, Violation};

/// How often a command is resent after a unit attention condition or a busy target. Each condition is reported once.
pub(super) const TRIES_MAX: u32 = 16;

/// A command whose response is expected.
#[derive(Clone, Copy, Debug)]
pub struct ProbeCommand {
    pub cdb: CdbBytes,
    /// Maximum length of the response data in bytes.
    pub len: u16,
}

/// Adds response data to an answer of limited length; false if they are out of order or longer.
pub(super) fn add(answer: &mut Vec<u8>, len_max: u16, offset: u32, bytes: &[u8]) -> bool {
    let fits = offset as usize == answer.len() && answer.len() + bytes.len() <= len_max.into();
    if fits {
        answer.extend_from_slice(bytes);
    }
    fits
}

pub(super) fn refused(error: &IoError) -> Violation {
    match error {
        IoError::Failed { refusal, what, .. } => Violation::refused(*refusal, what),
        _ => Violation::refused(Refusal::Other, "the logical unit does not answer"),
    }
}
