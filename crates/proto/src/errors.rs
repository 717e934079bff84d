//! What can go wrong between two sides of a protocol, as types: nobody reads a message to decide anything.

use core::fmt;

/// Why the other side would not do what it was asked, as far as its status tells. Set where a status is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such target, unit, export or file.
    NotFound,
    /// It is there, but nothing that can be read and written in blocks: no disk, no regular file.
    WrongKind,
    /// This initiator, host or user may not.
    Denied,
    /// It wants proof of who we are, or did not prove who it is.
    Unauthenticated,
    /// It cannot now, and may later.
    Busy,
    /// Somebody else has reserved it.
    InUse,
    ReadOnly,
    /// No space is left, or a quota is reached.
    Full,
    /// What the status tells is none of these.
    Other,
}

/// Why an I/O did not succeed, as the initiator's caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The target answered with an error; `status` is the protocol's own code (NVMe status field, SCSI sense `KKCCQQ`, nfsstat3).
    #[error("{what} (status {status:#x})")]
    Failed { status: u32, refusal: Refusal, what: &'static str },
    #[error("the connection ended before the I/O completed")]
    ConnectionLost,
    #[error("aborted")]
    Aborted,
    /// The protocol has no such operation, or the target declined it at set-up.
    #[error("not supported by this target")]
    Unsupported,
}

/// A call that the caller should not have made; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    #[error("no credit left, or the session is not ready")]
    NoCredit,
    #[error("the tag is in use or beyond the depth")]
    BadTag,
    #[error("the range is unaligned or outside the unit")]
    BadRange,
}

/// Why a backend could not do an operation; each command set maps it to its own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("no such unit")]
    NoUnit,
    #[error("range outside the unit")]
    OutOfRange,
    #[error("the unit is read-only")]
    ReadOnly,
    /// First differing byte of the data sent.
    #[error("data differ at byte {0}")]
    Miscompare(u32),
    #[error("medium error")]
    Medium,
    #[error("no space left")]
    NoSpace,
    #[error("out of resources for now")]
    Busy,
    #[error("aborted")]
    Aborted,
}

/// A peer broke a rule of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: ViolationKind,
    /// The rule with its source, such as `"RFC 7143 §11.8: R2T beyond MaxOutstandingR2T"`.
    pub rule: &'static str,
    /// Bytes into the PDU at fault, where that says something.
    pub at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The bytes are no PDU.
    Malformed,
    /// A PDU that may not come now, or says what may not be said.
    Misbehaved,
    /// Right, but not implemented here.
    Unsupported,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer refused us: login, connect or mount.
    Refused(Refusal),
}

impl Violation {
    pub fn new(kind: ViolationKind, rule: &'static str) -> Self {
        Self { kind, rule, at: None }
    }

    pub fn malformed(rule: &'static str) -> Self {
        Self::new(ViolationKind::Malformed, rule)
    }

    pub fn misbehaved(rule: &'static str) -> Self {
        Self::new(ViolationKind::Misbehaved, rule)
    }

    pub fn refused(refusal: Refusal, rule: &'static str) -> Self {
        Self::new(ViolationKind::Refused(refusal), rule)
    }

    #[must_use]
    pub fn at(mut self, byte: u32) -> Self {
        self.at = Some(byte);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ViolationKind::Refused(_) => write!(f, "Refused: {}", self.rule)?,
            kind => write!(f, "{kind:?}: {}", self.rule)?,
        }
        if let Some(at) = self.at {
            write!(f, " (byte {at})")?;
        }
        Ok(())
    }
}

impl core::error::Error for Violation {}
