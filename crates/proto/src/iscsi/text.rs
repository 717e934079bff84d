//! Text of logins and text requests: `key=value` pairs, each ended by a zero byte (RFC 7143 §6.1).

use alloc::{string::String, vec::Vec};
use core::fmt::{Display, Write as _};

use crate::Violation;

/// Most bytes of text that one exchange may collect over continued PDUs. RFC 7143 §6.2 asks for 8192 at least.
pub const TEXT_LEN_MAX: usize = 16 * 1024;
/// Data segment of a PDU before another length is declared (RFC 7143 §13.12).
pub const DEFAULT_SEGMENT_LEN: usize = 8192;

/// The pairs of a complete text.
pub fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, Violation> {
    text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()).map(pair).collect()
}

fn pair(pair: &[u8]) -> Result<(&str, &str), Violation> {
    let pair = str::from_utf8(pair).map_err(|_| Violation::malformed("RFC 7143 §6.1: text is UTF-8"))?;
    let (key, value) = pair.split_once('=').ok_or(Violation::malformed("RFC 7143 §6.1: key without '='"))?;
    if key.is_empty() || key.len() > 63 {
        return Err(Violation::malformed("RFC 7143 §6.1: a key has 1 to 63 characters"));
    }
    Ok((key, value))
}

/// Text that comes in, perhaps over several PDUs with the C bit.
#[derive(Debug, Default)]
pub struct TextIn(Vec<u8>);

impl TextIn {
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.0.len() + bytes.len() > TEXT_LEN_MAX {
            return Err(Violation::misbehaved("RFC 7143 §6.2: more text than is taken in one exchange"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// The text collected, which starts anew.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0)
    }
}

/// Text that goes out, perhaps over several PDUs.
#[derive(Debug, Default)]
pub struct TextOut {
    text: Vec<u8>,
    sent: usize,
}

impl TextOut {
    pub fn put(&mut self, key: &str, value: impl Display) {
        let mut pair = String::new();
        // Writing to a `String` cannot fail.
        let _ = write!(pair, "{key}={value}\0");
        self.text.extend_from_slice(pair.as_bytes());
    }

    /// Nothing is left to be sent.
    pub fn is_empty(&self) -> bool {
        self.sent == self.text.len()
    }

    /// The next segment of at most `max` bytes, and whether more follow (the C bit).
    pub fn next_segment(&mut self, max: usize) -> (Vec<u8>, bool) {
        let end = self.text.len().min(self.sent + max);
        let segment = self.text[self.sent..end].to_vec();
        self.sent = end;
        let more = !self.is_empty();
        if !more {
            self.text.clear();
            self.sent = 0;
        }
        (segment, more)
    }
}

/// A number of a text: decimal, or hexadecimal behind `0x` (RFC 7143 §6.1).
pub fn number(value: &str) -> Option<u64> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if !value.starts_with('+') => value.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn pairs_are_split_and_checked() {
        assert_eq!(pairs(b"A=b\0C=d=e\0\0"), Ok(vec![("A", "b"), ("C", "d=e")]));
        assert_eq!(pairs(b"A="), Ok(vec![("A", "")]));
        assert!(pairs(b"novalue\0").is_err());
        assert!(pairs(b"=x\0").is_err());
        assert!(pairs(b"A=\xff\0").is_err());
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("512"), Some(512));
        assert_eq!(number("0x1fF"), Some(511));
        assert_eq!((number("+1"), number("0x+1"), number(""), number("1k")), (None, None, None, None));
    }

    #[test]
    fn text_beyond_the_limit_is_refused() {
        let mut text = TextIn::default();
        assert_eq!(text.push(&[b'x'; TEXT_LEN_MAX]), Ok(()));
        assert!(text.push(b"y").is_err());
    }

    #[test]
    fn long_text_goes_out_in_segments() {
        let mut text = TextOut::default();
        text.put("Key", "value");
        assert_eq!(text.next_segment(6), (b"Key=va".to_vec(), true));
        assert_eq!(text.next_segment(6), (b"lue\0".to_vec(), false));
        assert!(text.is_empty());
    }
}
