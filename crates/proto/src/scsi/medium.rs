//! Commands that read and write blocks (SBC-4 §5).

use super::{
    AfterMedium, Next, Response,
    call::{Call, Fault, Handled},
    cdb::Extent,
    nexus::LunView,
    sense::{Sense, status},
};
use crate::UnitOp;

/// READ (6), (10), (12), (16).
pub(crate) fn read(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let extent = call.cdb.extent();
    check_extent(&view, extent)?;
    if extent.blocks == 0 {
        return super::call::good();
    }
    let (offset, len) = bytes_of(&view, extent)?;
    let after = AfterMedium { returns_data: true, ..after(&view) };
    Ok(Next::Medium { unit: view.unit, op: UnitOp::Read { offset, len }, after })
}

/// WRITE (6), (10), (12), (16). FUA, or a write cache that is off, makes it durable.
pub(crate) fn write(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let extent = call.cdb.extent();
    check_extent(&view, extent)?;
    check_writable(&view)?;
    let fua = call.cdb.opcode() != 0x0a && call.cdb.bit(1, 3);
    write_extent(call, &view, extent, fua)
}

fn write_extent(call: &Call<'_>, view: &LunView, extent: Extent, fua: bool) -> Handled {
    let (offset, wanted) = bytes_of(view, extent)?;
    // An initiator that sends less than its CDB says has the whole blocks written that it sent.
    let len = wanted.min(call.data_out_len / view.block_size * view.block_size);
    if len == 0 {
        return Ok(Next::Respond(Response { data_out_len: wanted, ..Response::good() }));
    }
    let after = AfterMedium { writes: true, data_out_len: wanted, ..after(view) };
    let op = UnitOp::Write { offset, len, durable: fua || !view.mode.write_cache };
    Ok(Next::Medium { unit: view.unit, op, after })
}

fn after(view: &LunView) -> AfterMedium {
    AfterMedium {
        returns_data: false,
        good: status::GOOD,
        descriptor_sense: view.mode.descriptor_sense,
        writes: false,
        data_out_len: 0,
    }
}

/// LBA OUT OF RANGE for an extent that begins or ends beyond the last block, however short (SBC-4 §5.11).
pub(crate) fn check_extent(view: &LunView, extent: Extent) -> Result<(), Fault> {
    match extent.lba.checked_add(extent.blocks.into()) {
        Some(end) if end <= view.blocks => Ok(()),
        _ => Err(Sense::LBA_OUT_OF_RANGE.into()),
    }
}

pub(crate) fn check_writable(view: &LunView) -> Result<(), Fault> {
    if view.read_only || view.mode.software_write_protect { Err(Sense::WRITE_PROTECTED.into()) } else { Ok(()) }
}

/// Offset and length in bytes; more blocks than MAXIMUM TRANSFER LENGTH are an invalid field (SBC-4 §6.6.4).
fn bytes_of(view: &LunView, extent: Extent) -> Result<(u64, u32), Fault> {
    if extent.blocks > view.max_io_blocks {
        return Err(Sense::cdb_field(extent.blocks_at, None).into());
    }
    Ok((extent.lba * u64::from(view.block_size), extent.blocks * view.block_size))
}
