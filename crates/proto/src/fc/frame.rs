//! The header of a frame (FC-FS-5, Frame_Header), and the encapsulation of frames in a stream: RFC 3643 as used by FCIP
//! (RFC 3821), with two kinds of records in addition to frames.

use core::ops::Range;

use crate::Violation;

/// Length of the header in bytes.
pub const LEN: usize = 24;

/// A World Wide Name of a port or node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName(pub u64);

impl core::fmt::Display for PortName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An address identifier: N_Port_ID, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortId(pub u32);

impl PortId {
    /// The well-known address from which a port requests its own address.
    pub const FABRIC: Self = Self(0xff_fffe);
    /// The address of every initiator. Each connection is a fabric of two ports.
    pub const INITIATOR: Self = Self(0x01_0100);
    /// The address of every target.
    pub const TARGET: Self = Self(0x01_0200);
}

/// Identifies an exchange; assigned by its originator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OxId(pub u16);

/// Identifies an exchange; assigned by its responder.
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

/// R_CTL: the kind of a frame.
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

/// TYPE: the protocol of a frame.
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
    /// PARAMETER contains the offset of the data.
    pub const RELATIVE_OFFSET: u32 = 1 << 3;
    pub const FILL: u32 = 3;

    /// The first sequence of an exchange, if it is the originator's only one.
    pub const REQUEST: u32 = FIRST_SEQUENCE | END_SEQUENCE | SEQUENCE_INITIATIVE;
    /// The last sequence of an exchange, sent by the responder.
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

    /// Whether the frame is a complete sequence.
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

/// Length of the encapsulation header, which precedes everything in the stream.
pub const ENCAPSULATION_LEN: usize = 28;
/// Length of a Special Frame, including its header.
pub const SPECIAL_LEN: usize = 76;
/// Length of everything before a frame's data: encapsulation header, SOF, frame header.
pub const BEFORE_DATA: usize = ENCAPSULATION_LEN + 4 + LEN;
/// Length of everything after a frame's data: CRC and EOF.
pub const BEHIND_DATA: usize = 8;
/// Maximum bytes of data in a frame (FC-FS-5).
pub const DATA_LEN_MAX: usize = 2112;

/// Protocol# 1 (FCIP) and Version 1 with their complements, twice (RFC 3821 §5.6.1).
const PROTOCOL: [u8; 8] = [1, 1, !1, !1, 1, 1, !1, !1];

/// pFlags (RFC 3821 §5.6.1): SF and Ch.
const SPECIAL: u8 = 0x01;
const CHANGED: u8 = 0x80;
/// A reserved bit of pFlags. It marks a record without a frame, which stands for the number of R_RDYs in word 4.
const READY: u8 = 0x02;

/// Delimiters of class 3 (RFC 3643 §3.4).
pub mod delimiter {
    pub const SOF_I3: u8 = 0x2e;
    pub const SOF_N3: u8 = 0x36;
    pub const EOF_N: u8 = 0x41;
    pub const EOF_T: u8 = 0x42;

    /// Encodes a delimiter: the code twice, then its complement twice.
    pub fn encode(code: u8) -> [u8; 4] {
        [code, code, !code, !code]
    }

    pub fn decode(bytes: [u8; 4]) -> Option<u8> {
        (bytes == encode(bytes[0])).then_some(bytes[0])
    }
}

/// The contents of a record after its encapsulation header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A frame with this many bytes of data and fill bytes.
    Frame {
        data_len: usize,
    },
    Special {
        changed: bool,
    },
    /// Nothing. The record stands for this many R_RDYs.
    Ready(u32),
}

pub fn encode_encapsulation(kind: Kind) -> [u8; ENCAPSULATION_LEN] {
    let (flags, len) = match kind {
        Kind::Frame { data_len } => (0, BEFORE_DATA + data_len + BEHIND_DATA),
        Kind::Special { changed } => (SPECIAL | if changed { CHANGED } else { 0 }, SPECIAL_LEN),
        Kind::Ready(_) => (READY, ENCAPSULATION_LEN),
    };
    let words = (len / 4) as u16;
    let mut bytes = [0; ENCAPSULATION_LEN];
    bytes[..8].copy_from_slice(&PROTOCOL);
    bytes[8..12].copy_from_slice(&[flags, 0, !flags, !0]);
    bytes[12..14].copy_from_slice(&words.to_be_bytes());
    bytes[14..16].copy_from_slice(&(!words).to_be_bytes());
    if let Kind::Ready(count) = kind {
        bytes[16..20].copy_from_slice(&count.to_be_bytes());
    }
    bytes
}

pub fn decode_encapsulation(bytes: &[u8; ENCAPSULATION_LEN]) -> Result<Kind, Violation> {
    let word = |at: Range<usize>| bytes[at].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    if bytes[..8] != PROTOCOL {
        return Err(malformed!("RFC 3643 §3.1: Protocol# and Version are not those of FCIP"));
    }
    let (flags, words) = (word(8..10), word(12..14));
    if flags != !word(10..12) & 0xffff || words != !word(14..16) & 0xffff {
        return Err(malformed!("RFC 3643 §3.1: a field and its complement differ").at(8));
    }
    // The six bits above Frame Length are flags. Only CRCV is defined, and it is never set here.
    let len = words as usize * 4;
    let of_frame = BEFORE_DATA + BEHIND_DATA..=BEFORE_DATA + DATA_LEN_MAX + BEHIND_DATA;
    let flags = (flags >> 8) as u8;
    match flags {
        0 if of_frame.contains(&len) => Ok(Kind::Frame { data_len: len - BEFORE_DATA - BEHIND_DATA }),
        SPECIAL if len == SPECIAL_LEN => Ok(Kind::Special { changed: false }),
        flags if flags == SPECIAL | CHANGED && len == SPECIAL_LEN => Ok(Kind::Special { changed: true }),
        READY if len == ENCAPSULATION_LEN => Ok(Kind::Ready(word(16..20))),
        _ => Err(malformed!("RFC 3643 §3.1: a Frame Length that its flags do not allow").at(12)),
    }
}

/// The FCIP Special Frame (RFC 3821 §7), which starts a connection. In it the initiator names itself and the requested
/// port. The target echoes it if it has that port, and otherwise returns it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    pub changed: bool,
    pub source: PortName,
    pub nonce: u64,
    pub destination: PortName,
}

impl Special {
    pub fn encode(&self) -> [u8; SPECIAL_LEN] {
        let mut bytes = [0; SPECIAL_LEN];
        bytes[..ENCAPSULATION_LEN].copy_from_slice(&encode_encapsulation(Kind::Special { changed: self.changed }));
        bytes[28..32].copy_from_slice(&[0, 0, !0, !0]);
        bytes[32..40].copy_from_slice(&self.source.0.to_be_bytes());
        bytes[48..56].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[60..68].copy_from_slice(&self.destination.0.to_be_bytes());
        bytes[72..76].copy_from_slice(&[0, 0, !0, !0]);
        bytes
    }

    pub fn parse(bytes: &[u8; SPECIAL_LEN], changed: bool) -> Self {
        let long = |at: usize| bytes[at..at + 8].iter().fold(0, |long, byte| long << 8 | u64::from(*byte));
        Self { changed, source: PortName(long(32)), nonce: long(48), destination: PortName(long(60)) }
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

#[cfg(test)]
mod encapsulation_tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for kind in [
            Kind::Frame { data_len: 0 },
            Kind::Frame { data_len: 2112 },
            Kind::Special { changed: false },
            Kind::Special { changed: true },
            Kind::Ready(7),
        ] {
            assert_eq!(decode_encapsulation(&encode_encapsulation(kind)), Ok(kind));
        }
        let special = Special { changed: true, source: PortName(1), nonce: 2, destination: PortName(u64::MAX) };
        assert_eq!(Special::parse(&special.encode(), true), special);
    }

    #[test]
    fn a_header_with_any_bit_wrong_is_refused_but_for_time_and_crc() {
        let bytes = encode_encapsulation(Kind::Frame { data_len: 512 });
        for bit in 0..16 * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_encapsulation(&wrong).is_err(), "bit {bit}");
        }
        assert!(decode_encapsulation(&encode_encapsulation(Kind::Frame { data_len: 2116 })).is_err());
    }
}
