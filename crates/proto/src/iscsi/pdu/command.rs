//! SCSI Command and SCSI Response (RFC 7143 §11.3, §11.4).

use super::bhs::{TaskTag, pdu};

pdu! {
    /// SCSI Command, RFC 7143 §11.3. A CDB beyond 16 bytes continues in an extended-CDB header segment.
    ScsiCommand = 0x01
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, read @ 1 & 0x40, write @ 1 & 0x20, }
    bits { attribute @ 1 & 0x07 >> 0, }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        expected_data_len @ 20: u32,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
        cdb @ 32: [u8; 16],
    }
}

/// SIMPLE of the task attributes (RFC 7143 §11.3.1).
pub const ATTRIBUTE_SIMPLE: u8 = 1;

pdu! {
    /// SCSI Response, RFC 7143 §11.4. Sense data, where there are, stand in the data segment behind their length (2 bytes).
    ScsiResponse = 0x21
    flags { last @ 1 & 0x80, overflow @ 1 & 0x04, underflow @ 1 & 0x02, }
    bits { }
    fields {
        response @ 2: u8,
        status @ 3: u8,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        exp_data_sn @ 36: u32,
        residual @ 44: u32,
    }
}

/// Values of `ScsiResponse::response` (RFC 7143 §11.4.3).
pub const COMPLETED_AT_TARGET: u8 = 0x00;
