//! XDR (RFC 4506): four-byte units, big-endian, opaque data padded with zeros.

use alloc::vec::Vec;

use crate::wire::{Reader, Short};

/// Bytes that do not match the procedure's definition. The answer is `GARBAGE_ARGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

impl From<Short> for Garbage {
    fn from(_: Short) -> Self {
        Self
    }
}

/// Number of zero bytes after `len` bytes of opaque data (RFC 4506 §4.10).
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// Decodes variable-length opaque data or a string of at most `max` bytes.
pub fn opaque<'a>(reader: &mut Reader<'a>, max: usize) -> Result<&'a [u8], Garbage> {
    let len = reader.u32_be()? as usize;
    if len > max {
        return Err(Garbage);
    }
    let bytes = reader.take(len)?;
    reader.skip(padding(len))?;
    Ok(bytes)
}

/// `M` bytes from `at` on, for data with fixed offsets.
#[inline]
pub(crate) fn part<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    let mut part = [0; M];
    part.copy_from_slice(&bytes[at..at + M]);
    part
}

pub fn boolean(reader: &mut Reader<'_>) -> Result<bool, Garbage> {
    match reader.u32_be()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Garbage),
    }
}

/// Decodes `type *`: a value that may be absent.
pub fn optional<'a, T>(
    reader: &mut Reader<'a>,
    decode: impl FnOnce(&mut Reader<'a>) -> Result<T, Garbage>,
) -> Result<Option<T>, Garbage> {
    if boolean(reader)? { decode(reader).map(Some) } else { Ok(None) }
}

/// Builds a message in a buffer that is reused for the next one.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Starts a record: clears the buffer, and reserves space for the record mark.
    pub fn begin_record(&mut self) -> &mut Self {
        self.bytes.clear();
        self.u32(0)
    }

    /// Writes the mark of a record with one fragment. `beyond` bytes of it follow after those in the buffer.
    pub fn end_record(&mut self, beyond: usize) -> &[u8] {
        let len = self.bytes.len() - 4 + beyond;
        let mark = u32::try_from(len).ok().filter(|len| *len < LAST_FRAGMENT).expect("a record below 2 GiB");
        self.bytes[..4].copy_from_slice(&(LAST_FRAGMENT | mark).to_be_bytes());
        &self.bytes
    }

    /// Overwrites the four bytes at `at`.
    #[inline]
    pub fn patch(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Drops everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Encodes several numbers with only one check for free space.
    #[inline]
    pub fn words<const N: usize>(&mut self, words: [u32; N]) -> &mut Self {
        self.raw(words.map(u32::to_be_bytes).as_flattened())
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    /// Encodes variable-length opaque data or a string.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).expect("opaque data below 4 GiB"));
        self.raw(bytes).raw(&[0; 3][..padding(bytes.len())])
    }

    pub fn optional<T>(&mut self, value: Option<&T>, encode: impl FnOnce(&T, &mut Self)) -> &mut Self {
        self.boolean(value.is_some());
        if let Some(value) = value {
            encode(value, self);
        }
        self
    }
}

/// Set in the mark of a record's last fragment (RFC 5531 §11).
pub(crate) const LAST_FRAGMENT: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_data_are_padded_and_limited() {
        for len in 0..9 {
            let bytes = &b"abcdefghi"[..len];
            let mut encoder = Encoder::default();
            encoder.opaque(bytes).u32(7);
            assert_eq!(encoder.len() % 4, 0);
            let mut reader = Reader::new(encoder.bytes());
            assert_eq!(opaque(&mut reader, len), Ok(bytes));
            assert_eq!(reader.u32_be(), Ok(7));
            if len > 0 {
                assert_eq!(opaque(&mut Reader::new(encoder.bytes()), len - 1), Err(Garbage));
            }
        }
    }

    #[test]
    fn a_boolean_is_zero_or_one() {
        assert_eq!(boolean(&mut Reader::new(&[0, 0, 0, 1])), Ok(true));
        assert_eq!(boolean(&mut Reader::new(&[0, 0, 0, 2])), Err(Garbage));
    }
}
