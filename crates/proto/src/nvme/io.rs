//! I/O commands of the NVM command set (1.1 §3.3) as operations of a backend.

use alloc::vec::Vec;

use super::{Namespace, Sqe, Status, command::nvm, identify, reserve};
use crate::reservation::Barred;
use crate::{Backend, UnitId, UnitOp};

/// Length of one Dataset Management range in bytes.
const RANGE_LEN: usize = 16;
/// Maximum bytes of ranges in one command: their number is a byte and 0's based.
pub const RANGES_LEN_MAX: u32 = 256 * RANGE_LEN as u32;
const DSM_DEALLOCATE: u32 = 1 << 2;

/// The namespaces as an I/O queue knows them, indexed by NSID. The table is rebuilt when the subsystem's generation
/// changes.
#[derive(Debug, Default)]
pub struct NamespaceTable {
    entries: Vec<Option<Entry>>,
    /// The namespaces that are not accessible, and the status of their commands. They have no entry.
    refused: Option<(Vec<u32>, Status)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    unit: UnitId,
    block_shift: u8,
    /// The commands that reservations of other hosts forbid to this queue's host.
    barred: Barred,
}

/// A parsed I/O command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Ready to start. It takes or returns data according to its kind.
    Op { unit: UnitId, op: UnitOp },
    /// Takes `len` bytes of ranges; then `deallocation` returns the operation.
    Ranges { len: u32 },
    /// Takes `len` bytes of keys; then `Subsystem::reserve` executes it.
    Reserve { len: u32 },
    /// Returns `len` bytes of Reservation Report.
    Report { len: u32 },
}

impl NamespaceTable {
    /// Rebuilds the table from the namespaces and what their reservations forbid to the host. `refused` is the status of
    /// all commands while the namespaces are not accessible (NVMe base 2.1 §8.1.1.6).
    pub fn load<'a, B: Backend + ?Sized>(
        &mut self,
        namespaces: impl IntoIterator<Item = (&'a Namespace, Barred)>,
        refused: Option<Status>,
        backend: &B,
    ) {
        self.entries.clear();
        self.refused = refused.map(|status| (Vec::new(), status));
        for (namespace, barred) in namespaces {
            if let Some((refused, _)) = &mut self.refused {
                refused.push(namespace.nsid);
                continue;
            }
            let index = namespace.nsid as usize;
            if self.entries.len() <= index {
                self.entries.resize(index + 1, None);
            }
            self.entries[index] = backend.geometry(namespace.unit).map(|geometry| Entry {
                unit: namespace.unit,
                block_shift: identify::block_size(&geometry).ilog2() as u8,
                barred,
            });
        }
    }

    /// Status of commands for a namespace without an entry.
    #[cold]
    fn refusal(&self, nsid: u32) -> Status {
        let refused = self.refused.as_ref().filter(|(refused, _)| refused.contains(&nsid));
        refused.map_or(Status::INVALID_NAMESPACE.do_not_retry(), |(_, status)| *status)
    }

    fn entry(&self, sqe: &Sqe) -> Result<&Entry, Status> {
        let entry = self.entries.get(sqe.nsid() as usize).and_then(Option::as_ref);
        // NSID FFFFFFFFh has none: VWC says that a flush of all namespaces is not supported (NVMe base 2.1 §7.2).
        entry.ok_or_else(|| self.refusal(sqe.nsid()))
    }

    /// Parses a command; `Err` is the status that rejects it.
    pub fn parse(&self, sqe: &Sqe, max_transfer_bytes: u32) -> Result<Command, Status> {
        let entry = *self.entry(sqe)?;
        let op = match sqe.opcode() {
            nvm::READ => {
                entry.check_reads()?;
                let (offset, len) = entry.transfer(sqe, max_transfer_bytes)?;
                UnitOp::Read { offset, len, durable: sqe.is_durable() }
            }
            nvm::WRITE => {
                entry.check_changes()?;
                let (offset, len) = entry.transfer(sqe, max_transfer_bytes)?;
                UnitOp::Write { offset, len, durable: sqe.is_durable() }
            }
            nvm::FLUSH => {
                entry.check_changes()?;
                UnitOp::Flush
            }
            nvm::COMPARE => {
                entry.check_reads()?;
                let (offset, len) = entry.transfer(sqe, max_transfer_bytes)?;
                UnitOp::Compare { offset, len, durable: sqe.is_durable() }
            }
            nvm::WRITE_ZEROES => {
                entry.check_changes()?;
                let offset = entry.bytes(sqe.lba())?;
                let len = u64::from(sqe.blocks()) << entry.block_shift;
                UnitOp::WriteZeroes { offset, len, durable: sqe.is_durable() }
            }
            nvm::DATASET_MANAGEMENT => {
                entry.check_changes()?;
                return Ok(Command::Ranges { len: range_count(sqe) * RANGE_LEN as u32 });
            }
            _ => return parse_reservation(sqe, max_transfer_bytes),
        };
        Ok(Command::Op { unit: entry.unit, op })
    }

    /// Returns the operation for the ranges of a Dataset Management command, which are at the start of `data`; `None`
    /// if they are hints without effect.
    pub fn deallocation(&self, sqe: &Sqe, data: &[u8]) -> Result<Option<(UnitId, UnitOp)>, Status> {
        let entry = self.entry(sqe)?;
        // The namespace may have been reserved since the command arrived.
        entry.check_changes()?;
        let (raw, _) = data.as_chunks::<RANGE_LEN>();
        let mut ranges = Vec::with_capacity(raw.len());
        for [_, _, _, _, l0, l1, l2, l3, lba @ ..] in raw.iter().take(range_count(sqe) as usize) {
            let offset = entry.bytes(u64::from_le_bytes(*lba))?;
            let len = entry.bytes(u64::from(u32::from_le_bytes([*l0, *l1, *l2, *l3])))?;
            if len > 0 {
                ranges.push((offset, len));
            }
        }
        let deallocates = sqe.cdw(11) & DSM_DEALLOCATE != 0 && !ranges.is_empty();
        // The command has no FUA bit, and the volatile write cache is always on, so only a Flush makes it durable.
        Ok(deallocates.then_some((entry.unit, UnitOp::Unmap { ranges, durable: false })))
    }
}

impl Entry {
    #[inline]
    fn check_reads(self) -> Result<(), Status> {
        if self.barred.reads { Err(Status::RESERVATION_CONFLICT.do_not_retry()) } else { Ok(()) }
    }

    #[inline]
    fn check_changes(self) -> Result<(), Status> {
        if self.barred.changes { Err(Status::RESERVATION_CONFLICT.do_not_retry()) } else { Ok(()) }
    }

    #[inline]
    fn transfer(self, sqe: &Sqe, max_bytes: u32) -> Result<(u64, u32), Status> {
        let len = u64::from(sqe.blocks()) << self.block_shift;
        // NVMe base 2.1, MDTS: a command that exceeds it is aborted with Invalid Field in Command.
        if len > u64::from(max_bytes) {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        Ok((self.bytes(sqe.lba())?, len as u32))
    }

    #[inline]
    fn bytes(self, blocks: u64) -> Result<u64, Status> {
        blocks.checked_mul(1 << self.block_shift).ok_or(Status::LBA_OUT_OF_RANGE.do_not_retry())
    }
}

/// Parses a reservation command; all other opcodes are invalid.
#[cold]
fn parse_reservation(sqe: &Sqe, max_transfer_bytes: u32) -> Result<Command, Status> {
    if let Some(len) = reserve::keys_len(sqe.opcode()) {
        return Ok(Command::Reserve { len });
    }
    if sqe.opcode() != nvm::RESERVATION_REPORT {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    // NUMD is 0's based.
    let len = (u64::from(sqe.cdw(10)) + 1) * 4;
    if len > u64::from(max_transfer_bytes) {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    Ok(Command::Report { len: len as u32 })
}

fn range_count(sqe: &Sqe) -> u32 {
    (sqe.cdw(10) & 0xff) + 1
}

/// Encodes a Dataset Management range that deallocates, as a host sends it.
pub fn encode_range(lba: u64, blocks: u32) -> [u8; RANGE_LEN] {
    let mut range = [0; RANGE_LEN];
    range[4..8].copy_from_slice(&blocks.to_le_bytes());
    range[8..].copy_from_slice(&lba.to_le_bytes());
    range
}

/// Turns `sqe` into a Dataset Management command that deallocates one range.
pub fn set_deallocate_one(sqe: &mut Sqe) {
    sqe.set_cdw(10, 0);
    sqe.set_cdw(11, DSM_DEALLOCATE);
}
