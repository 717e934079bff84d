//! Text Request and Text Response (RFC 7143 §11.10, §11.11).

use super::bhs::{TaskTag, TransferTag, pdu};

pdu! {
    /// Text Request, RFC 7143 §11.10.
    TextRequest = 0x04
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, continued @ 1 & 0x40, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
    }
}

pdu! {
    /// Text Response, RFC 7143 §11.11.
    TextResponse = 0x24
    flags { last @ 1 & 0x80, continued @ 1 & 0x40, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
    }
}
