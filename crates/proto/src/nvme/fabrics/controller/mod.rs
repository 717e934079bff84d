//! A controller's queue on one connection: Connect, authentication, then an admin queue or an I/O queue.
//!
//! `Transport` is what a transport provides to it. The functions at the end check where a command says that its data
//! are.

mod connect;
mod io;
mod slots;

use alloc::boxed::Box;
use core::{fmt, mem, time::Duration};

use self::{
    connect::Unproven,
    io::{IoQueueState, end_purged},
    slots::{Control, Slots, State},
};
use super::Data;
use crate::{
    Ending, Instant, IoId, Payload, Rule, Started, Transmit, UnitError, Violation,
    nvme::{
        CommandId, Cqe, NvmeBackend, QueueId, Sqe, Status,
        admin::{AdminController, AdminOutcome},
        command::Sgl,
        identify::ControllerLimits,
    },
};

pub use slots::CommandSlot;

/// Limits of a queue.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    pub limits: ControllerLimits,
    /// Maximum bytes of in-capsule data of a fabrics or admin command.
    pub admin_in_capsule_bytes: u32,
    /// A connection ends if the peer does not send Connect within this time, or does not authenticate itself within the
    /// same time after Connect.
    pub connect_timeout: Duration,
}

/// State of the queue.
enum Phase {
    /// Waiting for Connect.
    Connecting,
    /// Connected; the host has not authenticated itself.
    Authenticating(Box<Unproven>),
    Admin(Box<AdminController>),
    Io(Box<IoQueueState>),
    /// Disconnected, rejected or at fault: nothing more is accepted.
    Closing,
}

/// Submission queue head pointer, as completions report it.
#[derive(Debug)]
struct SqHead {
    /// SQ flow control is disabled. Completions report no head, and the data of a read may imply success.
    is_disabled: bool,
    head: u16,
    entries: u16,
}

/// A controller's queue. It sends through the `Transport` that each call receives.
pub struct Queue {
    config: QueueConfig,
    phase: Phase,
    slots: Slots,
    sq: SqHead,
    /// Deadline for Connect, then for authentication if it is required.
    deadline: Option<Instant>,
}

impl Queue {
    pub fn new(now: Instant, config: QueueConfig) -> Self {
        Self {
            deadline: Some(now + config.connect_timeout),
            config,
            phase: Phase::Connecting,
            slots: Slots::new(1),
            sq: SqHead { is_disabled: false, head: 0, entries: 2 },
        }
    }

    /// Queue ID, once connected and, if required, authenticated.
    pub fn qid(&self) -> Option<QueueId> {
        match &self.phase {
            Phase::Admin(_) => Some(QueueId::ADMIN),
            Phase::Io(io) => Some(io.qid()),
            Phase::Connecting | Phase::Authenticating(_) | Phase::Closing => None,
        }
    }

    /// Whether the queue accepts nothing more.
    #[inline]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    // ------------------------------------------------------------------------------------------------------- receiving

    /// Processes a capsule that announces `data_len` bytes of in-capsule data, and returns where they go. `Err` ends
    /// the connection.
    #[inline]
    pub fn on_command<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data_len: u32,
        transport: &mut T,
        backend: &mut B,
    ) -> Result<Destination, &'static Rule> {
        self.sq.advance();
        let cid = sqe.cid();
        // NVMe base 2.1 §4.2.3.1: Command ID Conflict.
        if self.slots.is_cid_used(cid) && !self.forget_event_request(cid) {
            self.respond(cid, Status::ID_CONFLICT.do_not_retry(), transport);
            return Ok(Destination::Nowhere);
        }
        if self.slots.peek().is_none() {
            return Err(rule!(
                "NVMe base 2.1 §3.3.2.5: more commands outstanding than the submission queue has entries"
            ));
        }
        // NVMe base 2.1 §4.1.1: fused operations are not supported, and PSDT must be 01b in fabrics.
        if sqe.is_fused() || !sqe.says_sgl() {
            self.respond(cid, Status::INVALID_FIELD.do_not_retry(), transport);
            return Ok(Destination::Nowhere);
        }
        Ok(match &mut self.phase {
            Phase::Io(_) => return self.on_io_command(now, sqe, data_len, transport, backend),
            Phase::Admin(_) => {
                self.on_admin_command(now, sqe, transport, backend);
                Destination::Nowhere
            }
            Phase::Authenticating(_) => self.on_authentication_command(now, sqe, data_len, transport, backend),
            Phase::Connecting | Phase::Closing => self.on_first_command(sqe, data_len, transport),
        })
    }

    /// The command in `slot`, if its data were requested and have not all arrived.
    pub fn solicited(&mut self, slot: u16) -> Option<&CommandSlot> {
        self.slots.get_mut(slot).filter(|slot| slot.state == State::Receiving && slot.is_solicited).map(|slot| &*slot)
    }

    /// The destination of the data of a command that `solicited` returned.
    pub fn destination(&mut self, slot: u16) -> Destination {
        if self.slots.slot(slot).control.is_some() { Destination::Queue(slot) } else { Destination::Backend(slot) }
    }

    /// Processes the next bytes for `destination`.
    #[allow(clippy::inline_always)] // saves 48 instructions per write; `inline` alone is not reliable.
    #[inline(always)]
    pub fn on_data<B: NvmeBackend + ?Sized>(&mut self, destination: Destination, piece: &[u8], backend: &mut B) {
        match destination {
            Destination::Backend(index) => {
                let slot = self.slots.slot(index);
                if slot.spoilt.is_none() {
                    backend.place(IoId::from(index), slot.received, piece);
                }
                slot.received += piece.len() as u32;
            }
            Destination::Queue(index) => {
                let slot = self.slots.slot(index);
                slot.received += piece.len() as u32;
                if let Some(control) = &mut slot.control {
                    control.data.extend_from_slice(piece);
                }
            }
            Destination::Nowhere => {}
        }
    }

    /// Memory for the next `len` bytes for `destination`, if they need not be examined.
    pub fn place<B: NvmeBackend + ?Sized>(
        &mut self,
        destination: Destination,
        len: u32,
        backend: &mut B,
    ) -> Option<Payload> {
        let Destination::Backend(index) = destination else { return None };
        let slot = self.slots.slot(index);
        if slot.spoilt.is_some() { None } else { backend.memory(IoId::from(index), slot.received, len) }
    }

    /// The next `len` bytes for `destination` are in the memory that `place` returned.
    pub fn on_placed(&mut self, destination: Destination, len: u32) {
        if let Destination::Backend(index) = destination {
            self.slots.slot(index).received += len;
        }
    }

    /// A PDU's data for `destination` are complete. Call this once for all data that arrived together.
    #[inline]
    pub fn on_data_end<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        destination: Destination,
        is_intact: bool,
        transport: &mut T,
        backend: &mut B,
    ) {
        let (Destination::Backend(index) | Destination::Queue(index)) = destination else { return };
        let slot = self.slots.slot(index);
        if !is_intact && slot.spoilt.is_none() {
            // A wrong data digest is not fatal to the connection (NVMe/TCP transport 1.1 §3.5.2).
            slot.spoilt = Some(Status::TRANSIENT_TRANSPORT_ERROR);
            if slot.control.is_none() {
                backend.abort(IoId::from(index), None);
            }
        }
        if slot.received < slot.data_len {
            return;
        }
        if let Some(status) = slot.spoilt {
            let cid = slot.cid;
            self.slots.release(index);
            self.respond(cid, status, transport);
            return;
        }
        if let Some(control) = slot.control.take() {
            self.slots.release(index);
            self.on_control_data(now, &control, transport, backend);
            return;
        }
        slot.state = State::Queued;
        match backend.finish(now, IoId::from(index)) {
            Started::Done(result) => self.finish_slot(index, result, transport),
            Started::Queued => {}
            Started::NeedData => panic!("a backend has all data of an operation and wants more"),
        }
    }

    /// Processes the complete data of a command that this layer executes.
    fn on_control_data<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        match self.phase {
            Phase::Io(_) => self.on_io_data(now, control, transport, backend),
            Phase::Connecting => self.on_connect(now, control, transport, backend),
            Phase::Authenticating(_) => self.on_authentication_data(now, control, transport, backend),
            Phase::Admin(_) | Phase::Closing => {}
        }
    }

    /// Accepts `len` bytes of data for this layer: from the capsule, or by requesting them.
    fn take_control_data<T: Transport>(
        &mut self,
        sqe: &Sqe,
        data_len: u32,
        len: u32,
        transport: &mut T,
    ) -> Destination {
        if let Err(status) = check_host_data(sqe, data_len, len) {
            self.respond(sqe.cid(), status, transport);
            return Destination::Nowhere;
        }
        let Some(index) = self.slots.peek() else {
            debug_assert!(false, "a slot, since the command was taken");
            return Destination::Nowhere;
        };
        let slot = self.slots.take((sqe.cid(), sqe.nsid()), State::Receiving);
        slot.data_len = len;
        slot.control = Some(Box::new(Control { sqe: *sqe, data: alloc::vec::Vec::with_capacity(len as usize) }));
        self.receive_data(index, data_len > 0, transport)
    }

    /// Receives the data of slot `index` from the current capsule, or requests them.
    #[inline]
    fn receive_data<T: Transport>(&mut self, index: u16, is_in_capsule: bool, transport: &mut T) -> Destination {
        let slot = self.slots.slot(index);
        slot.is_solicited = !is_in_capsule;
        if is_in_capsule {
            return self.destination(index);
        }
        transport.ask(slot.cid, index, slot.data_len);
        Destination::Nowhere
    }

    // ----------------------------------------------------------------------------------------------------------- admin

    fn on_admin_command<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        transport: &mut T,
        backend: &mut B,
    ) {
        let Phase::Admin(admin) = &mut self.phase else {
            debug_assert!(false, "an admin command on the admin queue");
            return;
        };
        let outcome = admin.execute(now, sqe, backend);
        while let Phase::Admin(admin) = &mut self.phase
            && let Some((cid, status)) = admin.poll_released()
        {
            self.slots.clear_cid(cid);
            match status {
                Some(status) => self.respond(cid, status, transport),
                None => transport.dropped(cid),
            }
        }
        let answered = if let AdminOutcome::Data(data) = &outcome { data.len() } else { 0 };
        transport.transmit().charge(Transmit::REQUEST + answered);
        match outcome {
            AdminOutcome::Done { result, status } => self.respond_with(sqe.cid(), result, status, transport),
            AdminOutcome::Data(data) => match check_controller_data(sqe, data.len() as u32) {
                Ok(()) => self.give_data(sqe.cid(), Data::Bytes(&data), transport),
                Err(status) => self.respond(sqe.cid(), status, transport),
            },
            AdminOutcome::Held => self.slots.mark_cid(sqe.cid()),
        }
        self.tell_events(transport);
    }

    /// Drops an event request whose identifier the host uses again. Some hosts (SPDK) abandon their event requests as
    /// they leave, without telling the controller. Such a request is never answered.
    #[cold]
    fn forget_event_request(&mut self, cid: CommandId) -> bool {
        let Phase::Admin(admin) = &mut self.phase else { return false };
        let is_forgotten = admin.forget_event_request(cid);
        if is_forgotten {
            self.slots.clear_cid(cid);
        }
        is_forgotten
    }

    fn tell_events<T: Transport>(&mut self, transport: &mut T) {
        while let Phase::Admin(admin) = &mut self.phase
            && let Some((cid, result)) = admin.poll_event()
        {
            self.slots.clear_cid(cid);
            self.respond_with(cid, result, Status::SUCCESS, transport);
        }
    }

    // ------------------------------------------------------------------------------------------------------- answering

    #[inline]
    fn respond<T: Transport>(&self, cid: CommandId, status: Status, transport: &mut T) {
        self.respond_with(cid, 0, status, transport);
    }

    #[inline]
    fn respond_with<T: Transport>(&self, cid: CommandId, result: u64, status: Status, transport: &mut T) {
        transport.respond(&Cqe { result, sq_head: self.sq.reported(), cid, status });
    }

    /// Sends data to the host and completes the command. If SQ flow control is disabled, the data imply success
    /// (NVMe/TCP transport 1.1 §3.6.2.9, SUCCESS). Otherwise a response follows, because completions must report the
    /// queue's head.
    #[inline]
    fn give_data<T: Transport>(&self, cid: CommandId, data: Data<'_>, transport: &mut T) {
        transport.give(cid, self.sq.is_disabled, data);
        if !self.sq.is_disabled {
            self.respond(cid, Status::SUCCESS, transport);
        }
    }

    /// Completes an operation that the backend had queued.
    #[inline]
    pub fn complete<T: Transport>(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>, transport: &mut T) {
        let index = id as u16;
        assert_eq!(self.slots.slot(index).state, State::Queued, "completed what is not queued");
        self.finish_slot(index, result, transport);
    }

    #[inline]
    fn finish_slot<T: Transport>(&mut self, index: u16, result: Result<Option<Payload>, UnitError>, transport: &mut T) {
        let slot = self.slots.slot(index);
        let (cid, read_len) = (slot.cid, slot.read_len);
        self.slots.release(index);
        self.finish(cid, read_len, result, transport);
    }

    /// Answers an I/O command; `read_len` is 0 for every command except reads.
    #[inline]
    fn finish<T: Transport>(
        &self,
        cid: CommandId,
        read_len: u32,
        result: Result<Option<Payload>, UnitError>,
        transport: &mut T,
    ) {
        match result {
            Ok(Some(payload)) if read_len > 0 => {
                assert_eq!(payload.len(), read_len as usize, "a backend gives what a read asks for");
                self.give_data(cid, Data::Payload(payload), transport);
            }
            Ok(None) if read_len > 0 => panic!("a backend gives the data of a read"),
            Ok(_) => self.respond(cid, Status::SUCCESS, transport),
            Err(error) => self.respond(cid, Status::of_unit_error(error, read_len > 0), transport),
        }
    }

    // ------------------------------------------------------------------------------------------------ time and the end

    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Admin(admin) => admin.poll_timeout(),
            Phase::Io(io) => Some(io.next_look()),
            Phase::Connecting | Phase::Authenticating(_) | Phase::Closing => self.deadline,
        }
    }

    pub fn handle_timeout<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        transport: &mut T,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let result = match &mut self.phase {
            Phase::Admin(admin) => admin.handle_timeout(now),
            Phase::Io(_) => self.on_io_timeout(now, transport, backend),
            Phase::Connecting if self.deadline.is_some_and(|deadline| now >= deadline) => {
                Err(Violation::timed_out("no Connect command in time"))
            }
            Phase::Authenticating(_) if self.deadline.is_some_and(|deadline| now >= deadline) => {
                Err(Violation::timed_out("the host did not authenticate itself in time"))
            }
            Phase::Connecting | Phase::Authenticating(_) | Phase::Closing => Ok(()),
        };
        match result {
            Ok(()) => self.tell_events(transport),
            Err(_) => self.end(backend),
        }
        result
    }

    /// The exchange of a command was aborted: the command ends without an answer. If the backend still works on it, it
    /// holds `ending`.
    pub fn abort<B: NvmeBackend + ?Sized>(&mut self, cid: CommandId, ending: Ending, backend: &mut B) {
        if self.forget_event_request(cid) {
            return;
        }
        if let Some(index) = self.slots.find(cid) {
            if self.slots.is_with_backend(index) {
                backend.abort(IoId::from(index), Some(ending));
            }
            self.slots.release(index);
            if let Phase::Io(io) = &mut self.phase {
                io.forget_waiting(index);
            }
        }
    }

    /// Ends the queue and aborts its outstanding operations.
    pub fn end<B: NvmeBackend + ?Sized>(&mut self, backend: &mut B) {
        // First end the commands that other hosts wait for, so that those hosts learn of the end.
        let mut ending = None;
        if let Phase::Io(io) = &self.phase {
            end_purged(&io.take_purged(), &mut self.slots, |_| {}, backend);
            ending = Some(io.ending());
        }
        self.slots.drain(|index| backend.abort(IoId::from(index), ending.cloned()));
        self.deadline = None;
        mem::replace(&mut self.phase, Phase::Closing).end(backend);
    }
}

impl Phase {
    /// Releases what other connections share.
    fn end<B: NvmeBackend + ?Sized>(self, backend: &mut B) {
        match self {
            Self::Authenticating(unproven) => unproven.behind.end(backend),
            Self::Admin(mut admin) => {
                admin.destroy();
                // The controller's I/O queues on other threads must end now, not at their next periodic check.
                backend.notify_others();
            }
            Self::Io(io) => io.detach(),
            Self::Connecting | Self::Closing => {}
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

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("qid", &self.qid()).finish_non_exhaustive()
    }
}

/// The connection on which a queue answers.
pub trait Transport {
    fn respond(&mut self, cqe: &Cqe);
    /// The command ends without an answer.
    fn dropped(&mut self, cid: CommandId);
    /// Sends all data of a command to the host. If `is_success`, they also complete the command.
    fn give(&mut self, cid: CommandId, is_success: bool, data: Data<'_>);
    /// Requests all `len` bytes of a command's data from the host; `slot` identifies them to `Queue::solicited`.
    fn ask(&mut self, cid: CommandId, slot: u16, len: u32);
    /// Sets the maximum bytes of in-capsule data for later commands.
    fn set_max_command_data(&mut self, bytes: u32);
    fn transmit(&mut self) -> &mut Transmit;
}

/// The destination of a host's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Nowhere,
    /// The backend, as data of the command in this slot.
    Backend(u16),
    /// The queue itself, for the command in this slot.
    Queue(u16),
}

/// Checks the descriptor of a command that takes `len` bytes, of which `data_len` came in its capsule (NVMe/TCP
/// transport 1.1 §3.5, "SGL use").
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

/// Checks the descriptor of a command that returns `len` bytes to the host, which are never in a capsule.
#[inline]
fn check_controller_data(sqe: &Sqe, len: u32) -> Result<(), Status> {
    match sqe.sgl() {
        Sgl::Transport { len: told } if told == len => Ok(()),
        Sgl::Transport { .. } => Err(Status::SGL_LENGTH_INVALID.do_not_retry()),
        Sgl::InCapsule { .. } | Sgl::Other => Err(Status::SGL_TYPE_INVALID.do_not_retry()),
    }
}
