//! Commands that read, write and verify blocks (SBC-4 §5).

use super::{
    AfterMedium, Next, Response,
    call::{Call, Handled, good},
    cdb::Extent,
    lun::LunView,
    sense::{Fault, Sense},
};
use crate::UnitOp;

/// READ (6), (10), (12), (16). With FUA the blocks are read from the medium. If a cache holds newer ones, they are
/// first written to the medium (SBC-4 §4.15).
pub(crate) fn read(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let (offset, len) = bytes_of(&view, call.cdb.extent())?;
    if len == 0 {
        return good();
    }
    let after = AfterMedium { returns_data: true, ..AfterMedium::new(&view) };
    Ok(Next::Medium { unit: view.unit, op: UnitOp::Read { offset, len, durable: has_fua(call) }, after })
}

/// WRITE (6), (10), (12), (16). The write is durable if FUA is set or the write cache is off.
pub(crate) fn write(call: &mut Call<'_>) -> Handled {
    write_extent(call, has_fua(call))
}

/// READ (6) and WRITE (6) have part of the address at the position of FUA.
fn has_fua(call: &Call<'_>) -> bool {
    call.cdb.opcode() > 0x1f && call.cdb.bit(1, 3)
}

/// WRITE AND VERIFY (10), (12), (16). The data are written to stable storage; verification is left to the volume.
pub(crate) fn write_and_verify(call: &mut Call<'_>) -> Handled {
    if byte_check(call) > 1 {
        return Err(Sense::cdb_field(1, Some(2)).into());
    }
    write_extent(call, true)
}

/// ORWRITE (16): a bit that is set stays set.
pub(crate) fn or_write(call: &mut Call<'_>) -> Handled {
    change_extent(call, has_fua(call), |offset, len, durable| UnitOp::OrWrite { offset, len, durable })
}

fn write_extent(call: &Call<'_>, durable: bool) -> Handled {
    change_extent(call, durable, |offset, len, durable| UnitOp::Write { offset, len, durable })
}

fn change_extent(call: &Call<'_>, durable: bool, op: impl FnOnce(u64, u32, bool) -> UnitOp) -> Handled {
    let view = call.unit()?;
    view.check_writable()?;
    let (offset, wanted) = bytes_of(&view, call.cdb.extent())?;
    let durable = durable || !view.mode.write_cache;
    let after = AfterMedium { writes: true, ..AfterMedium::new(&view) };
    take_data(call, &view, wanted, after, |len| op(offset, len, durable))
}

/// VERIFY (10), (12), (16). BYTCHK 00b reads the blocks and discards them; 01b compares them with the data. 11b
/// compares one block with all blocks; it is supported only for one block, where it equals 01b. The verified blocks are
/// on the medium: a cache is written to it first (SBC-4 §4.15).
pub(crate) fn verify(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let extent = call.cdb.extent();
    let (offset, len) = bytes_of(&view, extent)?;
    let after = AfterMedium::new(&view);
    match byte_check(call) {
        0 if len == 0 => good(),
        0 => Ok(Next::Medium { unit: view.unit, op: UnitOp::Read { offset, len, durable: true }, after }),
        1 => take_data(call, &view, len, after, |len| UnitOp::Compare { offset, len, durable: true }),
        3 if extent.blocks <= 1 => {
            take_data(call, &view, len, after, |len| UnitOp::Compare { offset, len, durable: true })
        }
        _ => Err(Sense::cdb_field(1, Some(2)).into()),
    }
}

fn byte_check(call: &Call<'_>) -> u8 {
    call.cdb.u8(1) >> 1 & 3
}

/// COMPARE AND WRITE. The data-out must have exactly the length of both halves.
pub(crate) fn compare_and_write(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let extent = call.cdb.extent();
    view.check_writable()?;
    view.check_extent(extent)?;
    let len =
        extent.blocks.checked_mul(view.block_size).filter(|_| extent.blocks <= max_compare_and_write(&view).into());
    let Some(len) = len else { return Err(Sense::cdb_field(13, None).into()) };
    if call.data_out_len != 2 * len {
        return Err(Sense::cdb_field(13, None).into());
    }
    if len == 0 {
        return good();
    }
    let after = AfterMedium { writes: true, data_out_len: 2 * len, ..AfterMedium::new(&view) };
    let durable = has_fua(call) || !view.mode.write_cache;
    let op = UnitOp::CompareAndWrite { offset: view.offset_of(extent.lba), len, durable };
    Ok(Next::Medium { unit: view.unit, op, after })
}

/// MAXIMUM COMPARE AND WRITE LENGTH: both halves must fit into one transfer, and the field has one byte.
pub(crate) fn max_compare_and_write(view: &LunView) -> u8 {
    u8::try_from((view.max_io_blocks / 2).max(1)).unwrap_or(u8::MAX)
}

/// SYNCHRONIZE CACHE (10), (16). Flushes the whole cache whatever the range is. With IMMED, status also comes after the
/// flush.
pub(crate) fn synchronize_cache(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    view.check_extent(call.cdb.extent())?;
    Ok(Next::Medium {
        unit: view.unit,
        op: UnitOp::Flush,
        after: AfterMedium { writes: true, ..AfterMedium::new(&view) },
    })
}

/// PRE-FETCH (10), (16). GOOD, instead of CONDITION MET, means that the blocks may not have been cached.
pub(crate) fn pre_fetch(call: &mut Call<'_>) -> Handled {
    call.unit()?.check_extent(call.cdb.extent())?;
    good()
}

/// Starts an operation that takes `wanted` bytes. If the initiator announces fewer bytes, only the whole blocks that it
/// sends are processed. A partial block is rejected before anything is processed (FCP-4 §9.4.2; iSCSI initiators expect
/// the same).
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
fn take_data(
    call: &Call<'_>,
    view: &LunView,
    wanted: u32,
    after: AfterMedium,
    op: impl FnOnce(u32) -> UnitOp,
) -> Handled {
    let len = wanted.min(call.data_out_len);
    if !len.is_multiple_of(view.block_size) {
        let sense = Sense { descriptor: view.mode.descriptor_sense, ..Sense::INVALID_FIELD_IN_INFORMATION_UNIT };
        return Ok(Next::Respond(Response { data_out_len: wanted, ..Response::check(sense) }));
    }
    if len == 0 {
        return Ok(Next::Respond(Response { data_out_len: wanted, ..Response::good() }));
    }
    Ok(Next::Medium { unit: view.unit, op: op(len), after: AfterMedium { data_out_len: wanted, ..after } })
}

/// Offset and length of an extent in bytes. An extent longer than MAXIMUM TRANSFER LENGTH is an invalid field (SBC-4
/// §6.6.4).
fn bytes_of(view: &LunView, extent: Extent) -> Result<(u64, u32), Fault> {
    view.check_extent(extent)?;
    if extent.blocks > view.max_io_blocks {
        return Err(Sense::cdb_field(extent.blocks_at, None).into());
    }
    Ok((view.offset_of(extent.lba), extent.blocks * view.block_size))
}
