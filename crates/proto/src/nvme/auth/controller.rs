//! The controller's side of one transaction: a connection has one, and may do nothing else until it has passed.

use alloc::{string::String, vec, vec::Vec};
use core::{fmt, mem};

use super::{
    DhGroup, Failure, Hash, Message, Secret,
    group::{EXPONENT_LEN, Work, Worked},
    message::Offer,
    proof::{Proof, Role},
};
use crate::wire::digest::same;

/// What a host must prove.
#[derive(Clone, Debug)]
pub struct Policy {
    pub secret: Secret,
    /// Ours, for hosts that ask us to prove ourselves as well.
    pub controller: Option<Secret>,
    /// The only ones allowed; `None` takes the first of the host's that we can.
    pub hash: Option<Hash>,
    pub group: Option<DhGroup>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    /// The queue may be used.
    Passed,
    /// The connection is to be closed.
    Failed,
}

enum State {
    Begin,
    /// Our public value is being worked out.
    Challenging(Challenged),
    Challenged(Challenged),
    /// What both sides share is being worked out.
    Verifying(Challenged, Replied),
    /// Success1 waits to be fetched; then the host has proved itself, and nothing more comes.
    Proved,
    /// As `Proved`, and the host must say that it is content with us.
    Answered,
    /// Failure1 waits to be fetched.
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

/// What the host said to a challenge.
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
    /// What the host's next Authentication Receive gets.
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

    /// Data of an Authentication Send. `random` gives what no peer can guess. Where it gives work, `worked` comes before
    /// anything else.
    #[must_use]
    pub fn take(&mut self, bytes: &[u8], random: &mut dyn FnMut(&mut [u8])) -> Option<Work> {
        let taken = self.on_message(bytes, random);
        self.or_fail(taken)
    }

    /// What `take` wanted worked out.
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

    /// The message for an Authentication Receive; `None` where it is the host's turn.
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
        // What we have to say must be fetched first; after a failure nothing else helps.
        let may_speak = self.outgoing.is_none() && !matches!(self.state, State::Failing);
        match (message, mem::replace(&mut self.state, State::Failing)) {
            // The host gives up: there is no one left to notify.
            (Message::Failure2 { .. }, _) => self.state = State::Failed,
            // One transaction per connection: a peer cannot make us compute without end.
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
                // NVMe base 2.1 §8.3.4.5.4: a challenge with S2 of 0 is for the key of a secure channel, and none was agreed on.
                // Taken as one-way, a host that wants proof of us would get none.
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
        // S1 is not 0 (NVMe base 2.1 §8.3.4.5.3).
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
