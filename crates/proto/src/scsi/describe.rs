//! A CDB in words, for people who read traces.

use alloc::{format, string::String};
use core::fmt::Write;

use super::{
    cdb::{Cdb, cdb_len},
    opcodes::COMMANDS,
};

/// Name of the command and its main fields, such as `READ(10) lba=8 blocks=1 FUA`.
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

/// Fields of a command, each with a space before it. Writing to a string does not fail.
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
