//! A connection that carries one command at a time, and an event request beside it, for an admin queue or to a discovery
//! controller. Also an outstanding command that is not I/O, with the data received for it.

use alloc::vec::Vec;

use super::{AdminQueue, ConnectConfig, Discovery, Link};
use crate::{
    Instant, Transmit, Violation,
    nvme::{
        CommandId, Cqe, Sqe, Status,
        command::{Sgl, admin},
        fabrics::{
            Data,
            host::{Answer, Connection, ConnectionEvent},
        },
    },
    nvme_tcp::{
        pdu::{DataHeader, Fault, Fes, Header},
        receiver::Fragment,
    },
};

impl AdminQueue {
    /// Creates an admin queue. The first bytes of the handshake are in `transmit` at once.
    pub fn new(now: Instant, config: ConnectConfig) -> Self {
        Self::on(now, Link::new(config.digests), config.session)
    }
}

impl Discovery {
    /// Creates a discovery client. Ignores `config.session.subnqn`: the discovery subsystem has its own name.
    pub fn new(now: Instant, config: ConnectConfig) -> Self {
        Self::on(now, Link::new(config.digests), config.session)
    }
}

/// The result of processing a fragment.
enum LinkEvent {
    Nothing,
    Open,
    Completion(Cqe),
}

impl Connection for Link {
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<ConnectionEvent>, Violation> {
        loop {
            let before = *bytes;
            let Some(step) = self.step(bytes)? else { return Ok(None) };
            match self.on_step(&step) {
                Ok(LinkEvent::Nothing) => {}
                Ok(LinkEvent::Open) => return Ok(Some(ConnectionEvent::Open)),
                Ok(LinkEvent::Completion(cqe)) => {
                    if let Some(exchange) = self.take_exchange(cqe.cid) {
                        return exchange.answer(cqe).map(|answer| Some(ConnectionEvent::Answer(answer)));
                    }
                    if self.event_request.take_if(|cid| *cid == cqe.cid).is_some() {
                        return Ok(Some(ConnectionEvent::Notice(cqe)));
                    }
                    return Err(self.fail(&NO_COMMAND, before));
                }
                Err(fault) => return Err(self.fail(&fault, before)),
            }
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.sender.tx
    }

    fn request_event(&mut self, cid: CommandId) {
        let mut sqe = Sqe::new(admin::ASYNC_EVENT, cid, 0);
        sqe.set_sgl(Sgl::Transport { len: 0 });
        self.event_request = Some(cid);
        self.sender.command(&sqe, Data::None);
    }
}

impl Link {
    fn on_step(&mut self, step: &Fragment<'_>) -> Result<LinkEvent, Fault> {
        match step {
            Fragment::Header { header: Header::IcResp(resp), .. } => {
                self.on_ic_resp(resp)?;
                return Ok(LinkEvent::Open);
            }
            Fragment::Header { header: Header::Response(cqe), .. } => return Ok(LinkEvent::Completion(*cqe)),
            Fragment::Header { header: Header::ControllerData(data), data_len } => {
                self.on_exchange_data_header(data, *data_len)?;
            }
            Fragment::Data(piece) => self.on_exchange_data(piece),
            Fragment::End { digest_ok } => {
                return Ok(self.on_exchange_data_end(*digest_ok).map_or(LinkEvent::Nothing, LinkEvent::Completion));
            }
            Fragment::Header { .. } => {
                return Err(Fault::field(0, rule!("NVMe/TCP 1.1 §3.6.2.1: the PDU is not for this command")));
            }
        }
        Ok(LinkEvent::Nothing)
    }
}

pub(super) struct Exchange {
    cid: CommandId,
    /// Bytes that the controller returns.
    reads: u32,
    data: Vec<u8>,
    /// A data digest was wrong.
    is_spoilt: bool,
    /// The current data PDU completes the command.
    succeeds: bool,
}

impl Exchange {
    pub(super) fn new(cid: CommandId, reads: u32) -> Self {
        Self { cid, reads, data: Vec::new(), is_spoilt: false, succeeds: false }
    }

    pub(super) fn cid(&self) -> CommandId {
        self.cid
    }

    /// Checks the header of a C2HData PDU (NVMe/TCP transport 1.1 §3.6.2.9).
    pub(super) fn on_header(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        if self.reads == 0 {
            return Err(NO_READ);
        }
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, rule!("NVMe/TCP 1.1 §3.6.2.9: DATAL is not the length of the PDU's data")));
        }
        let received = self.data.len() as u32;
        if data.offset != received || data_len > self.reads - received {
            return Err(Fault::out_of_range(rule!(
                "NVMe/TCP 1.1 §3.6.2.9: C2HData outside what the command asked for, or out of order"
            )));
        }
        if data.is_success && !(data.is_last && data_len == self.reads - received) {
            return Err(Fault::field(1, rule!("NVMe/TCP 1.1 §3.6.2.9: SUCCESS on a PDU that is not the last")));
        }
        // Success is reported at the end of the last PDU, after its digest was checked.
        self.succeeds = data.is_success;
        Ok(())
    }

    pub(super) fn on_data(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
    }

    /// Returns a completion if the data imply success.
    pub(super) fn on_data_end(&mut self, digest_ok: bool) -> Option<Cqe> {
        self.is_spoilt |= !digest_ok;
        self.succeeds.then_some(Cqe { result: 0, sq_head: 0, cid: self.cid, status: Status::SUCCESS })
    }

    pub(super) fn answer(self, mut cqe: Cqe) -> Result<Answer, Violation> {
        if self.is_spoilt {
            cqe.status = Status::TRANSIENT_TRANSPORT_ERROR;
        } else if cqe.status.is_success() && self.data.len() < self.reads as usize {
            return Err(misbehaved!("NVMe/TCP 1.1 §3.6.2.9: a command succeeded without all of its data"));
        }
        Ok(Answer { cqe, data: self.data })
    }
}

pub(super) const NO_READ: Fault = Fault {
    status: Fes::InvalidHeaderField,
    information: 8,
    rule: rule!("NVMe/TCP 1.1 §3.6.2.9: C2HData for no read outstanding"),
};

pub(super) const NO_COMMAND: Fault = Fault {
    status: Fes::InvalidHeaderField,
    information: 20,
    rule: rule!("NVMe/TCP 1.1 §3.6.2.7: a response to no command outstanding"),
};
