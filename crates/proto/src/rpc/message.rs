//! The heads of calls and replies (RFC 5531 §9).

use core::fmt;

use super::{
    auth::{self, AUTH_NONE, OpaqueAuth},
    xdr::{Encoder, padding},
};
use crate::{
    Refusal,
    wire::{Reader, Short},
};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
/// Why a call was denied (`reject_stat`, RFC 5531 §9).
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// Identifies a call; chosen by the client and repeated in the reply (RFC 5531 §9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid(pub u32);

impl Xid {
    #[must_use]
    pub fn wrapping_add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl fmt::LowerHex for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// The head of a call. The procedure's arguments follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    pub xid: Xid,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credential: OpaqueAuth<'a>,
    pub verifier: OpaqueAuth<'a>,
}

/// Why a head could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// More bytes are needed.
    Short,
    /// Not a call, or not a reply, as expected.
    WrongDirection,
    /// A call that must be answered with an error.
    Answer { xid: Xid, error: RpcError },
    /// A reply with undefined values.
    Malformed,
}

impl From<Short> for HeadError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

/// The outcomes of a call other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    #[error("the program is not served here")]
    ProgramUnavailable,
    #[error("the program's version is not served here, only {low} to {high}")]
    ProgramMismatch { low: u32, high: u32 },
    #[error("the program has no such procedure")]
    ProcedureUnavailable,
    #[error("the arguments do not decode")]
    GarbageArguments,
    #[error("the server failed")]
    SystemError,
    #[error("the version of RPC is not spoken here, only {low} to {high}")]
    RpcMismatch { low: u32, high: u32 },
    #[error("the credential was refused (auth_stat {0})")]
    Authentication(u32),
}

impl RpcError {
    /// The kind of refusal that the error means.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::ProgramUnavailable => Refusal::NotFound,
            Self::Authentication(_) => Refusal::Denied,
            _ => Refusal::Other,
        }
    }
}

/// `accept_stat` of a call that was accepted by RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AcceptStatus {
    Success = 0,
    ProgramUnavailable = 1,
    ProgramMismatch = 2,
    ProcedureUnavailable = 3,
    GarbageArguments = 4,
    SystemError = 5,
}

impl AcceptStatus {
    #[allow(clippy::inline_always)] // Most replies are a success.
    #[inline(always)]
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::ProgramUnavailable,
            2 => Self::ProgramMismatch,
            3 => Self::ProcedureUnavailable,
            4 => Self::GarbageArguments,
            5 => Self::SystemError,
            _ => return None,
        })
    }
}

impl<'a> Call<'a> {
    #[allow(clippy::inline_always)] // Inlined to avoid moving the result.
    #[inline(always)]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, HeadError> {
        let xid = Xid(reader.u32_be()?);
        if reader.u32_be()? != CALL {
            return Err(HeadError::WrongDirection);
        }
        if reader.u32_be()? != RPC_VERSION {
            let error = RpcError::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION };
            return Err(HeadError::Answer { xid, error });
        }
        let (program, version, procedure) = (reader.u32_be()?, reader.u32_be()?, reader.u32_be()?);
        let credential = decode_auth(reader, xid, auth::AuthStatus::BadCredential)?;
        let verifier = decode_auth(reader, xid, auth::AuthStatus::BadVerifier)?;
        Ok(Self { xid, program, version, procedure, credential, verifier })
    }
}

/// Encodes the head of a call. `identity` is the result of `Identity::encode`.
pub fn encode_call(encoder: &mut Encoder, xid: Xid, program: u32, version: u32, procedure: u32, identity: &[u8]) {
    encoder.u32(xid.0).u32(CALL).u32(RPC_VERSION).u32(program).u32(version).u32(procedure).raw(identity);
}

/// Encodes the head of a successful reply. Results follow.
pub fn encode_success(encoder: &mut Encoder, xid: Xid) {
    encode_accepted(encoder, xid, AcceptStatus::Success);
}

/// Encodes a complete reply with an error.
pub fn encode_error(encoder: &mut Encoder, xid: Xid, error: RpcError) {
    match error {
        RpcError::ProgramUnavailable => encode_accepted(encoder, xid, AcceptStatus::ProgramUnavailable),
        RpcError::ProgramMismatch { low, high } => {
            encode_accepted(encoder, xid, AcceptStatus::ProgramMismatch);
            encoder.u32(low).u32(high);
        }
        RpcError::ProcedureUnavailable => encode_accepted(encoder, xid, AcceptStatus::ProcedureUnavailable),
        RpcError::GarbageArguments => encode_accepted(encoder, xid, AcceptStatus::GarbageArguments),
        RpcError::SystemError => encode_accepted(encoder, xid, AcceptStatus::SystemError),
        RpcError::RpcMismatch { low, high } => {
            encoder.u32(xid.0).u32(REPLY).u32(DENIED).u32(RPC_MISMATCH).u32(low).u32(high);
        }
        RpcError::Authentication(status) => {
            encoder.u32(xid.0).u32(REPLY).u32(DENIED).u32(AUTH_ERROR).u32(status);
        }
    }
}

/// Decodes the head of a reply: its xid, and whether results follow.
pub fn decode_reply(reader: &mut Reader<'_>) -> Result<(Xid, Result<(), RpcError>), HeadError> {
    let xid = Xid(reader.u32_be()?);
    if reader.u32_be()? != REPLY {
        return Err(HeadError::WrongDirection);
    }
    let outcome = match reader.u32_be()? {
        ACCEPTED => {
            decode_auth(reader, xid, auth::AuthStatus::InvalidResponse)?;
            match AcceptStatus::from_number(reader.u32_be()?).ok_or(HeadError::Malformed)? {
                AcceptStatus::Success => Ok(()),
                AcceptStatus::ProgramUnavailable => Err(RpcError::ProgramUnavailable),
                AcceptStatus::ProgramMismatch => {
                    Err(RpcError::ProgramMismatch { low: reader.u32_be()?, high: reader.u32_be()? })
                }
                AcceptStatus::ProcedureUnavailable => Err(RpcError::ProcedureUnavailable),
                AcceptStatus::GarbageArguments => Err(RpcError::GarbageArguments),
                AcceptStatus::SystemError => Err(RpcError::SystemError),
            }
        }
        DENIED => match reader.u32_be()? {
            RPC_MISMATCH => Err(RpcError::RpcMismatch { low: reader.u32_be()?, high: reader.u32_be()? }),
            AUTH_ERROR => Err(RpcError::Authentication(reader.u32_be()?)),
            _ => return Err(HeadError::Malformed),
        },
        _ => return Err(HeadError::Malformed),
    };
    Ok((xid, outcome))
}

fn encode_accepted(encoder: &mut Encoder, xid: Xid, status: AcceptStatus) {
    encoder.u32(xid.0).u32(REPLY).u32(ACCEPTED).u32(AUTH_NONE).u32(0).u32(status as u32);
}

/// Decodes an authenticator (`opaque_auth`). One that is too long is an error even before it has arrived completely.
#[allow(clippy::inline_always)]
#[inline(always)]
fn decode_auth<'a>(reader: &mut Reader<'a>, xid: Xid, status: auth::AuthStatus) -> Result<OpaqueAuth<'a>, HeadError> {
    let (flavor, len) = (reader.u32_be()?, reader.u32_be()? as usize);
    if len > auth::MAX_AUTH_LEN {
        return Err(HeadError::Answer { xid, error: RpcError::Authentication(status as u32) });
    }
    let body = reader.take(len)?;
    reader.skip(padding(len))?;
    Ok(OpaqueAuth { flavor, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn call() -> Vec<u8> {
        let mut encoder = Encoder::default();
        encode_call(&mut encoder, Xid(9), 100_003, 3, 6, &auth::Identity::None.encode());
        encoder.bytes().to_vec()
    }

    #[test]
    fn a_head_is_short_until_it_is_whole() {
        let bytes = call();
        for len in 0..bytes.len() {
            assert_eq!(Call::decode(&mut Reader::new(&bytes[..len])), Err(HeadError::Short), "{len} bytes");
        }
        let call = Call::decode(&mut Reader::new(&bytes)).expect("a call");
        assert_eq!((call.xid, call.program, call.version, call.procedure), (Xid(9), 100_003, 3, 6));
    }

    #[test]
    fn wrong_direction_version_and_credential_are_told_apart() {
        let mut bytes = call();
        bytes[7] = 1;
        assert_eq!(Call::decode(&mut Reader::new(&bytes)), Err(HeadError::WrongDirection));
        let mut bytes = call();
        bytes[11] = 3;
        let error = RpcError::RpcMismatch { low: 2, high: 2 };
        assert_eq!(Call::decode(&mut Reader::new(&bytes)), Err(HeadError::Answer { xid: Xid(9), error }));
        let mut bytes = call();
        bytes[30] = 2;
        let error = RpcError::Authentication(auth::AuthStatus::BadCredential as u32);
        assert_eq!(Call::decode(&mut Reader::new(&bytes)), Err(HeadError::Answer { xid: Xid(9), error }));
    }

    #[test]
    fn every_error_comes_back_as_it_was_sent() {
        for error in [
            RpcError::ProgramUnavailable,
            RpcError::ProgramMismatch { low: 3, high: 3 },
            RpcError::ProcedureUnavailable,
            RpcError::GarbageArguments,
            RpcError::SystemError,
            RpcError::RpcMismatch { low: 2, high: 2 },
            RpcError::Authentication(5),
        ] {
            let mut encoder = Encoder::default();
            encode_error(&mut encoder, Xid(4), error);
            let mut reader = Reader::new(encoder.bytes());
            assert_eq!(decode_reply(&mut reader), Ok((Xid(4), Err(error))));
            assert_eq!(reader.remaining(), 0);
        }
    }
}
