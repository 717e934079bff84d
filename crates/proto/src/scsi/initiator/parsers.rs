//! Data of the set-up commands. Every parser answers `None` where the data are too short for what it reads.

use alloc::{string::String, vec::Vec};

use crate::wire::{Reader, printable};

/// Standard INQUIRY data, as far as a load cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// A device is connected (PERIPHERAL QUALIFIER 000b).
    pub is_connected: bool,
    /// PERIPHERAL DEVICE TYPE; 0 is a block device.
    pub device_type: u8,
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

/// READ CAPACITY (10); a `blocks` of 2^32 says that only READ CAPACITY (16) can tell.
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
    // Devices that know nothing of provisioning may answer with twelve bytes.
    let flags = data.get(14).copied().unwrap_or(0);
    Some(Capacity { blocks, block_size, is_thin: flags & 0x80 != 0, unmapped_reads_zero: flags & 0x40 != 0 })
}

/// The block limits page (B0h); 0 means that the device reports no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    pub max_transfer_blocks: u32,
    pub max_unmap_blocks: u32,
    pub max_unmap_descriptors: u32,
    pub max_write_same_blocks: u64,
}

/// Fields beyond the end of a short page, which older devices send, are 0.
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

/// Codes of the vital product data pages that the device has.
pub fn parse_vpd_pages(data: &[u8]) -> Option<Vec<u8>> {
    vpd_body(data, 0x00).map(<[u8]>::to_vec)
}

/// A page without its header of four bytes, as far as it came.
fn vpd_body(data: &[u8], page: u8) -> Option<&[u8]> {
    let (header, body) = data.split_at_checked(4)?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    (header[1] == page).then(|| body.get(..len).unwrap_or(body))
}

/// LUN fields of REPORT LUNS, as far as they came.
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

/// WP of the header of MODE SENSE (6).
pub fn parse_write_protect(data: &[u8]) -> Option<bool> {
    data.get(2).map(|specific| specific & 0x80 != 0)
}

#[cfg(test)]
mod tests {
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
