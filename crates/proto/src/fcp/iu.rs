//! Information units (FCP-4) and the service parameters of PRLI.

use crate::{
    Violation,
    fc::{
        Header,
        frame::{kind, r_ctl},
        sequence,
    },
    scsi::{Sense, target::Residual},
    wire::Reader,
};

/// Service parameters of the PRLI page (FCP-4).
pub(super) mod service {
    pub(in super::super) const READ_XFER_RDY_DISABLED: u32 = 0x02;
    pub(in super::super) const TARGET: u32 = 0x10;
    pub(in super::super) const INITIATOR: u32 = 0x20;
}

/// TASK MANAGEMENT FLAGS of `FCP_CMND`.
pub mod function {
    pub const ABORT_TASK_SET: u8 = 0x02;
    pub const CLEAR_TASK_SET: u8 = 0x04;
    pub const LOGICAL_UNIT_RESET: u8 = 0x10;
    pub const TARGET_RESET: u8 = 0x20;
    pub const CLEAR_ACA: u8 = 0x40;
}

/// `RSP_CODE` of `FCP_RSP_INFO`.
pub mod response_code {
    pub const COMPLETE: u8 = 0x00;
    pub const DATA_LENGTH: u8 = 0x01;
    pub const COMMAND_FIELDS: u8 = 0x02;
    pub const DATA_OFFSET: u8 = 0x03;
    pub const REJECTED: u8 = 0x04;
    pub const FAILED: u8 = 0x05;
    pub const INCORRECT_LUN: u8 = 0x09;

    pub fn name(code: u8) -> &'static str {
        match code {
            COMPLETE => "complete",
            DATA_LENGTH => "FCP_DATA of another length than FCP_BURST_LEN",
            COMMAND_FIELDS => "FCP_CMND fields invalid",
            DATA_OFFSET => "FCP_DATA at another offset than FCP_DATA_RO",
            REJECTED => "task management function rejected",
            FAILED => "task management function failed",
            INCORRECT_LUN => "task management function for an incorrect LUN",
            _ => "unknown response code",
        }
    }
}

/// `FCP_CMND`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The eight bytes of the LUN field, big endian.
    pub lun: u64,
    pub attribute: u8,
    /// A code of module `function`, or 0.
    pub function: u8,
    /// Length of the rest of the CDB in words of four bytes. Bytes after the sixteenth are not read.
    pub additional_cdb_words: u8,
    pub reads: bool,
    pub writes: bool,
    pub cdb: [u8; 16],
    /// `FCP_DL`.
    pub data_len: u32,
}

impl Command {
    pub const LEN: usize = 32;
    const WRITES: u8 = 0x01;
    const READS: u8 = 0x02;

    /// The header of its frame.
    pub fn header() -> Header {
        sequence::command_header(kind::FCP)
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.lun.to_be_bytes());
        bytes[9] = self.attribute & 0x07;
        bytes[10] = self.function;
        bytes[11] = self.additional_cdb_words << 2
            | if self.reads { Self::READS } else { 0 }
            | if self.writes { Self::WRITES } else { 0 };
        bytes[12..28].copy_from_slice(&self.cdb);
        bytes[28..32].copy_from_slice(&self.data_len.to_be_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let short = |_| malformed!("FCP-4 FCP_CMND: an FCP_CMND that is too short");
        let mut reader = Reader::new(bytes);
        let lun = reader.u64_be().map_err(short)?;
        let [_, attribute, function, flags] = reader.array().map_err(short)?;
        let cdb = reader.array().map_err(short)?;
        let additional_cdb_words = flags >> 2;
        reader.skip(usize::from(additional_cdb_words) * 4).map_err(short)?;
        let data_len = reader.u32_be().map_err(short)?;
        Ok(Self {
            lun,
            attribute: attribute & 0x07,
            function,
            additional_cdb_words,
            reads: flags & Self::READS != 0,
            writes: flags & Self::WRITES != 0,
            cdb,
            data_len,
        })
    }
}

/// `FCP_RSP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseIu<'a> {
    pub(super) status: u8,
    pub(super) residual: Residual,
    /// `RSP_CODE`, if `FCP_RSP_INFO` is present.
    pub(super) code: Option<u8>,
    pub(super) sense: &'a [u8],
}

const RESPONSE_LEN: usize = 24;
const RESPONSE_INFO_LEN: usize = 8;
const HAS_CODE: u8 = 0x01;
const HAS_SENSE: u8 = 0x02;
const OVER: u8 = 0x04;
const UNDER: u8 = 0x08;

pub(super) fn response_header() -> Header {
    sequence::response_header(kind::FCP, r_ctl::COMMAND_STATUS)
}

/// Encodes an `FCP_RSP` without sense data, and returns its length.
pub(super) fn encode_response(status: u8, residual: Residual, code: Option<u8>) -> ([u8; 32], usize) {
    let mut bytes = [0; RESPONSE_LEN + RESPONSE_INFO_LEN];
    bytes[10] = if code.is_some() { HAS_CODE } else { 0 }
        | if residual.overflow { OVER } else { 0 }
        | if residual.underflow { UNDER } else { 0 };
    bytes[11] = status;
    bytes[12..16].copy_from_slice(&residual.count.to_be_bytes());
    let Some(code) = code else { return (bytes, RESPONSE_LEN) };
    bytes[23] = RESPONSE_INFO_LEN as u8;
    bytes[27] = code;
    (bytes, bytes.len())
}

/// Encodes an `FCP_RSP` with sense data.
pub(super) fn encode_sense(status: u8, residual: Residual, sense: &Sense) -> alloc::vec::Vec<u8> {
    let (bytes, len) = encode_response(status, residual, None);
    let sense = sense.encode();
    let mut response = bytes[..len].to_vec();
    response[10] |= HAS_SENSE;
    response[16..20].copy_from_slice(&(sense.len() as u32).to_be_bytes());
    response.extend_from_slice(&sense);
    response
}

impl<'a> ResponseIu<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Violation> {
        let short = |_| malformed!("FCP-4 FCP_RSP: an FCP_RSP that is too short");
        let mut reader = Reader::new(bytes);
        reader.skip(10).map_err(short)?;
        let (flags, status) = (reader.u8().map_err(short)?, reader.u8().map_err(short)?);
        let count = reader.u32_be().map_err(short)?;
        let (sense_len, info_len) = (reader.u32_be().map_err(short)?, reader.u32_be().map_err(short)?);
        let mut response = Self {
            status,
            residual: Residual { overflow: flags & OVER != 0, underflow: flags & UNDER != 0, count },
            code: None,
            sense: &[],
        };
        if flags & HAS_CODE != 0 {
            let info = reader.take(info_len as usize).map_err(short)?;
            response.code = info.get(3).copied();
        }
        if flags & HAS_SENSE != 0 {
            response.sense = reader.take(sense_len as usize).map_err(short)?;
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_units_are_read_as_they_were_written() {
        let command = Command {
            lun: 1 << 48,
            attribute: 0,
            function: function::LOGICAL_UNIT_RESET,
            additional_cdb_words: 0,
            reads: true,
            writes: false,
            cdb: [7; 16],
            data_len: 4096,
        };
        assert_eq!(Command::parse(&command.encode()), Ok(command));
        assert!(Command::parse(&command.encode()[..31]).is_err());
        let longer = Command { additional_cdb_words: 1, ..command };
        assert!(Command::parse(&longer.encode()).is_err(), "FCP_DL stands behind the longer CDB");
    }

    #[test]
    fn responses_bring_residuals_and_either_a_code_or_sense_data() {
        let residual = Residual::new(100, 40);
        assert_eq!(residual, Residual { overflow: false, underflow: true, count: 60 });
        let (bytes, len) = encode_response(8, residual, Some(response_code::FAILED));
        let parsed = ResponseIu::parse(&bytes[..len]).expect("a response");
        assert_eq!((parsed.status, parsed.residual, parsed.code), (8, residual, Some(5)));
        let bytes = encode_sense(2, Residual::default(), &Sense::POWER_ON);
        let parsed = ResponseIu::parse(&bytes).expect("a response");
        assert_eq!(crate::scsi::sense::parse(parsed.sense), Some(Sense::POWER_ON));
        assert!(ResponseIu::parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(ResponseIu::parse(&[0; 23]).is_err());
    }
}
