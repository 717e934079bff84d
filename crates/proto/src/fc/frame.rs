//! The header of a frame (FC-FS-5, Frame_Header).

/// Bytes of the header.
pub const LEN: usize = 24;

/// A World Wide Name of a port or node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName(pub u64);

impl core::fmt::Display for PortName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An address: N_Port_ID, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortId(pub u32);

impl PortId {
    /// Whom a port asks for its own address.
    pub const FABRIC: Self = Self(0xff_fffe);
    /// Of every initiator, and of every target: each connection is a fabric of two ports.
    pub const INITIATOR: Self = Self(0x01_0100);
    pub const TARGET: Self = Self(0x01_0200);
}

/// Names an exchange at its originator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OxId(pub u16);

/// Names an exchange at its responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxId(pub u16);

impl RxId {
    pub const UNASSIGNED: Self = Self(0xffff);
}

impl Default for RxId {
    fn default() -> Self {
        Self::UNASSIGNED
    }
}

/// R_CTL: what a frame is.
pub mod r_ctl {
    pub const SOLICITED_DATA: u8 = 0x01;
    pub const DATA_DESCRIPTOR: u8 = 0x05;
    pub const UNSOLICITED_COMMAND: u8 = 0x06;
    pub const COMMAND_STATUS: u8 = 0x07;
    pub const EXTENDED_STATUS: u8 = 0x08;
    pub const ELS_REQUEST: u8 = 0x22;
    pub const ELS_REPLY: u8 = 0x23;
    /// Link services of an FC-4.
    pub const FC4_LS_REQUEST: u8 = 0x32;
    pub const FC4_LS_REPLY: u8 = 0x33;
    pub const ABTS: u8 = 0x81;
    pub const BA_ACC: u8 = 0x84;
    pub const BA_RJT: u8 = 0x85;
}

/// TYPE: whose information it carries.
pub mod kind {
    pub const BLS: u8 = 0x00;
    pub const ELS: u8 = 0x01;
    pub const FCP: u8 = 0x08;
    pub const NVME: u8 = 0x28;
}

/// F_CTL.
pub mod f_ctl {
    /// Sent by the responder.
    pub const EXCHANGE_CONTEXT: u32 = 1 << 23;
    pub const FIRST_SEQUENCE: u32 = 1 << 21;
    pub const LAST_SEQUENCE: u32 = 1 << 20;
    pub const END_SEQUENCE: u32 = 1 << 19;
    pub const SEQUENCE_INITIATIVE: u32 = 1 << 16;
    /// PARAMETER is the offset of the data.
    pub const RELATIVE_OFFSET: u32 = 1 << 3;
    pub const FILL: u32 = 3;

    /// The one sequence with which an originator begins, and the one with which a responder ends.
    pub const REQUEST: u32 = FIRST_SEQUENCE | END_SEQUENCE | SEQUENCE_INITIATIVE;
    pub const REPLY: u32 = EXCHANGE_CONTEXT | LAST_SEQUENCE | END_SEQUENCE;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub r_ctl: u8,
    pub d_id: PortId,
    pub s_id: PortId,
    pub kind: u8,
    pub f_ctl: u32,
    pub seq_id: u8,
    pub df_ctl: u8,
    pub seq_cnt: u16,
    pub ox_id: OxId,
    pub rx_id: RxId,
    pub parameter: u32,
}

impl Header {
    pub fn has(&self, bit: u32) -> bool {
        self.f_ctl & bit != 0
    }

    /// The frame is a sequence by itself.
    pub fn is_whole_sequence(&self) -> bool {
        self.seq_cnt == 0 && self.has(f_ctl::END_SEQUENCE)
    }

    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..4].copy_from_slice(&(u32::from(self.r_ctl) << 24 | self.d_id.0).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.s_id.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&(u32::from(self.kind) << 24 | self.f_ctl).to_be_bytes());
        bytes[12] = self.seq_id;
        bytes[13] = self.df_ctl;
        bytes[14..16].copy_from_slice(&self.seq_cnt.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.ox_id.0.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.rx_id.0.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.parameter.to_be_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8; LEN]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Self {
            r_ctl: bytes[0],
            d_id: PortId(word(0) & 0xff_ffff),
            s_id: PortId(word(4) & 0xff_ffff),
            kind: bytes[8],
            f_ctl: word(8) & 0xff_ffff,
            seq_id: bytes[12],
            df_ctl: bytes[13],
            seq_cnt: half(14),
            ox_id: OxId(half(16)),
            rx_id: RxId(half(18)),
            parameter: word(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            r_ctl: r_ctl::SOLICITED_DATA,
            d_id: PortId::TARGET,
            s_id: PortId::INITIATOR,
            kind: kind::FCP,
            f_ctl: f_ctl::REQUEST | f_ctl::RELATIVE_OFFSET,
            seq_id: 3,
            df_ctl: 0,
            seq_cnt: 260,
            ox_id: OxId(17),
            rx_id: RxId(0xfffe),
            parameter: 0x0102_0304,
        };
        assert_eq!(Header::parse(&header.encode()), header);
        assert_eq!(header.encode()[..12], [0x01, 1, 2, 0, 0, 1, 1, 0, 0x08, 0x29, 0, 0x08]);
    }
}
