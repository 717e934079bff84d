//! Callers: `AUTH_NONE` and `AUTH_SYS` (RFC 5531 §8, appendix A).

use alloc::{string::String, vec::Vec};

use super::xdr::{self, Encoder, Garbage};
use crate::wire::Reader;

pub const AUTH_NONE: u32 = 0;
pub const AUTH_SYS: u32 = 1;
/// Maximum length of the body of a credential or verifier (RFC 5531 §8.2).
pub const MAX_AUTH_LEN: usize = 400;
/// Maximum supplementary groups (RFC 5531 appendix A).
pub const MAX_GROUPS: usize = 16;
const MAX_MACHINE_NAME: usize = 255;
/// User and group of a caller without credentials.
pub const NOBODY: u32 = 65534;

/// `auth_stat` (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthStatus {
    BadCredential = 1,
    RejectedCredential = 2,
    BadVerifier = 3,
    RejectedVerifier = 4,
    TooWeak = 5,
    InvalidResponse = 6,
    Failed = 7,
}

/// Flavor and body of a credential or verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    pub flavor: u32,
    pub body: &'a [u8],
}

/// The user and groups of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    groups: [u32; MAX_GROUPS],
    groups_len: u8,
}

impl Default for Credentials {
    fn default() -> Self {
        Self::nobody()
    }
}

impl Credentials {
    /// Groups beyond `MAX_GROUPS` are dropped, because `AUTH_SYS` cannot encode them.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let mut credentials =
            Self { uid, gid, groups: [0; MAX_GROUPS], groups_len: groups.len().min(MAX_GROUPS) as u8 };
        for (slot, group) in credentials.groups.iter_mut().zip(groups) {
            *slot = *group;
        }
        credentials
    }

    pub fn root() -> Self {
        Self::new(0, 0, &[])
    }

    pub fn nobody() -> Self {
        Self::new(NOBODY, NOBODY, &[])
    }

    /// Supplementary groups.
    pub fn groups(&self) -> &[u32] {
        &self.groups[..usize::from(self.groups_len)]
    }

    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().contains(&gid)
    }

    /// Returns the caller without root's rights. Root becomes user `uid` in group `gid`, without its other groups,
    /// because they were claimed by root. In another caller root's group becomes `gid`.
    #[must_use]
    pub fn squash_root(mut self, uid: u32, gid: u32) -> Self {
        if self.uid == 0 {
            return Self::new(uid, gid, &[]);
        }
        if self.gid == 0 {
            self.gid = gid;
        }
        for group in &mut self.groups[..usize::from(self.groups_len)] {
            if *group == 0 {
                *group = gid;
            }
        }
        self
    }

    /// Decodes a credential.
    pub fn decode(auth: OpaqueAuth<'_>) -> Result<Self, AuthStatus> {
        match auth.flavor {
            AUTH_NONE => Ok(Self::nobody()),
            AUTH_SYS => Self::decode_sys(auth.body).map_err(|Garbage| AuthStatus::BadCredential),
            _ => Err(AuthStatus::RejectedCredential),
        }
    }

    fn decode_sys(body: &[u8]) -> Result<Self, Garbage> {
        let mut reader = Reader::new(body);
        reader.skip(4)?; // A server ignores the stamp.
        xdr::opaque(&mut reader, MAX_MACHINE_NAME)?;
        let mut credentials = Self::new(reader.u32_be()?, reader.u32_be()?, &[]);
        let count = reader.u32_be()? as usize;
        for slot in credentials.groups.get_mut(..count).ok_or(Garbage)? {
            *slot = reader.u32_be()?;
        }
        credentials.groups_len = count as u8;
        if reader.remaining() > 0 {
            return Err(Garbage);
        }
        Ok(credentials)
    }
}

/// The caller of the last call. A client sends the same credential with nearly every call, so it is compared instead of
/// decoded.
#[derive(Debug)]
pub struct LastCaller {
    flavor: u32,
    body: Vec<u8>,
    who: Credentials,
}

impl Default for LastCaller {
    fn default() -> Self {
        Self { flavor: AUTH_NONE, body: Vec::new(), who: Credentials::nobody() }
    }
}

impl LastCaller {
    /// Decodes a credential, or returns the last result for the same one.
    #[inline]
    pub fn decode(&mut self, auth: OpaqueAuth<'_>) -> Result<&Credentials, AuthStatus> {
        if auth.flavor != self.flavor || auth.body != self.body {
            self.who = Credentials::decode(auth)?;
            self.flavor = auth.flavor;
            self.body.clear();
            self.body.extend_from_slice(auth.body);
        }
        Ok(&self.who)
    }
}

/// The credential of a caller. It is encoded once and sent with every call.
#[derive(Clone, Debug, Default)]
pub enum Identity {
    #[default]
    None,
    Sys {
        machine: String,
        credentials: Credentials,
    },
}

impl Identity {
    /// Encodes credential and (empty) verifier, to be copied into calls.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        match self {
            Self::None => {
                encoder.u32(AUTH_NONE).u32(0);
            }
            Self::Sys { machine, credentials } => {
                let name = machine.as_bytes();
                let name = &name[..name.len().min(MAX_MACHINE_NAME)];
                let mut body = Encoder::default();
                body.u32(0).opaque(name).u32(credentials.uid).u32(credentials.gid);
                body.u32(credentials.groups().len() as u32);
                for group in credentials.groups() {
                    body.u32(*group);
                }
                encoder.u32(AUTH_SYS).opaque(body.bytes());
            }
        }
        encoder.u32(AUTH_NONE).u32(0);
        encoder.bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_opaque<'a>(reader: &mut Reader<'a>) -> Result<OpaqueAuth<'a>, Garbage> {
        Ok(OpaqueAuth { flavor: reader.u32_be()?, body: xdr::opaque(reader, MAX_AUTH_LEN)? })
    }

    #[test]
    fn a_credential_comes_back_as_it_was_sent() {
        let credentials = Credentials::new(1000, 100, &[4, 24, 27]);
        let bytes = Identity::Sys { machine: "host".into(), credentials }.encode();
        let mut reader = Reader::new(&bytes);
        let auth = decode_opaque(&mut reader).expect("a credential");
        assert_eq!(Credentials::decode(auth), Ok(credentials));
        assert_eq!(decode_opaque(&mut reader), Ok(OpaqueAuth { flavor: AUTH_NONE, body: &[] }));
    }

    #[test]
    fn the_last_caller_is_known_again_and_a_bad_one_is_refused() {
        let mut last = LastCaller::default();
        assert_eq!(last.decode(OpaqueAuth { flavor: AUTH_NONE, body: &[] }), Ok(&Credentials::nobody()));
        for uid in [1, 1, 2] {
            let mut body = Encoder::default();
            body.u32(0).opaque(b"h").u32(uid).u32(3).u32(0);
            let auth = OpaqueAuth { flavor: AUTH_SYS, body: body.bytes() };
            assert_eq!(last.decode(auth), Ok(&Credentials::new(uid, 3, &[])));
            assert_eq!(last.decode(OpaqueAuth { body: &[1], ..auth }), Err(AuthStatus::BadCredential));
        }
    }

    #[test]
    fn seventeen_groups_or_bytes_too_many_are_a_bad_credential() {
        let mut body = Encoder::default();
        body.u32(0).opaque(b"h").u32(1).u32(1).u32(17).raw(&[0; 17 * 4]);
        let auth = OpaqueAuth { flavor: AUTH_SYS, body: body.bytes() };
        assert_eq!(Credentials::decode(auth), Err(AuthStatus::BadCredential));
        let auth = OpaqueAuth { flavor: 6, body: &[] };
        assert_eq!(Credentials::decode(auth), Err(AuthStatus::RejectedCredential));
    }

    #[test]
    fn squashed_root_is_root_in_no_group() {
        for root in [Credentials::new(0, 0, &[0, 5]), Credentials::new(0, 6, &[5])] {
            assert_eq!(root.squash_root(NOBODY, NOBODY), Credentials::nobody());
        }
        let squashed = Credentials::new(7, 0, &[0, 5]).squash_root(NOBODY, NOBODY);
        assert_eq!((squashed.uid, squashed.gid, squashed.groups()), (7, NOBODY, &[NOBODY, 5][..]));
        let user = Credentials::new(7, 8, &[9]);
        assert_eq!(user.squash_root(NOBODY, NOBODY), user);
    }
}
