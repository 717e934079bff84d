//! REPORT SUPPORTED OPERATION CODES and TASK MANAGEMENT FUNCTIONS (SPC-5 §6.34 and §6.35), read off the table of commands.

use alloc::vec::Vec;

use super::{
    call::{Call, Entry, Handled, answer},
    sense::Sense,
};

/// Command timeouts descriptor without any figure.
const NO_TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub(crate) fn report_supported_opcodes(call: &mut Call<'_>) -> Handled {
    let with_timeouts = call.cdb.bit(2, 7);
    let (opcode, action) = (call.cdb.u8(3), call.cdb.u16(4));
    let rows: Vec<&Entry> = call.commands.rows_of(opcode, call.view.as_ref()).collect();
    let has_actions = rows.iter().any(|row| row.has_service_action);
    let row = rows.iter().find(|row| row.service_action() == action);
    let data = match call.cdb.u8(2) & 0x07 {
        0 => all(call, with_timeouts),
        // The options that fit a command with service actions do not fit one without, and the other way round.
        1 if has_actions => return Err(Sense::cdb_field(2, Some(2)).into()),
        1 => one(rows.first().copied(), with_timeouts),
        2 if !has_actions && !rows.is_empty() => return Err(Sense::cdb_field(2, Some(2)).into()),
        2 | 3 => one(row.copied(), with_timeouts),
        _ => return Err(Sense::cdb_field(2, Some(2)).into()),
    };
    answer(data, call.cdb.u32(6))
}

/// All commands: a list of command descriptors.
fn all(call: &Call<'_>, with_timeouts: bool) -> Vec<u8> {
    let mut data = alloc::vec![0; 4];
    for row in call.commands.all(call.view.as_ref()) {
        let action = row.service_action().to_be_bytes();
        let flags = u8::from(with_timeouts) << 1 | u8::from(row.has_service_action);
        data.extend_from_slice(&[row.opcode(), 0, action[0], action[1], 0, flags, 0, row.usage().len() as u8]);
        if with_timeouts {
            data.extend_from_slice(&NO_TIMEOUTS);
        }
    }
    let len = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&len.to_be_bytes());
    data
}

/// One command, SUPPORT 011b (as the standard says) or 001b (not supported).
fn one(row: Option<&Entry>, with_timeouts: bool) -> Vec<u8> {
    let Some(row) = row else { return alloc::vec![0, 0x01, 0, 0] };
    let mut data = alloc::vec![0, u8::from(with_timeouts) << 7 | 0x03, 0, row.usage().len() as u8];
    data.extend_from_slice(row.usage());
    if with_timeouts {
        data.extend_from_slice(&NO_TIMEOUTS);
    }
    data
}

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
pub(crate) fn report_supported_task_management(call: &mut Call<'_>) -> Handled {
    let is_extended = call.cdb.bit(2, 7);
    let mut data = alloc::vec![0xda, 0, 0, 0];
    if is_extended {
        data[3] = 12;
        data.resize(16, 0);
    }
    answer(data, call.cdb.u32(6))
}
