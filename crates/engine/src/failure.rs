//! Turns system errors into failures in the terms of the engine's interface.

use iotax_node::failure::{Failure, FailureKind};
use iotax_runtime::disk::DiskError;

/// A failed system call on `place`: a file, an address.
pub(crate) fn io(error: &std::io::Error, place: impl Into<String>) -> Failure {
    Failure::new(kind_of(error), error.to_string(), place)
}

pub(crate) fn kind_of(error: &std::io::Error) -> FailureKind {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => FailureKind::PortTaken,
        std::io::ErrorKind::StorageFull => FailureKind::DiskFull,
        std::io::ErrorKind::NotFound => FailureKind::NotFound,
        std::io::ErrorKind::PermissionDenied => FailureKind::Denied,
        std::io::ErrorKind::ReadOnlyFilesystem => FailureKind::ReadOnly,
        std::io::ErrorKind::ConnectionRefused => FailureKind::Refused,
        _ => FailureKind::Io,
    }
}

pub(crate) fn disk(error: &DiskError, place: String) -> Failure {
    let kind = match error {
        DiskError::Io { source, .. } => kind_of(source),
        DiskError::WrongKind { .. } => FailureKind::Usage,
        DiskError::InUse { .. } => FailureKind::InUse,
        DiskError::Swapped { .. } => FailureKind::Swapped,
        DiskError::NoSpace { .. } | DiskError::NoRoom { .. } => FailureKind::DiskFull,
    };
    Failure::new(kind, error.to_string(), place)
}

/// A failure that the user did not cause.
pub(crate) fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Internal, error.to_string(), "engine")
}
