//! The possible results of the check of a block.

use crate::pattern::{Copied, Stamp};

/// What a correct block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All zeros: it was not written yet.
    NeverWritten,
    Ours(Stamp),
    /// Data of a copy, which records neither offset nor writer.
    Copy(Copied),
}

/// A block that cannot be what was written there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {at}: expected {expected}, found {found}", if *of_later_run { "another run writes here" } else { "wrong data" })]
pub struct Wrong {
    /// Offset of the pattern block in its unit, bytes.
    pub at: u64,
    pub expected: String,
    pub found: String,
    /// It was written by a run that began after this one: the unit is not at fault.
    pub of_later_run: bool,
}

pub(super) fn describe(stamp: Stamp) -> String {
    format!("run {:#x}, writer {}, sequence {}", stamp.run, stamp.writer, stamp.sequence)
}

pub(super) fn describe_copy(number: u32) -> String {
    format!("copy {number}, which many places hold")
}
