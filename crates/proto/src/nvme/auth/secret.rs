//! Secrets as people write them: `DHHC-1:xx:base64:` (NVMe base 2.1 §8.3.4.5.8).

use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use super::Hash;
use crate::wire::{base64, digest::crc32};

/// Bytes of the CRC-32 behind the key.
const CRC_LEN: usize = 4;

/// A key, and how it is bound to a name. No `Debug` shows it, and it is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
    /// `None`: the key is used as it is.
    transform: Option<Hash>,
}

/// What is wrong with a secret; says nothing of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the secret is not of the form DHHC-1:xx:base64:")]
    Form,
    #[error("the secret names a hash that is not 00 (none), 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)")]
    Hash,
    #[error("the secret's key has not 32, 48 or 64 bytes")]
    Length,
    #[error("the secret's CRC-32 does not fit its key: is it written right?")]
    Crc,
}

impl Secret {
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let rest = text.trim().strip_prefix("DHHC-1:").ok_or(SecretError::Form)?;
        let (hash, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let transform = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let digits = rest.strip_suffix(':').ok_or(SecretError::Form)?;
        let mut key = Zeroizing::new(base64::decode(digits.as_bytes()).ok_or(SecretError::Form)?);
        let Some(key_len) = key.len().checked_sub(CRC_LEN).filter(|len| matches!(len, 32 | 48 | 64)) else {
            return Err(SecretError::Length);
        };
        let crc = key.split_off(key_len);
        if crc != crc32(&key).to_le_bytes() {
            return Err(SecretError::Crc);
        }
        Ok(Self { key, transform })
    }

    /// The key as the party named `nqn` uses it (NVMe base 2.1 §8.3.4.5.8).
    pub(super) fn key_of(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => Zeroizing::new(hash.hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"])),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("transform", &self.transform).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// The key "0123456789abcdef0123456789abcdef" and its CRC-32, as `nvme gen-dhchap-key --secret` would write it.
    const PLAIN: &str = "DHHC-1:00:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:";

    #[test]
    fn secret_is_read_with_its_checksum() {
        let secret = Secret::parse(PLAIN).expect("a secret");
        assert_eq!((secret.key.as_slice(), secret.transform), (&b"0123456789abcdef0123456789abcdef"[..], None));
        assert_eq!(secret.key_of("nqn.x"), secret.key);
        let bound = Secret::parse(&PLAIN.replace(":00:", ":01:")).expect("a secret");
        assert_ne!(bound.key_of("nqn.x"), bound.key_of("nqn.y"));
        assert_eq!(bound.key_of("nqn.x").len(), 32);
    }

    #[test]
    fn secret_that_is_written_wrong_is_refused() {
        for (text, error) in [
            ("", SecretError::Form),
            ("hunter2", SecretError::Form),
            ("DHHC-1:00", SecretError::Form),
            ("DHHC-1:00:MDEyMzQ1", SecretError::Form),
            ("DHHC-1:00:*:", SecretError::Form),
            ("DHHC-1:04:MDEyMzQ1:", SecretError::Hash),
            ("DHHC-1:00:MDEyMzQ1:", SecretError::Length),
            ("DHHC-1:00::", SecretError::Length),
            (PLAIN.replace("MDEy", "MDEz").as_str(), SecretError::Crc),
        ] {
            assert_eq!(Secret::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn secret_is_not_shown() {
        let shown = format!("{:?}", Secret::parse(PLAIN));
        assert!(!shown.contains("48") && !shown.contains("MDEy"), "{shown}");
    }
}
