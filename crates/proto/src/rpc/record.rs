//! Record marking (RFC 5531 §11): messages on a byte stream, each in one or more fragments.

use alloc::vec::Vec;

use super::xdr::LAST_FRAGMENT;
use crate::Violation;

/// Maximum fragments of a record. Known clients send one, or one per send buffer (8 KiB and more).
pub const MAX_FRAGMENTS: u32 = 4096;

/// A piece of a record, without its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub bytes: &'a [u8],
    /// Whether the record ends with this piece.
    pub end: bool,
}

/// Splits a byte stream into records without copying them.
#[derive(Debug)]
pub struct Records {
    max_len: u32,
    mark: [u8; 4],
    mark_len: usize,
    /// Bytes of the current fragment still to come; `None` while its mark is being read.
    fragment: Option<u32>,
    last: bool,
    /// Length of the current record, as far as announced.
    len: u32,
    /// Number of fragments of the current record so far.
    fragments: u32,
}

impl Records {
    /// Records longer than `max_len` bytes are rejected when they are announced.
    pub fn new(max_len: u32) -> Self {
        Self { max_len, mark: [0; 4], mark_len: 0, fragment: None, last: false, len: 0, fragments: 0 }
    }

    /// Whether the stream is between two records.
    pub fn is_idle(&self) -> bool {
        self.fragments == 0 && self.mark_len == 0
    }

    /// Takes the next piece off the front of `input`; `None` if more bytes are needed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Violation> {
        loop {
            let Some(left) = self.fragment else {
                if !self.take_mark(input)? {
                    return Ok(None);
                }
                continue;
            };
            if left > 0 && input.is_empty() {
                return Ok(None);
            }
            let count = input.len().min(left as usize);
            let (bytes, rest) = input.split_at(count);
            *input = rest;
            let end = self.pass(left, count as u32);
            if end || !bytes.is_empty() {
                return Ok(Some(Piece { bytes, end }));
            }
        }
    }

    /// Bytes of the current fragment still to come.
    #[inline]
    pub fn plain_data(&self) -> u32 {
        self.fragment.unwrap_or(0)
    }

    /// Skips the next `len` bytes of `plain_data`, which were received elsewhere. Returns whether the record ends with
    /// them.
    pub fn skip(&mut self, len: u32) -> bool {
        let left = self.plain_data();
        assert!(len <= left, "more than the fragment still has");
        self.pass(left, len)
    }

    /// Counts `count` of the `left` bytes as received. Returns whether the record ends with them.
    #[inline]
    fn pass(&mut self, left: u32, count: u32) -> bool {
        let left = left - count;
        self.fragment = (left > 0).then_some(left);
        let end = left == 0 && self.last;
        if end {
            self.len = 0;
            self.fragments = 0;
        }
        end
    }

    fn take_mark(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let count = input.len().min(4 - self.mark_len);
        let (bytes, rest) = input.split_at(count);
        self.mark[self.mark_len..self.mark_len + count].copy_from_slice(bytes);
        self.mark_len += count;
        *input = rest;
        if self.mark_len < 4 {
            return Ok(false);
        }
        self.mark_len = 0;
        let mark = u32::from_be_bytes(self.mark);
        let len = mark & !LAST_FRAGMENT;
        self.last = mark & LAST_FRAGMENT != 0;
        self.fragments += 1;
        if self.fragments > MAX_FRAGMENTS {
            return Err(misbehaved!("RFC 5531 §11: a record in more fragments than this side takes"));
        }
        match self.len.checked_add(len) {
            Some(total) if total <= self.max_len => self.len = total,
            _ => return Err(misbehaved!("RFC 5531 §11: a record longer than this side takes")),
        }
        self.fragment = Some(len);
        Ok(true)
    }
}

/// Returns the record at the start of `bytes`, of at most `max_len` bytes, and its length in the stream.
pub(crate) fn first_record(bytes: &[u8], max_len: u32) -> Result<(usize, Vec<u8>), Violation> {
    let mut records = Records::new(max_len);
    let (mut input, mut record) = (bytes, Vec::new());
    while let Some(piece) = records.next(&mut input)? {
        record.extend_from_slice(piece.bytes);
        if piece.end {
            return Ok((bytes.len() - input.len(), record));
        }
    }
    Err(malformed!("RFC 5531 §11: the bytes end within a record"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn fragmented(record: &[u8], fragment: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let count = record.len().div_ceil(fragment).max(1);
        for (at, chunk) in record.chunks(fragment).enumerate() {
            let last = if at + 1 == count { LAST_FRAGMENT } else { 0 };
            bytes.extend((chunk.len() as u32 | last).to_be_bytes());
            bytes.extend(chunk);
        }
        bytes
    }

    fn collect(stream: &[u8], step: usize, max_len: u32) -> Result<Vec<Vec<u8>>, Violation> {
        let mut records = Records::new(max_len);
        let (mut whole, mut current) = (Vec::new(), Vec::new());
        for mut input in stream.chunks(step) {
            while let Some(piece) = records.next(&mut input)? {
                current.extend(piece.bytes);
                if piece.end {
                    whole.push(core::mem::take(&mut current));
                }
            }
            assert!(input.is_empty());
        }
        assert!(records.is_idle());
        Ok(whole)
    }

    #[test]
    fn records_come_back_whatever_the_fragments_and_deliveries() {
        let first: Vec<u8> = (0..23).collect();
        for fragment in 1..25 {
            let mut stream = fragmented(&first, fragment);
            stream.extend(fragmented(b"next", fragment));
            for step in 1..=stream.len() {
                assert_eq!(collect(&stream, step, 23), Ok(vec![first.clone(), b"next".to_vec()]));
            }
        }
    }

    #[test]
    fn empty_fragments_are_taken_and_an_empty_record_ends() {
        let mut stream = vec![0, 0, 0, 0, 0, 0, 0, 1, b'a'];
        stream.extend([0x80, 0, 0, 0, 0x80, 0, 0, 0]);
        assert_eq!(collect(&stream, 3, 8), Ok(vec![b"a".to_vec(), Vec::new()]));
    }

    #[test]
    fn a_record_too_long_or_in_too_many_fragments_is_refused() {
        assert!(collect(&fragmented(&[0; 9], 4), 100, 8).is_err());
        assert!(collect(&[0xff; 4], 4, 1 << 20).is_err());
        let marks = vec![0; 4 * (MAX_FRAGMENTS as usize + 1)];
        assert!(collect(&marks, 64, 8).is_err());
    }
}
