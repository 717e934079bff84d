//! A CDB in words, for people who read traces.

use alloc::{format, string::String};

use super::{cdb::Cdb, opcodes};

/// Name of the command and its main fields, such as `READ(10) lba=8 blocks=1`.
pub fn describe_cdb(cdb: &[u8]) -> String {
    let Ok(entry) = opcodes::find(cdb, None) else {
        return match cdb.first() {
            Some(opcode) => format!("unknown command {opcode:#04x}"),
            None => String::from("empty CDB"),
        };
    };
    match entry.opcode() {
        0x08 | 0x0a | 0x28 | 0x2a | 0x88 | 0x8a | 0xa8 | 0xaa => {
            let extent = Cdb(cdb).extent();
            format!("{} lba={} blocks={}", entry.name, extent.lba, extent.blocks)
        }
        _ => String::from(entry.name),
    }
}
