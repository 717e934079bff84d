//! What went wrong on the way to a unit, as failures that a user can act on.

use iotax_proto::{IoError, Violation, ViolationKind};

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
        ViolationKind::Refused => refusal(found.rule),
        ViolationKind::TimedOut => FailureKind::Lost,
        ViolationKind::Malformed | ViolationKind::Misbehaved | ViolationKind::Unsupported => FailureKind::Protocol,
    };
    Failure::new(kind, found.to_string(), place)
}

/// What was refused, as far as the words of the protocol's machines tell.
fn refusal(rule: &str) -> FailureKind {
    const NOT_FOUND: [&str; 6] =
        ["no such", "NQN right?", "Invalid Namespace", "LOGICAL UNIT NOT SUPPORTED", "no MOUNT", "no NFS"];
    let rule_says = |words: &[&str]| words.iter().any(|words| rule.contains(words));
    if rule_says(&NOT_FOUND) {
        FailureKind::NotFound
    } else if rule_says(&["read-only"]) {
        FailureKind::ReadOnly
    } else if rule_says(&["no space"]) {
        FailureKind::DiskFull
    } else {
        FailureKind::Denied
    }
}

/// What an I/O failed of, as far as the words of the protocols' statuses tell.
fn failed_io(error: &IoError) -> FailureKind {
    const READ_ONLY: [&str; 3] = ["read-only", "Write Protected", "WRITE PROTECTED"];
    const FULL: [&str; 4] = ["no space", "quota", "Capacity Exceeded", "SPACE ALLOCATION FAILED"];
    let IoError::Failed { what, .. } = error else { return FailureKind::Io };
    let what_says = |words: &[&str]| words.iter().any(|words| what.contains(words));
    if what_says(&READ_ONLY) {
        FailureKind::ReadOnly
    } else if what_says(&FULL) {
        FailureKind::DiskFull
    } else {
        FailureKind::Io
    }
}

/// A connection that ended although nobody here asked for it.
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
