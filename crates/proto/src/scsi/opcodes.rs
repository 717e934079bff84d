//! The command table of the device server: one row per command, with its handler and the bits of its CDB that may be
//! set. To add a command, add a row: dispatch, REPORT SUPPORTED OPERATION CODES and TASK MANAGEMENT FUNCTIONS (SPC-5
//! §6.34 and §6.35), and the descriptions of CDBs in traces all use the table.
//!
//! Not supported, so they get INVALID COMMAND OPERATION CODE: WRITE ATOMIC, EXTENDED COPY and RECEIVE COPY RESULTS,
//! FORMAT UNIT, SET TARGET PORT GROUPS, LOG SENSE.

use alloc::{format, string::String, vec::Vec};
use core::fmt::Write;

use super::{
    Command, Next, Response,
    call::{Call, Class, Commands, Entry, Handled, Needs, Run, RunParameters, Usage, answer},
    cdb::{Cdb, cdb_len},
    inquiry,
    lun::decode_lun,
    medium, mode,
    nexus::Nexus,
    port_groups, provisioning, reserve,
    sense::{Fault, Sense},
    unit,
};
use crate::Backend;

const DPO_FUA: u8 = 0x18;
const DPO_BYTCHK: u8 = 0x16;
const IMMED: u8 = 0x02;
/// IMMED and AUSE of SANITIZE.
const SANITIZE: u8 = 0xa0;
const UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;
const PARAMETER_DATA_FORMAT: u8 = 0xe0;

const fn cdb(bytes: &[u8]) -> Usage {
    let mut usage = Usage { bytes: [0; 16], len: bytes.len() };
    let mut at = 0;
    while at < bytes.len() {
        usage.bytes[at] = bytes[at];
        at += 1;
    }
    usage
}

/// Usage of block commands: LBA, number of blocks, `flags` in byte 1, and a group number, which is ignored.
const fn block_10(opcode: u8, flags: u8) -> Usage {
    cdb(&[opcode, flags, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0x00])
}

const fn block_12(opcode: u8, flags: u8) -> Usage {
    cdb(&[opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0x00])
}

const fn block_16(opcode: u8, flags: u8) -> Usage {
    cdb(&[opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0x00])
}

const fn persistent_in(action: u8) -> Usage {
    cdb(&[0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff, 0])
}

const fn entry(name: &'static str, class: Class, usage: Usage, run: Run) -> Entry {
    Entry { name, usage, has_service_action: false, class, run, parameters: None, always: false, needs: Needs::Nothing }
}

/// A service action of PERSISTENT RESERVE OUT.
const fn persistent_out(name: &'static str, action: u8, parameters: RunParameters) -> Entry {
    entry(name, Class::Free, cdb(&[0x5f, action, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]), reserve::out)
        .action()
        .then(parameters)
}

impl Entry {
    const fn action(mut self) -> Self {
        self.has_service_action = true;
        self
    }

    const fn then(mut self, parameters: RunParameters) -> Self {
        self.parameters = Some(parameters);
        self
    }

    const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    const fn erasable_only(mut self) -> Self {
        self.needs = Needs::Erasable;
        self
    }

    const fn asymmetric_only(mut self) -> Self {
        self.needs = Needs::Asymmetric;
        self
    }

    const fn thin_only(mut self) -> Self {
        self.needs = Needs::Thin;
        self
    }
}

/// The command table, sorted by operation code, then service action.
#[rustfmt::skip]
static TABLE: &[Entry] = &[
    entry("TEST UNIT READY", Class::Ready, cdb(&[0x00, 0, 0, 0, 0, 0]), unit::test_unit_ready),
    entry("REQUEST SENSE", Class::Always, cdb(&[0x03, 0x01, 0, 0, 0xff, 0]), unit::request_sense).always(),
    entry("READ(6)", Class::Reads, cdb(&[0x08, 0x1f, 0xff, 0xff, 0xff, 0]), medium::read),
    entry("WRITE(6)", Class::Changes, cdb(&[0x0a, 0x1f, 0xff, 0xff, 0xff, 0]), medium::write),
    entry("INQUIRY", Class::Always, cdb(&[0x12, 0x01, 0xff, 0xff, 0xff, 0]), inquiry::inquiry).always(),
    entry("MODE SELECT(6)", Class::Changes, cdb(&[0x15, 0x10, 0, 0, 0xff, 0]), mode::mode_select_6)
        .then(mode::mode_select_6_parameters),
    entry("RESERVE(6)", Class::Free, cdb(&[0x16, 0, 0, 0, 0, 0]), reserve::reserve),
    entry("RELEASE(6)", Class::Free, cdb(&[0x17, 0, 0, 0, 0, 0]), reserve::release),
    entry("MODE SENSE(6)", Class::Reads, cdb(&[0x1a, 0x08, 0xff, 0xff, 0xff, 0]), mode::mode_sense_6),
    entry("START STOP UNIT", Class::Changes, cdb(&[0x1b, 0x01, 0, 0, 0x05, 0]), unit::start_stop_unit),
    entry("SEND DIAGNOSTIC", Class::Changes, cdb(&[0x1d, 0x04, 0, 0, 0, 0]), unit::send_diagnostic),
    entry("PREVENT ALLOW MEDIUM REMOVAL", Class::Ready, cdb(&[0x1e, 0, 0, 0, 0x01, 0]), unit::prevent_allow),
    entry("READ CAPACITY(10)", Class::Free, cdb(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]), provisioning::read_capacity_10),
    entry("READ(10)", Class::Reads, block_10(0x28, DPO_FUA), medium::read),
    entry("WRITE(10)", Class::Changes, block_10(0x2a, DPO_FUA), medium::write),
    entry("WRITE AND VERIFY(10)", Class::Changes, block_10(0x2e, DPO_BYTCHK), medium::write_and_verify),
    entry("VERIFY(10)", Class::Reads, block_10(0x2f, DPO_BYTCHK), medium::verify),
    entry("PRE-FETCH(10)", Class::Reads, block_10(0x34, IMMED), medium::pre_fetch),
    entry("SYNCHRONIZE CACHE(10)", Class::Changes, block_10(0x35, IMMED), medium::synchronize_cache),
    entry("READ DEFECT DATA(10)", Class::Reads, cdb(&[0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0]), unit::read_defect_data_10),
    entry("WRITE SAME(10)", Class::Changes, block_10(0x41, UNMAP), provisioning::write_same),
    entry("UNMAP", Class::Changes, cdb(&[0x42, 0, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0]), provisioning::unmap)
        .then(provisioning::unmap_parameters)
        .thin_only(),
    entry("SANITIZE: BLOCK ERASE", Class::Changes, cdb(&[0x48, SANITIZE | 0x02, 0, 0, 0, 0, 0, 0, 0, 0]), provisioning::block_erase)
        .action()
        .erasable_only(),
    entry("SANITIZE: EXIT FAILURE MODE", Class::Changes, cdb(&[0x48, SANITIZE | 0x1f, 0, 0, 0, 0, 0, 0, 0, 0]), provisioning::exit_failure_mode)
        .action()
        .erasable_only(),
    entry("MODE SELECT(10)", Class::Changes, cdb(&[0x55, 0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0]), mode::mode_select_10)
        .then(mode::mode_select_10_parameters),
    entry("RESERVE(10)", Class::Free, cdb(&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]), reserve::reserve),
    entry("RELEASE(10)", Class::Free, cdb(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]), reserve::release),
    entry("MODE SENSE(10)", Class::Reads, cdb(&[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]), mode::mode_sense_10),
    entry("PERSISTENT RESERVE IN: READ KEYS", Class::Free, persistent_in(0), reserve::read_keys).action(),
    entry("PERSISTENT RESERVE IN: READ RESERVATION", Class::Free, persistent_in(1), reserve::read_reservation).action(),
    entry("PERSISTENT RESERVE IN: REPORT CAPABILITIES", Class::Free, persistent_in(2), reserve::report_capabilities).action(),
    entry("PERSISTENT RESERVE IN: READ FULL STATUS", Class::Free, persistent_in(3), reserve::read_full_status).action(),
    persistent_out("PERSISTENT RESERVE OUT: REGISTER", 0, reserve::out_register),
    persistent_out("PERSISTENT RESERVE OUT: RESERVE", 1, reserve::out_reserve),
    persistent_out("PERSISTENT RESERVE OUT: RELEASE", 2, reserve::out_release),
    persistent_out("PERSISTENT RESERVE OUT: CLEAR", 3, reserve::out_clear),
    persistent_out("PERSISTENT RESERVE OUT: PREEMPT", 4, reserve::out_preempt),
    persistent_out("PERSISTENT RESERVE OUT: PREEMPT AND ABORT", 5, reserve::out_preempt),
    persistent_out("PERSISTENT RESERVE OUT: REGISTER AND IGNORE EXISTING KEY", 6, reserve::out_register_and_ignore),
    entry("READ(16)", Class::Reads, block_16(0x88, DPO_FUA), medium::read),
    entry(
        "COMPARE AND WRITE",
        Class::Changes,
        cdb(&[0x89, DPO_FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x3f, 0]),
        medium::compare_and_write,
    ),
    entry("WRITE(16)", Class::Changes, block_16(0x8a, DPO_FUA), medium::write),
    entry("ORWRITE(16)", Class::Changes, block_16(0x8b, DPO_FUA), medium::or_write),
    entry("WRITE AND VERIFY(16)", Class::Changes, block_16(0x8e, DPO_BYTCHK), medium::write_and_verify),
    entry("VERIFY(16)", Class::Reads, block_16(0x8f, DPO_BYTCHK), medium::verify),
    entry("PRE-FETCH(16)", Class::Reads, block_16(0x90, IMMED), medium::pre_fetch),
    entry("SYNCHRONIZE CACHE(16)", Class::Changes, block_16(0x91, IMMED), medium::synchronize_cache),
    entry("WRITE SAME(16)", Class::Changes, block_16(0x93, UNMAP | NDOB), provisioning::write_same),
    entry(
        "READ CAPACITY(16)",
        Class::Free,
        cdb(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        provisioning::read_capacity_16,
    ).action(),
    entry(
        "GET LBA STATUS",
        Class::Free,
        cdb(&[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        provisioning::get_lba_status,
    ).action(),
    entry("REPORT LUNS", Class::Always, cdb(&[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]), unit::report_luns).always(),
    entry(
        "REPORT TARGET PORT GROUPS",
        Class::Always,
        cdb(&[0xa3, PARAMETER_DATA_FORMAT | 0x0a, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        port_groups::report_target_port_groups,
    ).action().asymmetric_only(),
    entry(
        "REPORT SUPPORTED OPERATION CODES",
        Class::Reads,
        cdb(&[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        report_supported_opcodes,
    ).action(),
    entry(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        Class::Reads,
        cdb(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        report_supported_task_management,
    ).action(),
    entry("READ(12)", Class::Reads, block_12(0xa8, DPO_FUA), medium::read),
    entry("WRITE(12)", Class::Changes, block_12(0xaa, DPO_FUA), medium::write),
    entry("WRITE AND VERIFY(12)", Class::Changes, block_12(0xae, DPO_BYTCHK), medium::write_and_verify),
    entry("VERIFY(12)", Class::Reads, block_12(0xaf, DPO_BYTCHK), medium::verify),
    entry("READ DEFECT DATA(12)", Class::Reads, cdb(&[0xb7, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]), unit::read_defect_data_12),
];

/// First row of each operation code in `TABLE`; `u8::MAX` if there is none.
static FIRST: [u8; 256] = {
    let mut first = [u8::MAX; 256];
    let mut at = TABLE.len();
    while at > 0 {
        at -= 1;
        first[TABLE[at].usage.bytes[0] as usize] = at as u8;
    }
    first
};

pub(crate) static COMMANDS: Commands = Commands { rows: TABLE, first: &FIRST };

impl Nexus {
    /// Starts a command.
    pub fn command(&mut self, command: &Command<'_>, backend: &dyn Backend) -> Next {
        self.dispatch(command, backend, |entry, call| {
            call.admit(entry)?;
            (entry.run)(call)
        })
    }

    /// Continues a command when the data-out requested by [`Next::Parameters`] have arrived.
    pub fn parameters(&mut self, command: &Command<'_>, data: &[u8], backend: &dyn Backend) -> Next {
        self.dispatch(command, backend, |entry, call| match entry.parameters {
            Some(parameters) => parameters(call, data),
            None => Err(Sense::INVALID_OPCODE.into()),
        })
    }

    fn dispatch(
        &mut self,
        command: &Command<'_>,
        backend: &dyn Backend,
        run: impl FnOnce(&Entry, &mut Call<'_>) -> Result<Next, Fault>,
    ) -> Next {
        self.refresh(backend);
        let view = decode_lun(command.lun).and_then(|lun| self.view(lun)).copied();
        let descriptor_sense = view.is_some_and(|view| view.mode.descriptor_sense);
        let cdb = Cdb(command.cdb);
        let mut call = Call {
            nexus: self,
            lun: command.lun,
            cdb,
            view,
            data_out_len: command.data_out_len,
            backend,
            commands: &COMMANDS,
        };
        let result = COMMANDS.find(command.cdb, view.as_ref()).and_then(|entry| run(entry, &mut call));
        match result {
            Ok(next) => next,
            Err(Fault::Status(status)) => Next::Respond(Response::status(status)),
            Err(Fault::Check(mut sense)) => {
                sense.descriptor = descriptor_sense;
                Next::Respond(Response::check(sense))
            }
        }
    }
}

/// A command timeouts descriptor that reports no values.
const NO_TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub(crate) fn report_supported_opcodes(call: &mut Call<'_>) -> Handled {
    let with_timeouts = call.cdb.bit(2, 7);
    let (opcode, action) = (call.cdb.u8(3), call.cdb.u16(4));
    let rows: Vec<&Entry> = call.commands.rows_of(opcode, call.view.as_ref()).collect();
    let has_actions = rows.iter().any(|row| row.has_service_action);
    let row = rows.iter().find(|row| row.service_action() == action);
    let data = match call.cdb.u8(2) & 0x07 {
        0 => all(call, with_timeouts),
        // Reporting option 1 is for commands without service actions, option 2 for commands with service actions.
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

/// One command: SUPPORT is 011b (according to a standard) or 001b (not supported).
fn one(row: Option<&Entry>, with_timeouts: bool) -> Vec<u8> {
    let Some(row) = row else { return alloc::vec![0, 0x01, 0, 0] };
    let mut data = alloc::vec![0, u8::from(with_timeouts) << 7 | 0x03, 0, row.usage().len() as u8];
    data.extend_from_slice(row.usage());
    if with_timeouts {
        data.extend_from_slice(&NO_TIMEOUTS);
    }
    data
}

/// What the transport has (SPC-5 §6.35).
pub(crate) fn report_supported_task_management(call: &mut Call<'_>) -> Handled {
    let is_extended = call.cdb.bit(2, 7);
    let [first, second] = call.nexus.ports.transport.functions;
    let mut data = alloc::vec![first, second, 0, 0];
    if is_extended {
        data[3] = 12;
        data.resize(16, 0);
    }
    answer(data, call.cdb.u32(6))
}

/// Describes a command by its name and main fields, e.g. `READ(10) lba=8 blocks=1 FUA`.
pub fn describe_cdb(cdb: &[u8]) -> String {
    let Some(&opcode) = cdb.first() else { return String::from("empty CDB") };
    let Some(first) = COMMANDS.rows_of(opcode, None).next() else { return format!("unknown command {opcode:#04x}") };
    if cdb_len(opcode).is_some_and(|len| cdb.len() < len) {
        return format!("{} cut to {} bytes", first.name, cdb.len());
    }
    let cdb_fields = Cdb(cdb);
    let Ok(entry) = COMMANDS.find(cdb, None) else {
        return format!("unknown service action {:#04x} of {opcode:#04x}", cdb_fields.u8(1) & 0x1f);
    };
    let mut text = String::from(entry.name);
    describe_fields(cdb_fields, &mut text);
    text
}

/// Appends the fields of a command, each after a space. Writing to a string does not fail.
fn describe_fields(cdb: Cdb<'_>, text: &mut String) {
    let _ = match cdb.opcode() {
        0x08 | 0x0a | 0x28 | 0x2a | 0x2e | 0x2f | 0x34 | 0x35 | 0x41 | 0x88..=0x93 | 0xa8 | 0xaa | 0xae | 0xaf => {
            let extent = cdb.extent();
            let is_fua = matches!(cdb.opcode(), 0x28 | 0x2a | 0x88 | 0x89 | 0x8a | 0xa8 | 0xaa) && cdb.bit(1, 3);
            write!(text, " lba={} blocks={}{}", extent.lba, extent.blocks, if is_fua { " FUA" } else { "" })
        }
        0x12 if cdb.bit(1, 0) => write!(text, " VPD page={:#04x} allocation={}", cdb.u8(2), cdb.u16(3)),
        0x12 => write!(text, " allocation={}", cdb.u16(3)),
        0x15 => write!(text, " list={}", cdb.u8(4)),
        0x42 | 0x55 => write!(text, " list={}", cdb.u16(7)),
        0x1a => describe_mode_sense(cdb, cdb.u8(4).into(), text),
        0x5a => describe_mode_sense(cdb, cdb.u16(7), text),
        0x5e => write!(text, " allocation={}", cdb.u16(7)),
        0x5f => write!(text, " scope={} type={} list={}", cdb.u8(2) >> 4, cdb.u8(2) & 0x0f, cdb.u32(5)),
        0x9e => write!(text, " allocation={}", cdb.u32(10)),
        0xa0 => write!(text, " select={:#04x} allocation={}", cdb.u8(2), cdb.u32(6)),
        0xa3 => write!(text, " allocation={}", cdb.u32(6)),
        _ => Ok(()),
    };
}

fn describe_mode_sense(cdb: Cdb<'_>, allocation_len: u16, text: &mut String) -> core::fmt::Result {
    write!(text, " page={:#04x} subpage={:#04x} allocation={allocation_len}", cdb.u8(2) & 0x3f, cdb.u8(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::cdb::cdb_len;

    #[test]
    fn rows_are_sorted_and_unique() {
        for pair in TABLE.windows(2) {
            let id = |row: &Entry| (row.opcode(), row.service_action());
            assert!(id(&pair[0]) < id(&pair[1]), "{} before {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn usage_data_are_as_long_as_the_cdb() {
        for row in TABLE {
            assert_eq!(Some(row.usage().len()), cdb_len(row.opcode()), "{}", row.name);
        }
    }

    #[test]
    fn one_operation_code_has_service_actions_throughout_or_not_at_all() {
        for row in TABLE {
            let count = COMMANDS.rows_of(row.opcode(), None).count();
            assert!(row.has_service_action || count <= 1, "{}", row.name);
        }
    }

    #[test]
    fn no_control_byte_bit_is_looked_at() {
        for row in TABLE {
            assert_eq!(row.usage().last(), Some(&0), "{}", row.name);
        }
    }
}
