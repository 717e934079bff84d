//! A connection that carries one command at a time: of an admin queue, or to a discovery controller.

use super::{AdminQueue, ConnectConfig, Discovery, exchange::NO_COMMAND, link::Link};
use crate::{
    Instant, Transmit, Violation,
    nvme::{
        Cqe,
        fabrics::host::{Connection, ConnectionEvent},
    },
    nvme_tcp::{
        pdu::{Fault, Header},
        receiver::Fragment,
    },
};

impl AdminQueue {
    /// The handshake's first bytes are in `transmit` at once.
    pub fn new(now: Instant, config: ConnectConfig) -> Self {
        Self::on(now, Link::new(config.digests), config.session)
    }
}

impl Discovery {
    /// `config.session.subnqn` is not used: the discovery subsystem has a name of its own.
    pub fn new(now: Instant, config: ConnectConfig) -> Self {
        Self::on(now, Link::new(config.digests), config.session)
    }
}

/// What a PDU or its end came to.
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
                    return Err(self.fail(&NO_COMMAND, before));
                }
                Err(fault) => return Err(self.fail(&fault, before)),
            }
        }
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.sender.tx
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
            Fragment::Header { .. } => return Err(Fault::field(0, "NVMe/TCP: the PDU is not for this command")),
        }
        Ok(LinkEvent::Nothing)
    }
}
