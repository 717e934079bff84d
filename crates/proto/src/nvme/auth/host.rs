//! The host's side of one transaction.

use alloc::{string::String, vec::Vec};
use core::fmt;

use super::{
    DhGroup, Failure, Hash, Message, Secret,
    group::EXPONENT_LEN,
    message::Offer,
    proof::{Proof, Role},
};
use crate::{Refusal, Violation, nvme::QueueId, wire::digest::same};

/// How a host authenticates itself, and whether the controller must authenticate itself too.
#[derive(Clone, Debug)]
pub struct HostConfig {
    pub secret: Secret,
    /// The controller's secret, if the controller must authenticate itself too.
    pub controller: Option<Secret>,
    /// The only hash and group offered; `None` offers all.
    pub hash: Option<Hash>,
    pub group: Option<DhGroup>,
    pub entropy: Entropy,
}

/// Unpredictable bytes, new for every connection of a queue.
#[derive(Clone)]
pub struct Entropy(pub [u8; 32]);

/// The host's next step.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthStep {
    /// Send Authentication Send, then call `sent`.
    Send(Vec<u8>),
    /// Send Authentication Receive, then call `received`.
    Receive,
    Done,
}

/// A failed transaction. `last` is the message that informs the controller of the failure.
#[derive(Debug)]
pub struct Ended {
    pub last: Option<Vec<u8>>,
    pub violation: Violation,
}

#[derive(Debug)]
enum State {
    /// AUTH_Negotiate was sent; the challenge is expected.
    Negotiated,
    /// The Reply was sent. `controller` is the response expected of the controller, if it must authenticate itself.
    Replied { hash: Hash, group: DhGroup, controller: Option<Vec<u8>> },
    /// No message follows.
    Done(Agreed),
}

/// The values that both sides negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub hash: Hash,
    pub group: DhGroup,
    /// The controller authenticated itself too.
    pub is_mutual: bool,
}

pub struct Host {
    config: HostConfig,
    hostnqn: String,
    subnqn: String,
    qid: QueueId,
    state: State,
}

impl Host {
    pub fn new(config: HostConfig, hostnqn: &str, subnqn: &str, qid: QueueId) -> Self {
        Self { config, hostnqn: hostnqn.into(), subnqn: subnqn.into(), qid, state: State::Negotiated }
    }

    /// Whether the controller must authenticate itself. If so, a connection without authentication is rejected.
    pub fn is_mutual(&self) -> bool {
        self.config.controller.is_some()
    }

    /// The negotiated values, once authentication is complete.
    pub fn agreed(&self) -> Option<Agreed> {
        match self.state {
            State::Done(agreed) => Some(agreed),
            State::Negotiated | State::Replied { .. } => None,
        }
    }

    /// Returns AUTH_Negotiate.
    pub fn first(&self) -> Vec<u8> {
        let hashes = Hash::ALL.into_iter().filter(|hash| self.config.hash.is_none_or(|only| only == *hash));
        let groups = DhGroup::ALL.into_iter().filter(|group| self.config.group.is_none_or(|only| only == *group));
        let offer = Offer { hashes: hashes.map(Hash::id).collect(), groups: groups.map(DhGroup::id).collect() };
        Message::Negotiate { transaction: self.transaction(), secure_channel: 0, offer: Some(offer) }.encode()
    }

    /// The controller accepted the host's message.
    pub fn sent(&self) -> AuthStep {
        if matches!(self.state, State::Done(_)) { AuthStep::Done } else { AuthStep::Receive }
    }

    /// Processes a message of the controller.
    pub fn received(&mut self, bytes: &[u8]) -> Result<AuthStep, Ended> {
        let Some(message) = Message::decode(bytes) else {
            return Err(self.refuse(Failure::IncorrectPayload, "NVMe base 2.1 §8.3.4: no message of DH-HMAC-CHAP"));
        };
        match (&self.state, message) {
            (_, Message::Failure1 { explanation, .. }) => {
                let violation = Violation::refused(Refusal::Unauthenticated, Failure::describe(explanation));
                Err(Ended { last: None, violation })
            }
            (State::Negotiated, Message::Challenge { transaction, hash, group, sequence, challenge, public })
                if transaction == self.transaction() =>
            {
                self.reply(hash, group, sequence, &challenge, &public)
            }
            (State::Replied { hash, group, controller }, Message::Success1 { transaction, hash_len, response })
                if transaction == self.transaction() =>
            {
                if usize::from(hash_len) != hash.digest_len() {
                    let rule = "NVMe base 2.1 §8.3.4.5.5: DH-HMAC-CHAP_Success1 with a length that is not the hash's";
                    return Err(self.refuse(Failure::HashUnusable, rule));
                }
                let agreed = Agreed { hash: *hash, group: *group, is_mutual: controller.is_some() };
                let Some(wanted) = controller else {
                    self.state = State::Done(agreed);
                    return Ok(AuthStep::Done);
                };
                if response.is_none_or(|response| !same(&response, wanted)) {
                    let rule = "NVMe base 2.1 §8.3.4.5.5: the controller failed to authenticate itself";
                    return Err(self.refuse(Failure::Failed, rule));
                }
                self.state = State::Done(agreed);
                Ok(AuthStep::Send(Message::Success2 { transaction }.encode()))
            }
            _ => Err(self.refuse(Failure::IncorrectMessage, "NVMe base 2.1 §8.3.4: a message out of turn")),
        }
    }

    fn reply(
        &mut self,
        hash: u8,
        group: u8,
        sequence: u32,
        challenge: &[u8],
        public: &[u8],
    ) -> Result<AuthStep, Ended> {
        let allowed_hash = Hash::from_id(hash).filter(|hash| self.config.hash.is_none_or(|only| only == *hash));
        let Some(hash) = allowed_hash.filter(|hash| hash.digest_len() == challenge.len()) else {
            let rule = "NVMe base 2.1 §8.3.4.5.3: the controller chose a hash that was not offered, or not its length";
            return Err(self.refuse(Failure::HashUnusable, rule));
        };
        let allowed_group = DhGroup::from_id(group).filter(|group| self.config.group.is_none_or(|only| only == *group));
        let Some(group) = allowed_group else {
            let rule = "NVMe base 2.1 §8.3.4.5.3: the controller chose a DH group that was not offered";
            return Err(self.refuse(Failure::GroupUnusable, rule));
        };
        let exponent: [u8; EXPONENT_LEN] = self.draw(b"exponent");
        let shared = if group == DhGroup::Null { None } else { group.shared(&exponent, public) };
        if shared.is_none() && (group != DhGroup::Null || !public.is_empty()) {
            let rule = "RFC 7919 §5.1: the controller's public value is not of the group";
            return Err(self.refuse(Failure::IncorrectPayload, rule));
        }
        let (transaction, shared) = (self.transaction(), shared.as_deref());
        let (hostnqn, subnqn) = (self.hostnqn.as_str(), self.subnqn.as_str());
        let response = Proof {
            hash,
            key: &self.config.secret.key_of(hostnqn),
            challenge,
            shared,
            sequence,
            transaction,
            role: Role::Host,
            own_nqn: hostnqn,
            other_nqn: subnqn,
        }
        .response();
        // 0 means that the host requires no response.
        let own_sequence = u32::from_le_bytes(self.draw(b"sequence")) | 1;
        let own_challenge = self.draw::<EXPONENT_LEN>(b"challenge")[..hash.digest_len()].to_vec();
        let controller = self.config.controller.as_ref().map(|secret| {
            Proof {
                hash,
                key: &secret.key_of(subnqn),
                challenge: &own_challenge,
                shared,
                sequence: own_sequence,
                transaction,
                role: Role::Controller,
                own_nqn: subnqn,
                other_nqn: hostnqn,
            }
            .response()
        });
        let is_mutual = controller.is_some();
        self.state = State::Replied { hash, group, controller };
        Ok(AuthStep::Send(
            Message::Reply {
                transaction,
                response,
                challenge: is_mutual.then_some(own_challenge),
                sequence: if is_mutual { own_sequence } else { 0 },
                public: group.public(&exponent),
            }
            .encode(),
        ))
    }

    /// Derives bytes for one purpose within this queue's transaction.
    fn draw<const N: usize>(&self, purpose: &[u8]) -> [u8; N] {
        let bytes = Hash::Sha512.hmac(&self.config.entropy.0, &[&self.qid.0.to_be_bytes(), purpose]);
        *bytes.first_chunk().expect("no more than SHA-512 gives")
    }

    fn transaction(&self) -> u16 {
        u16::from_le_bytes(self.draw(b"transaction"))
    }

    fn refuse(&self, failure: Failure, rule: &'static str) -> Ended {
        let last = Message::Failure2 { transaction: self.transaction(), explanation: failure as u8 };
        Ended { last: Some(last.encode()), violation: Violation::refused(Refusal::Unauthenticated, rule) }
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("qid", &self.qid).finish_non_exhaustive()
    }
}
