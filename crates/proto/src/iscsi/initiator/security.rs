//! The security stage on the initiator's side (RFC 7143 §12.1).

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use super::Chap;
use crate::{
    Refusal, Violation,
    iscsi::{
        chap::{self, Algorithm},
        text::TextOut,
    },
    wire::digest::same,
};

#[derive(Debug)]
pub(super) struct Security {
    chap: Option<Chap>,
    state: State,
    said: SecurityKeys,
    /// We answered a challenge.
    proved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    MethodOffered,
    AlgorithmsOffered,
    Responded(Algorithm),
    Done,
}

/// Keys of the target's last response.
#[derive(Debug, Default)]
struct SecurityKeys {
    method: Option<String>,
    algorithm: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
    name: Option<String>,
    response: Option<String>,
}

impl Security {
    pub(super) fn new(chap: Option<Chap>) -> Self {
        Self { chap, state: State::MethodOffered, said: SecurityKeys::default(), proved: false }
    }

    /// Offers what we can. A target that must prove itself may not get out of it by choosing None.
    pub(super) fn offer(&self, out: &mut TextOut) {
        let methods = match &self.chap {
            None => "None",
            Some(Chap { target: None, .. }) => "CHAP,None",
            Some(_) => "CHAP",
        };
        out.put("AuthMethod", methods);
    }

    /// Nothing is left to be said in this stage, so that the next may be asked for.
    pub(super) fn may_transit(&self) -> bool {
        self.chap.is_none() || matches!(self.state, State::Responded(_) | State::Done)
    }

    /// How we proved who we are.
    pub(super) fn method(&self) -> &'static str {
        if self.proved { "CHAP" } else { "None" }
    }

    /// The target left the stage: it must have proved what it has to.
    pub(super) fn finish(&self) -> Result<(), Violation> {
        let mutual = self.chap.as_ref().is_some_and(|chap| chap.target.is_some());
        if mutual && self.state != State::Done {
            return Err(refused("RFC 7143 §12.1.3: the target did not authenticate itself"));
        }
        Ok(())
    }

    /// Takes a key of this stage; false where it is none.
    pub(super) fn take(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "AuthMethod" => &mut self.said.method,
            "CHAP_A" => &mut self.said.algorithm,
            "CHAP_I" => &mut self.said.identifier,
            "CHAP_C" => &mut self.said.challenge,
            "CHAP_N" => &mut self.said.name,
            "CHAP_R" => &mut self.said.response,
            _ => return false,
        };
        *place = Some(value.to_string());
        true
    }

    /// Answers what was taken since the last call.
    pub(super) fn respond(&mut self, out: &mut TextOut) -> Result<(), Violation> {
        let said = core::mem::take(&mut self.said);
        self.state = match (self.state, &self.chap) {
            (State::MethodOffered, chap) => match (said.method.as_deref(), chap) {
                (Some("CHAP"), Some(_)) => {
                    out.put("CHAP_A", Algorithm::OFFER);
                    State::AlgorithmsOffered
                }
                (Some("None") | None, None | Some(Chap { target: None, .. })) => State::Done,
                _ => return Err(refused("RFC 7143 §12.1: the target chose a method that was not offered")),
            },
            (State::AlgorithmsOffered, Some(chap)) => {
                self.proved = true;
                State::Responded(answer(chap, &said, out)?)
            }
            (State::Responded(algorithm), Some(chap)) => {
                verify(chap, &said, algorithm)?;
                State::Done
            }
            (state, _) => state,
        };
        Ok(())
    }
}

/// Answers the target's challenge, and gives ours where the target must authenticate too.
fn answer(chap: &Chap, said: &SecurityKeys, out: &mut TextOut) -> Result<Algorithm, Violation> {
    let missing = Violation::malformed("RFC 7143 §12.1.3: CHAP_A, CHAP_I and CHAP_C are needed");
    let algorithm = said.algorithm.as_deref().and_then(Algorithm::from_number).ok_or(missing.clone())?;
    let identifier = said.identifier.as_deref().and_then(chap::identifier).ok_or(missing.clone())?;
    let challenge = said.challenge.as_ref().and_then(|text| chap::decode_binary(text)).ok_or(missing)?;
    let response: Vec<u8> = algorithm.response(identifier, &chap.initiator.secret, &challenge);
    out.put("CHAP_N", &chap.initiator.name);
    out.put("CHAP_R", chap::encode_hex(&response));
    if let Some(target) = &chap.target {
        out.put("CHAP_I", target.identifier);
        out.put("CHAP_C", chap::encode_hex(&target.challenge));
    }
    Ok(algorithm)
}

/// The target is who it says.
fn verify(chap: &Chap, said: &SecurityKeys, algorithm: Algorithm) -> Result<(), Violation> {
    let Some(target) = &chap.target else { return Ok(()) };
    let wanted = algorithm.response(target.identifier, &target.credentials.secret, &target.challenge);
    let response = said.response.as_ref().and_then(|text| chap::decode_binary(text)).unwrap_or_default();
    if said.name.as_ref() == Some(&target.credentials.name) && same(&response, &wanted) {
        Ok(())
    } else {
        Err(refused("RFC 7143 §12.1.3: the target failed to authenticate itself"))
    }
}

fn refused(rule: &'static str) -> Violation {
    Violation::refused(Refusal::Unauthenticated, rule)
}
