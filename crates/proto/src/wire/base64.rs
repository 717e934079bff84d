//! Base64 (RFC 4648 §4), for secrets and challenges.

use alloc::vec::Vec;

/// Decodes base64; `None` if a character is not in its alphabet. Padding may be omitted.
pub fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let digits = digits.strip_suffix(b"==").or_else(|| digits.strip_suffix(b"=")).unwrap_or(digits);
    let (mut bytes, mut held, mut held_bits) = (Vec::with_capacity(digits.len()), 0_u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 & 0xffff | u32::from(value);
        held_bits += 6;
        if held_bits >= 8 {
            held_bits -= 8;
            bytes.push((held >> held_bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648 §10.
    #[test]
    fn base64_gives_the_bytes_of_rfc_4648() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!((decode(b"Zm9-"), decode(b"=Zm9")), (None, None));
    }
}
