//! Responses to challenges, which prove that a party knows its secret (NVMe base 2.1 §8.3.4.5.4, §8.3.4.5.5).
//!
//! Also hash functions and HMAC, by their identifiers in messages and secrets, and secrets in their text form
//! `DHHC-1:xx:base64:` (NVMe base 2.1 §8.3.4.5.8).

use alloc::vec::Vec;
use core::fmt;

use hmac::{
    Mac as _, SimpleHmac,
    digest::{Digest, core_api::BlockSizeUser},
};
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use crate::wire::{base64, digest::crc32};

/// The inputs of one party's response to the other's challenge.
pub(super) struct Proof<'a> {
    pub(super) hash: Hash,
    /// Key of the party that proves itself, bound to its name.
    pub(super) key: &'a [u8],
    pub(super) challenge: &'a [u8],
    /// Shared secret of the Diffie-Hellman exchange; `None` in the null group.
    pub(super) shared: Option<&'a [u8]>,
    pub(super) sequence: u32,
    pub(super) transaction: u16,
    pub(super) role: Role,
    /// NQN of the party that proves itself.
    pub(super) own_nqn: &'a str,
    /// NQN of the other party.
    pub(super) other_nqn: &'a str,
}

#[derive(Clone, Copy)]
pub(super) enum Role {
    Host,
    Controller,
}

impl Proof<'_> {
    pub(super) fn response(&self) -> Vec<u8> {
        /// SC_C: no secure channel is established.
        const NO_SECURE_CHANNEL: u8 = 0;
        let role: &[u8] = match self.role {
            Role::Host => b"HostHost",
            Role::Controller => b"Controller",
        };
        // The augmented challenge: HMAC(H(g^xy), C).
        let augmented = self.shared.map(|shared| self.hash.hmac(&self.hash.digest(shared), &[self.challenge]));
        self.hash.hmac(
            self.key,
            &[
                augmented.as_deref().unwrap_or(self.challenge),
                &self.sequence.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &[NO_SECURE_CHANNEL],
                role,
                self.own_nqn.as_bytes(),
                &[0],
                self.other_nqn.as_bytes(),
            ],
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256 = 1,
    Sha384 = 2,
    Sha512 = 3,
}

impl Hash {
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    pub fn id(self) -> u8 {
        self as u8
    }

    /// Length of a digest in bytes.
    pub fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// HMAC over the concatenation of the parts (RFC 2104).
    pub(super) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => hmac::<Sha256>(key, parts),
            Self::Sha384 => hmac::<Sha384>(key, parts),
            Self::Sha512 => hmac::<Sha512>(key, parts),
        }
    }
}

fn hmac<D: Digest + BlockSizeUser>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = SimpleHmac::<D>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// Length in bytes of the CRC-32 after the key.
const CRC_LEN: usize = 4;

/// A key, and how it is bound to a name. `Debug` does not print it, and it is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
    /// `None`: the key is used unchanged.
    transform: Option<Hash>,
}

/// Why a secret is not valid. Messages reveal nothing of its contents.
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
    use super::*;
    use crate::nvme::auth::group::tests::hex;

    /// The first bytes of the HMAC that Python computes for the concatenation in the specification.
    #[test]
    fn responses_are_those_that_another_implementation_finds() {
        let key: [u8; 32] = core::array::from_fn(|at| at as u8);
        let challenge: [u8; 64] = core::array::from_fn(|at| 0x80 + at as u8);
        let shared: [u8; 256] = core::array::from_fn(|at| 255 - at as u8);
        let (host, controller) = ("nqn.2014-08.org.nvmexpress:uuid:host", "nqn.2026-11.example:volume");
        for (hash, has_shared, role, wanted) in [
            (Hash::Sha256, false, Role::Host, "d187622d4f0f232df6ef5505bd23ba05"),
            (Hash::Sha256, false, Role::Controller, "4f3f8aa94c2d387eb7c7325cd8eb6fee"),
            (Hash::Sha256, true, Role::Host, "ba977e9a7a065b43d36749a0524ea46c"),
            (Hash::Sha256, true, Role::Controller, "d0751e59059bddaea885d8aead9764af"),
            (Hash::Sha384, false, Role::Host, "4cf694ff9d8233b37e366796e96fae52"),
            (Hash::Sha384, false, Role::Controller, "0a2a7a815d176d0b59a244080084592a"),
            (Hash::Sha384, true, Role::Host, "4b00602b6c742f3d46ae930edaeae077"),
            (Hash::Sha384, true, Role::Controller, "a22352880996420be88dc670209d2d62"),
            (Hash::Sha512, false, Role::Host, "3d3ccaecf228c452f5f8f2d46a0f8228"),
            (Hash::Sha512, false, Role::Controller, "2238ffda140c4f0a44e1f635dee29876"),
            (Hash::Sha512, true, Role::Host, "d45cb362371812a99a4f9ec0efbcfac7"),
            (Hash::Sha512, true, Role::Controller, "cee019875723be22e58dfa959e1e8a04"),
        ] {
            let (own_nqn, other_nqn) = match role {
                Role::Host => (host, controller),
                Role::Controller => (controller, host),
            };
            let proof = Proof {
                hash,
                key: &key,
                challenge: &challenge[..hash.digest_len()],
                shared: has_shared.then_some(&shared[..]),
                sequence: 0x0102_0304,
                transaction: 0x0506,
                role,
                own_nqn,
                other_nqn,
            };
            assert_eq!(proof.response()[..16], hex(wanted), "{hash:?} {has_shared}");
        }
    }
}

#[cfg(test)]
mod hash_tests {
    use super::*;
    use crate::nvme::auth::group::tests::hex;

    /// RFC 4231 §4.3 (test case 2).
    #[test]
    fn hmac_gives_the_values_of_rfc_4231() {
        for (hash, wanted) in [
            (Hash::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Hash::Sha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Hash::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            assert_eq!(hash.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]), hex(wanted));
            assert_eq!(hash.digest(b"").len(), hash.digest_len());
        }
    }
}

#[cfg(test)]
mod secret_tests {
    use alloc::format;

    use super::*;

    /// The key "0123456789abcdef0123456789abcdef" and its CRC-32, in the format of `nvme gen-dhchap-key --secret`.
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
