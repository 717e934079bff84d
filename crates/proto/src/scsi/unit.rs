//! Commands about the logical unit itself (SPC-5 §6, SBC-4 §5): existence, readiness, errors.

use super::{
    AfterMedium, Next,
    call::{Call, Handled, answer, good},
    lun::encode_lun,
    sense::Sense,
};
use crate::UnitOp;

pub(crate) fn test_unit_ready(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    match call.backend.geometry(view.unit) {
        Some(_) => good(),
        None => Err(Sense::MEDIUM_NOT_PRESENT.into()),
    }
}

/// REQUEST SENSE: returns a pending unit attention condition as data, and clears it.
pub(crate) fn request_sense(call: &mut Call<'_>) -> Handled {
    let id = call.nexus.id;
    let mut sense = match call.view {
        Some(view) => call.with_device(|device| device.take_attention(id, view.lun)).unwrap_or(Sense::NO_SENSE),
        None => Sense::LOGICAL_UNIT_NOT_SUPPORTED,
    };
    sense.descriptor = call.cdb.bit(1, 0);
    answer(sense.encode(), call.cdb.u8(4))
}

/// REPORT LUNS. It is executed at LUN 0 even if that logical unit does not exist. There are no well-known logical units
/// (SPC-5 §6.33).
pub(crate) fn report_luns(call: &mut Call<'_>) -> Handled {
    if call.view.is_none() && call.lun != 0 {
        return Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into());
    }
    let with_units = match call.cdb.u8(2) {
        0x00 | 0x02 => true,
        0x01 => false,
        _ => return Err(Sense::cdb_field(2, None).into()),
    };
    let id = call.nexus.id;
    let mut data = alloc::vec![0; 8];
    call.with_device(|device| {
        for unit in device.luns.iter().filter(|_| with_units) {
            data.extend_from_slice(&encode_lun(unit.config.lun).to_be_bytes());
        }
        device.luns_reported(id);
    });
    let len = (data.len() - 8) as u32;
    data[..4].copy_from_slice(&len.to_be_bytes());
    answer(data, call.cdb.u32(6))
}

/// START STOP UNIT: a stop flushes the cache unless NO_FLUSH is set. The unit stays ready, because other nexuses may
/// use it.
pub(crate) fn start_stop_unit(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let (no_flush, start) = (call.cdb.bit(4, 2), call.cdb.bit(4, 0));
    if start || no_flush {
        return good();
    }
    let after = AfterMedium { writes: true, ..AfterMedium::new(&view) };
    Ok(Next::Medium { unit: view.unit, op: UnitOp::Flush, after })
}

/// PREVENT ALLOW MEDIUM REMOVAL: has no effect, because the medium cannot be removed.
pub(crate) fn prevent_allow(_: &mut Call<'_>) -> Handled {
    good()
}

/// SEND DIAGNOSTIC: the default self-test, which always passes.
pub(crate) fn send_diagnostic(_: &mut Call<'_>) -> Handled {
    good()
}

/// READ DEFECT DATA (10): the requested lists, which are empty.
pub(crate) fn read_defect_data_10(call: &mut Call<'_>) -> Handled {
    answer(alloc::vec![0, call.cdb.u8(2) & 0x1f, 0, 0], call.cdb.u16(7))
}

/// READ DEFECT DATA (12).
pub(crate) fn read_defect_data_12(call: &mut Call<'_>) -> Handled {
    answer(alloc::vec![0, call.cdb.u8(1) & 0x1f, 0, 0, 0, 0, 0, 0], call.cdb.u32(6))
}
