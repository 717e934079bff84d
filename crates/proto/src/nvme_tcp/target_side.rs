//! The controller's side of one connection: the handshake, then capsules and data for a queue of
//! `nvme::fabrics::controller`.

use core::{fmt, time::Duration};

use super::{
    pdu::{DataHeader, Digests, Fault, Header, IcReq, IcResp, R2t, Sender, TransferTag, kind},
    receiver::{Fragment, Receiver, types},
};
use crate::{
    Instant, IoId, Payload, Target, Transmit, UnitError, Violation,
    nvme::{
        CommandId, Cqe, NvmeBackend, QueueId, auth,
        fabrics::{
            Data,
            controller::{Destination, Queue, QueueConfig, Transport},
        },
        identify::ControllerLimits,
    },
};

/// Maximum in-capsule data of fabrics and admin commands (NVMe/TCP transport 1.1 §3.5.1: 8,192 bytes).
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// Maximum of HPDA and CPDA, in dwords, 0's based.
const MAX_ALIGNMENT: u8 = 31;

/// Limits and options of a target's connections.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The digests that a host may enable.
    pub digests: Digests,
    /// MAXH2CDATA: maximum bytes in an H2CData PDU; a multiple of 4, at least 4096. Large values cost no memory,
    /// because nothing is buffered.
    pub max_h2c_data_bytes: u32,
    /// Maximum in-capsule data of an I/O command in bytes, a multiple of 16. Writes up to this size need no R2T, which
    /// saves a round trip.
    pub in_capsule_bytes: u32,
    /// MDTS: maximum bytes of a command. A power of two, at least 8192, because 4096 would give an MDTS of 0, which
    /// means no limit.
    pub max_transfer_bytes: u32,
    /// Maximum entries of an I/O queue.
    pub max_queue_entries: u16,
    /// A connection ends if the peer does not send Connect within this time, or does not authenticate itself within the
    /// same time after Connect.
    pub connect_timeout: Duration,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            digests: Digests { header: true, data: true },
            max_h2c_data_bytes: 1 << 20,
            in_capsule_bytes: 64 << 10,
            max_transfer_bytes: 1 << 20,
            max_queue_entries: 1024,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl TargetConfig {
    fn queue(&self) -> QueueConfig {
        QueueConfig {
            limits: ControllerLimits {
                in_capsule_bytes: self.in_capsule_bytes,
                max_transfer_bytes: self.max_transfer_bytes,
                max_queue_entries: self.max_queue_entries,
            },
            admin_in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            connect_timeout: self.connect_timeout,
        }
    }
}

/// The controller's side of one connection.
pub struct TargetQueue {
    config: TargetConfig,
    connection: Connection,
    queue: Queue,
    /// The destination of the current PDU's data.
    destination: Destination,
}

struct Connection {
    rx: Receiver,
    sender: Sender,
}

impl TargetQueue {
    pub fn new(now: Instant, config: TargetConfig) -> Self {
        let known = types(&[kind::IC_REQ, kind::H2C_TERM_REQ, kind::COMMAND, kind::H2C_DATA]);
        Self {
            connection: Connection {
                rx: Receiver::new(types(&[kind::IC_REQ, kind::H2C_TERM_REQ]), known),
                sender: Sender::default(),
            },
            queue: Queue::new(now, config.queue()),
            config,
            destination: Destination::Nowhere,
        }
    }

    /// Queue ID, once connected and, if required, authenticated.
    pub fn qid(&self) -> Option<QueueId> {
        self.queue.qid()
    }

    /// Continues when the work given to `NvmeBackend::work` is done.
    pub fn worked<B: NvmeBackend + ?Sized>(&mut self, now: Instant, worked: auth::Worked, backend: &mut B) {
        self.queue.worked(now, worked, &mut self.connection, backend);
    }

    #[inline]
    fn on_step<B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        step: &Fragment<'_>,
        backend: &mut B,
    ) -> Result<(), Fault> {
        match step {
            Fragment::Header { header: Header::Command(sqe), data_len } => {
                let taken = self.queue.on_command(now, sqe, *data_len, &mut self.connection, backend);
                self.destination = taken.map_err(Fault::sequence)?;
            }
            Fragment::Data(piece) => self.queue.on_data(self.destination, piece, backend),
            Fragment::End { digest_ok } => {
                self.queue.on_data_end(now, self.destination, *digest_ok, &mut self.connection, backend);
            }
            Fragment::Header { header: Header::HostData(data), data_len } => self.on_host_data(data, *data_len)?,
            Fragment::Header { header: Header::IcReq(req), .. } => self.on_ic_req(req)?,
            Fragment::Header { .. } => {
                return Err(Fault::sequence(rule!("NVMe/TCP 1.1 §3.6.2.1: the PDU is not for a controller")));
            }
        }
        Ok(())
    }

    /// Processes ICReq (NVMe/TCP transport 1.1 §3.6.2.2).
    fn on_ic_req(&mut self, req: &IcReq) -> Result<(), Fault> {
        if req.format_version != 0 {
            return Err(Fault::unsupported(8, rule!("NVMe/TCP 1.1 §3.6.2.2: PFV is not 0")));
        }
        if req.host_alignment > MAX_ALIGNMENT {
            return Err(Fault::field(10, rule!("NVMe/TCP 1.1 §3.6.2.2: HPDA is more than 31")));
        }
        let digests = req.digests.and(self.config.digests);
        self.connection.sender.ic_resp(&IcResp {
            format_version: 0,
            controller_alignment: 0,
            digests,
            max_h2c_data: self.config.max_h2c_data_bytes,
        });
        self.connection.sender.open(digests, req.host_alignment);
        let accepts = types(&[kind::COMMAND, kind::H2C_DATA, kind::H2C_TERM_REQ]);
        self.connection.rx.open(accepts, digests, ADMIN_IN_CAPSULE_BYTES, self.config.max_h2c_data_bytes);
        Ok(())
    }

    /// Checks the header of an H2CData PDU (NVMe/TCP transport 1.1 §3.6.2.8).
    fn on_host_data(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        let Some(slot) = self.queue.solicited(data.ttag.0) else {
            return Err(Fault::field(10, rule!("NVMe/TCP 1.1 §3.6.2.8: H2CData with a TTAG that no R2T gave")));
        };
        if slot.cid() != data.cid {
            return Err(Fault::field(8, rule!("NVMe/TCP 1.1 §3.6.2.8: H2CData with a CCCID that is not its TTAG's")));
        }
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, rule!("NVMe/TCP 1.1 §3.6.2.8: DATAL is not the length of the PDU's data")));
        }
        let (received, left) = slot.progress();
        // The data of an R2T must come in order, and within its range.
        if data.offset != received || data_len > left {
            return Err(Fault::out_of_range(rule!(
                "NVMe/TCP 1.1 §3.6.2.8: H2CData outside what its R2T asked for, or out of order"
            )));
        }
        if data.is_last != (data_len == left) {
            return Err(Fault::field(
                1,
                rule!("NVMe/TCP 1.1 §3.6.2.8: LAST_PDU is not on the last H2CData of its R2T"),
            ));
        }
        self.destination = self.queue.destination(data.ttag.0);
        Ok(())
    }
}

impl Transport for Connection {
    #[inline]
    fn respond(&mut self, cqe: &Cqe) {
        self.sender.response(cqe);
    }

    fn dropped(&mut self, _cid: CommandId) {}

    #[inline]
    fn give(&mut self, cid: CommandId, is_success: bool, data: Data<'_>) {
        self.sender.c2h_data(cid, is_success, data);
    }

    fn ask(&mut self, cid: CommandId, slot: u16, len: u32) {
        self.sender.r2t(R2t { cid, ttag: TransferTag(slot), offset: 0, len });
    }

    fn set_max_command_data(&mut self, bytes: u32) {
        self.rx.set_max_command_data(bytes);
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.sender.tx
    }
}

impl<B: NvmeBackend + ?Sized> Target<B> for TargetQueue {
    fn receive(&mut self, now: Instant, mut bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        let given = bytes.len();
        loop {
            if self.queue.is_closing() {
                return Ok(given);
            }
            if self.connection.sender.tx.is_full() {
                return Ok(given - bytes.len());
            }
            let before = bytes;
            let fault = match self.connection.rx.step(&mut bytes) {
                Ok(None) => return Ok(given),
                Ok(Some(Fragment::Header { header: Header::HostTerm(term), .. })) => {
                    self.queue.end(backend);
                    return Err(term.violation());
                }
                Ok(Some(step)) => match self.on_step(now, &step, backend) {
                    Ok(()) => continue,
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            self.connection.sender.term_req(kind::C2H_TERM_REQ, &fault, self.connection.rx.offending(before));
            self.queue.end(backend);
            return Err(fault.violation());
        }
    }

    #[inline]
    fn place(&mut self, at_least: usize, backend: &mut B) -> Option<Payload> {
        let len = self.connection.rx.plain_data();
        if len == 0 || (len as usize) < at_least {
            return None;
        }
        self.queue.place(self.destination, len, backend)
    }

    fn placed(&mut self, now: Instant, len: usize, backend: &mut B) -> Result<(), Violation> {
        self.connection.rx.skip(len as u32);
        self.queue.on_placed(self.destination, len as u32);
        // The PDU ends here, without a further byte.
        self.receive(now, &[], backend).map(|_| ())
    }

    fn complete(&mut self, _now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, _backend: &mut B) {
        self.queue.complete(id, result, &mut self.connection);
    }

    fn transmit(&mut self) -> &mut Transmit {
        self.connection.transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.queue.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        self.queue.handle_timeout(now, &mut self.connection, backend)
    }

    fn is_closing(&self) -> bool {
        self.queue.is_closing()
    }

    fn handle_notification(&mut self, now: Instant, backend: &mut B) {
        self.queue.handle_notification(now, &mut self.connection, backend);
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.queue.end(backend);
    }
}

impl fmt::Debug for TargetQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetQueue").field("qid", &self.qid()).finish_non_exhaustive()
    }
}
