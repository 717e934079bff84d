//! Splits a byte stream into PDUs: a header, the pieces of its data segment as they arrive, an end.

use alloc::vec::Vec;

use super::{BHS_LEN, Bhs, padding};
use crate::{
    Violation,
    wire::digest::{Crc32c, crc32c},
};

const DIGEST_LEN: usize = 4;

/// The next part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment<'a> {
    /// A header. Its digest, if any, is correct.
    Header(Bhs),
    /// A piece of the data segment, at `offset`.
    Data { offset: u32, bytes: &'a [u8] },
    /// The PDU is complete. `intact` is false if its data digest is wrong.
    End { intact: bool },
}

/// Parses PDUs. A header that is complete in the input is not copied, and data are never buffered.
#[derive(Debug)]
pub struct Framer {
    state: State,
    header_digest: bool,
    data_digest: bool,
    max_data_len: u32,
    /// A header that arrived in parts, with its additional segments and digest: at most 48 + 1020 + 4 bytes.
    head: Vec<u8>,
    data_len: u32,
    data_seen: u32,
    crc: Crc32c,
    /// Padding and data digest.
    tail: [u8; 3 + DIGEST_LEN],
    tail_seen: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Data,
    Tail,
}

impl Framer {
    /// Creates a framer without digests, as at the start of every connection. `max_data_len` limits a data segment.
    pub fn new(max_data_len: u32) -> Self {
        Self {
            state: State::Head,
            header_digest: false,
            data_digest: false,
            max_data_len,
            head: Vec::with_capacity(BHS_LEN + DIGEST_LEN),
            data_len: 0,
            data_seen: 0,
            crc: Crc32c::default(),
            tail: [0; 3 + DIGEST_LEN],
            tail_seen: 0,
        }
    }

    /// Applies the negotiated parameters to the PDUs from the next one on.
    pub fn set_negotiated(&mut self, header_digest: bool, data_digest: bool, max_data_len: u32) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.max_data_len = max_data_len;
    }

    /// Returns the next fragment of `input`; `None` if more bytes are needed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, Violation> {
        match self.state {
            State::Head => {
                let Some(bhs) = self.head(input)? else { return Ok(None) };
                if bhs.data_len() > self.max_data_len {
                    return Err(misbehaved!("RFC 7143 §13.12: data segment beyond MaxRecvDataSegmentLength").at(5));
                }
                self.data_len = bhs.data_len();
                self.data_seen = 0;
                self.tail_seen = 0;
                if self.data_digest && self.data_len > 0 {
                    self.crc = Crc32c::default();
                }
                self.state = if self.data_len > 0 { State::Data } else { State::Tail };
                Ok(Some(Fragment::Header(bhs)))
            }
            State::Data => {
                if input.is_empty() {
                    return Ok(None);
                }
                let len = input.len().min((self.data_len - self.data_seen) as usize);
                let (bytes, rest) = input.split_at(len);
                *input = rest;
                if self.data_digest {
                    self.crc.update(bytes);
                }
                let offset = self.data_seen;
                self.data_seen += len as u32;
                if self.data_seen == self.data_len {
                    self.state = State::Tail;
                }
                Ok(Some(Fragment::Data { offset, bytes }))
            }
            State::Tail => {
                let Some(intact) = self.tail(input) else { return Ok(None) };
                self.state = State::Head;
                self.head.clear();
                Ok(Some(Fragment::End { intact }))
            }
        }
    }

    /// Offset and length of the rest of the current data segment, if no digest covers it.
    #[inline]
    pub fn plain_data(&self) -> Option<(u32, u32)> {
        let is_plain = self.state == State::Data && !self.data_digest;
        is_plain.then_some((self.data_seen, self.data_len - self.data_seen))
    }

    /// Skips the next `len` bytes of `plain_data`, which were received elsewhere.
    pub fn skip(&mut self, len: u32) {
        let (offset, left) = self.plain_data().expect("data to come");
        assert!(len <= left, "more than the data that were to come");
        self.data_seen = offset + len;
        if len == left {
            self.state = State::Tail;
        }
    }

    /// Reads padding and digest. When they are complete, returns whether the data are intact.
    #[inline]
    fn tail(&mut self, input: &mut &[u8]) -> Option<bool> {
        if self.data_len == 0 {
            return Some(true);
        }
        let padding_len = padding(self.data_len as usize);
        let need = padding_len + if self.data_digest { DIGEST_LEN } else { 0 };
        if need == 0 {
            return Some(true);
        }
        let len = input.len().min(need - self.tail_seen);
        let (bytes, rest) = input.split_at(len);
        *input = rest;
        self.tail[self.tail_seen..self.tail_seen + len].copy_from_slice(bytes);
        self.tail_seen += len;
        if self.tail_seen < need {
            return None;
        }
        let is_digest_right = need == padding_len || {
            // RFC 7143 §13.1: the data digest covers the padding.
            self.crc.update(&self.tail[..padding_len]);
            self.crc.finish().to_le_bytes() == self.tail[padding_len..need]
        };
        Some(is_digest_right)
    }

    /// Reads a header with its additional segments and digest.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<Bhs>, Violation> {
        if input.is_empty() {
            return Ok(None);
        }
        if self.head.is_empty()
            && !self.header_digest
            && let Some((header, rest)) = input.split_first_chunk::<BHS_LEN>()
            && header[4] == 0
        {
            *input = rest;
            return Ok(Some(Bhs(*header)));
        }
        if !self.fill_head(input, BHS_LEN) {
            return Ok(None);
        }
        let digest_len = if self.header_digest { DIGEST_LEN } else { 0 };
        let digest_at = BHS_LEN + usize::from(self.head[4]) * 4;
        if !self.fill_head(input, digest_at + digest_len) {
            return Ok(None);
        }
        let (covered, digest) = self.head.split_at(digest_at);
        if self.header_digest && crc32c(covered).to_le_bytes() != digest {
            // RFC 7143 §7.8: the lengths may be wrong, so the following bytes cannot be parsed.
            return Err(malformed!("RFC 7143 §7.8: header digest error").at(digest_at as u32));
        }
        let mut bhs = [0; BHS_LEN];
        bhs.copy_from_slice(&self.head[..BHS_LEN]);
        Ok(Some(Bhs(bhs)))
    }

    fn fill_head(&mut self, input: &mut &[u8], need: usize) -> bool {
        let len = input.len().min(need.saturating_sub(self.head.len()));
        let (bytes, rest) = input.split_at(len);
        *input = rest;
        self.head.extend_from_slice(bytes);
        self.head.len() >= need
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Transmit, iscsi::pdu::Sender};

    fn stream(digests: bool) -> Vec<u8> {
        let sender = Sender { header_digest: digests, data_digest: digests };
        let mut transmit = Transmit::default();
        for len in [0, 1, 2, 3, 4, 100] {
            let data: Vec<u8> = (0..len).collect();
            sender.bytes(&mut transmit, Bhs([len; BHS_LEN].map(|byte| byte | 0x40)).without_lengths(), &data);
        }
        transmit.take_bytes()
    }

    impl Bhs {
        fn without_lengths(mut self) -> Self {
            self.0[4..8].fill(0);
            self
        }
    }

    fn lengths(framer: &mut Framer, deliveries: &[&[u8]]) -> Vec<(usize, bool)> {
        let mut seen = Vec::new();
        let mut len = 0;
        for delivery in deliveries {
            let mut input = *delivery;
            while let Some(step) = framer.next(&mut input).expect("a good stream") {
                match step {
                    Fragment::Header(_) => len = 0,
                    Fragment::Data { offset, bytes } => {
                        assert_eq!(offset as usize, len);
                        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte as usize == len + at));
                        len += bytes.len();
                    }
                    Fragment::End { intact } => seen.push((len, intact)),
                }
            }
            assert!(input.is_empty());
        }
        seen
    }

    #[test]
    fn pdus_are_the_same_at_every_split() {
        for digests in [false, true] {
            let bytes = stream(digests);
            let want: Vec<_> = [0, 1, 2, 3, 4, 100].map(|len| (len, true)).to_vec();
            for split in 0..=bytes.len() {
                let mut framer = Framer::new(100);
                framer.set_negotiated(digests, digests, 100);
                assert_eq!(lengths(&mut framer, &[&bytes[..split], &bytes[split..]]), want, "split at {split}");
            }
            let mut framer = Framer::new(100);
            framer.set_negotiated(digests, digests, 100);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(lengths(&mut framer, &single), want);
        }
    }

    #[test]
    fn wrong_digests_are_seen() {
        let bytes = stream(true);
        let mut framer = Framer::new(100);
        framer.set_negotiated(true, true, 100);
        let mut wrong = bytes.clone();
        *wrong.last_mut().expect("bytes") ^= 1;
        assert_eq!(lengths(&mut framer, &[&wrong]).last(), Some(&(100, false)));

        let mut framer = Framer::new(100);
        framer.set_negotiated(true, true, 100);
        let mut wrong = bytes;
        wrong[20] ^= 1;
        assert!(framer.next(&mut &wrong[..]).is_err());
    }

    #[test]
    fn data_beyond_what_was_declared_are_refused_by_their_header() {
        let bytes = stream(false);
        let mut framer = Framer::new(99);
        let mut input = &bytes[..];
        let error = loop {
            match framer.next(&mut input) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("stream ended"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.at, Some(5));
    }
}
