//! What is asked of a logical unit before it is used: is it there, is it a disk, how large, may it be written.

use alloc::{string::String, vec::Vec};

use super::{
    Config,
    link::{Link, control_itt},
};
use crate::{
    Geometry, IoError, Refusal, Violation, ViolationKind,
    iscsi::pdu::{ScsiCommand, command::ATTRIBUTE_SIMPLE},
    scsi::initiator::{self, Capacity, CdbBytes, Inquiry, Outcome},
};

/// Times that a command is sent again for a unit attention condition or a busy target; each condition is reported once.
const TRIES_MAX: u32 = 16;
const ANSWER_LEN_MAX: u8 = 252;

/// The commands, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    TestUnitReady,
    Inquiry,
    ReadCapacity16,
    ReadCapacity10,
    ModeSense,
    BlockLimits,
    SerialNumber,
}

/// The questions under way.
#[derive(Debug)]
pub(super) struct Probe {
    step: Step,
    tries: u32,
    lun: u64,
    answer: Vec<u8>,
    max_io_len: u32,
    capacity: Option<Capacity>,
    read_only: bool,
    max_transfer_blocks: u32,
    inquiry: Option<Inquiry>,
    serial: Option<String>,
}

impl Probe {
    /// Sends the first question.
    pub(super) fn begin(config: &Config, lun: u64, link: &mut Link) -> Self {
        let mut probe = Self {
            step: Step::TestUnitReady,
            tries: 0,
            lun,
            answer: Vec::new(),
            max_io_len: config.max_io_len,
            capacity: None,
            read_only: false,
            max_transfer_blocks: 0,
            inquiry: None,
            serial: None,
        };
        probe.ask(Step::TestUnitReady, link);
        probe
    }

    /// INQUIRY data and the unit serial number.
    pub(super) fn take_identity(&mut self) -> (Option<Inquiry>, Option<String>) {
        (self.inquiry.take(), self.serial.take())
    }

    /// Data of the answer.
    pub(super) fn data(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Violation> {
        if offset as usize != self.answer.len() || self.answer.len() + bytes.len() > ANSWER_LEN_MAX.into() {
            return Err(Violation::misbehaved("RFC 7143 §11.7: data out of order or beyond what was expected").at(40));
        }
        self.answer.extend_from_slice(bytes);
        Ok(())
    }

    /// The end of the answer; gives the geometry once all is known.
    pub(super) fn end(&mut self, status: u8, sense: &[u8], link: &mut Link) -> Result<Option<Geometry>, Violation> {
        let failed = match initiator::outcome(status, sense) {
            Outcome::Good => None,
            Outcome::Retry(_) if self.tries < TRIES_MAX => {
                self.ask(self.step, link);
                return Ok(None);
            }
            Outcome::Retry(error) | Outcome::Failed(error) => Some(error),
        };
        let answer = core::mem::take(&mut self.answer);
        let next = match (self.step, failed) {
            (Step::TestUnitReady, None) => Step::Inquiry,
            (Step::Inquiry, None) => {
                let inquiry = initiator::parse_inquiry(&answer).ok_or(SHORT)?;
                if !inquiry.is_connected || inquiry.device_type != 0 {
                    return Err(Violation::refused(Refusal::WrongKind, "the LUN is no block device"));
                }
                self.inquiry = Some(inquiry);
                Step::ReadCapacity16
            }
            (Step::ReadCapacity16, Some(_)) => Step::ReadCapacity10,
            (Step::ReadCapacity16, None) => {
                self.capacity = Some(initiator::parse_capacity_16(&answer).ok_or(SHORT)?);
                Step::ModeSense
            }
            (Step::ReadCapacity10, None) => {
                self.capacity = Some(initiator::parse_capacity_10(&answer).ok_or(SHORT)?);
                Step::ModeSense
            }
            // What a device need not have is taken as not limited.
            (Step::ModeSense, failed) => {
                self.read_only = failed.is_none() && initiator::parse_write_protect(&answer) == Some(true);
                Step::BlockLimits
            }
            (Step::BlockLimits, failed) => {
                let limits = initiator::parse_block_limits(&answer).filter(|_| failed.is_none()).unwrap_or_default();
                self.max_transfer_blocks = limits.max_transfer_blocks;
                Step::SerialNumber
            }
            (Step::SerialNumber, failed) => {
                self.serial = initiator::parse_serial(&answer).filter(|_| failed.is_none());
                return self.geometry(self.max_transfer_blocks).map(Some);
            }
            (_, Some(error)) => return Err(refused(&error)),
        };
        self.tries = 0;
        self.ask(next, link);
        Ok(None)
    }

    fn geometry(&self, max_transfer_blocks: u32) -> Result<Geometry, Violation> {
        let capacity = self.capacity.filter(|capacity| capacity.block_size.is_power_of_two()).ok_or(SHORT)?;
        let size_bytes = capacity.blocks.checked_mul(capacity.block_size.into()).ok_or(SHORT)?;
        let told = if max_transfer_blocks == 0 { u32::MAX } else { max_transfer_blocks };
        let max_io_bytes = told.saturating_mul(capacity.block_size).min(self.max_io_len);
        Ok(Geometry { size_bytes, block_size: capacity.block_size, max_io_bytes, read_only: self.read_only })
    }

    fn ask(&mut self, step: Step, link: &mut Link) {
        let len = ANSWER_LEN_MAX;
        let (cdb, len): (CdbBytes, u8) = match step {
            Step::TestUnitReady => (initiator::test_unit_ready(), 0),
            Step::Inquiry => (initiator::inquiry(len.into()), len),
            Step::ReadCapacity16 => (initiator::read_capacity_16(32), 32),
            Step::ReadCapacity10 => (initiator::read_capacity_10(), 8),
            Step::ModeSense => (initiator::mode_sense_6(0x3f, len), len),
            Step::BlockLimits => (initiator::inquiry_vpd(0xb0, len.into()), len),
            Step::SerialNumber => (initiator::inquiry_vpd(0x80, len.into()), len),
        };
        self.step = step;
        self.tries += 1;
        self.answer.clear();
        let command = ScsiCommand {
            last: true,
            read: len > 0,
            attribute: ATTRIBUTE_SIMPLE,
            lun: self.lun,
            itt: control_itt::PROBE,
            expected_data_len: len.into(),
            cmd_sn: link.take_cmd_sn(),
            exp_stat_sn: link.exp_stat_sn,
            cdb,
            ..ScsiCommand::default()
        };
        link.header(&command.encode());
    }
}

const SHORT: Violation =
    Violation { kind: ViolationKind::Malformed, rule: "SPC-5 §6: data that are too short or make no sense", at: None };

fn refused(error: &IoError) -> Violation {
    match error {
        IoError::Failed { refusal, what, .. } => Violation::refused(*refusal, what),
        _ => Violation::refused(Refusal::Other, "the logical unit does not answer"),
    }
}
