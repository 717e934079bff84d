//! Commands that allocate, deallocate or query blocks: UNMAP, WRITE SAME, SANITIZE, GET LBA STATUS (SBC-4 §4.7, §5),
//! READ CAPACITY (10) and (16) (SBC-4 §5.17 and §5.18).

use alloc::vec::Vec;

use super::{
    AfterMedium, Next,
    call::{Call, Handled, accepted, answer, good},
    cdb::Extent,
    lun::LunView,
    sense::{Fault, Sense},
};
use crate::{UnitOp, wire::Reader};

/// MAXIMUM UNMAP LBA COUNT: limits how long one command may keep a volume busy.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT: a parameter list of 4 KiB.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 255;
/// Limits MAXIMUM WRITE SAME LENGTH in bytes, and so how long one command may keep a volume busy.
const WRITE_SAME_BYTES_MAX: u32 = 64 << 20;
/// Limits MAXIMUM WRITE SAME LENGTH in blocks: the maximum of WRITE SAME (10).
const WRITE_SAME_BLOCKS_MAX: u32 = 0xffff;

const UNMAP_HEADER_LEN: usize = 8;
const UNMAP_DESCRIPTOR_LEN: usize = 16;

/// MAXIMUM WRITE SAME LENGTH in blocks.
pub(crate) fn max_write_same_blocks(view: &LunView) -> u32 {
    (WRITE_SAME_BYTES_MAX / view.block_size).clamp(1, WRITE_SAME_BLOCKS_MAX)
}

/// UNMAP: requests the parameter list.
pub(crate) fn unmap(call: &mut Call<'_>) -> Handled {
    call.unit()?.check_writable()?;
    let len = call.cdb.u16(7);
    if (1..UNMAP_HEADER_LEN).contains(&len.into()) {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    call.collect(len.into())
}

/// UNMAP with its parameter list. If one descriptor is invalid, nothing is unmapped.
pub(crate) fn unmap_parameters(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let view = call.unit()?;
    let ranges = parse_unmap(&view, data)?;
    if ranges.is_empty() {
        return accepted(data.len());
    }
    let after = AfterMedium { writes: true, data_out_len: data.len() as u32, ..AfterMedium::new(&view) };
    Ok(Next::Medium { unit: view.unit, op: UnitOp::Unmap { ranges, durable: !view.mode.write_cache }, after })
}

/// Parses an UNMAP parameter list into byte ranges (SBC-4 §5.35.2).
fn parse_unmap(view: &LunView, data: &[u8]) -> Result<Vec<(u64, u64)>, Fault> {
    let mut reader = Reader::new(data);
    let short = |_| Fault::Check(Sense::PARAMETER_LIST_LENGTH_ERROR);
    let data_len = usize::from(reader.u16_be().map_err(short)?);
    let descriptors_len = usize::from(reader.u16_be().map_err(short)?);
    if data_len + 2 > data.len() || UNMAP_HEADER_LEN + descriptors_len > data.len() {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    if descriptors_len + UNMAP_HEADER_LEN - 2 > data_len {
        return Err(Sense::parameter_field(2, None).into());
    }
    // An incomplete last descriptor is ignored.
    let count = descriptors_len / UNMAP_DESCRIPTOR_LEN;
    if count > UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Sense::parameter_field(2, None).into());
    }
    reader.skip(4).map_err(short)?;
    let mut ranges = Vec::with_capacity(count);
    let mut total_blocks = 0u64;
    for index in 0..count {
        let at = (UNMAP_HEADER_LEN + index * UNMAP_DESCRIPTOR_LEN) as u16;
        let lba = reader.u64_be().map_err(short)?;
        let blocks = reader.u32_be().map_err(short)?;
        reader.skip(4).map_err(short)?;
        if blocks == 0 {
            continue;
        }
        view.check_extent(Extent { lba, blocks, blocks_at: 0 })?;
        total_blocks += u64::from(blocks);
        if total_blocks > UNMAP_BLOCKS_MAX.into() {
            return Err(Sense::parameter_field(at + 8, None).into());
        }
        ranges.push((view.offset_of(lba), u64::from(blocks) * u64::from(view.block_size)));
    }
    Ok(ranges)
}

/// WRITE SAME (10), (16). A number of blocks of 0 means up to the last block. UNMAP with data still writes the data,
/// which is always correct.
pub(crate) fn write_same(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let extent = call.cdb.extent();
    view.check_writable()?;
    view.check_extent(extent)?;
    let unmap = call.cdb.bit(1, 3);
    if unmap && !view.is_thin() {
        return Err(Sense::cdb_field(1, Some(3)).into());
    }
    let blocks = if extent.blocks == 0 { view.blocks - extent.lba } else { extent.blocks.into() };
    if blocks > max_write_same_blocks(&view).into() {
        return Err(Sense::cdb_field(extent.blocks_at, None).into());
    }
    let has_data = call.cdb.opcode() == 0x41 || !call.cdb.bit(1, 0);
    if has_data && call.data_out_len != view.block_size {
        return Err(Sense::INVALID_FIELD_IN_CDB.into());
    }
    let (offset, len) = (view.offset_of(extent.lba), blocks * u64::from(view.block_size));
    // The CDB has no FUA bit.
    let durable = !view.mode.write_cache;
    let op = if has_data {
        UnitOp::WriteSame { offset, len, pattern_len: view.block_size, durable }
    } else if unmap && view.unmapped_reads_zero() {
        UnitOp::Unmap { ranges: alloc::vec![(offset, len)], durable }
    } else {
        UnitOp::WriteZeroes { offset, len, durable }
    };
    let after = AfterMedium { writes: true, data_out_len: op.data_len(), ..AfterMedium::new(&view) };
    Ok(Next::Medium { unit: view.unit, op, after })
}

/// SANITIZE with BLOCK ERASE (SBC-4 §5.30): erases the whole unit, including caches; it then reads as zeros. With
/// IMMED, status also comes at the end.
pub(crate) fn block_erase(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    view.check_writable()?;
    let all = (0, view.offset_of(view.blocks));
    let after = AfterMedium { writes: true, ..AfterMedium::new(&view) };
    Ok(Next::Medium { unit: view.unit, op: UnitOp::Unmap { ranges: alloc::vec![all], durable: true }, after })
}

/// SANITIZE with EXIT FAILURE MODE. There is no failure mode to leave, because erasing memory does not fail.
pub(crate) fn exit_failure_mode(_: &mut Call<'_>) -> Handled {
    good()
}

/// GET LBA STATUS: the state of the first run of blocks. If the volume cannot tell, all blocks are reported as mapped.
pub(crate) fn get_lba_status(call: &mut Call<'_>) -> Handled {
    const DEALLOCATED: u8 = 1;
    let view = call.unit()?;
    let lba = call.cdb.u64(2);
    view.check_extent(Extent { lba, blocks: 0, blocks_at: 0 })?;
    let left = view.blocks - lba;
    let allocation = call.backend.allocation(view.unit, view.offset_of(lba)).filter(|_| view.is_thin());
    // If a run ends within a block, that block counts as mapped.
    let (is_mapped, blocks) = match allocation {
        Some(run) if !run.is_mapped && run.len >= u64::from(view.block_size) => {
            (false, run.len / u64::from(view.block_size))
        }
        Some(run) => (true, run.len.div_ceil(u64::from(view.block_size)).max(1)),
        None => (true, left),
    };
    let blocks = u32::try_from(blocks.min(left)).unwrap_or(u32::MAX);
    let mut data = alloc::vec![0, 0, 0, 20, 0, 0, 0, 0];
    data.extend_from_slice(&lba.to_be_bytes());
    data.extend_from_slice(&blocks.to_be_bytes());
    data.extend_from_slice(&[if is_mapped { 0 } else { DEALLOCATED }, 0, 0, 0]);
    answer(data, call.cdb.u32(10))
}

pub(crate) fn read_capacity_10(call: &mut Call<'_>) -> Handled {
    let view = current(call)?;
    // If the number of blocks does not fit, FFFFFFFFh refers the initiator to READ CAPACITY (16).
    let last = u32::try_from(view.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    let mut data = last.to_be_bytes().to_vec();
    data.extend_from_slice(&view.block_size.to_be_bytes());
    answer(data, 8u32)
}

pub(crate) fn read_capacity_16(call: &mut Call<'_>) -> Handled {
    let view = current(call)?;
    let mut data = view.blocks.saturating_sub(1).to_be_bytes().to_vec();
    data.extend_from_slice(&view.block_size.to_be_bytes());
    data.resize(32, 0);
    data[13] = view.physical_block_exponent & 0x0f;
    // LBPME and LBPRZ.
    data[14] = u8::from(view.is_thin()) << 7 | u8::from(view.unmapped_reads_zero()) << 6;
    answer(data, call.cdb.u32(10))
}

/// Reads the current capacity from the volume. If it has changed, all nexuses refresh their caches.
fn current(call: &Call<'_>) -> Result<LunView, crate::scsi::sense::Fault> {
    let mut view = call.unit()?;
    let geometry = call.backend.geometry(view.unit).ok_or(Sense::MEDIUM_NOT_PRESENT)?;
    let blocks = geometry.size_bytes / u64::from(view.block_size);
    if blocks != view.blocks {
        view.blocks = blocks;
        call.with_device(|device| device.touch());
    }
    Ok(view)
}
