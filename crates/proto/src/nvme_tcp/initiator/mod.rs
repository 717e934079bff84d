//! The host's side of NVMe/TCP: `nvme::fabrics::host` on TCP connections.
//!
//! A session has an `AdminQueue`. When it reports `ready`, its `ControllerInfo` is used to create the `IoQueue`s that
//! were granted. Each queue has its own connection.
//!
//! `Link` is a host's connection: the handshake, receiver and sender, one command that is not I/O, and the handling of
//! faults.

mod admin_connection;
mod io_queue;

use alloc::string::String;
use core::fmt;

use self::admin_connection::{Exchange, NO_READ};
use super::{
    pdu::{DataHeader, Digests, Fault, Header, IcReq, IcResp, Sender, kind},
    receiver::{Fragment, Receiver, types},
};
use crate::{
    Violation,
    nvme::{
        CommandId, Cqe, Sqe,
        fabrics::{
            Data,
            host::{self, Capsules},
        },
    },
};

pub use io_queue::IoQueue;

pub type AdminQueue = host::AdminQueue<Link>;
pub type Discovery = host::Discovery<Link>;

/// How a host connects.
#[derive(Clone, Debug)]
pub struct ConnectConfig {
    /// The digests to request. The controller may decline either of them.
    pub digests: Digests,
    pub session: host::SessionConfig,
}

impl ConnectConfig {
    pub fn new(subnqn: impl Into<String>, hostnqn: impl Into<String>, host_id: [u8; 16]) -> Self {
        Self { digests: Digests::default(), session: host::SessionConfig::new(subnqn, hostnqn, host_id) }
    }
}

/// MAXH2CDATA is at least 4,096 (NVMe/TCP transport 1.1 §3.6.2.3).
const MIN_H2C_DATA_BYTES: u32 = 4096;
const MAX_ALIGNMENT: u8 = 31;

/// A host's connection.
pub struct Link {
    rx: Receiver,
    sender: Sender,
    wanted: Digests,
    /// The digests that the controller agreed to.
    digests: Digests,
    /// The outstanding command that is not I/O.
    exchange: Option<Exchange>,
    /// The outstanding Asynchronous Event Request.
    event_request: Option<CommandId>,
    is_failed: bool,
    /// Maximum bytes in an H2CData PDU, a multiple of 4.
    max_h2c_data_bytes: u32,
}

impl Link {
    fn new(digests: Digests) -> Self {
        let known = types(&[kind::IC_RESP, kind::C2H_TERM_REQ, kind::RESPONSE, kind::C2H_DATA, kind::R2T]);
        let mut link = Self {
            rx: Receiver::new(types(&[kind::IC_RESP, kind::C2H_TERM_REQ]), known),
            sender: Sender::default(),
            wanted: digests,
            digests: Digests::default(),
            exchange: None,
            event_request: None,
            is_failed: false,
            max_h2c_data_bytes: 0,
        };
        // MAXR2T 0: one outstanding R2T per command. It is answered at once, so more would not help.
        link.sender.ic_req(&IcReq { format_version: 0, host_alignment: 0, digests, max_r2t: 0 });
        link
    }

    /// The digests in use on this connection.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Maximum bytes in an H2CData PDU: MAXH2CDATA.
    pub fn max_h2c_data_bytes(&self) -> u32 {
        self.max_h2c_data_bytes
    }

    /// Processes ICResp (NVMe/TCP transport 1.1 §3.6.2.3).
    fn on_ic_resp(&mut self, resp: &IcResp) -> Result<(), Fault> {
        if resp.format_version != 0 {
            return Err(Fault::unsupported(8, rule!("NVMe/TCP 1.1 §3.6.2.3: PFV is not 0")));
        }
        if resp.controller_alignment > MAX_ALIGNMENT {
            return Err(Fault::field(10, rule!("NVMe/TCP 1.1 §3.6.2.3: CPDA is more than 31")));
        }
        if resp.digests.and(self.wanted) != resp.digests {
            return Err(Fault::field(11, rule!("NVMe/TCP 1.1 §3.6.2.3: a digest is enabled that was not asked for")));
        }
        if resp.max_h2c_data < MIN_H2C_DATA_BYTES {
            return Err(Fault::field(12, rule!("NVMe/TCP 1.1 §3.6.2.3: MAXH2CDATA is less than 4096")));
        }
        self.max_h2c_data_bytes = resp.max_h2c_data & !3;
        self.digests = resp.digests;
        self.sender.open(resp.digests, resp.controller_alignment);
        let accepts = types(&[kind::RESPONSE, kind::C2H_DATA, kind::R2T, kind::C2H_TERM_REQ]);
        // The data of a read are limited by its command.
        self.rx.open(accepts, resp.digests, 0, u32::MAX);
        Ok(())
    }

    /// Returns the next fragment of the received bytes. Handles terminate requests and faults of the handshake.
    #[allow(clippy::inline_always)] // saves 80 instructions per read; `inline` alone is not reliable.
    #[inline(always)]
    fn step<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, Violation> {
        if self.is_failed {
            return Ok(None);
        }
        let before = *bytes;
        match self.rx.step(bytes) {
            Ok(Some(Fragment::Header { header: Header::ControllerTerm(term), .. })) => {
                self.is_failed = true;
                Err(term.violation())
            }
            Ok(step) => Ok(step),
            Err(fault) => Err(self.fail(&fault, before)),
        }
    }

    /// Ends the connection with a terminate request. `before` are the bytes that start with the faulty PDU.
    #[cold]
    fn fail(&mut self, fault: &Fault, before: &[u8]) -> Violation {
        self.is_failed = true;
        self.sender.term_req(kind::H2C_TERM_REQ, fault, self.rx.offending(before));
        fault.violation()
    }

    // ------------------------------------------------------------------------------------- the command that is not I/O

    fn on_exchange_data_header(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        match self.exchange.as_mut().filter(|exchange| exchange.cid() == data.cid) {
            Some(exchange) => exchange.on_header(data, data_len),
            None => Err(NO_READ),
        }
    }

    fn on_exchange_data(&mut self, piece: &[u8]) {
        if let Some(exchange) = &mut self.exchange {
            exchange.on_data(piece);
        }
    }

    /// Returns a completion if the data imply success.
    fn on_exchange_data_end(&mut self, digest_ok: bool) -> Option<Cqe> {
        self.exchange.as_mut()?.on_data_end(digest_ok)
    }

    /// The outstanding command, if it is the one that was answered.
    fn take_exchange(&mut self, cid: CommandId) -> Option<Exchange> {
        self.exchange.take_if(|exchange| exchange.cid() == cid)
    }
}

impl Capsules for Link {
    fn send(&mut self, sqe: &Sqe, data: &[u8], reads: u32) {
        self.exchange = Some(Exchange::new(sqe.cid(), reads));
        self.sender.command(sqe, if data.is_empty() { Data::None } else { Data::Bytes(data) });
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("digests", &self.digests)
            .field("is_failed", &self.is_failed)
            .finish_non_exhaustive()
    }
}
