//! Splits a byte stream into frames. A frame that does not arrive at once becomes a header, the pieces of its data, and an
//! end once the CRC has been checked.

use alloc::vec::Vec;

use super::frame::{
    self, BEFORE_DATA, BEHIND_DATA, ENCAPSULATION_LEN, Header, Kind, SPECIAL_LEN, Special, delimiter, f_ctl,
};
use crate::{
    Violation,
    wire::digest::{Crc32, crc32},
};

/// Offsets of the frame within its record: SOF, and frame header.
const SOF_AT: usize = ENCAPSULATION_LEN;
const HEADER_AT: usize = ENCAPSULATION_LEN + 4;

/// The next part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment<'a> {
    Special(Special),
    /// This many R_RDYs.
    Ready(u32),
    /// A complete frame and its data, if any. Its CRC is correct, if it is checked.
    Frame(Header, &'a [u8]),
    /// The start of a frame with this many bytes of data.
    Header(Header, u32),
    /// A piece of the frame's data, at `offset`.
    Data {
        offset: u32,
        bytes: &'a [u8],
    },
    /// A frame that arrived in parts is complete, and its CRC is correct, if it is checked.
    End,
}

/// Parses frames. A frame that is complete in the input is not copied, and data are never buffered.
#[derive(Debug)]
pub struct Framer {
    state: State,
    /// The received bytes that precede the data, if they arrived in parts: at most a Special Frame.
    head: Vec<u8>,
    data_len: u32,
    data_seen: u32,
    fill_len: usize,
    checks_crc: bool,
    /// The CRC of the frame that arrives in parts, if it is checked.
    crc: Option<Crc32>,
    /// Fill bytes, CRC and EOF.
    tail: [u8; 3 + BEHIND_DATA],
    tail_seen: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Data,
    Tail,
}

impl Framer {
    /// Without `checks_crc` the CRC of frames is ignored.
    pub fn new(checks_crc: bool) -> Self {
        Self {
            state: State::Head,
            head: Vec::with_capacity(SPECIAL_LEN),
            data_len: 0,
            data_seen: 0,
            fill_len: 0,
            checks_crc,
            crc: None,
            tail: [0; 3 + BEHIND_DATA],
            tail_seen: 0,
        }
    }

    /// Returns the next fragment of `input`; `None` if more bytes are needed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, Violation> {
        match self.state {
            State::Head => self.head(input),
            State::Data => {
                if input.is_empty() {
                    return Ok(None);
                }
                let len = input.len().min((self.data_len - self.data_seen) as usize);
                let (bytes, rest) = input.split_at(len);
                *input = rest;
                if let Some(crc) = &mut self.crc {
                    crc.update(bytes);
                }
                let offset = self.data_seen;
                self.data_seen += len as u32;
                if self.data_seen == self.data_len {
                    self.state = State::Tail;
                }
                Ok(Some(Fragment::Data { offset, bytes }))
            }
            State::Tail => {
                if !self.tail(input)? {
                    return Ok(None);
                }
                self.state = State::Head;
                self.head.clear();
                Ok(Some(Fragment::End))
            }
        }
    }

    fn head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, Violation> {
        if self.head.is_empty()
            && let Some(head) = input.first_chunk::<BEFORE_DATA>()
            && let Kind::Frame { data_len } = kind_of(head)?
        {
            if let Some((record, rest)) = input.split_at_checked(BEFORE_DATA + data_len + BEHIND_DATA)
                && let Some((before, tail)) = record.split_last_chunk()
            {
                *input = rest;
                return self.whole(head, before, *tail).map(Some);
            }
            *input = &input[BEFORE_DATA..];
            return self.begin(head, data_len).map(Some);
        }
        if !self.fill_head(input, ENCAPSULATION_LEN) {
            return Ok(None);
        }
        let Some(header) = self.head.first_chunk() else { return Ok(None) };
        let kind = frame::decode_encapsulation(header)?;
        let need = match kind {
            Kind::Ready(_) => ENCAPSULATION_LEN,
            Kind::Special { .. } => SPECIAL_LEN,
            Kind::Frame { .. } => BEFORE_DATA,
        };
        if !self.fill_head(input, need) {
            return Ok(None);
        }
        let fragment = match kind {
            Kind::Ready(count) => Fragment::Ready(count),
            Kind::Special { changed } => {
                let mut bytes = [0; SPECIAL_LEN];
                bytes.copy_from_slice(&self.head);
                Fragment::Special(Special::parse(&bytes, changed))
            }
            Kind::Frame { data_len } => {
                let mut bytes = [0; BEFORE_DATA];
                bytes.copy_from_slice(&self.head);
                return self.begin(&bytes, data_len).map(Some);
            }
        };
        self.head.clear();
        Ok(Some(fragment))
    }

    /// A frame that is complete: everything before its CRC, and the rest.
    #[inline]
    fn whole<'a>(
        &self,
        head: &[u8; BEFORE_DATA],
        before: &'a [u8],
        [c0, c1, c2, c3, eof @ ..]: [u8; BEHIND_DATA],
    ) -> Result<Fragment<'a>, Violation> {
        if self.checks_crc {
            check(crc32(&before[HEADER_AT..]), [c0, c1, c2, c3])?;
        }
        let (header, data_len) = parse(head, before.len() - BEFORE_DATA)?;
        check_eof(eof)?;
        Ok(Fragment::Frame(header, &before[BEFORE_DATA..BEFORE_DATA + data_len]))
    }

    /// Starts a frame that arrives in parts.
    fn begin<'a>(&mut self, head: &[u8; BEFORE_DATA], filled_len: usize) -> Result<Fragment<'a>, Violation> {
        let (header, data_len) = parse(head, filled_len)?;
        if self.checks_crc {
            self.crc.insert(Crc32::default()).update(&head[HEADER_AT..]);
        }
        self.fill_len = filled_len - data_len;
        self.data_len = data_len as u32;
        self.data_seen = 0;
        self.tail_seen = 0;
        self.state = if data_len > 0 { State::Data } else { State::Tail };
        Ok(Fragment::Header(header, data_len as u32))
    }

    /// Reads what follows the data; true if it is complete.
    fn tail(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let need = self.fill_len + BEHIND_DATA;
        let len = input.len().min(need - self.tail_seen);
        let (bytes, rest) = input.split_at(len);
        *input = rest;
        self.tail[self.tail_seen..self.tail_seen + len].copy_from_slice(bytes);
        self.tail_seen += len;
        if self.tail_seen < need {
            return Ok(false);
        }
        let (fill, end) = self.tail[..need].split_at(self.fill_len);
        let [c0, c1, c2, c3, e0, e1, e2, e3] = end else { return Ok(false) };
        if let Some(mut crc) = self.crc.take() {
            crc.update(fill);
            check(crc.finish(), [*c0, *c1, *c2, *c3])?;
        }
        check_eof([*e0, *e1, *e2, *e3])?;
        Ok(true)
    }

    fn fill_head(&mut self, input: &mut &[u8], need: usize) -> bool {
        let len = input.len().min(need.saturating_sub(self.head.len()));
        let (bytes, rest) = input.split_at(len);
        *input = rest;
        self.head.extend_from_slice(bytes);
        self.head.len() >= need
    }
}

fn kind_of(head: &[u8; BEFORE_DATA]) -> Result<Kind, Violation> {
    let mut header = [0; ENCAPSULATION_LEN];
    header.copy_from_slice(&head[..ENCAPSULATION_LEN]);
    frame::decode_encapsulation(&header)
}

/// The header of a frame, and the length of its data without the fill bytes.
#[inline]
fn parse(head: &[u8; BEFORE_DATA], filled_len: usize) -> Result<(Header, usize), Violation> {
    let mut sof = [0; 4];
    sof.copy_from_slice(&head[SOF_AT..HEADER_AT]);
    let mut header = [0; frame::LEN];
    header.copy_from_slice(&head[HEADER_AT..]);
    if !matches!(delimiter::decode(sof), Some(delimiter::SOF_I3 | delimiter::SOF_N3)) {
        return Err(malformed!("RFC 3643 §3.4: no SOF of class 3").at(SOF_AT as u32));
    }
    let header = Header::parse(&header);
    let data_len = filled_len.checked_sub((header.f_ctl & f_ctl::FILL) as usize);
    let data_len = data_len.ok_or(malformed!("FC-FS-5 F_CTL: more fill bytes than data").at(44))?;
    if header.df_ctl != 0 {
        return Err(unsupported!("FC-FS-5 DF_CTL: optional headers, which nobody agreed on"));
    }
    Ok((header, data_len))
}

#[inline]
fn check_eof(bytes: [u8; 4]) -> Result<(), Violation> {
    match delimiter::decode(bytes) {
        Some(delimiter::EOF_N | delimiter::EOF_T) => Ok(()),
        _ => Err(malformed!("RFC 3643 §3.4: no EOF of a good frame")),
    }
}

/// Checks a CRC. A stream does not damage data, so after a wrong CRC even the lengths cannot be trusted.
fn check(computed: u32, sent: [u8; 4]) -> Result<(), Violation> {
    if computed.to_le_bytes() == sent { Ok(()) } else { Err(malformed!("FC-FS-5 CRC: wrong CRC")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fc::{
        frame::{OxId, PortId, PortName, r_ctl},
        link::Link,
    };

    fn stream() -> Vec<u8> {
        let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
        link.open(100, 256, 100);
        let special = Special { changed: false, source: PortName(1), nonce: 2, destination: PortName(3) };
        link.transmit.put(&special.encode());
        for len in [0, 1, 2, 3, 4, 100, 600] {
            let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let header = Header { r_ctl: r_ctl::SOLICITED_DATA, ox_id: OxId(len), ..Header::default() };
            link.send(Header { f_ctl: f_ctl::REQUEST, ..header }, &data);
        }
        link.transmit.put(&frame::encode_encapsulation(Kind::Ready(9)));
        link.transmit.take_bytes()
    }

    /// The length of each frame's data; R_RDYs and Special Frames are negative numbers.
    fn seen(deliveries: &[&[u8]]) -> Vec<i64> {
        let (mut framer, mut found) = (Framer::new(true), Vec::new());
        for delivery in deliveries {
            let mut input = *delivery;
            while let Some(fragment) = framer.next(&mut input).expect("a good stream") {
                match fragment {
                    Fragment::Special(special) => found.push(-i64::try_from(special.nonce).expect("small")),
                    Fragment::Ready(count) => found.push(-i64::from(count)),
                    Fragment::Frame(header, data) => {
                        assert!(data.len() <= 256 && header.seq_cnt <= 2);
                        found.push(i64::try_from(data.len()).expect("small"));
                    }
                    Fragment::Header(header, len) => {
                        assert!(len <= 256 && header.seq_cnt <= 2);
                        found.push(0);
                    }
                    Fragment::Data { offset, bytes } => {
                        let last = found.last_mut().expect("a header came");
                        assert_eq!(i64::from(offset), *last);
                        *last += i64::try_from(bytes.len()).expect("small");
                    }
                    Fragment::End => {}
                }
            }
            assert!(input.is_empty());
        }
        found
    }

    #[test]
    fn frames_are_the_same_at_every_split() {
        let bytes = stream();
        let want = [-2, 0, 1, 2, 3, 4, 100, 256, 256, 88, -9];
        for split in 0..=bytes.len() {
            assert_eq!(seen(&[&bytes[..split], &bytes[split..]]), want, "split at {split}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(seen(&single), want);
    }

    #[test]
    fn a_wrong_crc_is_ignored_if_it_is_not_checked() {
        let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
        link.send(Header { f_ctl: f_ctl::REQUEST, ..Header::default() }, b"abcd");
        let mut bytes = link.transmit.take_bytes();
        bytes[BEFORE_DATA + 4] ^= 1;
        for split in 0..bytes.len() {
            let (mut framer, mut complete) = (Framer::new(false), 0);
            for mut input in [&bytes[..split], &bytes[split..]] {
                while let Some(fragment) = framer.next(&mut input).expect("only the CRC is wrong") {
                    complete += usize::from(matches!(fragment, Fragment::Frame(..) | Fragment::End));
                }
            }
            assert_eq!(complete, 1, "split at {split}");
        }
    }

    #[test]
    fn a_wrong_byte_anywhere_in_a_frame_is_seen() {
        let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
        link.send(Header { f_ctl: f_ctl::REQUEST, ..Header::default() }, b"abcdef");
        let bytes = link.transmit.take_bytes();
        for at in (0..bytes.len()).filter(|at| !(16..28).contains(at)) {
            for deliver in [bytes.len(), 1] {
                let mut wrong = bytes.clone();
                wrong[at] ^= 0x10;
                let mut framer = Framer::new(true);
                let is_seen = wrong.chunks(deliver).any(|piece| {
                    let mut input = piece;
                    loop {
                        match framer.next(&mut input) {
                            Ok(Some(_)) => {}
                            Ok(None) => return false,
                            Err(_) => return true,
                        }
                    }
                });
                // If a length has become larger, the framer waits for more bytes.
                assert!(is_seen || (12..16).contains(&at), "byte {at}");
            }
        }
    }
}
