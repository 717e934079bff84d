//! The controller's side of one connection: handshake, Connect, then an admin queue or an I/O queue.

mod connect;
mod gate;
mod io;
mod slots;

use alloc::boxed::Box;
use core::{fmt, mem, time::Duration};

use self::{
    gate::Gate,
    io::IoQueueState,
    slots::{Control, Slots, State},
};
use super::{
    pdu::{DataHeader, Digests, Fault, Header, IcReq, IcResp, R2t, kind},
    receiver::{Receiver, Step, types},
    sender::{Data, Sender},
};
use crate::{
    Instant, IoId, Payload, Started, Target, Transmit, UnitError, Violation, ViolationKind,
    nvme::{
        Cqe, NvmeBackend, Sqe, Status,
        admin::{AdminController, Outcome},
        command::Sgl,
        identify::ControllerLimits,
    },
};

/// In-capsule data of fabrics and admin commands (NVMe/TCP transport 1.1 §3.5.1: 8,192 bytes).
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;
/// HPDA and CPDA, in dwords, 0's based.
const MAX_ALIGNMENT: u8 = 31;

/// Limits and options of a target's connections.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Whether a host may have them.
    pub digests: Digests,
    /// MAXH2CDATA: most bytes in an H2CData PDU; a multiple of 4, at least 4096. Nothing is buffered, so large is cheap.
    pub max_h2c_data_bytes: u32,
    /// Most bytes of data in an I/O command's capsule, a multiple of 16: such writes need no R2T, which saves a round trip.
    pub in_capsule_bytes: u32,
    /// MDTS: most bytes of a command; a power of two, at least 4096.
    pub max_transfer_bytes: u32,
    /// Entries of an I/O queue at most.
    pub max_queue_entries: u16,
    /// A peer that has not connected a queue by then, or not authenticated itself as long after that, is given up.
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
    fn controller_limits(&self) -> ControllerLimits {
        ControllerLimits {
            in_capsule_bytes: self.in_capsule_bytes,
            max_transfer_bytes: self.max_transfer_bytes,
            max_queue_entries: self.max_queue_entries,
        }
    }
}

/// What the connection is.
enum Phase {
    /// Before ICReq.
    Handshake,
    /// Before Connect.
    Connecting,
    /// Connected, and before the host has proved itself.
    Gated(Box<Gate>),
    Admin(Box<AdminController>),
    Io(Box<IoQueueState>),
    /// Logged out, refused or at fault: nothing more is taken.
    Closing,
}

/// Where the data of the PDU under way go.
#[derive(Clone, Copy)]
enum Sink {
    Discard,
    /// To the backend.
    Place(u16),
    /// To this layer.
    Control(u16),
}

/// Submission queue head pointer, as completions report it.
#[derive(Debug)]
struct SqHead {
    /// SQ flow control is disabled: completions report nothing, and a read's data may imply its success.
    is_disabled: bool,
    head: u16,
    entries: u16,
}

/// The controller's side of one connection.
pub struct TargetQueue {
    config: TargetConfig,
    rx: Receiver,
    sender: Sender,
    phase: Phase,
    slots: Slots,
    sq: SqHead,
    sink: Sink,
    /// Until Connect, and until authentication where it is asked for.
    deadline: Option<Instant>,
}

impl TargetQueue {
    pub fn new(now: Instant, config: TargetConfig) -> Self {
        let known = types(&[kind::IC_REQ, kind::H2C_TERM_REQ, kind::COMMAND, kind::H2C_DATA]);
        Self {
            deadline: Some(now + config.connect_timeout),
            config,
            rx: Receiver::new(types(&[kind::IC_REQ, kind::H2C_TERM_REQ]), known),
            sender: Sender::default(),
            phase: Phase::Handshake,
            slots: Slots::new(1),
            sq: SqHead { is_disabled: false, head: 0, entries: 2 },
            sink: Sink::Discard,
        }
    }

    /// Queue ID once connected and, where that is asked for, authenticated.
    pub fn qid(&self) -> Option<u16> {
        match &self.phase {
            Phase::Admin(_) => Some(0),
            Phase::Io(io) => Some(io.qid()),
            Phase::Handshake | Phase::Connecting | Phase::Gated(_) | Phase::Closing => None,
        }
    }

    // -------------------------------------------------------------------------------------------------------- receiving

    #[inline]
    fn on_step<B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        step: &Step<'_>,
        backend: &mut B,
    ) -> Result<(), Fault> {
        match step {
            Step::Header { header: Header::Command(sqe), data_len } => self.on_command(now, sqe, *data_len, backend),
            Step::Data(piece) => {
                self.on_data(piece, backend);
                Ok(())
            }
            Step::End { digest_ok } => {
                self.on_data_end(now, *digest_ok, backend);
                Ok(())
            }
            Step::Header { header: Header::HostData(data), data_len } => self.on_host_data(data, *data_len),
            Step::Header { header: Header::IcReq(req), .. } => self.on_ic_req(req),
            Step::Header { .. } => Err(Fault::sequence("NVMe/TCP: the PDU is not for a controller")),
        }
    }

    /// NVMe/TCP transport 1.1 §3.6.2.2.
    fn on_ic_req(&mut self, req: &IcReq) -> Result<(), Fault> {
        if req.format_version != 0 {
            return Err(Fault::unsupported(8, "NVMe/TCP: PFV is not 0"));
        }
        if req.host_alignment > MAX_ALIGNMENT {
            return Err(Fault::field(10, "NVMe/TCP: HPDA is more than 31"));
        }
        let digests = req.digests.and(self.config.digests);
        self.sender.ic_resp(&IcResp {
            format_version: 0,
            controller_alignment: 0,
            digests,
            max_h2c_data: self.config.max_h2c_data_bytes,
        });
        self.sender.open(digests, req.host_alignment);
        let accepts = types(&[kind::COMMAND, kind::H2C_DATA, kind::H2C_TERM_REQ]);
        self.rx.open(accepts, digests, ADMIN_IN_CAPSULE_BYTES, self.config.max_h2c_data_bytes);
        self.phase = Phase::Connecting;
        Ok(())
    }

    #[inline]
    fn on_command<B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data_len: u32,
        backend: &mut B,
    ) -> Result<(), Fault> {
        self.sink = Sink::Discard;
        self.sq.advance();
        let cid = sqe.cid();
        // NVMe base 2.1 §4.2.3.1: Command ID Conflict.
        if self.slots.is_cid_used(cid) && !self.forget_event_request(cid) {
            self.respond(cid, Status::ID_CONFLICT.do_not_retry());
            return Ok(());
        }
        if self.slots.peek().is_none() {
            return Err(Fault::sequence("NVMe/TCP: more commands outstanding than the submission queue has entries"));
        }
        // NVMe base 2.1 §4.1.1: fused operations are not supported; PSDT is 01b in fabrics.
        if sqe.is_fused() || !sqe.says_sgl() {
            self.respond(cid, Status::INVALID_FIELD.do_not_retry());
            return Ok(());
        }
        match &mut self.phase {
            Phase::Io(_) => self.on_io_command(now, sqe, data_len, backend)?,
            Phase::Admin(_) => self.on_admin_command(now, sqe, backend),
            Phase::Gated(_) => self.on_gate_command(now, sqe, data_len, backend),
            Phase::Handshake | Phase::Connecting | Phase::Closing => self.on_first_command(sqe, data_len),
        }
        Ok(())
    }

    /// NVMe/TCP transport 1.1 §3.6.2.8.
    fn on_host_data(&mut self, data: &DataHeader, data_len: u32) -> Result<(), Fault> {
        let slot = self.slots.get_mut(data.ttag).filter(|slot| slot.state == State::Receiving && slot.is_solicited);
        let Some(slot) = slot else {
            return Err(Fault::field(10, "NVMe/TCP: H2CData with a TTAG that no R2T gave"));
        };
        if slot.cid != data.cid {
            return Err(Fault::field(8, "NVMe/TCP: H2CData with a CCCID that is not its TTAG's"));
        }
        if data.len != data_len || data_len == 0 {
            return Err(Fault::field(16, "NVMe/TCP: DATAL is not the length of the PDU's data"));
        }
        // Data of an R2T come in order, and no more than it asked for.
        if data.offset != slot.received || data_len > slot.data_len - slot.received {
            return Err(Fault::out_of_range("NVMe/TCP: H2CData outside what its R2T asked for, or out of order"));
        }
        if data.is_last != (data_len == slot.data_len - slot.received) {
            return Err(Fault::field(1, "NVMe/TCP: LAST_PDU is not on the last H2CData of its R2T"));
        }
        self.sink = if slot.control.is_some() { Sink::Control(data.ttag) } else { Sink::Place(data.ttag) };
        Ok(())
    }

    #[inline]
    fn on_data<B: NvmeBackend + ?Sized>(&mut self, piece: &[u8], backend: &mut B) {
        match self.sink {
            Sink::Place(index) => {
                let slot = self.slots.slot(index);
                if !slot.is_spoilt {
                    backend.place(IoId::from(index), slot.received, piece);
                }
                slot.received += piece.len() as u32;
            }
            Sink::Control(index) => {
                let slot = self.slots.slot(index);
                slot.received += piece.len() as u32;
                if let Some(control) = &mut slot.control {
                    control.data.extend_from_slice(piece);
                }
            }
            Sink::Discard => {}
        }
    }

    #[inline]
    fn on_data_end<B: NvmeBackend + ?Sized>(&mut self, now: Instant, digest_ok: bool, backend: &mut B) {
        let (Sink::Place(index) | Sink::Control(index)) = mem::replace(&mut self.sink, Sink::Discard) else {
            return;
        };
        let slot = self.slots.slot(index);
        if !digest_ok && !slot.is_spoilt {
            slot.is_spoilt = true;
            if slot.control.is_none() {
                backend.abort(IoId::from(index), None);
            }
        }
        if slot.received < slot.data_len {
            return;
        }
        if slot.is_spoilt {
            // NVMe/TCP transport 1.1 §3.5.2: a data digest error is not fatal to the connection.
            let cid = slot.cid;
            self.slots.release(index);
            self.respond(cid, Status::TRANSIENT_TRANSPORT_ERROR);
            return;
        }
        if let Some(control) = slot.control.take() {
            let cid = slot.cid;
            self.slots.release(index);
            self.on_control_data(now, cid, &control, backend);
            return;
        }
        slot.state = State::Queued;
        match backend.finish(now, IoId::from(index)) {
            Started::Done(result) => self.finish_slot(index, result),
            Started::Queued => {}
            Started::NeedData => panic!("a backend has all data of an operation and wants more"),
        }
    }

    /// All data of a command that this layer keeps.
    fn on_control_data<B: NvmeBackend + ?Sized>(&mut self, now: Instant, cid: u16, control: &Control, backend: &mut B) {
        match self.phase {
            Phase::Io(_) => self.on_ranges(now, cid, control, backend),
            Phase::Connecting => self.on_connect(now, control, backend),
            Phase::Gated(_) => self.on_gate_data(now, control, backend),
            Phase::Handshake | Phase::Admin(_) | Phase::Closing => {}
        }
    }

    /// Takes `len` bytes of data for this layer: from the capsule, or by an R2T.
    fn take_control_data(&mut self, sqe: &Sqe, data_len: u32, len: u32) {
        if let Err(status) = check_host_data(sqe, data_len, len) {
            self.respond(sqe.cid(), status);
            return;
        }
        let Some(index) = self.slots.peek() else {
            debug_assert!(false, "a slot, since the command was taken");
            return;
        };
        let slot = self.slots.take(sqe.cid(), State::Receiving);
        slot.data_len = len;
        slot.control = Some(Box::new(Control { sqe: *sqe, data: alloc::vec::Vec::with_capacity(len as usize) }));
        self.receive_data(index, data_len > 0);
    }

    /// The data of slot `index` come: in the capsule under way, or when asked for.
    #[inline]
    fn receive_data(&mut self, index: u16, is_in_capsule: bool) {
        let slot = self.slots.slot(index);
        slot.is_solicited = !is_in_capsule;
        if is_in_capsule {
            self.sink = if slot.control.is_some() { Sink::Control(index) } else { Sink::Place(index) };
        } else {
            self.sender.r2t(R2t { cid: slot.cid, ttag: index, offset: 0, len: slot.data_len });
        }
    }

    // ------------------------------------------------------------------------------------------------------------ admin

    fn on_admin_command<B: NvmeBackend + ?Sized>(&mut self, now: Instant, sqe: &Sqe, backend: &mut B) {
        let Phase::Admin(admin) = &mut self.phase else {
            debug_assert!(false, "an admin command on the admin queue");
            return;
        };
        let outcome = admin.execute(now, sqe, backend);
        while let Phase::Admin(admin) = &mut self.phase
            && let Some((cid, status)) = admin.poll_released()
        {
            self.slots.clear_cid(cid);
            if let Some(status) = status {
                self.respond(cid, status);
            }
        }
        let answered = if let Outcome::Data(data) = &outcome { data.len() } else { 0 };
        self.sender.tx.charge(Transmit::REQUEST + answered);
        match outcome {
            Outcome::Done { result, status } => self.respond_with(sqe.cid(), result, status),
            Outcome::Data(data) => match check_controller_data(sqe, data.len() as u32) {
                Ok(()) => self.give_data(sqe.cid(), Data::Bytes(&data)),
                Err(status) => self.respond(sqe.cid(), status),
            },
            Outcome::Held => self.slots.mark_cid(sqe.cid()),
        }
        self.tell_events();
    }

    /// Hosts take back their event requests without a word as they leave, and use the identifiers again (SPDK does). No such
    /// request is answered any more.
    #[cold]
    fn forget_event_request(&mut self, cid: u16) -> bool {
        let Phase::Admin(admin) = &mut self.phase else { return false };
        let is_forgotten = admin.forget_event_request(cid);
        if is_forgotten {
            self.slots.clear_cid(cid);
        }
        is_forgotten
    }

    fn tell_events(&mut self) {
        while let Phase::Admin(admin) = &mut self.phase
            && let Some((cid, result)) = admin.poll_event()
        {
            self.slots.clear_cid(cid);
            self.respond_with(cid, result, Status::SUCCESS);
        }
    }

    // -------------------------------------------------------------------------------------------------------- answering

    #[inline]
    fn respond(&mut self, cid: u16, status: Status) {
        self.respond_with(cid, 0, status);
    }

    #[inline]
    fn respond_with(&mut self, cid: u16, result: u64, status: Status) {
        self.sender.response(&Cqe { result, sq_head: self.sq.reported(), cid, status });
    }

    /// Data for the host and the command's success: in one PDU where SQ flow control is disabled (NVMe/TCP transport 1.1
    /// §3.6.2.9, SUCCESS), with a response where completions must report the queue's head.
    #[inline]
    fn give_data(&mut self, cid: u16, data: Data<'_>) {
        self.sender.c2h_data(cid, self.sq.is_disabled, data);
        if !self.sq.is_disabled {
            self.respond(cid, Status::SUCCESS);
        }
    }

    #[inline]
    fn finish_slot(&mut self, index: u16, result: Result<Option<Payload>, UnitError>) {
        let slot = self.slots.slot(index);
        let (cid, read_len) = (slot.cid, slot.read_len);
        self.slots.release(index);
        self.finish(cid, read_len, result);
    }

    /// Answers an I/O command; `read_len` is 0 for all but reads.
    #[inline]
    fn finish(&mut self, cid: u16, read_len: u32, result: Result<Option<Payload>, UnitError>) {
        match result {
            Ok(Some(payload)) if read_len > 0 => {
                assert_eq!(payload.len(), read_len as usize, "a backend gives what a read asks for");
                self.give_data(cid, Data::Payload(payload));
            }
            Ok(None) if read_len > 0 => panic!("a backend gives the data of a read"),
            Ok(_) => self.respond(cid, Status::SUCCESS),
            Err(error) => self.respond(cid, Status::of_unit_error(error, read_len > 0)),
        }
    }

    /// Ends what the connection is; operations outstanding are aborted.
    fn end<B: NvmeBackend + ?Sized>(&mut self, backend: &mut B) {
        self.slots.drain(|index| backend.abort(IoId::from(index), None));
        self.sink = Sink::Discard;
        self.deadline = None;
        mem::replace(&mut self.phase, Phase::Closing).end();
    }
}

impl<B: NvmeBackend + ?Sized> Target<B> for TargetQueue {
    fn receive(&mut self, now: Instant, mut bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        let given = bytes.len();
        loop {
            if matches!(self.phase, Phase::Closing) {
                return Ok(given);
            }
            if self.sender.tx.is_full() {
                return Ok(given - bytes.len());
            }
            let before = bytes;
            let fault = match self.rx.step(&mut bytes) {
                Ok(None) => return Ok(given),
                Ok(Some(Step::Header { header: Header::HostTerm(term), .. })) => {
                    self.end(backend);
                    return Err(term.violation());
                }
                Ok(Some(step)) => match self.on_step(now, &step, backend) {
                    Ok(()) => continue,
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            self.sender.term_req(kind::C2H_TERM_REQ, &fault, self.rx.offending(before));
            self.end(backend);
            return Err(fault.violation());
        }
    }

    fn complete(&mut self, _now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, _backend: &mut B) {
        let index = id as u16;
        assert_eq!(self.slots.slot(index).state, State::Queued, "completed what is not queued");
        self.finish_slot(index, result);
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.sender.tx
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Admin(admin) => admin.poll_timeout(),
            Phase::Io(io) => Some(io.next_look()),
            Phase::Handshake | Phase::Connecting | Phase::Gated(_) | Phase::Closing => self.deadline,
        }
    }

    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation> {
        let result = match &mut self.phase {
            Phase::Admin(admin) => admin.handle_timeout(now),
            Phase::Io(io) => io.handle_timeout(now),
            Phase::Handshake | Phase::Connecting if self.deadline.is_some_and(|deadline| now >= deadline) => {
                Err(Violation::new(ViolationKind::TimedOut, "no Connect command in time"))
            }
            Phase::Gated(_) if self.deadline.is_some_and(|deadline| now >= deadline) => {
                Err(Violation::new(ViolationKind::TimedOut, "the host did not authenticate itself in time"))
            }
            Phase::Handshake | Phase::Connecting | Phase::Gated(_) | Phase::Closing => Ok(()),
        };
        match result {
            Ok(()) => self.tell_events(),
            Err(_) => self.end(backend),
        }
        result
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.end(backend);
    }
}

impl Phase {
    /// Gives up what other connections know of.
    fn end(self) {
        match self {
            Self::Gated(gate) => gate.behind.end(),
            Self::Admin(mut admin) => admin.destroy(),
            Self::Io(io) => io.detach(),
            Self::Handshake | Self::Connecting | Self::Closing => {}
        }
    }
}

impl SqHead {
    #[inline]
    fn advance(&mut self) {
        self.head = if self.head + 1 >= self.entries { 0 } else { self.head + 1 };
    }

    #[inline]
    fn reported(&self) -> u16 {
        if self.is_disabled { 0 } else { self.head }
    }
}

/// Whether a command says rightly where the `len` bytes that it takes are: NVMe/TCP transport 1.1 §3.5 ("SGL use").
#[inline]
fn check_host_data(sqe: &Sqe, data_len: u32, len: u32) -> Result<(), Status> {
    match sqe.sgl() {
        Sgl::InCapsule { offset, .. } if offset != 0 => Err(Status::SGL_OFFSET_INVALID.do_not_retry()),
        Sgl::InCapsule { len: told, .. } if told == len && data_len == len => Ok(()),
        Sgl::Transport { len: told } if told == len && data_len == 0 => Ok(()),
        Sgl::InCapsule { .. } | Sgl::Transport { .. } => Err(Status::SGL_LENGTH_INVALID.do_not_retry()),
        Sgl::Other => Err(Status::SGL_TYPE_INVALID.do_not_retry()),
    }
}

/// Whether a command rightly takes `len` bytes from the controller: they never lie in a capsule.
#[inline]
fn check_controller_data(sqe: &Sqe, len: u32) -> Result<(), Status> {
    match sqe.sgl() {
        Sgl::Transport { len: told } if told == len => Ok(()),
        Sgl::Transport { .. } => Err(Status::SGL_LENGTH_INVALID.do_not_retry()),
        Sgl::InCapsule { .. } | Sgl::Other => Err(Status::SGL_TYPE_INVALID.do_not_retry()),
    }
}

impl fmt::Debug for TargetQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetQueue").field("qid", &self.qid()).finish_non_exhaustive()
    }
}
