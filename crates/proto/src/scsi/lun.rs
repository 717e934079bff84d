//! Logical unit numbers (SAM-5 §4.7), and what a nexus caches of a logical unit.

use super::{
    access::AccessState,
    cdb::Extent,
    device::{Device, ModeState, NexusId, Provisioning},
    sense::{Fault, Sense},
};
use crate::{Backend, UnitId, reservation::Barred};

/// Decodes a single-level LUN field: peripheral device, flat space or extended flat addressing.
pub fn decode_lun(field: u64) -> Option<u16> {
    let [first, second, third, fourth, rest @ ..] = field.to_be_bytes();
    if rest != [0; 4] {
        return None;
    }
    match first {
        0 if (third, fourth) == (0, 0) => Some(second.into()),
        0x40..=0x7f if (third, fourth) == (0, 0) => Some(u16::from_be_bytes([first & 0x3f, second])),
        0xd2 if second == 0 => Some(u16::from_be_bytes([third, fourth])),
        _ => None,
    }
}

/// Encodes a LUN field; the inverse of `decode_lun`.
pub fn encode_lun(lun: u16) -> u64 {
    match lun {
        0..=0xff => u64::from(lun) << 48,
        0x100..=0x3fff => u64::from(lun | 0x4000) << 48,
        _ => 0xd200 << 48 | u64::from(lun) << 32,
    }
}

/// The data of a logical unit that a nexus caches, so that reads and writes take no lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LunView {
    pub(crate) lun: u16,
    pub(crate) unit: UnitId,
    pub(crate) blocks: u64,
    pub(crate) block_size: u32,
    pub(crate) max_io_blocks: u32,
    pub(crate) read_only: bool,
    pub(crate) provisioning: Provisioning,
    pub(crate) mode: ModeState,
    pub(crate) physical_block_exponent: u8,
    pub(crate) erasable: bool,
    /// A unit attention condition is pending.
    pub(crate) attention: bool,
    /// The access through the nexus's target port; `None` without target port groups.
    pub(crate) access: Option<AccessState>,
    /// The commands that reservations of others, or a missing access, forbid to this nexus.
    pub(crate) barred: Barred,
}

impl LunView {
    /// All logical units of `device` whose volumes exist, sorted by LUN.
    pub(crate) fn all(device: &Device, nexus: NexusId, backend: &dyn Backend) -> alloc::vec::Vec<Self> {
        let access = device.access(nexus);
        let is_shut = access.is_some_and(|state| state.refusal().is_some());
        let views = device.luns.iter().filter_map(|unit| {
            let geometry = backend.geometry(unit.config.unit)?;
            let block_size = geometry.block_size.max(1);
            Some(Self {
                lun: unit.config.lun,
                unit: unit.config.unit,
                blocks: geometry.size_bytes / u64::from(block_size),
                block_size,
                max_io_blocks: (geometry.max_io_bytes / block_size).max(1),
                read_only: geometry.read_only,
                provisioning: unit.config.provisioning,
                mode: unit.mode,
                physical_block_exponent: unit.config.physical_block_exponent,
                erasable: unit.config.erasable,
                attention: device.has_attention(nexus, unit.config.lun),
                access,
                barred: if is_shut { Barred::ALL } else { device.barred(nexus, unit) },
            })
        });
        views.collect()
    }

    /// Whether only the commands of `Class::Always` are executed.
    pub(crate) fn is_shut(&self) -> bool {
        self.access.and_then(AccessState::refusal).is_some()
    }

    /// Why a command is not executed that the view bars.
    #[cold]
    pub(crate) fn why_barred(&self) -> Fault {
        let refusal = self.access.and_then(AccessState::refusal);
        refusal.map_or(Fault::RESERVATION_CONFLICT, Fault::Check)
    }

    pub(crate) fn is_thin(&self) -> bool {
        matches!(self.provisioning, Provisioning::Thin { .. })
    }

    /// Unmapped blocks read as zeros (LBPRZ).
    pub(crate) fn unmapped_reads_zero(&self) -> bool {
        self.provisioning == Provisioning::Thin { reads_zero: true }
    }

    pub(crate) fn is_write_protected(&self) -> bool {
        self.read_only || self.mode.software_write_protect
    }

    pub(crate) fn check_writable(&self) -> Result<(), Fault> {
        if self.is_write_protected() { Err(Sense::WRITE_PROTECTED.into()) } else { Ok(()) }
    }

    /// Fails with LBA OUT OF RANGE if the extent starts or ends beyond the last block, even if it is empty (SBC-4
    /// §5.11).
    pub(crate) fn check_extent(&self, extent: Extent) -> Result<(), Fault> {
        match extent.lba.checked_add(extent.blocks.into()) {
            Some(end) if extent.lba < self.blocks && end <= self.blocks => Ok(()),
            _ => Err(Sense::LBA_OUT_OF_RANGE.into()),
        }
    }

    pub(crate) fn offset_of(&self, lba: u64) -> u64 {
        lba * u64::from(self.block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luns_of_every_addressing_method_survive_the_wire() {
        for lun in [0, 1, 255, 256, 0x3fff, 0x4000, u16::MAX] {
            assert_eq!(decode_lun(encode_lun(lun)), Some(lun), "LUN {lun}");
        }
    }

    #[test]
    fn luns_of_other_levels_and_methods_are_not_ours() {
        for field in [0x0000_0001_0000_0000, 0x0000_0000_0000_0001, 0x0100_0000_0000_0000, 0xc101_0000_0000_0000] {
            assert_eq!(decode_lun(field), None, "{field:#x}");
        }
    }
}
