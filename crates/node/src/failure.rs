//! Why a task of a node ended without its result, in the terms of the engine's interface.

/// The kinds of error lines, see `docs/reference/engine.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    Usage,
    Refused,
    Unreachable,
    NotFound,
    /// A LUN that is not a disk, a path that is not a regular file.
    WrongKind,
    Denied,
    /// The server wants proof of who we are, or did not prove who it is.
    Unauthenticated,
    /// The server cannot now, and may later.
    Busy,
    ReadOnly,
    TooSmall,
    ForeignData,
    /// Somebody else uses it: mounted, locked, reserved, written by another run.
    InUse,
    /// Another file than the one that was judged.
    Swapped,
    Lost,
    Protocol,
    Verify,
    DiskFull,
    PortTaken,
    /// Told to start at a time that had passed.
    Late,
    Io,
    Internal,
}

impl FailureKind {
    /// As it stands in an error line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::NotFound => "not_found",
            Self::WrongKind => "wrong_kind",
            Self::Denied => "denied",
            Self::Unauthenticated => "unauthenticated",
            Self::Busy => "busy",
            Self::ReadOnly => "read_only",
            Self::TooSmall => "too_small",
            Self::ForeignData => "foreign_data",
            Self::InUse => "in_use",
            Self::Swapped => "swapped",
            Self::Lost => "lost",
            Self::Protocol => "protocol",
            Self::Verify => "verify",
            Self::DiskFull => "disk_full",
            Self::PortTaken => "port_taken",
            Self::Late => "late",
            Self::Io => "io",
            Self::Internal => "internal",
        }
    }
}

/// What failed, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({place})")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    /// The endpoint, the field or the worker that it is about.
    pub place: String,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>, place: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: place.into() }
    }

    pub fn usage(message: impl Into<String>, place: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message, place)
    }
}
