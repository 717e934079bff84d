//! PDU headers (NVMe/TCP transport 1.1 §3.6.2, "PDU formats"), and sending PDUs: headers are copied to the transmit
//! queue, data are referenced.

use core::fmt;

use crate::{
    Payload, Refusal, Rule, Transmit, Violation,
    nvme::{
        CommandId, Cqe, Sqe,
        command::{CQE_LEN, SQE_LEN},
        fabrics::Data,
    },
    wire::digest::{Crc32c, crc32c},
};

/// PDU types.
pub mod kind {
    pub const IC_REQ: u8 = 0x00;
    pub const IC_RESP: u8 = 0x01;
    pub const H2C_TERM_REQ: u8 = 0x02;
    pub const C2H_TERM_REQ: u8 = 0x03;
    pub const COMMAND: u8 = 0x04;
    pub const RESPONSE: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const R2T: u8 = 0x09;
}

/// Flags of the common header.
pub mod flags {
    pub const HEADER_DIGEST: u8 = 1;
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// The last PDU of the data of an R2T or a read.
    pub const LAST: u8 = 1 << 2;
    /// C2HData: the command has succeeded, and no response follows.
    pub const SUCCESS: u8 = 1 << 3;
}

pub const COMMON_LEN: usize = 8;
pub const IC_LEN: usize = 128;
/// Length of the headers of H2CTermReq, C2HTermReq, CapsuleResp, H2CData, C2HData and R2T.
pub const SHORT_LEN: usize = 24;
pub const COMMAND_LEN: usize = COMMON_LEN + SQE_LEN;
pub const DIGEST_LEN: usize = 4;
/// Maximum bytes of the faulty PDU in a terminate request.
pub const TERM_DATA_MAX: usize = 128;

/// Header lengths by PDU type; 0 if the type is not defined.
const HEADER_LENS: [u8; 10] = [
    IC_LEN as u8,
    IC_LEN as u8,
    SHORT_LEN as u8,
    SHORT_LEN as u8,
    COMMAND_LEN as u8,
    SHORT_LEN as u8,
    SHORT_LEN as u8,
    SHORT_LEN as u8,
    0,
    SHORT_LEN as u8,
];

/// HLEN of a PDU type; `None` if the type is not defined.
#[inline]
pub fn header_len(kind: u8) -> Option<usize> {
    HEADER_LENS.get(usize::from(kind)).map(|len| usize::from(*len)).filter(|len| *len > 0)
}

/// The header of a PDU, without the lengths in the common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    IcReq(IcReq),
    IcResp(IcResp),
    HostTerm(TermReq),
    ControllerTerm(TermReq),
    Command(Sqe),
    Response(Cqe),
    HostData(DataHeader),
    ControllerData(DataHeader),
    R2t(R2t),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    pub format_version: u16,
    /// Data alignment that the host requests, in dwords, 0's based; at most 31.
    pub host_alignment: u8,
    pub digests: Digests,
    /// Maximum outstanding R2Ts per command, 0's based.
    pub max_r2t: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    pub format_version: u16,
    /// Data alignment that the controller requests, in dwords, 0's based; at most 31.
    pub controller_alignment: u8,
    pub digests: Digests,
    /// Maximum bytes of data in an H2CData PDU.
    pub max_h2c_data: u32,
}

/// Digests that are requested or in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

impl Digests {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    fn from_bits(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { header: self.header && other.header, data: self.data && other.data }
    }

    /// Length of the header digest in bytes.
    pub fn header_bytes(self) -> usize {
        usize::from(self.header) * DIGEST_LEN
    }

    /// Length of the data digest in bytes, for a PDU with data.
    pub fn data_bytes(self) -> usize {
        usize::from(self.data) * DIGEST_LEN
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq {
    /// Fatal error status, as `Fes`; other values are reserved.
    pub status: u16,
    /// Fatal error information: the offset of a field, or the wrong digest.
    pub information: u32,
}

/// TTAG: identifies requested data; chosen by the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTag(pub u16);

/// Header of H2CData or C2HData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    pub cid: CommandId,
    /// H2CData only.
    pub ttag: TransferTag,
    pub offset: u32,
    pub len: u32,
    pub is_last: bool,
    /// C2HData only.
    pub is_success: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    pub cid: CommandId,
    pub ttag: TransferTag,
    pub offset: u32,
    pub len: u32,
}

/// Fatal Error Status of a terminate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fes {
    InvalidHeaderField = 1,
    SequenceError = 2,
    HeaderDigestError = 3,
    DataOutOfRange = 4,
    /// To a controller: R2T Limit Exceeded; to a host: Data Transfer Limit Exceeded.
    LimitExceeded = 5,
    UnsupportedParameter = 6,
}

/// A fault in a PDU, which ends the connection, and the contents of the terminate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub status: Fes,
    pub information: u32,
    pub rule: &'static Rule,
}

impl Fault {
    /// The header field at byte `at` is invalid.
    pub fn field(at: u32, rule: &'static Rule) -> Self {
        Self { status: Fes::InvalidHeaderField, information: at, rule }
    }

    pub fn unsupported(at: u32, rule: &'static Rule) -> Self {
        Self { status: Fes::UnsupportedParameter, information: at, rule }
    }

    pub fn sequence(rule: &'static Rule) -> Self {
        Self { status: Fes::SequenceError, information: 0, rule }
    }

    pub fn out_of_range(rule: &'static Rule) -> Self {
        Self { status: Fes::DataOutOfRange, information: 0, rule }
    }

    pub fn limit(rule: &'static Rule) -> Self {
        Self { status: Fes::LimitExceeded, information: 0, rule }
    }

    pub fn violation(&self) -> Violation {
        match self.status {
            Fes::InvalidHeaderField => Violation::malformed(self.rule).at(self.information),
            Fes::UnsupportedParameter => Violation::unsupported(self.rule).at(self.information),
            Fes::HeaderDigestError => Violation::malformed(self.rule),
            Fes::SequenceError | Fes::DataOutOfRange | Fes::LimitExceeded => Violation::misbehaved(self.rule),
        }
    }
}

impl TermReq {
    pub fn violation(&self) -> Violation {
        Violation::refused(
            Refusal::Other,
            match self.status {
                1 => "the peer terminated the connection: Invalid PDU Header Field",
                2 => "the peer terminated the connection: PDU Sequence Error",
                3 => "the peer terminated the connection: Header Digest Error",
                4 => "the peer terminated the connection: Data Transfer Out of Range",
                5 => "the peer terminated the connection: R2T or Data Transfer Limit Exceeded",
                6 => "the peer terminated the connection: Unsupported Parameter",
                _ => "the peer terminated the connection with a reserved status",
            },
        )
    }
}

/// The common header: the first eight bytes of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    pub kind: u8,
    pub flags: u8,
    pub header_len: u8,
    /// Offset of the data.
    pub data_offset: u8,
    pub len: u32,
}

impl Common {
    #[inline]
    pub fn decode(bytes: [u8; COMMON_LEN]) -> Self {
        let [kind, flags, header_len, data_offset, len @ ..] = bytes;
        Self { kind, flags, header_len, data_offset, len: u32::from_le_bytes(len) }
    }

    #[inline]
    pub fn encode(self) -> [u8; COMMON_LEN] {
        let [l0, l1, l2, l3] = self.len.to_le_bytes();
        [self.kind, self.flags, self.header_len, self.data_offset, l0, l1, l2, l3]
    }
}

impl Header {
    /// Decodes the header that starts with `common`; `None` if `bytes` are shorter than its HLEN or the type is
    /// unknown.
    #[allow(clippy::inline_always)] // As `Receiver::step`.
    #[inline(always)]
    pub fn decode(common: Common, bytes: &[u8]) -> Option<Self> {
        Some(match common.kind {
            kind::COMMAND => Self::Command(Sqe(*bytes.get(COMMON_LEN..)?.first_chunk::<SQE_LEN>()?)),
            kind::RESPONSE => Self::Response(Cqe::decode(bytes.get(COMMON_LEN..)?.first_chunk::<CQE_LEN>()?)),
            kind::H2C_DATA => Self::HostData(DataHeader::decode(common, short(bytes)?)),
            kind::C2H_DATA => Self::ControllerData(DataHeader::decode(common, short(bytes)?)),
            kind::R2T => {
                let data = DataHeader::decode(common, short(bytes)?);
                Self::R2t(R2t { cid: data.cid, ttag: data.ttag, offset: data.offset, len: data.len })
            }
            kind::H2C_TERM_REQ => Self::HostTerm(TermReq::decode(short(bytes)?)),
            kind::C2H_TERM_REQ => Self::ControllerTerm(TermReq::decode(short(bytes)?)),
            kind::IC_REQ => {
                let [.., v0, v1, alignment, digests, r0, r1, r2, r3] = *bytes.first_chunk::<16>()?;
                Self::IcReq(IcReq {
                    format_version: u16::from_le_bytes([v0, v1]),
                    host_alignment: alignment,
                    digests: Digests::from_bits(digests),
                    max_r2t: u32::from_le_bytes([r0, r1, r2, r3]),
                })
            }
            kind::IC_RESP => {
                let [.., v0, v1, alignment, digests, m0, m1, m2, m3] = *bytes.first_chunk::<16>()?;
                Self::IcResp(IcResp {
                    format_version: u16::from_le_bytes([v0, v1]),
                    controller_alignment: alignment,
                    digests: Digests::from_bits(digests),
                    max_h2c_data: u32::from_le_bytes([m0, m1, m2, m3]),
                })
            }
            _ => return None,
        })
    }
}

#[inline]
fn short(bytes: &[u8]) -> Option<&[u8; SHORT_LEN]> {
    bytes.first_chunk()
}

impl DataHeader {
    #[inline]
    fn decode(common: Common, bytes: &[u8; SHORT_LEN]) -> Self {
        let [_, _, _, _, _, _, _, _, c0, c1, t0, t1, o0, o1, o2, o3, l0, l1, l2, l3, ..] = *bytes;
        Self {
            cid: CommandId(u16::from_le_bytes([c0, c1])),
            ttag: TransferTag(u16::from_le_bytes([t0, t1])),
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            is_last: common.flags & flags::LAST != 0,
            is_success: common.flags & flags::SUCCESS != 0,
        }
    }
}

impl TermReq {
    fn decode(bytes: &[u8; SHORT_LEN]) -> Self {
        let [_, _, _, _, _, _, _, _, s0, s1, i0, i1, i2, i3, ..] = *bytes;
        Self { status: u16::from_le_bytes([s0, s1]), information: u32::from_le_bytes([i0, i1, i2, i3]) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:#x}: {}", self.status, self.information, self.rule.text)
    }
}

#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) tx: Transmit,
    digests: Digests,
    /// Data start at a multiple of this many bytes, as the peer requested.
    alignment: u8,
}

impl Sender {
    /// Completes the handshake. `alignment` is HPDA or CPDA: in dwords, 0's based, at most 31.
    pub(super) fn open(&mut self, digests: Digests, alignment: u8) {
        self.digests = digests;
        self.alignment = (alignment + 1) * 4;
    }

    pub(super) fn ic_req(&mut self, req: &IcReq) {
        let mut header = plain::<IC_LEN>(kind::IC_REQ, IC_LEN);
        header[8..10].copy_from_slice(&req.format_version.to_le_bytes());
        header[10] = req.host_alignment;
        header[11] = req.digests.bits();
        header[12..16].copy_from_slice(&req.max_r2t.to_le_bytes());
        self.tx.put(&header);
    }

    pub(super) fn ic_resp(&mut self, resp: &IcResp) {
        let mut header = plain::<IC_LEN>(kind::IC_RESP, IC_LEN);
        header[8..10].copy_from_slice(&resp.format_version.to_le_bytes());
        header[10] = resp.controller_alignment;
        header[11] = resp.digests.bits();
        header[12..16].copy_from_slice(&resp.max_h2c_data.to_le_bytes());
        self.tx.put(&header);
    }

    /// Sends H2CTermReq or C2HTermReq with the faulty header.
    pub(super) fn term_req(&mut self, kind: u8, fault: &Fault, offending: &[u8]) {
        let offending = &offending[..offending.len().min(TERM_DATA_MAX)];
        let mut header = plain::<SHORT_LEN>(kind, SHORT_LEN + offending.len());
        header[8..10].copy_from_slice(&(fault.status as u16).to_le_bytes());
        header[10..14].copy_from_slice(&fault.information.to_le_bytes());
        self.tx.put(&header);
        self.tx.put(offending);
    }

    #[inline]
    pub(super) fn command(&mut self, sqe: &Sqe, data: Data<'_>) {
        let mut header = [0; COMMAND_LEN];
        header[COMMON_LEN..].copy_from_slice(&sqe.0);
        self.pdu(kind::COMMAND, 0, header, data);
    }

    #[inline]
    pub(super) fn response(&mut self, cqe: &Cqe) {
        let mut header = [0; SHORT_LEN];
        header[COMMON_LEN..].copy_from_slice(&cqe.encode());
        self.pdu(kind::RESPONSE, 0, header, Data::None);
    }

    pub(super) fn r2t(&mut self, r2t: R2t) {
        let header = transfer(r2t.cid, r2t.ttag, r2t.offset, r2t.len);
        self.pdu(kind::R2T, 0, header, Data::None);
    }

    #[inline]
    pub(super) fn h2c_data(&mut self, cid: CommandId, ttag: TransferTag, offset: u32, is_last: bool, data: Payload) {
        let header = transfer(cid, ttag, offset, data.len() as u32);
        self.pdu(kind::H2C_DATA, u8::from(is_last) * flags::LAST, header, Data::Payload(data));
    }

    /// Sends all data of a read in one PDU.
    #[inline]
    pub(super) fn c2h_data(&mut self, cid: CommandId, is_success: bool, data: Data<'_>) {
        let header = transfer(cid, TransferTag::default(), 0, data.len() as u32);
        self.pdu(kind::C2H_DATA, flags::LAST | (u8::from(is_success) * flags::SUCCESS), header, data);
    }

    /// Sends a PDU with the negotiated digests. Fills in the common header.
    #[inline]
    fn pdu<const LEN: usize>(&mut self, kind: u8, mut flags: u8, mut header: [u8; LEN], data: Data<'_>) {
        let header_bytes = LEN + self.digests.header_bytes();
        let data_len = data.len();
        let (data_offset, len) = if data_len == 0 {
            (0, header_bytes)
        } else {
            let at = header_bytes.next_multiple_of(usize::from(self.alignment));
            flags |= u8::from(self.digests.data) * flags::DATA_DIGEST;
            (at, at + data_len + self.digests.data_bytes())
        };
        flags |= u8::from(self.digests.header) * flags::HEADER_DIGEST;
        let common = Common { kind, flags, header_len: LEN as u8, data_offset: data_offset as u8, len: len as u32 };
        header[..COMMON_LEN].copy_from_slice(&common.encode());
        self.tx.put(&header);
        if self.digests.header {
            self.tx.put(&crc32c(&header).to_le_bytes());
        }
        if data_len == 0 {
            return;
        }
        self.tx.zeros(data_offset - header_bytes);
        match data {
            Data::None => {}
            data if self.digests.data => self.with_digest(&data),
            Data::Payload(payload) => self.tx.payload(payload),
            Data::Bytes(bytes) => self.tx.put(bytes),
        }
    }

    /// Sends data and their digest.
    fn with_digest(&mut self, data: &Data<'_>) {
        let mut crc = Crc32c::default();
        match data {
            Data::None => {}
            Data::Payload(payload) => self.tx.copy(payload, |piece| crc.update(piece)),
            Data::Bytes(bytes) => {
                self.tx.put(bytes);
                crc.update(bytes);
            }
        }
        self.tx.put(&crc.finish().to_le_bytes());
    }
}

/// A header without digests, with its common header filled in.
fn plain<const LEN: usize>(kind: u8, len: usize) -> [u8; LEN] {
    let mut header = [0; LEN];
    let common = Common { kind, flags: 0, header_len: LEN as u8, data_offset: 0, len: len as u32 };
    header[..COMMON_LEN].copy_from_slice(&common.encode());
    header
}

#[inline]
fn transfer(cid: CommandId, ttag: TransferTag, offset: u32, len: u32) -> [u8; SHORT_LEN] {
    let mut header = [0; SHORT_LEN];
    header[8..10].copy_from_slice(&cid.0.to_le_bytes());
    header[10..12].copy_from_slice(&ttag.0.to_le_bytes());
    header[12..16].copy_from_slice(&offset.to_le_bytes());
    header[16..20].copy_from_slice(&len.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeapRegion;

    #[test]
    fn data_digest_is_over_what_is_sent_though_the_volume_is_written_to_meanwhile() {
        let mut sender = Sender::default();
        sender.open(Digests { header: false, data: true }, 0);
        let payload = Payload::new(HeapRegion::new(4096), 0, 4096);
        sender.pdu(kind::C2H_DATA, flags::LAST, [0; SHORT_LEN], Data::Payload(payload.clone()));
        payload.copy_in(0, &[7; 4096]);
        let sent = sender.tx.take_bytes();
        let (data, digest) = sent[SHORT_LEN..].split_at(4096);
        assert_eq!(crc32c(data).to_le_bytes(), digest);
    }
}
