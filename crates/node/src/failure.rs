//! Failures: why a task of a node ended without its result, in the terms of the engine's interface.

/// The kinds of error lines; see `docs/reference/engine.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    Usage,
    Refused,
    Unreachable,
    NotFound,
    /// A LUN that is not a disk, a path that is not a regular file.
    WrongKind,
    Denied,
    /// The server requires authentication, or failed to authenticate itself.
    Unauthenticated,
    /// The server cannot do it now, but may do it later.
    Busy,
    ReadOnly,
    TooSmall,
    ForeignData,
    /// Someone else uses it: it is mounted, locked, reserved, or written by another run.
    InUse,
    /// Not the file that was checked before.
    Swapped,
    Lost,
    Protocol,
    Verify,
    DiskFull,
    PortTaken,
    /// The requested start time has already passed.
    Late,
    /// What was done for an event was not undone.
    NotUndone,
    Io,
    Internal,
}

impl FailureKind {
    /// Its name in an error line.
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
            Self::NotUndone => "not_undone",
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
    /// The endpoint, field or worker that failed.
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
