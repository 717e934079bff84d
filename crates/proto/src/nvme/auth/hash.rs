//! Hash functions and HMAC over them, by their identifiers in messages and secrets.

use alloc::vec::Vec;

use hmac::{
    Mac as _, SimpleHmac,
    digest::{Digest, core_api::BlockSizeUser},
};
use sha2::{Sha256, Sha384, Sha512};

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

    /// Bytes of a digest.
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

    /// HMAC over the parts, one after the other (RFC 2104).
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

#[cfg(test)]
mod tests {
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
