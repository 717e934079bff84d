//! Queries before a logical unit is used (is it present, is it a disk, its size, is it writable), and I/Os as commands.

use alloc::{string::String, vec::Vec};

use super::{
    AccessQuery, Asked, Capacity, CdbBytes, CommandOutcome, Inquiry, ProbeCommand, inquiry, inquiry_vpd, mode_sense_6,
    outcome, parse_block_limits, parse_capacity_10, parse_capacity_16, parse_inquiry, parse_serial,
    parse_target_port_group, parse_write_protect, persistent_reserve_out,
    query::{TRIES_MAX, add, refused},
    read, read_capacity_10, read_capacity_16, synchronize_cache_10, test_unit_ready, unmap, unmap_parameters, write,
    write_same_16,
};
use crate::{Geometry, Io, IoError, Misuse, Payload, Refusal, Violation, scsi::AccessState};

const ANSWER_LEN_MAX: u8 = 252;
/// Maximum length of the Device Identification page. Arrays list many designators.
const IDENTIFICATION_LEN_MAX: u16 = 4096;

/// The queries, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeStep {
    TestUnitReady,
    Inquiry,
    ReadCapacity16,
    ReadCapacity10,
    ModeSense,
    BlockLimits,
    SerialNumber,
    DeviceIdentification,
    PortGroups,
}

/// The state of the queries after a response.
#[derive(Debug)]
pub enum Probed {
    Ask(ProbeCommand),
    /// The target gives no access through this port; `resume` once it does.
    NoAccess,
    Known(Geometry),
}

/// The queries in progress.
#[derive(Debug)]
pub struct Probe {
    step: ProbeStep,
    tries: u32,
    answer: Vec<u8>,
    max_io_len: u32,
    capacity: Option<Capacity>,
    read_only: bool,
    max_transfer_blocks: u32,
    inquiry: Option<Inquiry>,
    serial: Option<String>,
    /// Whether the access through the target port is asked for, if it is reported.
    watches_access: bool,
    access: Option<(AccessQuery, AccessState)>,
}

impl Probe {
    /// Starts the queries; also returns the first command. With `watches_access`, they include the access through the
    /// target port.
    pub fn begin(max_io_len: u32, watches_access: bool) -> (Self, ProbeCommand) {
        let mut probe = Self {
            step: ProbeStep::TestUnitReady,
            tries: 0,
            answer: Vec::new(),
            max_io_len,
            capacity: None,
            read_only: false,
            max_transfer_blocks: 0,
            inquiry: None,
            serial: None,
            watches_access,
            access: None,
        };
        let first = probe.ask(ProbeStep::TestUnitReady);
        (probe, first)
    }

    /// Returns the INQUIRY data and the unit serial number.
    pub fn identity(&self) -> (Option<Inquiry>, Option<String>) {
        (self.inquiry.clone(), self.serial.clone())
    }

    /// Returns the access through the target port, and how to ask for it again; `None` if it is not reported.
    pub fn take_access(&mut self) -> Option<(AccessQuery, AccessState)> {
        self.access.take()
    }

    /// Continues after `NoAccess`, now that there is access.
    pub fn resume(&mut self) -> ProbeCommand {
        self.tries = 0;
        self.ask(ProbeStep::TestUnitReady)
    }

    /// Adds response data; false if they are out of order or longer than requested.
    pub fn data(&mut self, offset: u32, bytes: &[u8]) -> bool {
        match (self.step, &mut self.access) {
            (ProbeStep::PortGroups, Some((query, _))) => query.data(offset, bytes),
            (ProbeStep::DeviceIdentification, _) => add(&mut self.answer, IDENTIFICATION_LEN_MAX, offset, bytes),
            _ => add(&mut self.answer, ANSWER_LEN_MAX.into(), offset, bytes),
        }
    }

    /// Processes the end of a response; returns the geometry once all queries are done.
    pub fn end(&mut self, status: u8, sense: &[u8]) -> Result<Probed, Violation> {
        if let (ProbeStep::PortGroups, Some((query, state))) = (self.step, &mut self.access) {
            return match query.end(status, sense)? {
                Asked::Again(command) => Ok(Probed::Ask(command)),
                Asked::Known(known) => {
                    *state = known;
                    Ok(if known.is_accessible() { self.next(ProbeStep::ReadCapacity16) } else { Probed::NoAccess })
                }
            };
        }
        let failed = match outcome(status, sense) {
            CommandOutcome::Good => None,
            CommandOutcome::Retry(_) | CommandOutcome::AccessChanged(_) if self.tries < TRIES_MAX => {
                return Ok(Probed::Ask(self.ask(self.step)));
            }
            CommandOutcome::Failed(IoError::Failed { refusal: Refusal::Inaccessible, .. })
                if self.watches_access && (self.inquiry.is_none() || self.is_asymmetric()) =>
            {
                // INQUIRY is answered without access (SPC-4 §5.15).
                let is_known = self.access.is_some();
                return Ok(self.next(if is_known { ProbeStep::PortGroups } else { ProbeStep::Inquiry }));
            }
            CommandOutcome::Retry(error) | CommandOutcome::AccessChanged(error) | CommandOutcome::Failed(error) => {
                Some(error)
            }
        };
        let answer = core::mem::take(&mut self.answer);
        let asks_access = self.watches_access && self.is_asymmetric();
        let next = match (self.step, failed) {
            (ProbeStep::TestUnitReady, None) => ProbeStep::Inquiry,
            (ProbeStep::Inquiry, None) => {
                let inquiry = parse_inquiry(&answer).ok_or(SHORT)?;
                let is_there = inquiry.is_connected || self.watches_access && inquiry.is_asymmetric;
                if !is_there || inquiry.device_type != 0 {
                    return Err(Violation::refused(Refusal::WrongKind, "the LUN is not a block device"));
                }
                let asks_access = self.watches_access && inquiry.is_asymmetric;
                self.inquiry = Some(inquiry);
                if asks_access { ProbeStep::SerialNumber } else { ProbeStep::ReadCapacity16 }
            }
            (ProbeStep::ReadCapacity16, Some(_)) => ProbeStep::ReadCapacity10,
            (ProbeStep::ReadCapacity16, None) => {
                self.capacity = Some(parse_capacity_16(&answer).ok_or(SHORT)?);
                ProbeStep::ModeSense
            }
            (ProbeStep::ReadCapacity10, None) => {
                self.capacity = Some(parse_capacity_10(&answer).ok_or(SHORT)?);
                ProbeStep::ModeSense
            }
            // These pages are optional. Without them the device counts as writable and unlimited.
            (ProbeStep::ModeSense, failed) => {
                self.read_only = failed.is_none() && parse_write_protect(&answer) == Some(true);
                ProbeStep::BlockLimits
            }
            (ProbeStep::BlockLimits, failed) => {
                let limits = parse_block_limits(&answer).filter(|_| failed.is_none()).unwrap_or_default();
                self.max_transfer_blocks = limits.max_transfer_blocks;
                if asks_access {
                    return self.geometry(self.max_transfer_blocks).map(Probed::Known);
                }
                ProbeStep::SerialNumber
            }
            (ProbeStep::SerialNumber, failed) => {
                self.serial = parse_serial(&answer).filter(|_| failed.is_none());
                if !asks_access {
                    return self.geometry(self.max_transfer_blocks).map(Probed::Known);
                }
                ProbeStep::DeviceIdentification
            }
            (ProbeStep::DeviceIdentification, failed) => {
                let group = parse_target_port_group(&answer).filter(|_| failed.is_none());
                self.access = group.map(|group| (AccessQuery::of(group), AccessState::Transitioning));
                self.watches_access = group.is_some();
                if group.is_some() { ProbeStep::PortGroups } else { ProbeStep::ReadCapacity16 }
            }
            (_, Some(error)) => return Err(refused(&error)),
            (ProbeStep::PortGroups, None) => ProbeStep::ReadCapacity16,
        };
        Ok(self.next(next))
    }

    fn next(&mut self, step: ProbeStep) -> Probed {
        self.tries = 0;
        Probed::Ask(self.ask(step))
    }

    fn is_asymmetric(&self) -> bool {
        self.inquiry.as_ref().is_some_and(|inquiry| inquiry.is_asymmetric)
    }

    fn geometry(&self, max_transfer_blocks: u32) -> Result<Geometry, Violation> {
        let capacity = self.capacity.filter(|capacity| capacity.block_size.is_power_of_two()).ok_or(SHORT)?;
        let size_bytes = capacity.blocks.checked_mul(capacity.block_size.into()).ok_or(SHORT)?;
        let told = if max_transfer_blocks == 0 { u32::MAX } else { max_transfer_blocks };
        let max_io_bytes = told.saturating_mul(capacity.block_size).min(self.max_io_len);
        Ok(Geometry { size_bytes, block_size: capacity.block_size, max_io_bytes, read_only: self.read_only })
    }

    fn ask(&mut self, step: ProbeStep) -> ProbeCommand {
        let len = u16::from(ANSWER_LEN_MAX);
        self.step = step;
        self.tries += 1;
        self.answer.clear();
        let (cdb, len): (CdbBytes, u16) = match step {
            ProbeStep::TestUnitReady => (test_unit_ready(), 0),
            ProbeStep::Inquiry => (inquiry(len), len),
            ProbeStep::ReadCapacity16 => (read_capacity_16(32), 32),
            ProbeStep::ReadCapacity10 => (read_capacity_10(), 8),
            ProbeStep::ModeSense => (mode_sense_6(ALL_PAGES, ANSWER_LEN_MAX), len),
            ProbeStep::BlockLimits => (inquiry_vpd(BLOCK_LIMITS, len), len),
            ProbeStep::SerialNumber => (inquiry_vpd(UNIT_SERIAL_NUMBER, len), len),
            ProbeStep::DeviceIdentification => {
                (inquiry_vpd(DEVICE_IDENTIFICATION, IDENTIFICATION_LEN_MAX), IDENTIFICATION_LEN_MAX)
            }
            ProbeStep::PortGroups => {
                let query = self.access.as_mut().map(|(query, _)| query.begin());
                return query.expect("a target port group");
            }
        };
        ProbeCommand { cdb, len }
    }
}

/// The mode page code for all pages (SPC-5 §6.14), and vital product data pages (SPC-5 §7.7, SBC-4 §6.6).
const ALL_PAGES: u8 = 0x3f;
const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const BLOCK_LIMITS: u8 = 0xb0;

const SHORT: Violation = malformed!("SPC-5 §6: data that are too short or make no sense");

#[derive(Debug)]
pub struct Job {
    pub cdb: CdbBytes,
    pub read_len: u32,
    pub data: Option<Payload>,
}

impl Job {
    /// Builds the command. `zero_block` is a block of zeros, for WRITE SAME.
    pub fn new(io: Io, geometry: &Geometry, zero_block: &Payload) -> Result<Self, Misuse> {
        let block_size = geometry.block_size;
        let blocks = |offset: u64, len: u64| {
            let end = offset.checked_add(len).ok_or(Misuse::BadRange)?;
            let aligned = (offset | len).is_multiple_of(block_size.into());
            if len == 0 || !aligned || end > geometry.size_bytes {
                return Err(Misuse::BadRange);
            }
            let count = u32::try_from(len / u64::from(block_size)).map_err(|_| Misuse::BadRange)?;
            Ok((offset / u64::from(block_size), count))
        };
        let fits = |len: usize| if len <= geometry.max_io_bytes as usize { Ok(()) } else { Err(Misuse::BadRange) };
        Ok(match io {
            Io::Read { offset, len } => {
                fits(len as usize)?;
                let (lba, count) = blocks(offset, len.into())?;
                Self { cdb: read(lba, count), read_len: len, data: None }
            }
            Io::Write { offset, data, durable } => {
                fits(data.len())?;
                let (lba, count) = blocks(offset, data.len() as u64)?;
                Self { cdb: write(lba, count, durable), read_len: 0, data: Some(data) }
            }
            Io::Flush => Self { cdb: synchronize_cache_10(), read_len: 0, data: None },
            Io::WriteZeroes { offset, len } => {
                let (lba, count) = blocks(offset, len.into())?;
                Self { cdb: write_same_16(lba, count, false), read_len: 0, data: Some(zero_block.clone()) }
            }
            Io::Unmap { offset, len } => {
                let range = blocks(offset, len.into())?;
                let list = unmap_parameters(&[range]);
                Self { cdb: unmap(list.len() as u16), read_len: 0, data: Some(Payload::from_vec(list)) }
            }
            Io::Reserve(reserve) => {
                let (cdb, list) = persistent_reserve_out(reserve);
                Self { cdb, read_len: 0, data: Some(Payload::from_vec(list)) }
            }
        })
    }
}
