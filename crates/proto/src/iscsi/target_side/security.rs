//! The security stage on the target's side: AuthMethod, and CHAP one-way and mutual (RFC 7143 §12.1).

use alloc::{string::String, string::ToString, vec, vec::Vec};

use super::{AuthPolicy, IscsiBackend};
use crate::iscsi::{
    chap::{self, Algorithm, CHALLENGE_LEN},
    pdu::login::LoginStatus,
    text::TextOut,
};
use crate::wire::digest::same;

#[derive(Debug)]
pub(super) struct Security {
    policy: AuthPolicy,
    state: State,
    said: SecurityKeys,
}

#[derive(Debug)]
enum State {
    /// No method is chosen yet.
    Begin,
    /// CHAP is chosen, its algorithm not.
    Chap,
    Challenged {
        algorithm: Algorithm,
        identifier: u8,
        challenge: Vec<u8>,
    },
    Done,
}

/// Keys of the initiator's last request.
#[derive(Debug, Default)]
struct SecurityKeys {
    method: Option<String>,
    algorithms: Option<String>,
    name: Option<String>,
    response: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
}

impl Security {
    pub(super) fn new(policy: AuthPolicy) -> Self {
        Self { policy, state: State::Begin, said: SecurityKeys::default() }
    }

    /// The initiator may leave the security stage, or need not have entered it.
    pub(super) fn is_satisfied(&self) -> bool {
        matches!((&self.policy, &self.state), (AuthPolicy::None, _) | (_, State::Done))
    }

    /// Takes a key of this stage; false where it is none.
    pub(super) fn take(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "AuthMethod" => &mut self.said.method,
            "CHAP_A" => &mut self.said.algorithms,
            "CHAP_N" => &mut self.said.name,
            "CHAP_R" => &mut self.said.response,
            "CHAP_I" => &mut self.said.identifier,
            "CHAP_C" => &mut self.said.challenge,
            _ => return false,
        };
        *place = Some(value.to_string());
        true
    }

    /// Answers what was taken since the last call; an error is a login status.
    pub(super) fn respond<B: IscsiBackend>(&mut self, out: &mut TextOut, backend: &mut B) -> Result<(), LoginStatus> {
        let said = core::mem::take(&mut self.said);
        match core::mem::replace(&mut self.state, State::Begin) {
            State::Begin => {
                let Some(method) = said.method else { return Ok(()) };
                let wanted = if self.is_satisfied() { "None" } else { "CHAP" };
                if !method.split(',').any(|offer| offer == wanted) {
                    return Err(LoginStatus::AUTHENTICATION_FAILURE);
                }
                out.put("AuthMethod", wanted);
                self.state = if self.is_satisfied() { State::Done } else { State::Chap };
            }
            State::Chap => {
                let Some(offers) = said.algorithms else { return Err(LoginStatus::INITIATOR_ERROR) };
                let algorithm = Algorithm::choose(&offers).ok_or(LoginStatus::AUTHENTICATION_FAILURE)?;
                let mut random = vec![0; 1 + CHALLENGE_LEN];
                backend.random(&mut random);
                let challenge = random.split_off(1);
                let identifier = random[0];
                out.put("CHAP_A", algorithm as u8);
                out.put("CHAP_I", identifier);
                out.put("CHAP_C", chap::encode_hex(&challenge));
                self.state = State::Challenged { algorithm, identifier, challenge };
            }
            State::Challenged { algorithm, identifier, challenge } => {
                self.verify(&said, algorithm, identifier, &challenge)?;
                if said.challenge.is_some() {
                    self.prove(&said, algorithm, &challenge, out)?;
                }
                self.state = State::Done;
            }
            State::Done => self.state = State::Done,
        }
        Ok(())
    }

    /// The initiator is who it says.
    fn verify(
        &self,
        said: &SecurityKeys,
        algorithm: Algorithm,
        identifier: u8,
        challenge: &[u8],
    ) -> Result<(), LoginStatus> {
        let AuthPolicy::Chap { initiator, .. } = &self.policy else {
            unreachable!("a challenge is sent where CHAP is asked for")
        };
        let (Some(name), Some(response)) = (&said.name, &said.response) else {
            return Err(LoginStatus::INITIATOR_ERROR);
        };
        let response = chap::decode_binary(response).ok_or(LoginStatus::INITIATOR_ERROR)?;
        let wanted = algorithm.response(identifier, &initiator.secret, challenge);
        if *name == initiator.name && same(&response, &wanted) {
            Ok(())
        } else {
            Err(LoginStatus::AUTHENTICATION_FAILURE)
        }
    }

    /// We are who we say.
    fn prove(
        &self,
        said: &SecurityKeys,
        algorithm: Algorithm,
        ours: &[u8],
        out: &mut TextOut,
    ) -> Result<(), LoginStatus> {
        let AuthPolicy::Chap { target: Some(target), .. } = &self.policy else {
            return Err(LoginStatus::AUTHENTICATION_FAILURE);
        };
        let identifier = said.identifier.as_deref().and_then(chap::identifier).ok_or(LoginStatus::INITIATOR_ERROR)?;
        let challenge =
            said.challenge.as_ref().and_then(|text| chap::decode_binary(text)).ok_or(LoginStatus::INITIATOR_ERROR)?;
        // RFC 7143 §9.2.1: a challenge sent back is an attempt to let us answer our own.
        if challenge == ours {
            return Err(LoginStatus::AUTHENTICATION_FAILURE);
        }
        out.put("CHAP_N", &target.name);
        out.put("CHAP_R", chap::encode_hex(&algorithm.response(identifier, &target.secret, &challenge)));
        Ok(())
    }
}
