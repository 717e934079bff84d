//! Splits the received bytes into PDUs without copying them. A header that was received completely is read in place,
//! and data are passed on in the pieces in which they arrived. Only a header that is split across receives is
//! assembled, in a small buffer.

use super::pdu::{
    COMMON_LEN, Common, DIGEST_LEN, Digests, Fault, Fes, Header, IC_LEN, SHORT_LEN, TERM_DATA_MAX, flags, header_len,
    kind,
};
use crate::wire::digest::{Crc32c, crc32c};

/// PDU types as bits of `Receiver::accepts`.
pub(super) const fn types(kinds: &[u8]) -> u16 {
    let mut bits = 0;
    let mut at = 0;
    while at < kinds.len() {
        bits |= 1 << kinds[at];
        at += 1;
    }
    bits
}

/// The next part of the stream.
pub(super) enum Fragment<'a> {
    /// The start of a PDU, followed by `data_len` bytes of data.
    Header { header: Header, data_len: u32 },
    /// The next bytes of the PDU's data.
    Data(&'a [u8]),
    /// The end of the PDU's data. Omitted if it has no data.
    End { digest_ok: bool },
}

enum Stage {
    Header,
    Data,
    Digest,
}

pub(super) struct Receiver {
    /// PDU types that may come at this time.
    accepts: u16,
    /// PDU types that this side may ever receive.
    known: u16,
    digests: Digests,
    /// Maximum bytes of data in a command capsule.
    max_command_data: u32,
    /// Maximum bytes of data in other PDUs.
    max_data: u32,
    stage: Stage,
    padding: u32,
    data_left: u32,
    crc: Crc32c,
    /// Bytes of a header or digest that was split across receives.
    buffer: [u8; IC_LEN + DIGEST_LEN],
    held: usize,
    /// Length of the last header if it was assembled in `buffer`; 0 if it was read in place.
    assembled: usize,
}

impl Receiver {
    /// `first` are the types that may come before `open`; `known` are all types for this side.
    pub(super) fn new(first: u16, known: u16) -> Self {
        Self {
            accepts: first,
            known,
            digests: Digests::default(),
            max_command_data: 0,
            max_data: 0,
            stage: Stage::Header,
            padding: 0,
            data_left: 0,
            crc: Crc32c::default(),
            buffer: [0; IC_LEN + DIGEST_LEN],
            held: 0,
            assembled: 0,
        }
    }

    /// Completes the handshake. From now on the types in `accepts` may come.
    pub(super) fn open(&mut self, accepts: u16, digests: Digests, max_command_data: u32, max_data: u32) {
        self.accepts = accepts;
        self.digests = digests;
        self.max_command_data = max_command_data;
        self.max_data = max_data;
    }

    pub(super) fn set_max_command_data(&mut self, max_command_data: u32) {
        self.max_command_data = max_command_data;
    }

    /// Takes the next fragment off the front of `bytes`; `None` if more bytes are needed.
    #[allow(clippy::inline_always)] // As `Link::step`.
    #[inline(always)]
    pub(super) fn step<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, Fault> {
        match self.stage {
            Stage::Header => {
                self.assembled = 0;
                if bytes.is_empty() {
                    return Ok(None);
                }
                if self.held == 0
                    && let Some(first) = bytes.first_chunk::<COMMON_LEN>()
                {
                    let frame = self.check(Common::decode(*first))?;
                    if let Some((whole, rest)) = bytes.split_at_checked(frame.header_bytes) {
                        *bytes = rest;
                        return self.begin(frame, whole).map(Some);
                    }
                }
                self.assemble(bytes)
            }
            Stage::Data => Ok(self.data(bytes)),
            Stage::Digest => Ok(self.digest(bytes)),
        }
    }

    /// Number of data bytes that come next and are not covered by a digest.
    #[inline]
    pub(super) fn plain_data(&self) -> u32 {
        if matches!(self.stage, Stage::Data) && self.padding == 0 && !self.digests.data { self.data_left } else { 0 }
    }

    /// Skips the next `len` bytes of `plain_data`, which were received elsewhere.
    pub(super) fn skip(&mut self, len: u32) {
        assert!(len <= self.plain_data(), "more than the data that were to come");
        self.data_left -= len;
    }

    /// The header of the faulty PDU, for the terminate request. `before` are the bytes passed to the step that found
    /// the fault.
    pub(super) fn offending<'a>(&'a self, before: &'a [u8]) -> &'a [u8] {
        let len = self.assembled.max(self.held);
        if len > 0 {
            return &self.buffer[..len.min(TERM_DATA_MAX)];
        }
        let len = before.first().and_then(|kind| header_len(*kind)).unwrap_or(COMMON_LEN);
        &before[..len.min(before.len())]
    }

    /// Assembles a header that arrived in parts.
    #[cold]
    fn assemble<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, Fault> {
        if !self.fill(bytes, COMMON_LEN) {
            return Ok(None);
        }
        let mut first = [0; COMMON_LEN];
        first.copy_from_slice(&self.buffer[..COMMON_LEN]);
        let frame = self.check(Common::decode(first))?;
        if !self.fill(bytes, frame.header_bytes) {
            return Ok(None);
        }
        let buffer = self.buffer;
        self.held = 0;
        self.assembled = frame.header_bytes;
        self.begin(frame, &buffer[..frame.header_bytes]).map(Some)
    }

    /// Fills the buffer until it holds `until` bytes.
    fn fill(&mut self, bytes: &mut &[u8], until: usize) -> bool {
        let (taken, rest) = bytes.split_at(until.saturating_sub(self.held).min(bytes.len()));
        self.buffer[self.held..self.held + taken.len()].copy_from_slice(taken);
        self.held += taken.len();
        *bytes = rest;
        self.held >= until
    }

    /// Checks the common header (NVMe/TCP transport 1.1 §3.6.2.1, and the section of the PDU type).
    #[allow(clippy::inline_always)] // As `step`.
    #[inline(always)]
    fn check(&self, common: Common) -> Result<Frame, Fault> {
        let Some(expected) = header_len(common.kind) else {
            return Err(Fault::field(0, rule!("NVMe/TCP 1.1 §3.6.2.1: the PDU type is not defined")));
        };
        if self.accepts >> common.kind & 1 == 0 {
            return Err(if self.known >> common.kind & 1 == 0 {
                Fault::field(0, rule!("NVMe/TCP 1.1 §3.6.2.1: a PDU type that is not for this side"))
            } else {
                Fault::sequence(rule!("NVMe/TCP 1.1 §3.6.2: the PDU may not come at this time"))
            });
        }
        if usize::from(common.header_len) != expected {
            return Err(Fault::field(2, rule!("NVMe/TCP 1.1 §3.6.2.1: HLEN is not that of the PDU type")));
        }
        let is_plain =
            types(&[kind::IC_REQ, kind::IC_RESP, kind::H2C_TERM_REQ, kind::C2H_TERM_REQ]) >> common.kind & 1 != 0;
        if is_plain {
            return check_plain(common, expected);
        }
        let header_bytes = expected + self.digests.header_bytes();
        if (common.flags & flags::HEADER_DIGEST != 0) != self.digests.header {
            return Err(Fault::field(1, rule!("NVMe/TCP 1.1 §3.6.2.1: HDGSTF is not as negotiated")));
        }
        let Some(beyond) = (common.len as usize).checked_sub(header_bytes) else {
            return Err(Fault::field(4, rule!("NVMe/TCP 1.1 §3.6.2.1: PLEN is less than the header")));
        };
        if beyond == 0 {
            return Ok(Frame { common, header_bytes, padding: 0, data_len: 0 });
        }
        self.check_data(common, header_bytes)
    }

    #[inline]
    fn check_data(&self, common: Common, header_bytes: usize) -> Result<Frame, Fault> {
        if types(&[kind::COMMAND, kind::H2C_DATA, kind::C2H_DATA]) >> common.kind & 1 == 0 {
            return Err(Fault::field(4, rule!("NVMe/TCP 1.1 §3.6.2.1: a PDU without data is longer than its header")));
        }
        if (common.flags & flags::DATA_DIGEST != 0) != self.digests.data {
            return Err(Fault::field(1, rule!("NVMe/TCP 1.1 §3.6.2.1: DDGSTF is not as negotiated")));
        }
        let data_offset = usize::from(common.data_offset);
        if data_offset < header_bytes || data_offset & 3 != 0 {
            return Err(Fault::field(3, rule!("NVMe/TCP 1.1 §3.6.2.1: PDO lies in the header or is not aligned")));
        }
        let beyond = (common.len as usize).checked_sub(data_offset + self.digests.data_bytes()).filter(|len| *len > 0);
        let Some(data_len) = beyond else {
            return Err(Fault::field(4, rule!("NVMe/TCP 1.1 §3.6.2.1: PLEN is less than header, padding and digest")));
        };
        let most = if common.kind == kind::COMMAND { self.max_command_data } else { self.max_data };
        if data_len > most as usize {
            return Err(Fault::limit(rule!(
                "NVMe/TCP 1.1 §3.6.2.3: more data in a PDU than MAXH2CDATA or the capsule size allow"
            )));
        }
        Ok(Frame { common, header_bytes, padding: (data_offset - header_bytes) as u32, data_len: data_len as u32 })
    }

    /// Checks the digest of the header, and decodes the header.
    #[inline]
    fn begin<'a>(&mut self, frame: Frame, whole: &[u8]) -> Result<Fragment<'a>, Fault> {
        let header_len = usize::from(frame.common.header_len);
        if let Some(digest) = whole.get(header_len..).and_then(|rest| rest.first_chunk::<DIGEST_LEN>()) {
            let digest = u32::from_le_bytes(*digest);
            if crc32c(&whole[..header_len]) != digest {
                return Err(Fault {
                    status: Fes::HeaderDigestError,
                    information: digest,
                    rule: rule!("NVMe/TCP 1.1 Header Digest: the header digest is wrong"),
                });
            }
        }
        let Some(header) = Header::decode(frame.common, whole) else {
            return Err(Fault::field(0, rule!("NVMe/TCP 1.1 §3.6.2.1: the PDU type is not defined")));
        };
        if frame.data_len > 0 {
            self.stage = Stage::Data;
            self.padding = frame.padding;
            self.data_left = frame.data_len;
            if self.digests.data {
                self.crc = Crc32c::default();
            }
        }
        Ok(Fragment::Header { header, data_len: frame.data_len })
    }

    #[inline]
    fn data<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Fragment<'a>> {
        if self.padding > 0 {
            let (skipped, rest) = bytes.split_at((self.padding as usize).min(bytes.len()));
            self.padding -= skipped.len() as u32;
            *bytes = rest;
        }
        if self.data_left == 0 {
            if self.digests.data {
                self.stage = Stage::Digest;
                return self.digest(bytes);
            }
            self.stage = Stage::Header;
            return Some(Fragment::End { digest_ok: true });
        }
        if bytes.is_empty() {
            return None;
        }
        let (piece, rest) = bytes.split_at((self.data_left as usize).min(bytes.len()));
        self.data_left -= piece.len() as u32;
        *bytes = rest;
        if self.digests.data {
            self.crc.update(piece);
        }
        Some(Fragment::Data(piece))
    }

    fn digest<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Fragment<'a>> {
        if !self.fill(bytes, DIGEST_LEN) {
            return None;
        }
        self.held = 0;
        self.stage = Stage::Header;
        let [d0, d1, d2, d3, ..] = self.buffer;
        Some(Fragment::End { digest_ok: self.crc.finish() == u32::from_le_bytes([d0, d1, d2, d3]) })
    }
}

/// A PDU whose common header has been checked.
#[derive(Clone, Copy)]
struct Frame {
    common: Common,
    /// Length of header and header digest.
    header_bytes: usize,
    padding: u32,
    data_len: u32,
}

/// Checks PDUs without digests. Their length is fixed, except for the data of terminate requests.
#[cold]
fn check_plain(common: Common, header_bytes: usize) -> Result<Frame, Fault> {
    let is_term = header_bytes == SHORT_LEN;
    let most = if is_term { SHORT_LEN + TERM_DATA_MAX } else { header_bytes };
    let len = common.len as usize;
    if len < header_bytes || len > most {
        return Err(Fault::field(4, rule!("NVMe/TCP 1.1 §3.6.2.1: PLEN is not that of the PDU type")));
    }
    Ok(Frame { common, header_bytes, padding: 0, data_len: (len - header_bytes) as u32 })
}
