//! How frames lie in a stream: the encapsulation of RFC 3643 as FCIP (RFC 3821) uses it, and two records beside frames.

use core::ops::Range;

use super::frame::PortName;
use crate::Violation;

/// The header of everything in the stream.
pub const LEN: usize = 28;
/// Of a Special Frame, with its header.
pub const SPECIAL_LEN: usize = 76;
/// What stands before a frame's data, and behind: SOF and frame header, CRC and EOF.
pub const BEFORE_DATA: usize = LEN + 4 + super::frame::LEN;
pub const BEHIND_DATA: usize = 8;
/// FC-FS-5: most bytes of data in a frame.
pub const DATA_LEN_MAX: usize = 2112;

/// Protocol# 1 (FCIP) and Version 1 with their complements, twice (RFC 3821 §5.6.1).
const PROTOCOL: [u8; 8] = [1, 1, !1, !1, 1, 1, !1, !1];

/// pFlags (RFC 3821 §5.6.1): SF and Ch.
const SPECIAL: u8 = 0x01;
const CHANGED: u8 = 0x80;
/// Reserved there. Here: no frame but primitive signals, as many R_RDYs as word 4 says.
const READY: u8 = 0x02;

/// Delimiters of class 3 (RFC 3643 §3.4).
pub mod delimiter {
    pub const SOF_I3: u8 = 0x2e;
    pub const SOF_N3: u8 = 0x36;
    pub const EOF_N: u8 = 0x41;
    pub const EOF_T: u8 = 0x42;

    /// As it stands in the stream: twice, then twice complemented.
    pub fn encode(code: u8) -> [u8; 4] {
        [code, code, !code, !code]
    }

    pub fn decode(bytes: [u8; 4]) -> Option<u8> {
        (bytes == encode(bytes[0])).then_some(bytes[0])
    }
}

/// What follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A frame with so many bytes of data and fill bytes.
    Frame {
        data_len: usize,
    },
    Special {
        changed: bool,
    },
    /// Nothing: so many R_RDYs.
    Ready(u32),
}

pub fn encode(kind: Kind) -> [u8; LEN] {
    let (flags, len) = match kind {
        Kind::Frame { data_len } => (0, BEFORE_DATA + data_len + BEHIND_DATA),
        Kind::Special { changed } => (SPECIAL | if changed { CHANGED } else { 0 }, SPECIAL_LEN),
        Kind::Ready(_) => (READY, LEN),
    };
    let words = (len / 4) as u16;
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&PROTOCOL);
    bytes[8..12].copy_from_slice(&[flags, 0, !flags, !0]);
    bytes[12..14].copy_from_slice(&words.to_be_bytes());
    bytes[14..16].copy_from_slice(&(!words).to_be_bytes());
    if let Kind::Ready(count) = kind {
        bytes[16..20].copy_from_slice(&count.to_be_bytes());
    }
    bytes
}

pub fn decode(bytes: &[u8; LEN]) -> Result<Kind, Violation> {
    let word = |at: Range<usize>| bytes[at].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    if bytes[..8] != PROTOCOL {
        return Err(Violation::malformed("RFC 3643 §3.1: Protocol# and Version are not those of FCIP"));
    }
    let (flags, words) = (word(8..10), word(12..14));
    if flags != !word(10..12) & 0xffff || words != !word(14..16) & 0xffff {
        return Err(Violation::malformed("RFC 3643 §3.1: a field and its complement differ").at(8));
    }
    // The six bits above Frame Length are flags: CRCV is the only one, and nobody here sets it.
    let len = words as usize * 4;
    let of_frame = BEFORE_DATA + BEHIND_DATA..=BEFORE_DATA + DATA_LEN_MAX + BEHIND_DATA;
    let flags = (flags >> 8) as u8;
    match flags {
        0 if of_frame.contains(&len) => Ok(Kind::Frame { data_len: len - BEFORE_DATA - BEHIND_DATA }),
        SPECIAL if len == SPECIAL_LEN => Ok(Kind::Special { changed: false }),
        flags if flags == SPECIAL | CHANGED && len == SPECIAL_LEN => Ok(Kind::Special { changed: true }),
        READY if len == LEN => Ok(Kind::Ready(word(16..20))),
        _ => Err(Violation::malformed("RFC 3643 §3.1: a Frame Length that its flags do not allow").at(12)),
    }
}

/// The FCIP Special Frame (RFC 3821 §7), with which a connection begins. Whoever connects says who it is and whom it wants; it is
/// echoed where that port is here, and changed where it is not.
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
        bytes[..LEN].copy_from_slice(&encode(Kind::Special { changed: self.changed }));
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
    fn what_is_encoded_is_decoded() {
        for kind in [
            Kind::Frame { data_len: 0 },
            Kind::Frame { data_len: 2112 },
            Kind::Special { changed: false },
            Kind::Special { changed: true },
            Kind::Ready(7),
        ] {
            assert_eq!(decode(&encode(kind)), Ok(kind));
        }
        let special = Special { changed: true, source: PortName(1), nonce: 2, destination: PortName(u64::MAX) };
        assert_eq!(Special::parse(&special.encode(), true), special);
    }

    #[test]
    fn a_header_with_any_bit_wrong_is_refused_but_for_time_and_crc() {
        let bytes = encode(Kind::Frame { data_len: 512 });
        for bit in 0..16 * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&wrong).is_err(), "bit {bit}");
        }
        assert!(decode(&encode(Kind::Frame { data_len: 2116 })).is_err());
    }
}
