//! In-band authentication of a queue after Connect: the host's messages as commands, on admin and I/O queues alike.

use alloc::boxed::Box;

use super::{Capsules, SessionConfig};
use crate::{
    Refusal, Violation, ViolationKind,
    nvme::{
        CommandId, QueueId, Status,
        auth::{self, Agreed, AuthStep, Host},
    },
};

/// AUTHREQ in the result of Connect (NVMe base 2.1 §6.3): in-band authentication, and whatever else may be asked for.
const AUTHENTICATION: u64 = 1 << 17;
const REQUIRED: u64 = 0xffff_0000;

/// What comes after an answer.
pub(super) enum Next {
    /// Another command was sent.
    Wait,
    Done(Agreed),
}

pub(super) struct Authentication {
    host: Host,
}

impl Authentication {
    /// What the result of Connect asks for; `None` where the queue may be used at once.
    pub(super) fn asked_for(result: u64, config: &SessionConfig, qid: QueueId) -> Result<Option<Box<Self>>, Violation> {
        let host = config.auth.clone().map(|auth| Host::new(auth, &config.hostnqn, &config.subnqn, qid));
        match (result & REQUIRED, host) {
            // A controller that must prove itself may not get out of it by asking for nothing.
            (0, Some(host)) if host.is_mutual() => Err(Violation::refused(
                Refusal::Unauthenticated,
                "the controller asks for no authentication, so it does not authenticate itself either",
            )),
            (0, _) => Ok(None),
            (AUTHENTICATION, Some(host)) => Ok(Some(Box::new(Self { host }))),
            (AUTHENTICATION, None) => Err(Violation::refused(
                Refusal::Unauthenticated,
                "the controller asks for authentication: no secret is given",
            )),
            _ => Err(Violation::new(ViolationKind::Unsupported, "the controller asks for a secure channel")),
        }
    }

    /// Sends AUTH_Negotiate.
    pub(super) fn begin(&self, capsules: &mut impl Capsules, cid: CommandId) {
        send(capsules, cid, &self.host.first());
    }

    /// The last command was answered, with these data: sends the next one with the identifier `cid`.
    pub(super) fn proceed(
        &mut self,
        capsules: &mut impl Capsules,
        cid: CommandId,
        status: Status,
        data: &[u8],
    ) -> Result<Next, Violation> {
        if !status.is_success() {
            return Err(Violation::refused(Refusal::Unauthenticated, status.name()));
        }
        let step = if data.is_empty() { Ok(self.host.sent()) } else { self.host.received(data) };
        match step {
            Ok(AuthStep::Send(message)) => {
                send(capsules, cid, &message);
                Ok(Next::Wait)
            }
            Ok(AuthStep::Receive) => {
                capsules.send(&auth::receive(cid, auth::MESSAGE_LEN_MAX), &[], auth::MESSAGE_LEN_MAX);
                Ok(Next::Wait)
            }
            Ok(AuthStep::Done) => Ok(Next::Done(self.host.agreed().expect("a transaction that is done"))),
            Err(ended) => {
                if let Some(last) = ended.last {
                    send(capsules, cid, &last);
                }
                Err(ended.violation)
            }
        }
    }
}

/// Messages are short enough for a capsule of every transport (NVMe/TCP transport 1.1 §3.5.1: 8,192 bytes).
fn send(capsules: &mut impl Capsules, cid: CommandId, message: &[u8]) {
    capsules.send(&auth::send(cid, message.len() as u32), message, 0);
}
