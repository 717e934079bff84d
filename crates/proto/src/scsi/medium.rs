//! Commands that read, write and verify blocks (SBC-4 §5).

use super::{
    AfterMedium, Next, Response,
    call::{Call, Handled, good},
    cdb::Extent,
    lun::LunView,
    sense::{Fault, Sense},
};
use crate::UnitOp;

/// READ (6), (10), (12), (16). With FUA the blocks come from the medium, where a cache holds newer ones after those were written
/// to it (SBC-4 §4.15).
pub(crate) fn read(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let (offset, len) = bytes_of(&view, call.cdb.extent())?;
    if len == 0 {
        return good();
    }
    let after = AfterMedium { returns_data: true, ..AfterMedium::new(&view) };
    Ok(Next::Medium { unit: view.unit, op: UnitOp::Read { offset, len, durable: has_fua(call) }, after })
}

/// WRITE (6), (10), (12), (16). FUA, or a write cache that is off, makes it durable.
pub(crate) fn write(call: &mut Call<'_>) -> Handled {
    write_extent(call, has_fua(call))
}

/// READ (6) and WRITE (6) have a part of the address where others have FUA.
fn has_fua(call: &Call<'_>) -> bool {
    call.cdb.opcode() > 0x1f && call.cdb.bit(1, 3)
}

/// WRITE AND VERIFY (10), (12), (16): what is on stable storage is verified by the volume beneath.
pub(crate) fn write_and_verify(call: &mut Call<'_>) -> Handled {
    if byte_check(call) > 1 {
        return Err(Sense::cdb_field(1, Some(2)).into());
    }
    write_extent(call, true)
}

/// ORWRITE (16): bits that are set stay set.
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

/// VERIFY (10), (12), (16). BYTCHK 00b reads and drops the data, 01b compares; 11b, one block against all, is supported for
/// one block only, where it is the same as 01b. What is verified is on the medium: a cache is written to it first (SBC-4 §4.15).
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

/// COMPARE AND WRITE: the data-out must be exactly what is compared and what is written.
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

/// MAXIMUM COMPARE AND WRITE LENGTH: both halves must fit one transfer, and the field is one byte.
pub(crate) fn max_compare_and_write(view: &LunView) -> u8 {
    u8::try_from((view.max_io_blocks / 2).max(1)).unwrap_or(u8::MAX)
}

/// SYNCHRONIZE CACHE (10), (16): the whole cache is flushed, whatever the range; IMMED gets its status at the end too.
pub(crate) fn synchronize_cache(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    view.check_extent(call.cdb.extent())?;
    Ok(Next::Medium {
        unit: view.unit,
        op: UnitOp::Flush,
        after: AfterMedium { writes: true, ..AfterMedium::new(&view) },
    })
}

/// PRE-FETCH (10), (16): GOOD instead of CONDITION MET says that the blocks may not have been kept.
pub(crate) fn pre_fetch(call: &mut Call<'_>) -> Handled {
    call.unit()?.check_extent(call.cdb.extent())?;
    good()
}

/// Starts an operation that takes `wanted` bytes. An initiator that announces less has only the whole blocks processed that
/// it sends, and a part of a block is refused before anything is (FCP-4 §9.4.2, which iSCSI initiators expect as well).
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

/// Offset and length in bytes of an extent on the unit; more than MAXIMUM TRANSFER LENGTH is an invalid field (SBC-4 §6.6.4).
fn bytes_of(view: &LunView, extent: Extent) -> Result<(u64, u32), Fault> {
    view.check_extent(extent)?;
    if extent.blocks > view.max_io_blocks {
        return Err(Sense::cdb_field(extent.blocks_at, None).into());
    }
    Ok((view.offset_of(extent.lba), extent.blocks * view.block_size))
}
