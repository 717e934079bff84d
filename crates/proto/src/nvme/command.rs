//! Submission and completion queue entries (NVMe base 2.1 §4.1, §4.2) and fabrics commands (§6).

use super::{Status, ascii};
use alloc::string::String;
use core::fmt;

pub const SQE_LEN: usize = 64;
pub const CQE_LEN: usize = 16;
/// Selects every namespace, in commands that allow it.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// Opcodes of admin commands.
pub mod admin {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of the NVM command set.
pub mod nvm {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    pub const RESERVATION_REPORT: u8 = 0x0e;
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    pub const RESERVATION_RELEASE: u8 = 0x15;
}

/// Fabrics commands: one opcode, then a type.
pub mod fabrics {
    pub const OPCODE: u8 = 0x7f;
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// Feature identifiers.
pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const QUEUE_COUNT: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    pub const HOST_IDENTIFIER: u8 = 0x81;
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// Log page identifiers.
pub mod log_id {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const COMMANDS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
}

/// Direction of a command's data: bits 1:0 of the opcode, or of the fabrics command type (NVMe base 2.1 §3.3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    None,
    HostToController,
    ControllerToHost,
    Both,
}

/// The location of a command's data (NVMe base 2.1 §4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// Data Block with an offset into the capsule.
    InCapsule {
        offset: u64,
        len: u32,
    },
    /// Transport Data Block: the transport moves the data, e.g. in data PDUs.
    Transport {
        len: u32,
    },
    Other,
}

const SGL_IN_CAPSULE: u8 = 0x01;
const SGL_TRANSPORT: u8 = 0x5a;
/// PSDT 01b: an SGL for the data, and a contiguous buffer for metadata. The only form in fabrics (NVMe base 2.1
/// §4.1.1).
const PSDT_SGL: u8 = 1 << 6;

/// CID: identifies an outstanding command within its queue; chosen by the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandId(pub u16);

impl fmt::LowerHex for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// CNTLID: identifies a controller within its subsystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerId(pub u16);

impl ControllerId {
    /// Requests any controller (dynamic controller model).
    pub const ANY: Self = Self(0xffff);
}

/// QID: identifies a queue within its controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueId(pub u16);

impl QueueId {
    pub const ADMIN: Self = Self(0);
}

/// A submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe(pub [u8; SQE_LEN]);

impl Sqe {
    pub fn new(opcode: u8, cid: CommandId, nsid: u32) -> Self {
        let mut sqe = Self([0; SQE_LEN]);
        sqe.0[0] = opcode;
        sqe.0[1] = PSDT_SGL;
        sqe.put_u16(2, cid.0);
        sqe.put_u32(4, nsid);
        sqe.set_sgl(Sgl::Transport { len: 0 });
        sqe
    }

    /// Creates a fabrics command. Its type is in place of the namespace.
    pub fn fabrics(kind: u8, cid: CommandId) -> Self {
        Self::new(fabrics::OPCODE, cid, u32::from(kind))
    }

    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    pub fn fabrics_type(&self) -> u8 {
        self.0[4]
    }

    pub fn is_fabrics(&self) -> bool {
        self.opcode() == fabrics::OPCODE
    }

    pub fn is_fused(&self) -> bool {
        self.0[1] & 3 != 0
    }

    /// Whether PSDT is 01b. Fabrics commands have no PSDT.
    pub fn says_sgl(&self) -> bool {
        self.is_fabrics() || self.0[1] >> 6 == 1
    }

    pub fn cid(&self) -> CommandId {
        CommandId(self.u16(2))
    }

    pub fn set_cid(&mut self, cid: CommandId) {
        self.put_u16(2, cid.0);
    }

    pub fn nsid(&self) -> u32 {
        self.u32(4)
    }

    /// Command dword `index`, 10 to 15.
    pub fn cdw(&self, index: usize) -> u32 {
        self.u32(index * 4)
    }

    pub fn set_cdw(&mut self, index: usize, value: u32) {
        self.put_u32(index * 4, value);
    }

    pub fn direction(&self) -> Direction {
        match (if self.is_fabrics() { self.fabrics_type() } else { self.opcode() }) & 3 {
            0 => Direction::None,
            1 => Direction::HostToController,
            2 => Direction::ControllerToHost,
            _ => Direction::Both,
        }
    }

    pub fn sgl(&self) -> Sgl {
        let len = self.u32(32);
        match self.0[39] {
            SGL_TRANSPORT => Sgl::Transport { len },
            SGL_IN_CAPSULE => Sgl::InCapsule { offset: self.u64(24), len },
            _ => Sgl::Other,
        }
    }

    pub fn set_sgl(&mut self, sgl: Sgl) {
        let (offset, len, kind) = match sgl {
            Sgl::InCapsule { offset, len } => (offset, len, SGL_IN_CAPSULE),
            Sgl::Transport { len } => (0, len, SGL_TRANSPORT),
            Sgl::Other => (0, 0, 0),
        };
        self.put_u64(24, offset);
        self.put_u32(32, len);
        self.put_u32(36, u32::from(kind) << 24);
    }

    /// First LBA of an NVM command: dwords 10 and 11.
    pub fn lba(&self) -> u64 {
        self.u64(40)
    }

    /// Number of blocks of an NVM command; the field is 0's based.
    pub fn blocks(&self) -> u32 {
        u32::from(self.u16(48)) + 1
    }

    /// Forced Unit Access of an NVM command.
    pub fn is_durable(&self) -> bool {
        self.0[51] & 0x40 != 0
    }

    pub fn set_durable(&mut self) {
        self.0[51] |= 0x40;
    }

    /// Sets first LBA and number of blocks, at most 65,536.
    pub fn set_range(&mut self, lba: u64, blocks: u32) {
        self.put_u64(40, lba);
        self.put_u16(48, (blocks - 1) as u16);
    }

    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    pub fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    pub fn put_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub fn put_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn put_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// Dwords 0 and 1.
    pub result: u64,
    pub sq_head: u16,
    pub cid: CommandId,
    pub status: Status,
}

impl Cqe {
    pub fn encode(&self) -> [u8; CQE_LEN] {
        let mut bytes = [0; CQE_LEN];
        bytes[..8].copy_from_slice(&self.result.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.sq_head.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.cid.0.to_le_bytes());
        bytes[14..].copy_from_slice(&self.status.field().to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; CQE_LEN]) -> Self {
        let [r0, r1, r2, r3, r4, r5, r6, r7, head0, head1, _, _, cid0, cid1, status0, status1] = *bytes;
        Self {
            result: u64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
            sq_head: u16::from_le_bytes([head0, head1]),
            cid: CommandId(u16::from_le_bytes([cid0, cid1])),
            status: Status::from_field(u16::from_le_bytes([status0, status1])),
        }
    }
}

/// The Connect command (NVMe base 2.1 §6.3): creates a queue and associates it with a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    pub record_format: u16,
    pub qid: QueueId,
    /// 0's based.
    pub sq_size: u16,
    pub disable_sq_flow_control: bool,
    pub keep_alive_ms: u32,
}

const CATTR_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;

impl Connect {
    pub const QID_AT: u16 = 42;
    pub const SQ_SIZE_AT: u16 = 44;

    pub fn parse(sqe: &Sqe) -> Self {
        Self {
            record_format: sqe.u16(40),
            qid: QueueId(sqe.u16(42)),
            sq_size: sqe.u16(44),
            disable_sq_flow_control: sqe.0[46] & CATTR_DISABLE_SQ_FLOW_CONTROL != 0,
            keep_alive_ms: sqe.u32(48),
        }
    }

    pub fn sqe(&self, cid: CommandId) -> Sqe {
        let mut sqe = Sqe::fabrics(fabrics::CONNECT, cid);
        sqe.put_u16(40, self.record_format);
        sqe.put_u16(42, self.qid.0);
        sqe.put_u16(44, self.sq_size);
        sqe.0[46] = if self.disable_sq_flow_control { CATTR_DISABLE_SQ_FLOW_CONTROL } else { 0 };
        sqe.put_u32(48, self.keep_alive_ms);
        sqe
    }

    /// Result of Connect Invalid Parameters: offset of the invalid field of the command.
    pub fn wrong_field(at: u16) -> u64 {
        u64::from(at)
    }

    /// Result of Connect Invalid Parameters: offset of the invalid field of the data.
    pub fn wrong_data(at: u16) -> u64 {
        u64::from(at) | 1 << 16
    }
}

/// Data of the Connect command: 1,024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    pub host_id: [u8; 16],
    pub cntlid: ControllerId,
    pub subnqn: String,
    pub hostnqn: String,
}

impl ConnectData {
    pub const LEN: usize = 1024;
    pub const HOST_ID_AT: u16 = 0;
    pub const CNTLID_AT: u16 = 16;
    pub const SUBNQN_AT: u16 = 256;
    pub const HOSTNQN_AT: u16 = 512;

    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let mut host_id = [0; 16];
        host_id.copy_from_slice(&bytes[..16]);
        Self {
            host_id,
            cntlid: ControllerId(u16::from_le_bytes([bytes[16], bytes[17]])),
            subnqn: ascii::parse(&bytes[256..512]),
            hostnqn: ascii::parse(&bytes[512..768]),
        }
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.host_id);
        bytes[16..18].copy_from_slice(&self.cntlid.0.to_le_bytes());
        ascii::zero_filled(&self.subnqn, &mut bytes[256..511]);
        ascii::zero_filled(&self.hostnqn, &mut bytes[512..767]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_fields_survive_encoding() {
        let mut sqe = Sqe::new(nvm::READ, CommandId(0x1234), 7);
        sqe.set_range(0x1_0000_0001, 65_536);
        sqe.set_sgl(Sgl::InCapsule { offset: 0, len: 4096 });
        assert_eq!((sqe.cid(), sqe.nsid(), sqe.lba(), sqe.blocks()), (CommandId(0x1234), 7, 0x1_0000_0001, 65_536));
        assert_eq!(sqe.sgl(), Sgl::InCapsule { offset: 0, len: 4096 });
        assert_eq!(sqe.direction(), Direction::ControllerToHost);
        assert!(sqe.says_sgl());
    }

    #[test]
    fn connect_survives_encoding() {
        let connect = Connect {
            record_format: 0,
            qid: QueueId(3),
            sq_size: 127,
            disable_sq_flow_control: true,
            keep_alive_ms: 5000,
        };
        assert_eq!(Connect::parse(&connect.sqe(CommandId(9))), connect);
        let data = ConnectData {
            host_id: [7; 16],
            cntlid: ControllerId::ANY,
            subnqn: "nqn.a".into(),
            hostnqn: "nqn.b".into(),
        };
        assert_eq!(ConnectData::parse(&data.encode()), data);
    }

    #[test]
    fn completion_survives_encoding() {
        let cqe = Cqe { result: 5, sq_head: 2, cid: CommandId(77), status: Status::LBA_OUT_OF_RANGE.do_not_retry() };
        assert_eq!(Cqe::decode(&cqe.encode()), cqe);
    }
}
