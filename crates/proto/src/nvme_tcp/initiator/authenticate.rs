//! In-band authentication of a queue after Connect: the host's messages as commands, on admin and I/O queues alike.

use alloc::{boxed::Box, vec::Vec};

use super::{ConnectConfig, link::Link};
use crate::{
    Refusal, Violation, ViolationKind,
    nvme::{
        Status,
        auth::{self, Agreed, Host, Step},
    },
    nvme_tcp::{
        pdu::{DataHeader, Fault},
        sender::Data,
    },
};

/// AUTHREQ in the result of Connect (NVMe base 2.1 §6.3): in-band authentication, and whatever else may be asked for.
const AUTHENTICATION: u64 = 1 << 17;
const REQUIRED: u64 = 0xffff_0000;

/// What comes after an answer.
pub(super) enum Next {
    /// A command was sent that gives so many bytes.
    Reads(u32),
    Done(Agreed),
}

pub(super) struct Authentication {
    host: Host,
}

impl Authentication {
    /// What the result of Connect asks for; `None` where the queue may be used at once.
    pub(super) fn asked_for(result: u64, config: &ConnectConfig, qid: u16) -> Result<Option<Box<Self>>, Violation> {
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
    pub(super) fn begin(&self, link: &mut Link, cid: u16) {
        send(link, cid, &self.host.first());
    }

    /// The last command was answered, with these data: sends the next one with the identifier `cid`.
    pub(super) fn proceed(
        &mut self,
        link: &mut Link,
        cid: u16,
        status: Status,
        data: &[u8],
    ) -> Result<Next, Violation> {
        if !status.is_success() {
            return Err(Violation::refused(Refusal::Unauthenticated, status.name()));
        }
        let step = if data.is_empty() { Ok(self.host.sent()) } else { self.host.received(data) };
        match step {
            Ok(Step::Send(message)) => {
                send(link, cid, &message);
                Ok(Next::Reads(0))
            }
            Ok(Step::Receive) => {
                link.sender.command(&auth::receive(cid, auth::MESSAGE_LEN_MAX), Data::None);
                Ok(Next::Reads(auth::MESSAGE_LEN_MAX))
            }
            Ok(Step::Done) => Ok(Next::Done(self.host.agreed().expect("a transaction that is done"))),
            Err(ended) => {
                if let Some(last) = ended.last {
                    send(link, cid, &last);
                }
                Err(ended.violation)
            }
        }
    }
}

/// Fabrics commands may have 8,192 bytes in their capsules, on every queue (NVMe/TCP transport 1.1 §3.5.1).
fn send(link: &mut Link, cid: u16, message: &[u8]) {
    link.sender.command(&auth::send(cid, message.len() as u32), Data::Bytes(message));
}

/// An authentication on an I/O queue, with the data of the command outstanding.
pub(super) struct OnIoQueue {
    authentication: Box<Authentication>,
    reads: u32,
    data: Vec<u8>,
    is_spoilt: bool,
    /// The data PDU under way completes the command.
    succeeds: bool,
}

impl OnIoQueue {
    pub(super) fn begin(authentication: Box<Authentication>, link: &mut Link, cid: u16) -> Self {
        authentication.begin(link, cid);
        Self { authentication, reads: 0, data: Vec::new(), is_spoilt: false, succeeds: false }
    }

    pub(super) fn on_header(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        let received = self.data.len() as u32;
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, "NVMe/TCP: DATAL is not the length of the PDU's data"));
        }
        if data.offset != received || data_len > self.reads - received {
            return Err(Fault::out_of_range("NVMe/TCP: C2HData outside what the command asked for, or out of order"));
        }
        if data.is_success && !(data.is_last && data_len == self.reads - received) {
            return Err(Fault::field(1, "NVMe/TCP: SUCCESS on a PDU that is not the last"));
        }
        self.succeeds = data.is_success;
        Ok(())
    }

    pub(super) fn on_data(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
    }

    /// True where the data complete their command.
    pub(super) fn on_data_end(&mut self, digest_ok: bool) -> bool {
        self.is_spoilt |= !digest_ok;
        core::mem::take(&mut self.succeeds)
    }

    /// The command outstanding was answered; true when all is done.
    pub(super) fn on_response(&mut self, link: &mut Link, cid: u16, status: Status) -> Result<bool, Violation> {
        let status = if self.is_spoilt { Status::TRANSIENT_TRANSPORT_ERROR } else { status };
        let data = core::mem::take(&mut self.data);
        if status.is_success() && data.len() < self.reads as usize {
            return Err(Violation::misbehaved("NVMe/TCP: a command succeeded without all of its data"));
        }
        match self.authentication.proceed(link, cid, status, &data)? {
            Next::Reads(reads) => {
                self.reads = reads;
                Ok(false)
            }
            Next::Done(_) => Ok(true),
        }
    }
}
