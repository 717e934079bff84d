//! The commands of the device server: one row a command, which says what runs it and which bits of its CDB may be set.
//! Dispatch and REPORT SUPPORTED OPERATION CODES both read it, so this is the place to add a command.
//!
//! Not here, and so INVALID COMMAND OPERATION CODE: WRITE ATOMIC, EXTENDED COPY and RECEIVE COPY RESULTS, FORMAT UNIT, REPORT TARGET PORT GROUPS, LOG SENSE.

use super::{
    call::{Class, Commands, Entry, Needs, Run, RunParameters, Usage},
    capacity, inquiry, medium, mode, provisioning, report_opcodes, reserve, unit,
};

const DPO_FUA: u8 = 0x18;
const DPO_BYTCHK: u8 = 0x16;
const IMMED: u8 = 0x02;
/// IMMED and AUSE of SANITIZE.
const SANITIZE: u8 = 0xa0;
const UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;

const fn cdb(bytes: &[u8]) -> Usage {
    let mut usage = Usage { bytes: [0; 16], len: bytes.len() };
    let mut at = 0;
    while at < bytes.len() {
        usage.bytes[at] = bytes[at];
        at += 1;
    }
    usage
}

/// Commands on blocks: LBA and number of blocks, `flags` in byte 1, and a group number, which means nothing here.
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

    const fn thin_only(mut self) -> Self {
        self.needs = Needs::Thin;
        self
    }
}

/// Sorted by operation code, then service action.
#[rustfmt::skip]
static TABLE: &[Entry] = &[
    entry("TEST UNIT READY", Class::Ready, cdb(&[0x00, 0, 0, 0, 0, 0]), unit::test_unit_ready),
    entry("REQUEST SENSE", Class::Free, cdb(&[0x03, 0x01, 0, 0, 0xff, 0]), unit::request_sense).always(),
    entry("READ(6)", Class::Reads, cdb(&[0x08, 0x1f, 0xff, 0xff, 0xff, 0]), medium::read),
    entry("WRITE(6)", Class::Changes, cdb(&[0x0a, 0x1f, 0xff, 0xff, 0xff, 0]), medium::write),
    entry("INQUIRY", Class::Free, cdb(&[0x12, 0x01, 0xff, 0xff, 0xff, 0]), inquiry::inquiry).always(),
    entry("MODE SELECT(6)", Class::Changes, cdb(&[0x15, 0x10, 0, 0, 0xff, 0]), mode::mode_select_6)
        .then(mode::mode_select_6_parameters),
    entry("RESERVE(6)", Class::Free, cdb(&[0x16, 0, 0, 0, 0, 0]), reserve::reserve),
    entry("RELEASE(6)", Class::Free, cdb(&[0x17, 0, 0, 0, 0, 0]), reserve::release),
    entry("MODE SENSE(6)", Class::Reads, cdb(&[0x1a, 0x08, 0xff, 0xff, 0xff, 0]), mode::mode_sense_6),
    entry("START STOP UNIT", Class::Changes, cdb(&[0x1b, 0x01, 0, 0, 0x05, 0]), unit::start_stop_unit),
    entry("SEND DIAGNOSTIC", Class::Changes, cdb(&[0x1d, 0x04, 0, 0, 0, 0]), unit::send_diagnostic),
    entry("PREVENT ALLOW MEDIUM REMOVAL", Class::Ready, cdb(&[0x1e, 0, 0, 0, 0x01, 0]), unit::prevent_allow),
    entry("READ CAPACITY(10)", Class::Free, cdb(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]), capacity::read_capacity_10),
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
        capacity::read_capacity_16,
    ).action(),
    entry(
        "GET LBA STATUS",
        Class::Free,
        cdb(&[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        provisioning::get_lba_status,
    ).action(),
    entry("REPORT LUNS", Class::Free, cdb(&[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]), unit::report_luns).always(),
    entry(
        "REPORT SUPPORTED OPERATION CODES",
        Class::Reads,
        cdb(&[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        report_opcodes::report_supported_opcodes,
    ).action(),
    entry(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        Class::Reads,
        cdb(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        report_opcodes::report_supported_task_management,
    ).action(),
    entry("READ(12)", Class::Reads, block_12(0xa8, DPO_FUA), medium::read),
    entry("WRITE(12)", Class::Changes, block_12(0xaa, DPO_FUA), medium::write),
    entry("WRITE AND VERIFY(12)", Class::Changes, block_12(0xae, DPO_BYTCHK), medium::write_and_verify),
    entry("VERIFY(12)", Class::Reads, block_12(0xaf, DPO_BYTCHK), medium::verify),
    entry("READ DEFECT DATA(12)", Class::Reads, cdb(&[0xb7, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]), unit::read_defect_data_12),
];

/// First row of each operation code in `TABLE`; `u8::MAX` where there is none.
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
