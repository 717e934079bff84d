//! CHAP (RFC 7143 §12.1.3, RFC 1994): algorithms, responses, and binary values in text.

use alloc::{string::String, vec::Vec};
use core::fmt::{self, Write as _};

use md5::Md5;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::text;
use crate::wire::base64;

/// Length of our challenges in bytes.
pub const CHALLENGE_LEN: usize = 16;
/// Maximum length of a challenge that we answer (RFC 7143 §12.1.3 allows no more).
const CHALLENGE_LEN_MAX: usize = 1024;

/// A name and its secret. `Debug` does not print the secret, and it is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub name: String,
    pub secret: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Hash algorithms, by their numbers in CHAP_A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Md5 = 5,
    Sha256 = 7,
}

impl Algorithm {
    /// The initiator's offer. Every target must support MD5 (RFC 7143 §12.1.3). It comes first because old targets used
    /// 7 for SHA-1, before that number was assigned to SHA-256.
    pub const OFFER: &str = "5,7";

    pub fn from_number(number: &str) -> Option<Self> {
        match text::number(number)? {
            5 => Some(Self::Md5),
            7 => Some(Self::Sha256),
            _ => None,
        }
    }

    /// Chooses the first algorithm of an initiator's list that is supported.
    pub fn choose(offers: &str) -> Option<Self> {
        offers.split(',').find_map(Self::from_number)
    }

    /// The response to a challenge (RFC 1994 §4.1).
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Self::Md5 => hash::<Md5>(identifier, secret, challenge),
            Self::Sha256 => hash::<Sha256>(identifier, secret, challenge),
        }
    }
}

fn hash<D: md5::Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    let mut hash = D::new();
    hash.update([identifier]);
    hash.update(secret);
    hash.update(challenge);
    hash.finalize().to_vec()
}

/// Parses CHAP_I: a number of one byte, in any notation that RFC 7143 allows for numbers (§12.1.3).
pub fn identifier(text: &str) -> Option<u8> {
    text::number(text).and_then(|number| number.try_into().ok())
}

/// Encodes a binary value as text: `0x…` (RFC 7143 §6.1).
pub fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Decodes a binary value: `0x…` in hexadecimal or `0b…` in base64 (RFC 7143 §6.1).
pub fn decode_binary(text: &str) -> Option<Vec<u8>> {
    let (kind, digits) = text.split_at_checked(2)?;
    let bytes = match kind {
        "0x" | "0X" => decode_hex(digits.as_bytes()),
        "0b" | "0B" => base64::decode(digits.as_bytes()),
        _ => None,
    };
    bytes.filter(|bytes| bytes.len() <= CHALLENGE_LEN_MAX)
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    // If the number of digits is odd, the first digit is a byte of its own.
    let (first, rest) = digits.split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len() / 2 + 1);
    if let [first] = first {
        bytes.push(digit(*first)?);
    }
    for pair in rest.chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_hashes_over_identifier_secret_and_challenge() {
        // MD5("abc") and SHA-256("abc"), RFC 1321 §A.5 and FIPS 180-2 §B.1.
        let md5 = Algorithm::Md5.response(b'a', b"b", b"c");
        assert_eq!(encode_hex(&md5), "0x900150983cd24fb0d6963f7d28e17f72");
        let sha = Algorithm::Sha256.response(b'a', b"b", b"c");
        assert_eq!(encode_hex(&sha), "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn binary_values_are_hexadecimal_or_base64() {
        assert_eq!(decode_binary("0x0aFf"), Some(alloc::vec![0x0a, 0xff]));
        assert_eq!(decode_binary("0xaff"), Some(alloc::vec![0x0a, 0xff]));
        assert_eq!(decode_binary("0bZm9vYmE="), Some(b"fooba".to_vec()));
        assert_eq!(decode_binary("0bZm9vYg=="), Some(b"foob".to_vec()));
        assert_eq!((decode_binary("0xzz"), decode_binary("12"), decode_binary("é")), (None, None, None));
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (text, wanted) in
            [("7", Some(7)), ("0x7", Some(7)), ("0XfF", Some(255)), ("256", None), ("0x", None), ("", None)]
        {
            assert_eq!(identifier(text), wanted, "{text}");
        }
        assert_eq!(Algorithm::choose("0x5"), Some(Algorithm::Md5));
    }

    #[test]
    fn the_initiators_first_algorithm_that_we_can_is_chosen() {
        assert_eq!(Algorithm::choose("6,7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("5"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("6,8"), None);
    }
}
