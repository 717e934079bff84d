//! CDBs and parameter lists (SPC-5 §6, SBC-4 §5), and parsers for the data of set-up commands. A parser returns `None`
//! if the data are too short for the fields that it reads.

use alloc::{string::String, vec::Vec};

use crate::{
    Reserve,
    scsi::AccessState,
    wire::{Reader, printable},
};

/// A CDB padded with zeros to the sixteen bytes that iSCSI and FCP carry.
pub type CdbBytes = [u8; 16];

/// Lengths in an UNMAP parameter list: one descriptor, and the header.
const UNMAP_DESCRIPTOR_LEN: usize = 16;
const UNMAP_HEADER_LEN: usize = 8;

/// PERSISTENT RESERVE OUT: service actions, a reservation type, and the length of the parameter list.
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

/// INQUIRY for standard data.
pub fn inquiry(allocation_len: u16) -> CdbBytes {
    let [high, low] = allocation_len.to_be_bytes();
    cdb([0x12, 0, 0, high, low])
}

/// INQUIRY for a vital product data page.
pub fn inquiry_vpd(page: u8, allocation_len: u16) -> CdbBytes {
    let [high, low] = allocation_len.to_be_bytes();
    cdb([0x12, 1, page, high, low])
}

/// READ CAPACITY (10). The response has eight bytes.
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

/// REPORT TARGET PORT GROUPS with a header of the length only.
pub fn report_target_port_groups(allocation_len: u32) -> CdbBytes {
    let mut cdb = cdb([0xa3, 0x0a]);
    cdb[6..10].copy_from_slice(&allocation_len.to_be_bytes());
    cdb
}

/// MODE SENSE (6) for the current values of a mode page, without block descriptors; 3Fh requests all pages.
pub fn mode_sense_6(page: u8, allocation_len: u8) -> CdbBytes {
    cdb([0x1a, 0x08, page, 0, allocation_len])
}

/// READ (10), or READ (16) if the extent does not fit.
pub fn read(lba: u64, blocks: u32) -> CdbBytes {
    block_command(0x28, 0x88, 0, lba, blocks)
}

/// WRITE (10), or WRITE (16) if the extent does not fit.
pub fn write(lba: u64, blocks: u32, fua: bool) -> CdbBytes {
    block_command(0x2a, 0x8a, if fua { FUA } else { 0 }, lba, blocks)
}

#[allow(clippy::inline_always)] // saves 14 instructions per I/O; `inline` alone is not reliable.
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

/// SYNCHRONIZE CACHE (10) for the whole cache.
pub fn synchronize_cache_10() -> CdbBytes {
    cdb([0x35])
}

/// PERSISTENT RESERVE OUT and its parameter list (SPC-5 §6.17.2 and §6.17.3). The type is Write Exclusive, Registrants
/// Only.
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

/// SYNCHRONIZE CACHE (16) for the whole cache.
pub fn synchronize_cache_16() -> CdbBytes {
    cdb([0x91])
}

/// UNMAP with a parameter list of `list_len` bytes.
pub fn unmap(list_len: u16) -> CdbBytes {
    let [high, low] = list_len.to_be_bytes();
    cdb([0x42, 0, 0, 0, 0, 0, 0, high, low])
}

/// Parameter list of UNMAP: each range is an LBA and a number of blocks. Panics if there are more ranges than fit the
/// list (4095).
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

/// WRITE SAME (16) with one block of data-out. With `unmap` the target may unmap the blocks if they then read as that
/// block.
pub fn write_same_16(lba: u64, blocks: u32, unmap: bool) -> CdbBytes {
    block_command_16(0x93, if unmap { 0x08 } else { 0 }, lba, blocks)
}

/// The fields of standard INQUIRY data that an initiator needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// A device is connected (PERIPHERAL QUALIFIER 000b).
    pub is_connected: bool,
    /// PERIPHERAL DEVICE TYPE; 0 is a block device.
    pub device_type: u8,
    /// The device has target port groups (TPGS is not 0).
    pub is_asymmetric: bool,
    pub vendor: String,
    pub product: String,
    pub revision: String,
}

pub fn parse_inquiry(data: &[u8]) -> Option<Inquiry> {
    let text = |range: core::ops::Range<usize>| {
        let field = data.get(range)?;
        Some(printable(without_padding(field)))
    };
    let first = data.first()?;
    Some(Inquiry {
        is_connected: first >> 5 == 0,
        device_type: first & 0x1f,
        is_asymmetric: data.get(5)? & 0x30 != 0,
        vendor: text(8..16)?,
        product: text(16..32)?,
        revision: text(32..36)?,
    })
}

/// The unit serial number page (SPC-5 §7.7.19).
pub fn parse_serial(data: &[u8]) -> Option<String> {
    let (&[_, 0x80, high, low], rest) = data.split_first_chunk()? else { return None };
    let serial = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    let start = serial.iter().take_while(|byte| is_padding(**byte)).count();
    Some(printable(without_padding(&serial[start..])))
}

fn is_padding(byte: u8) -> bool {
    matches!(byte, b' ' | 0)
}

fn without_padding(field: &[u8]) -> &[u8] {
    let padding = field.iter().rev().take_while(|byte| is_padding(**byte)).count();
    &field[..field.len() - padding]
}

/// Size of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub blocks: u64,
    pub block_size: u32,
    /// LBPME: blocks may be unmapped.
    pub is_thin: bool,
    /// LBPRZ: unmapped blocks read as zeros.
    pub unmapped_reads_zero: bool,
}

/// Parses READ CAPACITY (10). If `blocks` is 2^32, the size requires READ CAPACITY (16).
pub fn parse_capacity_10(data: &[u8]) -> Option<Capacity> {
    let mut reader = Reader::new(data);
    let last = reader.u32_be().ok()?;
    let block_size = reader.u32_be().ok()?;
    Some(Capacity { blocks: u64::from(last) + 1, block_size, is_thin: false, unmapped_reads_zero: false })
}

pub fn parse_capacity_16(data: &[u8]) -> Option<Capacity> {
    let mut reader = Reader::new(data);
    let blocks = reader.u64_be().ok()?.checked_add(1)?;
    let block_size = reader.u32_be().ok()?;
    // Devices without provisioning support may return only twelve bytes.
    let flags = data.get(14).copied().unwrap_or(0);
    Some(Capacity { blocks, block_size, is_thin: flags & 0x80 != 0, unmapped_reads_zero: flags & 0x40 != 0 })
}

/// The Block Limits page (B0h). 0 means that the device reports no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    pub max_transfer_blocks: u32,
    pub max_unmap_blocks: u32,
    pub max_unmap_descriptors: u32,
    pub max_write_same_blocks: u64,
}

/// Parses the Block Limits page. Older devices send a short page; fields beyond its end are 0.
pub fn parse_block_limits(data: &[u8]) -> Option<BlockLimits> {
    let body = vpd_body(data, 0xb0)?;
    let field =
        |at: usize| body.get(at - 4..at).and_then(|bytes| bytes.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b));
    Some(BlockLimits {
        max_transfer_blocks: field(8),
        max_unmap_blocks: field(20),
        max_unmap_descriptors: field(24),
        max_write_same_blocks: u64::from(field(36)) << 32 | u64::from(field(40)),
    })
}

/// Parses the list of vital product data pages that the device supports.
pub fn parse_vpd_pages(data: &[u8]) -> Option<Vec<u8>> {
    vpd_body(data, 0x00).map(<[u8]>::to_vec)
}

/// A page without its header of four bytes. It may be truncated.
fn vpd_body(data: &[u8], page: u8) -> Option<&[u8]> {
    let (header, body) = data.split_at_checked(4)?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    (header[1] == page).then(|| body.get(..len).unwrap_or(body))
}

/// The target port group of the target port, in the Device Identification page (SPC-5 §7.7.6.8). The page may be
/// truncated.
pub fn parse_target_port_group(data: &[u8]) -> Option<u16> {
    /// The association with a target port, and the type.
    const PORT_GROUP: u8 = 0x10 | 0x05;
    let mut rest = vpd_body(data, 0x83)?;
    while let [_, kind, _, len, after @ ..] = rest {
        let (designator, next) = after.split_at_checked((*len).into())?;
        if let (PORT_GROUP, &[_, _, high, low]) = (kind & 0x3f, designator) {
            return Some(u16::from_be_bytes([high, low]));
        }
        rest = next;
    }
    None
}

/// The state of a target port group in the data of REPORT TARGET PORT GROUPS, which may be truncated; `None` if they do
/// not contain the group, or not its state.
pub fn parse_access_state(data: &[u8], group: u16) -> Option<AccessState> {
    let (len, rest) = data.split_first_chunk()?;
    let mut rest = rest.get(..u32::from_be_bytes(*len) as usize).unwrap_or(rest);
    while let [state, _, high, low, _, _, _, ports, after @ ..] = rest {
        if u16::from_be_bytes([*high, *low]) == group {
            return AccessState::parse(state & 0x0f);
        }
        rest = after.get(4 * usize::from(*ports)..)?;
    }
    None
}

/// Parses the LUN fields of REPORT LUNS. The list may be truncated.
pub fn parse_report_luns(data: &[u8]) -> Option<Vec<u64>> {
    let mut reader = Reader::new(data);
    let len = reader.u32_be().ok()? as usize;
    reader.skip(4).ok()?;
    let mut luns = Vec::new();
    while luns.len() < len / 8 {
        let Ok(lun) = reader.u64_be() else { break };
        luns.push(lun);
    }
    Some(luns)
}

/// Parses WP in the header of MODE SENSE (6).
pub fn parse_write_protect(data: &[u8]) -> Option<bool> {
    data.get(2).map(|specific| specific & 0x80 != 0)
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

#[cfg(test)]
mod parsers_tests {
    use super::*;

    #[test]
    fn capacities_of_both_forms() {
        let capacity = parse_capacity_10(&[0, 0, 7, 0xff, 0, 0, 2, 0]).expect("eight bytes");
        assert_eq!((capacity.blocks, capacity.block_size), (2048, 512));
        let mut data = [0; 32];
        data[7] = 9;
        data[10] = 0x10;
        data[14] = 0xc0;
        let capacity = parse_capacity_16(&data).expect("32 bytes");
        assert_eq!((capacity.blocks, capacity.block_size, capacity.is_thin), (10, 4096, true));
        assert_eq!(parse_capacity_16(&[0xff; 32]), None, "a capacity that does not fit 64 bits");
    }

    #[test]
    fn short_data_are_no_answer() {
        assert_eq!(parse_capacity_10(&[0; 7]), None);
        assert_eq!(parse_capacity_16(&[0; 11]), None);
        assert_eq!(parse_inquiry(&[0; 35]), None);
        assert_eq!(parse_block_limits(&[0, 0xb0, 0]), None);
        assert_eq!(parse_report_luns(&[0; 7]), None);
        assert_eq!(parse_write_protect(&[0; 2]), None);
    }

    #[test]
    fn port_group_and_its_state_are_found_among_others_or_not_at_all() {
        let unit = [1, 0x03, 0, 8, 0x30, 0, 0, 0, 0, 0, 0, 1];
        let (port, group) = ([0x51, 0x94, 0, 4, 0, 0, 0, 2], [0x51, 0x95, 0, 4, 0, 0, 0, 7]);
        let page = [&[0, 0x83, 0, 28][..], &unit, &port, &group].concat();
        assert_eq!(parse_target_port_group(&page), Some(7));
        for cut in 0..page.len() {
            assert_eq!(parse_target_port_group(&page[..cut]), None, "{cut} bytes");
        }
        let descriptor = |state, number, ports| {
            let header = [state, 0x8b, 0, number, 0, 2, 0, ports];
            [&header[..], &[0; 4].repeat(ports.into())].concat()
        };
        let mut data =
            [&[0, 0, 0, 48][..], &descriptor(0x80, 1, 0), &descriptor(3, 2, 2), &descriptor(0x9f, 3, 4)].concat();
        let [unavailable, optimized] = [AccessState::Unavailable, AccessState::Optimized].map(Some);
        let states = |data: &[u8]| [1, 2, 3, 4].map(|group| parse_access_state(data, group));
        assert_eq!(states(&data), [optimized, unavailable, Some(AccessState::Transitioning), None], "PREF is no state");
        assert_eq!(states(&data[..27]), [optimized, unavailable, None, None]);
        assert_eq!(states(&data[..3]), [None; 4]);
        data[3] = 16;
        assert_eq!(states(&data), [optimized, unavailable, None, None], "behind the end of the list");
        data[12] = 0x07;
        assert_eq!(states(&data)[1], None, "a reserved state");
    }

    #[test]
    fn a_list_of_luns_cut_short_gives_those_that_came() {
        assert_eq!(
            parse_report_luns(&[0, 0, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]),
            Some([1 << 48].to_vec())
        );
    }

    #[test]
    fn block_limits_of_an_old_device_have_no_unmap_limits() {
        let limits = parse_block_limits(&[0, 0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 4, 0]).expect("a page");
        assert_eq!(limits, BlockLimits { max_transfer_blocks: 1024, ..BlockLimits::default() });
        assert_eq!(parse_block_limits(&[0, 0xb1, 0, 0]), None, "another page");
    }
}
