//! CDBs and parameter lists (SPC-5 §6, SBC-4 §5).

use alloc::vec::Vec;

use crate::Reserve;

/// A CDB, filled with zeros to the sixteen bytes that iSCSI and FCP carry.
pub type CdbBytes = [u8; 16];

/// Bytes of one descriptor in an UNMAP parameter list, and of its header.
const UNMAP_DESCRIPTOR_LEN: usize = 16;
const UNMAP_HEADER_LEN: usize = 8;

/// Of PERSISTENT RESERVE OUT: service actions, a type, and the length of the parameter list.
const RESERVE: u8 = 0x01;
const PREEMPT_AND_ABORT: u8 = 0x05;
const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 0x06;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 0x05;
const RESERVE_PARAMETERS_LEN: u8 = 24;

const FUA: u8 = 0x08;

fn cdb<const N: usize>(bytes: [u8; N]) -> CdbBytes {
    let mut cdb = [0; 16];
    cdb[..N].copy_from_slice(&bytes);
    cdb
}

pub fn test_unit_ready() -> CdbBytes {
    cdb([0x00])
}

/// Standard INQUIRY data.
pub fn inquiry(allocation_len: u16) -> CdbBytes {
    let [high, low] = allocation_len.to_be_bytes();
    cdb([0x12, 0, 0, high, low])
}

/// A page of vital product data.
pub fn inquiry_vpd(page: u8, allocation_len: u16) -> CdbBytes {
    let [high, low] = allocation_len.to_be_bytes();
    cdb([0x12, 1, page, high, low])
}

/// The answer has eight bytes.
pub fn read_capacity_10() -> CdbBytes {
    cdb([0x25])
}

pub fn read_capacity_16(allocation_len: u32) -> CdbBytes {
    let mut cdb = cdb([0x9e, 0x10]);
    cdb[10..14].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

pub fn report_luns(allocation_len: u32) -> CdbBytes {
    let mut cdb = cdb([0xa0]);
    cdb[6..10].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

/// Current values of a mode page, without block descriptors; 3Fh asks for all pages.
pub fn mode_sense_6(page: u8, allocation_len: u8) -> CdbBytes {
    cdb([0x1a, 0x08, page, 0, allocation_len])
}

/// READ (10), or (16) where the blocks do not fit it.
pub fn read(lba: u64, blocks: u32) -> CdbBytes {
    block_command(0x28, 0x88, 0, lba, blocks)
}

/// WRITE (10), or (16) where the blocks do not fit it.
pub fn write(lba: u64, blocks: u32, fua: bool) -> CdbBytes {
    block_command(0x2a, 0x8a, if fua { FUA } else { 0 }, lba, blocks)
}

#[allow(clippy::inline_always)] // 14 instructions of an I/O; whether `inline` is heeded hangs on what else is compiled.
#[inline(always)]
fn block_command(opcode_10: u8, opcode_16: u8, flags: u8, lba: u64, blocks: u32) -> CdbBytes {
    let (Ok(short_lba), Ok(short_blocks)) = (u32::try_from(lba), u16::try_from(blocks)) else {
        return block_command_16(opcode_16, flags, lba, blocks);
    };
    let mut cdb = cdb([opcode_10, flags]);
    cdb[2..6].copy_from_slice(&short_lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&short_blocks.to_be_bytes());
    cdb
}

fn block_command_16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> CdbBytes {
    let mut cdb = cdb([opcode, flags]);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The whole cache.
pub fn synchronize_cache_10() -> CdbBytes {
    cdb([0x35])
}

/// With its parameter list (SPC-5 §6.17.2 and §6.17.3); the type is Write Exclusive, Registrants Only.
pub fn persistent_reserve_out(reserve: Reserve) -> (CdbBytes, Vec<u8>) {
    let (action, key, action_key) = match reserve {
        Reserve::Register { key } => (REGISTER_AND_IGNORE_EXISTING_KEY, 0, key),
        Reserve::Hold { key } => (RESERVE, key, 0),
        Reserve::PreemptAndAbort { key, victim } => (PREEMPT_AND_ABORT, key, victim),
    };
    let mut parameters = Vec::with_capacity(RESERVE_PARAMETERS_LEN.into());
    parameters.extend_from_slice(&key.to_be_bytes());
    parameters.extend_from_slice(&action_key.to_be_bytes());
    parameters.resize(RESERVE_PARAMETERS_LEN.into(), 0);
    (cdb([0x5f, action, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, 0, 0, 0, 0, 0, RESERVE_PARAMETERS_LEN]), parameters)
}

/// The whole cache.
pub fn synchronize_cache_16() -> CdbBytes {
    cdb([0x91])
}

/// UNMAP with a parameter list of `list_len` bytes.
pub fn unmap(list_len: u16) -> CdbBytes {
    let [high, low] = list_len.to_be_bytes();
    cdb([0x42, 0, 0, 0, 0, 0, 0, high, low])
}

/// Parameter list of UNMAP: each range is an LBA and a number of blocks. More ranges than fit the list (4095) are a bug.
pub fn unmap_parameters(ranges: &[(u64, u32)]) -> Vec<u8> {
    let descriptors_len = ranges.len() * UNMAP_DESCRIPTOR_LEN;
    let field = |len: usize| u16::try_from(len).expect("at most 4095 ranges fit an UNMAP list").to_be_bytes();
    let mut list = Vec::with_capacity(UNMAP_HEADER_LEN + descriptors_len);
    list.extend_from_slice(&field(descriptors_len + UNMAP_HEADER_LEN - 2));
    list.extend_from_slice(&field(descriptors_len));
    list.extend_from_slice(&[0; 4]);
    for (lba, blocks) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

/// WRITE SAME (16) of one block of data-out; with `unmap` the blocks may be unmapped where they then read as that block.
pub fn write_same_16(lba: u64, blocks: u32, unmap: bool) -> CdbBytes {
    block_command_16(0x93, if unmap { 0x08 } else { 0 }, lba, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_take_the_short_form_where_it_fits() {
        assert_eq!(read(0x0102_0304, 0x0506)[..10], [0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]);
        assert_eq!(write(1, 1, true)[..10], [0x2a, 8, 0, 0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(read(1 << 32, 1), [0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(write(0, 1 << 16, false), [0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn unmap_list_tells_its_lengths() {
        let list = unmap_parameters(&[(5, 2), (1 << 40, 7)]);
        assert_eq!(list.len(), 40);
        assert_eq!(list[..4], [0, 38, 0, 32]);
        assert_eq!(list[8..20], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2]);
    }
}
