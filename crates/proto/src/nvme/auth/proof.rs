//! What proves that a party knows its secret (NVMe base 2.1 §8.3.4.5.4, §8.3.4.5.5).

use alloc::vec::Vec;

use super::Hash;

/// One party's answer to the other's challenge.
pub(super) struct Proof<'a> {
    pub(super) hash: Hash,
    /// Of the party that proves itself, bound to its name.
    pub(super) key: &'a [u8],
    pub(super) challenge: &'a [u8],
    /// What both found by Diffie and Hellman's exchange; `None` in the null group.
    pub(super) shared: Option<&'a [u8]>,
    pub(super) sequence: u32,
    pub(super) transaction: u16,
    pub(super) role: Role,
    /// NQNs of the party that proves itself and of the other.
    pub(super) own_nqn: &'a str,
    pub(super) other_nqn: &'a str,
}

#[derive(Clone, Copy)]
pub(super) enum Role {
    Host,
    Controller,
}

impl Proof<'_> {
    pub(super) fn response(&self) -> Vec<u8> {
        /// SC_C: no secure channel is made of what is agreed on.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::auth::group::tests::hex;

    /// First bytes of what another implementation of HMAC (Python's) gives for the concatenation that the specification names.
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
