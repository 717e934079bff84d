//! What every connection of a host has: the handshake, the receiver and the sender, and how a fault ends it.

use crate::{
    Violation, ViolationKind,
    nvme::{
        Sqe,
        command::{CNTLID_ANY, Connect, ConnectData, Sgl},
    },
    nvme_tcp::{
        pdu::{Digests, Fault, Header, IcReq, IcResp, kind},
        receiver::{Receiver, Step, types},
        sender::{Data, Sender},
    },
};

use super::ConnectConfig;

/// MAXH2CDATA is at least 4,096 (NVMe/TCP transport 1.1 §3.6.2.3).
const MIN_H2C_DATA_BYTES: u32 = 4096;
const MAX_ALIGNMENT: u8 = 31;

pub(super) struct Link {
    pub(super) rx: Receiver,
    pub(super) sender: Sender,
    wanted: Digests,
    /// What the controller agreed to.
    pub(super) digests: Digests,
    is_open: bool,
    is_failed: bool,
    /// Most bytes in an H2CData PDU, a multiple of 4.
    pub(super) max_h2c_data_bytes: u32,
}

impl Link {
    pub(super) fn new(digests: Digests) -> Self {
        let known = types(&[kind::IC_RESP, kind::C2H_TERM_REQ, kind::RESPONSE, kind::C2H_DATA, kind::R2T]);
        let mut link = Self {
            rx: Receiver::new(types(&[kind::IC_RESP, kind::C2H_TERM_REQ]), known),
            sender: Sender::default(),
            wanted: digests,
            digests: Digests::default(),
            is_open: false,
            is_failed: false,
            max_h2c_data_bytes: 0,
        };
        // MAXR2T 0: one R2T outstanding a command. It is answered at once, so more would gain nothing.
        link.sender.ic_req(&IcReq { format_version: 0, host_alignment: 0, digests, max_r2t: 0 });
        link
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// NVMe/TCP transport 1.1 §3.6.2.3.
    pub(super) fn on_ic_resp(&mut self, resp: &IcResp) -> Result<(), Fault> {
        if resp.format_version != 0 {
            return Err(Fault::unsupported(8, "NVMe/TCP: PFV is not 0"));
        }
        if resp.controller_alignment > MAX_ALIGNMENT {
            return Err(Fault::field(10, "NVMe/TCP: CPDA is more than 31"));
        }
        if resp.digests.and(self.wanted) != resp.digests {
            return Err(Fault::field(11, "NVMe/TCP: a digest is enabled that was not asked for"));
        }
        if resp.max_h2c_data < MIN_H2C_DATA_BYTES {
            return Err(Fault::field(12, "NVMe/TCP: MAXH2CDATA is less than 4096"));
        }
        self.max_h2c_data_bytes = resp.max_h2c_data & !3;
        self.digests = resp.digests;
        self.sender.open(resp.digests, resp.controller_alignment);
        let accepts = types(&[kind::RESPONSE, kind::C2H_DATA, kind::R2T, kind::C2H_TERM_REQ]);
        // A read's data are bounded by what its command asked for.
        self.rx.open(accepts, resp.digests, 0, u32::MAX);
        self.is_open = true;
        Ok(())
    }

    /// Sends Connect for queue `qid` with the command identifier `cid`.
    pub(super) fn connect(&mut self, config: &ConnectConfig, cntlid: Option<u16>, qid: u16, sq_size: u16, cid: u16) {
        let connect = Connect {
            record_format: 0,
            qid,
            sq_size,
            disable_sq_flow_control: config.disable_sq_flow_control,
            keep_alive_ms: if qid == 0 { u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX) } else { 0 },
        };
        let data = ConnectData {
            host_id: config.host_id,
            cntlid: cntlid.unwrap_or(CNTLID_ANY),
            subnqn: config.subnqn.clone(),
            hostnqn: config.hostnqn.clone(),
        };
        let mut sqe: Sqe = connect.sqe(cid);
        sqe.set_sgl(Sgl::InCapsule { offset: 0, len: ConnectData::LEN as u32 });
        self.sender.command(&sqe, Data::Bytes(&data.encode()));
    }

    /// The next step of what was received. Terminate requests and the handshake's faults are dealt with here.
    #[allow(clippy::inline_always)] // Whether `inline` is heeded hangs on what else is compiled: 80 instructions of a read.
    #[inline(always)]
    pub(super) fn step<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Step<'a>>, Violation> {
        if self.is_failed {
            return Ok(None);
        }
        let before = *bytes;
        match self.rx.step(bytes) {
            Ok(Some(Step::Header { header: Header::ControllerTerm(term), .. })) => {
                self.is_failed = true;
                Err(term.violation())
            }
            Ok(step) => Ok(step),
            Err(fault) => Err(self.fail(&fault, before)),
        }
    }

    /// Tells the controller why the connection ends; `before` are the bytes that began with the PDU at fault.
    #[cold]
    pub(super) fn fail(&mut self, fault: &Fault, before: &[u8]) -> Violation {
        self.is_failed = true;
        self.sender.term_req(kind::H2C_TERM_REQ, fault, self.rx.offending(before));
        fault.violation()
    }
}

/// The controller did not answer in time.
pub(super) fn timed_out(rule: &'static str) -> Violation {
    Violation::new(ViolationKind::TimedOut, rule)
}
