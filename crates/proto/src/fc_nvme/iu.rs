//! Information units (FC-NVMe-2: `NVMe_CMND`, `NVMe_RSP`, `NVMe_ERSP`) and the service parameters of PRLI. Fields of
//! Fibre Channel are big endian; the NVMe queue entries in them are little endian.

use super::ConnectionId;
use crate::{
    Violation,
    fc::{
        Header,
        frame::{kind, r_ctl},
        sequence,
    },
    nvme::{
        Cqe, Sqe,
        command::{CQE_LEN, Direction, SQE_LEN, Sgl},
    },
    wire::Reader,
};

/// Service parameters of the PRLI page (FC-NVMe-2, PRLI). First burst and sequence level error recovery are not
/// offered.
pub(super) mod service {
    pub(in super::super) const TARGET: u32 = 0x10;
    pub(in super::super) const INITIATOR: u32 = 0x20;
}

/// `ERSP Result`: whether the command reached its queue.
pub mod result {
    pub const SUCCESS: u8 = 0x00;
    pub const INVALID_FIELD: u8 = 0x01;
    pub const ILLEGAL_CONNECTION_PARAMETERS: u8 = 0x03;

    pub fn name(result: u8) -> &'static str {
        match result {
            SUCCESS => "success",
            INVALID_FIELD => "invalid field in the NVMe_CMND",
            ILLEGAL_CONNECTION_PARAMETERS => "illegal connection parameters",
            _ => "another result",
        }
    }
}

/// `NVMe_CMND`: contains a submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub connection: ConnectionId,
    /// Command Sequence Number: counts the commands of a connection from 0 (FC-NVMe-2, in-order delivery).
    pub csn: u32,
    /// Bytes that the command transfers in either direction.
    pub data_len: u32,
    /// Whether it is for an I/O queue, not the admin queue.
    pub is_io: bool,
    pub sqe: Sqe,
}

/// `Format ID` and `FC ID` of every `NVMe_CMND`.
const FORMAT: u8 = 0xfd;
const WRITES: u8 = 0x01;
const READS: u8 = 0x02;
/// Category: the admin queue.
const ADMIN: u8 = 0x01;
const WORD: usize = 4;

impl Command {
    pub const LEN: usize = 96;
    const SQE_AT: usize = 24;

    /// The header of its frame.
    pub fn header() -> Header {
        sequence::command_header(kind::NVME)
    }

    /// Creates the unit with the length in the command's SGL.
    pub fn new(connection: ConnectionId, csn: u32, is_io: bool, sqe: Sqe) -> Self {
        Self { connection, csn, data_len: data_len(&sqe), is_io, sqe }
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = FORMAT;
        bytes[1] = kind::NVME;
        bytes[2..4].copy_from_slice(&((Self::LEN / WORD) as u16).to_be_bytes());
        bytes[6] = if self.is_io { 0 } else { ADMIN };
        bytes[7] = match self.sqe.direction() {
            _ if self.data_len == 0 => 0,
            Direction::HostToController => WRITES,
            Direction::ControllerToHost => READS,
            Direction::None | Direction::Both => 0,
        };
        bytes[8..16].copy_from_slice(&self.connection.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.csn.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.data_len.to_be_bytes());
        bytes[Self::SQE_AT..Self::SQE_AT + SQE_LEN].copy_from_slice(&self.sqe.0);
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let short = |_| malformed!("FC-NVMe-2 NVMe_CMND: an NVMe_CMND that is too short");
        let mut reader = Reader::new(bytes);
        let (format, fc_id) = (reader.u8().map_err(short)?, reader.u8().map_err(short)?);
        if (format, fc_id) != (FORMAT, kind::NVME) {
            return Err(malformed!("FC-NVMe-2 NVMe_CMND: an NVMe_CMND of another format"));
        }
        if usize::from(reader.u16_be().map_err(short)?) != Self::LEN / WORD {
            return Err(malformed!("FC-NVMe-2 NVMe_CMND: an NVMe_CMND whose IU Length is not its own").at(2));
        }
        reader.skip(2).map_err(short)?;
        let category = reader.u8().map_err(short)?;
        reader.skip(1).map_err(short)?;
        let connection = ConnectionId(reader.u64_be().map_err(short)?);
        let (csn, data_len) = (reader.u32_be().map_err(short)?, reader.u32_be().map_err(short)?);
        let sqe = Sqe(reader.array().map_err(short)?);
        reader.skip(Self::LEN - Self::SQE_AT - SQE_LEN).map_err(short)?;
        Ok(Self { connection, csn, data_len, is_io: category & 0x0f != ADMIN, sqe })
    }

    /// Whether Data Length equals the length in the command's SGL, as it must.
    #[inline]
    pub(super) fn is_consistent(&self) -> bool {
        self.data_len == data_len(&self.sqe)
    }
}

/// The length in the SGL. Data are never in the unit (FC-NVMe-2: in-capsule data are not supported).
#[inline]
fn data_len(sqe: &Sqe) -> u32 {
    match sqe.sgl() {
        Sgl::Transport { len } => len,
        Sgl::InCapsule { .. } | Sgl::Other => 0,
    }
}

/// `NVMe_RSP`: success with no further information. It consists of zeros.
pub const RESPONSE_LEN: usize = 12;

pub(super) fn response_header() -> Header {
    sequence::response_header(kind::NVME, r_ctl::COMMAND_STATUS)
}

/// Checks an `NVMe_RSP`. Initiators also accept an empty one, as Linux does.
pub(super) fn parse_response(bytes: &[u8]) -> Result<(), Violation> {
    if bytes.len() <= RESPONSE_LEN && bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(malformed!("FC-NVMe-2 NVMe_RSP: an NVMe_RSP that is not 12 bytes of zeros"))
}

/// `NVMe_ERSP`: contains a completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// A code of module `result`.
    pub result: u8,
    /// Response Sequence Number: counts the extended responses of a connection from 0.
    pub rsn: u32,
    /// Bytes that were transferred in either direction.
    pub moved: u32,
    pub cqe: Cqe,
}

impl Extended {
    pub const LEN: usize = 32;

    pub fn header() -> Header {
        sequence::response_header(kind::NVME, r_ctl::EXTENDED_STATUS)
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.result;
        bytes[2..4].copy_from_slice(&((Self::LEN / WORD) as u16).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.rsn.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.moved.to_be_bytes());
        bytes[Self::LEN - CQE_LEN..].copy_from_slice(&self.cqe.encode());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let short = |_| malformed!("FC-NVMe-2 NVMe_ERSP: an NVMe_ERSP that is too short");
        let mut reader = Reader::new(bytes);
        let result = reader.u8().map_err(short)?;
        reader.skip(1).map_err(short)?;
        if usize::from(reader.u16_be().map_err(short)?) != Self::LEN / WORD {
            return Err(malformed!("FC-NVMe-2 NVMe_ERSP: an NVMe_ERSP whose IU Length is not its own").at(2));
        }
        let (rsn, moved) = (reader.u32_be().map_err(short)?, reader.u32_be().map_err(short)?);
        reader.skip(4).map_err(short)?;
        let cqe = Cqe::decode(&reader.array().map_err(short)?);
        Ok(Self { result, rsn, moved, cqe })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::{CommandId, Status, command::nvm};

    fn command() -> Command {
        let mut sqe = Sqe::new(nvm::READ, CommandId(7), 1);
        sqe.set_sgl(Sgl::Transport { len: 4096 });
        Command::new(ConnectionId(0x0102_0304_0506_0708), 9, true, sqe)
    }

    #[test]
    fn a_command_lies_as_the_standard_has_it() {
        let bytes = command().encode();
        assert_eq!(bytes[..24], [0xfd, 0x28, 0, 24, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 16, 0]);
        assert_eq!((bytes[24], bytes[26], &bytes[88..]), (nvm::READ, 7, &[0; 8][..]));
        assert_eq!(Command::parse(&bytes), Ok(command()));
        let admin = Command { is_io: false, ..command() };
        assert_eq!((admin.encode()[6], Command::parse(&admin.encode())), (1, Ok(admin)));
        for at in [0, 1, 3] {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert!(Command::parse(&wrong).is_err(), "byte {at}");
        }
        assert!(Command::parse(&bytes[..95]).is_err());
        assert!(!Command { data_len: 512, ..command() }.is_consistent());
    }

    #[test]
    fn an_extended_response_brings_the_entry_and_what_was_moved() {
        let status = Status::LBA_OUT_OF_RANGE.do_not_retry();
        let cqe = Cqe { result: 5, sq_head: 2, cid: CommandId(77), status };
        let response = Extended { result: result::SUCCESS, rsn: 3, moved: 4096, cqe };
        let bytes = response.encode();
        assert_eq!(bytes[..16], [0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 16, 0, 0, 0, 0, 0]);
        assert_eq!(Extended::parse(&bytes), Ok(response));
        assert!(Extended::parse(&bytes[..31]).is_err());
    }

    #[test]
    fn a_short_response_is_nothing_but_zeros() {
        assert!(parse_response(&[0; RESPONSE_LEN]).is_ok() && parse_response(&[]).is_ok());
        assert!(parse_response(&[0; 13]).is_err() && parse_response(&[0, 1]).is_err());
    }
}
