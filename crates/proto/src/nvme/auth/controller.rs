//! The controller's side of one transaction. A connection has only one, and carries no other commands until it has
//! passed.

use alloc::{string::String, vec, vec::Vec};
use core::{fmt, mem};

use super::{
    DhGroup, Failure, Hash, Message, Secret,
    group::{EXPONENT_LEN, Work, Worked},
    message::Offer,
    proof::{Proof, Role},
};
use crate::wire::digest::same;

/// The secrets and algorithms with which hosts must authenticate.
#[derive(Clone, Debug)]
pub struct Policy {
    pub secret: Secret,
    /// The controller's own secret, for hosts that require it to authenticate itself too.
    pub controller: Option<Secret>,
    /// The only hash and group allowed. `None` selects the first one in the host's list that is supported here.
    pub hash: Option<Hash>,
    pub group: Option<DhGroup>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    /// The queue may be used.
    Passed,
    /// The connection must be closed.
    Failed,
}

enum State {
    Begin,
    /// The controller's public value is being computed.
    Challenging(Challenged),
    Challenged(Challenged),
    /// The shared secret is being computed.
    Verifying(Challenged, Replied),
    /// Success1 is ready to be fetched. Then the host is authenticated, and no message follows.
    Proved,
    /// Like `Proved`, but the host must still confirm that it accepts the controller's response.
    Answered,
    /// Failure1 is ready to be fetched.
    Failing,
    Passed,
    Failed,
}

struct Challenged {
    hash: Hash,
    group: DhGroup,
    sequence: u32,
    challenge: Vec<u8>,
    exponent: [u8; EXPONENT_LEN],
}

/// The host's response to a challenge.
struct Replied {
    response: Vec<u8>,
    challenge: Option<Vec<u8>>,
    sequence: u32,
}

pub struct Controller {
    policy: Policy,
    hostnqn: String,
    subnqn: String,
    transaction: u16,
    state: State,
    /// The message for the host's next Authentication Receive.
    outgoing: Option<Vec<u8>>,
}

impl Controller {
    pub fn new(policy: Policy, hostnqn: &str, subnqn: &str) -> Self {
        let (hostnqn, subnqn) = (hostnqn.into(), subnqn.into());
        Self { policy, hostnqn, subnqn, transaction: 0, state: State::Begin, outgoing: None }
    }

    pub fn progress(&self) -> Progress {
        match self.state {
            State::Passed => Progress::Passed,
            State::Failed => Progress::Failed,
            _ => Progress::Open,
        }
    }

    /// Processes the data of an Authentication Send. `random` must return unpredictable bytes. If this returns work,
    /// call `worked` before anything else.
    #[must_use]
    pub fn take(&mut self, bytes: &[u8], random: &mut dyn FnMut(&mut [u8])) -> Option<Work> {
        let taken = self.on_message(bytes, random);
        self.or_fail(taken)
    }

    /// Continues with the result of the work that `take` returned.
    pub fn worked(&mut self, value: Worked) {
        let done = match (mem::replace(&mut self.state, State::Failing), value) {
            (State::Challenging(given), Some(public)) => {
                self.challenge(given, public);
                Ok(None)
            }
            (State::Verifying(given, replied), Some(shared)) => {
                self.verify(&given, &replied, Some(&shared)).map(|()| None)
            }
            _ => Err(Failure::IncorrectPayload),
        };
        self.or_fail(done);
    }

    fn or_fail(&mut self, taken: Result<Option<Work>, Failure>) -> Option<Work> {
        taken.unwrap_or_else(|failure| {
            let message = Message::Failure1 { transaction: self.transaction, explanation: failure as u8 };
            self.outgoing = Some(message.encode());
            self.state = State::Failing;
            None
        })
    }

    /// Returns the message for an Authentication Receive; `None` if the host must send first.
    pub fn give(&mut self) -> Option<Vec<u8>> {
        let message = self.outgoing.take()?;
        match self.state {
            State::Proved => self.state = State::Passed,
            State::Failing => self.state = State::Failed,
            _ => {}
        }
        Some(message)
    }

    fn on_message(&mut self, bytes: &[u8], random: &mut dyn FnMut(&mut [u8])) -> Result<Option<Work>, Failure> {
        let message = Message::decode(bytes).ok_or(Failure::IncorrectPayload)?;
        // The host must fetch the pending message first. After a failure only Failure2 is accepted.
        let may_speak = self.outgoing.is_none() && !matches!(self.state, State::Failing);
        match (message, mem::replace(&mut self.state, State::Failing)) {
            // The host gives up, so no answer is sent.
            (Message::Failure2 { .. }, _) => self.state = State::Failed,
            // One transaction per connection, so that a peer cannot cause unlimited computation.
            (Message::Negotiate { transaction, secure_channel, offer }, State::Begin) => {
                self.transaction = transaction;
                if secure_channel != 0 {
                    return Err(Failure::SecureChannelMismatch);
                }
                return self.begin(&offer.ok_or(Failure::ProtocolUnusable)?, random);
            }
            (Message::Reply { transaction, response, challenge, sequence, public }, State::Challenged(given))
                if may_speak && transaction == self.transaction =>
            {
                // NVMe base 2.1 §8.3.4.5.4: a challenge with an S2 of 0 is for the key of a secure channel, and none
                // was negotiated. If it were accepted as one-way authentication, a host that requires proof of the
                // controller would get none.
                if challenge.is_some() && sequence == 0 {
                    return Err(Failure::IncorrectPayload);
                }
                return self.replied(given, Replied { response, challenge, sequence }, public);
            }
            (Message::Success2 { transaction }, State::Answered) if may_speak && transaction == self.transaction => {
                self.state = State::Passed;
            }
            _ => return Err(Failure::IncorrectMessage),
        }
        Ok(None)
    }

    fn begin(&mut self, offer: &Offer, random: &mut dyn FnMut(&mut [u8])) -> Result<Option<Work>, Failure> {
        let (hash, group) = offer.choose(self.policy.hash, self.policy.group)?;
        let (mut challenge, mut exponent, mut sequence) = (vec![0; hash.digest_len()], [0; EXPONENT_LEN], [0; 4]);
        random(&mut challenge);
        random(&mut exponent);
        random(&mut sequence);
        // S1 must not be 0 (NVMe base 2.1 §8.3.4.5.3).
        let sequence = u32::from_le_bytes(sequence) | 1;
        let given = Challenged { hash, group, sequence, challenge, exponent };
        if group == DhGroup::Null {
            self.challenge(given, Vec::new());
            return Ok(None);
        }
        self.state = State::Challenging(given);
        Ok(Some(Work::public(group, exponent)))
    }

    fn challenge(&mut self, given: Challenged, public: Vec<u8>) {
        let message = Message::Challenge {
            transaction: self.transaction,
            hash: given.hash.id(),
            group: given.group.id(),
            sequence: given.sequence,
            challenge: given.challenge.clone(),
            public,
        };
        self.outgoing = Some(message.encode());
        self.state = State::Challenged(given);
    }

    fn replied(&mut self, given: Challenged, replied: Replied, public: Vec<u8>) -> Result<Option<Work>, Failure> {
        match given.group {
            DhGroup::Null if public.is_empty() => self.verify(&given, &replied, None).map(|()| None),
            DhGroup::Null => Err(Failure::IncorrectPayload),
            group => {
                let work = Work::shared(group, given.exponent, public);
                self.state = State::Verifying(given, replied);
                Ok(Some(work))
            }
        }
    }

    fn verify(&mut self, given: &Challenged, replied: &Replied, shared: Option<&[u8]>) -> Result<(), Failure> {
        let hash = given.hash;
        let wanted = Proof {
            hash,
            key: &self.policy.secret.key_of(&self.hostnqn),
            challenge: &given.challenge,
            shared,
            sequence: given.sequence,
            transaction: self.transaction,
            role: Role::Host,
            own_nqn: &self.hostnqn,
            other_nqn: &self.subnqn,
        }
        .response();
        if !same(&replied.response, &wanted) {
            return Err(Failure::Failed);
        }
        let own = match (replied.challenge.as_deref(), &self.policy.controller) {
            (None, _) => None,
            (Some(_), None) => return Err(Failure::Failed),
            (Some(challenge), Some(secret)) => Some(
                Proof {
                    hash,
                    key: &secret.key_of(&self.subnqn),
                    challenge,
                    shared,
                    sequence: replied.sequence,
                    transaction: self.transaction,
                    role: Role::Controller,
                    own_nqn: &self.subnqn,
                    other_nqn: &self.hostnqn,
                }
                .response(),
            ),
        };
        self.state = if own.is_some() { State::Answered } else { State::Proved };
        let hash_len = hash.digest_len() as u8;
        let message = Message::Success1 { transaction: self.transaction, hash_len, response: own };
        self.outgoing = Some(message.encode());
        Ok(())
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
