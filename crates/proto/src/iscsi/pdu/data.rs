//! Data-Out, Data-In and R2T (RFC 7143 §11.7, §11.8).

use super::bhs::{TaskTag, TransferTag, pdu};

pdu! {
    /// SCSI Data-Out, RFC 7143 §11.7.
    DataOut = 0x05
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        exp_stat_sn @ 28: u32,
        data_sn @ 36: u32,
        buffer_offset @ 40: u32,
    }
}

pdu! {
    /// SCSI Data-In, RFC 7143 §11.7. With `status_here` it is the command's response as well (phase collapse).
    DataIn = 0x25
    flags {
        last @ 1 & 0x80,
        acknowledge @ 1 & 0x40,
        overflow @ 1 & 0x04,
        underflow @ 1 & 0x02,
        status_here @ 1 & 0x01,
    }
    bits { }
    fields {
        status @ 3: u8,
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        data_sn @ 36: u32,
        buffer_offset @ 40: u32,
        residual @ 44: u32,
    }
}

pdu! {
    /// Ready To Transfer, RFC 7143 §11.8.
    R2t = 0x31
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        r2t_sn @ 36: u32,
        buffer_offset @ 40: u32,
        desired_len @ 44: u32,
    }
}
