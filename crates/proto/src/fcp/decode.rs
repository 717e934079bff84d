//! The contents of a stream as text, for traces.

use alloc::{format, string::String};

use super::iu::{Command, ResponseIu, response_code};
use crate::{
    Violation,
    fc::{
        self, Header,
        frame::{kind, r_ctl},
        sequence::TransferReady,
    },
    scsi,
};

/// Describes what is at the start of `bytes`, and returns its length in bytes; `None` if more bytes are needed.
pub fn describe(bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
    fc::decode::describe(bytes, words)
}

fn words(header: &Header, data: &[u8]) -> Result<Option<String>, Violation> {
    Ok(Some(match (header.kind, header.r_ctl) {
        (kind::FCP, r_ctl::UNSOLICITED_COMMAND) => {
            let iu = Command::parse(data)?;
            let direction = match (iu.reads, iu.writes) {
                (true, true) => "bidirectional",
                (true, false) => "in",
                (false, true) => "out",
                (false, false) => "no data",
            };
            let what = match iu.function {
                0 => scsi::describe_cdb(&iu.cdb),
                function => format!("function {function:#04x}"),
            };
            format!("FCP_CMND {what} lun={:#x} {direction} dl={}", iu.lun, iu.data_len)
        }
        (kind::FCP, r_ctl::DATA_DESCRIPTOR) => {
            let TransferReady { offset, len } = TransferReady::parse(data)?;
            format!("FCP_XFER_RDY offset={offset} burst={len}")
        }
        (kind::FCP, r_ctl::SOLICITED_DATA) => format!("FCP_DATA offset={}", header.parameter),
        (kind::FCP, r_ctl::COMMAND_STATUS) => {
            let iu = ResponseIu::parse(data)?;
            let code = iu.code.map_or(String::new(), |code| format!(" {}", response_code::name(code)));
            let sense =
                scsi::sense::parse(iu.sense).map_or(String::new(), |sense| format!(" sense={:06x}", sense.kcq()));
            format!("FCP_RSP status={:#04x} residual={}{code}{sense}", iu.status, iu.residual.count)
        }
        _ => return Ok(None),
    }))
}
