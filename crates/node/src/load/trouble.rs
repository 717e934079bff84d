//! Turns the errors of the path to a unit into failures that a user can act on.

use iotax_proto::{IoError, Refusal, Violation, ViolationKind};

use super::worker::Trouble;
use crate::{
    errno,
    failure::{Failure, FailureKind},
    node::CloseReason,
};

pub(super) fn failure(trouble: Trouble, place: &str) -> Failure {
    match trouble {
        Trouble::Violation(found) => violation(&found, place),
        Trouble::Io(IoError::ConnectionLost, _) => {
            Failure::new(FailureKind::Lost, "the connection ended with I/Os under way", place)
        }
        Trouble::Io(error, offset) => {
            let at = offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
            Failure::new(failed_io(&error), format!("the target failed I/O{at}: {error}"), place)
        }
        Trouble::Wrong(wrong) => {
            let kind = if wrong.of_later_run { FailureKind::InUse } else { FailureKind::Verify };
            Failure::new(kind, wrong.to_string(), place)
        }
        Trouble::Misuse(misuse) => Failure::new(FailureKind::Internal, misuse.to_string(), place),
    }
}

pub(super) fn violation(found: &Violation, place: &str) -> Failure {
    let kind = match found.kind {
        ViolationKind::Refused(refusal) => refused(refusal, FailureKind::Denied),
        ViolationKind::TimedOut => FailureKind::Lost,
        ViolationKind::Malformed | ViolationKind::Misbehaved | ViolationKind::Unsupported => FailureKind::Protocol,
    };
    Failure::new(kind, found.to_string(), place)
}

/// The kind of a refusal, or `otherwise` if the status of the other side does not determine it.
fn refused(refusal: Refusal, otherwise: FailureKind) -> FailureKind {
    match refusal {
        Refusal::NotFound => FailureKind::NotFound,
        Refusal::WrongKind => FailureKind::WrongKind,
        Refusal::Denied => FailureKind::Denied,
        Refusal::Unauthenticated => FailureKind::Unauthenticated,
        Refusal::Busy => FailureKind::Busy,
        Refusal::InUse => FailureKind::InUse,
        Refusal::ReadOnly => FailureKind::ReadOnly,
        Refusal::Full => FailureKind::DiskFull,
        Refusal::Inaccessible => FailureKind::Unreachable,
        Refusal::Other => otherwise,
    }
}

fn failed_io(error: &IoError) -> FailureKind {
    match error {
        IoError::Failed { refusal, .. } => refused(*refusal, FailureKind::Io),
        IoError::ConnectionLost | IoError::Aborted | IoError::Unsupported => FailureKind::Io,
    }
}

/// A connection that ended unexpectedly.
pub(super) fn closed(reason: &CloseReason, opening: bool, place: &str) -> Failure {
    let (kind, message) = match reason {
        CloseReason::Ended if opening => {
            (FailureKind::Lost, "the peer closed the connection before I/O could begin".into())
        }
        CloseReason::Ended => (FailureKind::Lost, "the peer closed the connection".into()),
        CloseReason::Failed(error) => match *error {
            errno::ECONNREFUSED => (FailureKind::Refused, "connection refused: nothing listens there".into()),
            errno::ENETUNREACH | errno::EHOSTUNREACH | errno::ETIMEDOUT if opening => {
                (FailureKind::Unreachable, format!("the host cannot be reached (errno {error})"))
            }
            _ => (FailureKind::Lost, format!("the connection was lost (errno {error})")),
        },
    };
    Failure::new(kind, message, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_told_alike_at_the_door_and_later() {
        let cases = [
            (Refusal::NotFound, FailureKind::NotFound),
            (Refusal::WrongKind, FailureKind::WrongKind),
            (Refusal::Denied, FailureKind::Denied),
            (Refusal::Unauthenticated, FailureKind::Unauthenticated),
            (Refusal::Busy, FailureKind::Busy),
            (Refusal::InUse, FailureKind::InUse),
            (Refusal::ReadOnly, FailureKind::ReadOnly),
            (Refusal::Full, FailureKind::DiskFull),
            (Refusal::Inaccessible, FailureKind::Unreachable),
        ];
        for (refusal, kind) in cases {
            assert_eq!(violation(&Violation::refused(refusal, "no such file; read-only"), "there").kind, kind);
            assert_eq!(of_io(refusal), kind);
        }
        assert_eq!(violation(&Violation::refused(Refusal::Other, "no such file"), "there").kind, FailureKind::Denied);
        assert_eq!(of_io(Refusal::Other), FailureKind::Io);
    }

    #[test]
    fn a_full_or_read_only_file_system_below_a_local_file_is_told() {
        let cases = [(28, FailureKind::DiskFull), (122, FailureKind::DiskFull), (30, FailureKind::ReadOnly)];
        for (number, kind) in [(5, FailureKind::Io), (13, FailureKind::Denied)].into_iter().chain(cases) {
            assert_eq!(of_io(errno::refusal(number)), kind, "errno {number}");
        }
    }

    fn of_io(refusal: Refusal) -> FailureKind {
        let error = IoError::Failed { status: 1, refusal, what: "no space left; read-only" };
        failure(Trouble::Io(error, Some(0)), "there").kind
    }
}
