//! Translates status and sense data into the result of an I/O.

use crate::{
    IoError, Refusal,
    scsi::sense::{self, Sense, key, status},
};

/// How an initiator treats the end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    Good,
    /// The same command may succeed if sent again: a unit attention condition, or the target is busy.
    Retry(IoError),
    /// The access to the unit changed. The command was not executed, and may be sent again once the access is known.
    AccessChanged(IoError),
    Failed(IoError),
}

/// Classifies a status and its sense data, which may be empty.
pub fn outcome(status: u8, sense_data: &[u8]) -> CommandOutcome {
    match status {
        status::GOOD | status::CONDITION_MET => CommandOutcome::Good,
        status::CHECK_CONDITION => match sense::parse(sense_data) {
            Some(sense) if sense.key == key::RECOVERED_ERROR => CommandOutcome::Good,
            Some(sense) if sense.kcq() == Sense::ACCESS_STATE_CHANGED.kcq() => {
                CommandOutcome::AccessChanged(failure(status, Some(sense)))
            }
            Some(sense) if sense.key == key::UNIT_ATTENTION => CommandOutcome::Retry(failure(status, Some(sense))),
            sense => CommandOutcome::Failed(failure(status, sense)),
        },
        status::BUSY | status::TASK_SET_FULL => CommandOutcome::Retry(failure(status, None)),
        status::TASK_ABORTED => CommandOutcome::Failed(IoError::Aborted),
        _ => CommandOutcome::Failed(failure(status, None)),
    }
}

/// The error of a command: `0x00KKCCQQ` from its sense data, or `0xSS000000` from a status without sense data.
pub fn failure(status: u8, sense: Option<Sense>) -> IoError {
    match sense {
        Some(sense) => {
            IoError::Failed { status: sense.kcq(), refusal: refusal_of_sense(&sense), what: describe(&sense) }
        }
        None => IoError::Failed {
            status: u32::from(status) << 24,
            refusal: refusal_of_status(status),
            what: describe_status(status),
        },
    }
}

fn refusal_of_status(status: u8) -> Refusal {
    match status {
        status::BUSY | status::TASK_SET_FULL | status::ACA_ACTIVE => Refusal::Busy,
        status::RESERVATION_CONFLICT => Refusal::InUse,
        _ => Refusal::Other,
    }
}

/// SPC-5 annex F.
fn refusal_of_sense(sense: &Sense) -> Refusal {
    match (sense.asc, sense.ascq) {
        // Asymmetric access state transition, standby state and unavailable state of the target port.
        (0x04, 0x0a..=0x0c) | (0x2a, 0x06) => Refusal::Inaccessible,
        (0x04, _) => Refusal::Busy,
        // Various reasons for ACCESS DENIED.
        (0x20, 0x01..=0x0b) => Refusal::Denied,
        (0x25, _) => Refusal::NotFound,
        (0x27, 0x07) => Refusal::Full,
        (0x27, _) => Refusal::ReadOnly,
        _ => Refusal::Other,
    }
}

fn describe_status(status: u8) -> &'static str {
    match status {
        status::CHECK_CONDITION => "CHECK CONDITION without sense data",
        status::BUSY => "BUSY",
        status::RESERVATION_CONFLICT => "RESERVATION CONFLICT",
        status::TASK_SET_FULL => "TASK SET FULL",
        status::ACA_ACTIVE => "ACA ACTIVE",
        _ => "unknown SCSI status",
    }
}

/// Names of SPC-5 annex F for codes that block devices return; otherwise the name of the sense key.
fn describe(sense: &Sense) -> &'static str {
    match (sense.asc, sense.ascq) {
        (0x04, 0x01) => "LOGICAL UNIT IS IN PROCESS OF BECOMING READY",
        (0x04, 0x02) => "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED",
        (0x04, 0x0a) => "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION",
        (0x04, 0x0b) => "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE",
        (0x04, 0x0c) => "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE",
        (0x04, _) => "LOGICAL UNIT NOT READY",
        (0x0c, _) => "WRITE ERROR",
        (0x11, _) => "UNRECOVERED READ ERROR",
        (0x1a, 0x00) => "PARAMETER LIST LENGTH ERROR",
        (0x1d, 0x00) => "MISCOMPARE DURING VERIFY OPERATION",
        (0x20, 0x00) => "INVALID COMMAND OPERATION CODE",
        (0x21, 0x00) => "LOGICAL BLOCK ADDRESS OUT OF RANGE",
        (0x24, 0x00) => "INVALID FIELD IN CDB",
        (0x25, 0x00) => "LOGICAL UNIT NOT SUPPORTED",
        (0x26, 0x00) => "INVALID FIELD IN PARAMETER LIST",
        (0x27, 0x07) => "SPACE ALLOCATION FAILED WRITE PROTECT",
        (0x27, _) => "WRITE PROTECTED",
        (0x28, 0x00) => "NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED",
        (0x29, _) => "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
        (0x2a, 0x01) => "MODE PARAMETERS CHANGED",
        (0x2a, 0x06) => "ASYMMETRIC ACCESS STATE CHANGED",
        (0x2a, 0x09) => "CAPACITY DATA HAS CHANGED",
        (0x2a, _) => "PARAMETERS CHANGED",
        (0x3a, _) => "MEDIUM NOT PRESENT",
        (0x3f, 0x0e) => "REPORTED LUNS DATA HAS CHANGED",
        (0x44, 0x00) => "INTERNAL TARGET FAILURE",
        _ => describe_key(sense.key),
    }
}

fn describe_key(key: u8) -> &'static str {
    match key {
        key::NO_SENSE => "NO SENSE",
        key::NOT_READY => "NOT READY",
        key::MEDIUM_ERROR => "MEDIUM ERROR",
        key::HARDWARE_ERROR => "HARDWARE ERROR",
        key::ILLEGAL_REQUEST => "ILLEGAL REQUEST",
        key::UNIT_ATTENTION => "UNIT ATTENTION",
        key::DATA_PROTECT => "DATA PROTECT",
        key::ABORTED_COMMAND => "ABORTED COMMAND",
        key::MISCOMPARE => "MISCOMPARE",
        _ => "unknown sense key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_data_become_the_error_of_the_io() {
        let sense = Sense::LBA_OUT_OF_RANGE.encode();
        let error =
            IoError::Failed { status: 0x05_2100, refusal: Refusal::Other, what: "LOGICAL BLOCK ADDRESS OUT OF RANGE" };
        assert_eq!(outcome(status::CHECK_CONDITION, &sense), CommandOutcome::Failed(error));
    }

    #[test]
    fn unit_attention_and_busy_are_worth_another_try() {
        assert!(matches!(outcome(status::CHECK_CONDITION, &Sense::POWER_ON.encode()), CommandOutcome::Retry(_)));
        let changed = outcome(status::CHECK_CONDITION, &Sense::ACCESS_STATE_CHANGED.encode());
        let CommandOutcome::AccessChanged(IoError::Failed { status: 0x06_2a06, refusal, .. }) = changed else {
            panic!()
        };
        assert_eq!(refusal, Refusal::Inaccessible);
        let busy = IoError::Failed { status: 0x0800_0000, refusal: Refusal::Busy, what: "BUSY" };
        assert_eq!(outcome(status::BUSY, &[]), CommandOutcome::Retry(busy));
    }

    #[test]
    fn what_a_unit_refuses_is_told_by_its_sense_data_and_status() {
        let cases = [
            (Sense::LOGICAL_UNIT_NOT_SUPPORTED, Refusal::NotFound),
            (Sense::WRITE_PROTECTED, Refusal::ReadOnly),
            (Sense::SPACE_ALLOCATION_FAILED, Refusal::Full),
            (Sense::STOPPED, Refusal::Busy),
            (Sense::PORT_IN_TRANSITION, Refusal::Inaccessible),
            (Sense::new(key::NOT_READY, 0x04, 0x0b), Refusal::Inaccessible),
            (Sense::PORT_UNAVAILABLE, Refusal::Inaccessible),
            (Sense::new(key::ILLEGAL_REQUEST, 0x20, 0x02), Refusal::Denied),
            (Sense::INVALID_OPCODE, Refusal::Other),
        ];
        for (sense, wanted) in cases {
            let IoError::Failed { refusal, .. } = failure(status::CHECK_CONDITION, Some(sense)) else { panic!() };
            assert_eq!(refusal, wanted, "{sense:?}");
        }
        let IoError::Failed { refusal, .. } = failure(status::RESERVATION_CONFLICT, None) else { panic!() };
        assert_eq!(refusal, Refusal::InUse);
    }

    #[test]
    fn a_recovered_error_is_success() {
        assert_eq!(
            outcome(status::CHECK_CONDITION, &Sense::new(key::RECOVERED_ERROR, 0x17, 1).encode()),
            CommandOutcome::Good
        );
    }

    #[test]
    fn check_condition_without_sense_data_still_fails() {
        let error = IoError::Failed {
            status: 0x0200_0000,
            refusal: Refusal::Other,
            what: "CHECK CONDITION without sense data",
        };
        assert_eq!(outcome(status::CHECK_CONDITION, &[]), CommandOutcome::Failed(error));
    }
}
