//! A controller's queue on one connection: Connect, authentication, then an admin queue or an I/O queue.
//!
//! What a transport does for a controller's queue.
//!
//! Where a command says that its data are.

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
    /// Most bytes of data in the capsule of a fabrics or admin command.
    pub admin_in_capsule_bytes: u32,
    /// A peer that has not connected a queue by then, or not authenticated itself as long after that, is given up.
    pub connect_timeout: Duration,
}

/// What the queue is.
enum Phase {
    /// Before Connect.
    Connecting,
    /// Connected, and before the host has proved itself.
    Authenticating(Box<Unproven>),
    Admin(Box<AdminController>),
    Io(Box<IoQueueState>),
    /// Logged out, refused or at fault: nothing more is taken.
    Closing,
}

/// Submission queue head pointer, as completions report it.
#[derive(Debug)]
struct SqHead {
    /// SQ flow control is disabled: completions report nothing, and a read's data may imply its success.
    is_disabled: bool,
    head: u16,
    entries: u16,
}

/// A controller's queue. What it sends goes to the `Transport` that each call is given.
pub struct Queue {
    config: QueueConfig,
    phase: Phase,
    slots: Slots,
    sq: SqHead,
    /// Until Connect, and until authentication where it is asked for.
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

    /// Queue ID once connected and, where that is asked for, authenticated.
    pub fn qid(&self) -> Option<QueueId> {
        match &self.phase {
            Phase::Admin(_) => Some(QueueId::ADMIN),
            Phase::Io(io) => Some(io.qid()),
            Phase::Connecting | Phase::Authenticating(_) | Phase::Closing => None,
        }
    }

    /// Nothing more is taken.
    #[inline]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    // -------------------------------------------------------------------------------------------------------- receiving

    /// A capsule came, and says that `data_len` bytes of data come with it: gives where they go. A rule that it breaks ends the connection.
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
        // NVMe base 2.1 §4.1.1: fused operations are not supported; PSDT is 01b in fabrics.
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

    /// The command in `slot`, where its data were asked for and are still coming.
    pub fn solicited(&mut self, slot: u16) -> Option<&CommandSlot> {
        self.slots.get_mut(slot).filter(|slot| slot.state == State::Receiving && slot.is_solicited).map(|slot| &*slot)
    }

    /// Where data go that `solicited` knows.
    pub fn destination(&mut self, slot: u16) -> Destination {
        if self.slots.slot(slot).control.is_some() { Destination::Queue(slot) } else { Destination::Backend(slot) }
    }

    /// The next bytes for `destination`.
    #[allow(clippy::inline_always)] // 48 instructions of a write; whether `inline` is heeded hangs on what else is compiled.
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

    /// Memory for the next `len` bytes for `destination`, where nobody need see them.
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

    /// The next `len` bytes for `destination` are in the memory that `place` gave.
    pub fn on_placed(&mut self, destination: Destination, len: u32) {
        if let Destination::Backend(index) = destination {
            self.slots.slot(index).received += len;
        }
    }

    /// A PDU's data for `destination` are complete; all that came together has one end.
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
            // Not fatal to the connection (NVMe/TCP transport 1.1 §3.5.2, of a data digest).
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

    /// All data of a command that this layer keeps.
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

    /// Takes `len` bytes of data for this layer: from the capsule, or by asking.
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

    /// The data of slot `index` come: in the capsule under way, or when asked for.
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

    // ------------------------------------------------------------------------------------------------------------ admin

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
            if let Some(status) = status {
                self.respond(cid, status, transport);
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

    /// Hosts take back their event requests without a message as they leave, and use the identifiers again (SPDK does). No such
    /// request is answered any more.
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

    // -------------------------------------------------------------------------------------------------------- answering

    #[inline]
    fn respond<T: Transport>(&self, cid: CommandId, status: Status, transport: &mut T) {
        self.respond_with(cid, 0, status, transport);
    }

    #[inline]
    fn respond_with<T: Transport>(&self, cid: CommandId, result: u64, status: Status, transport: &mut T) {
        transport.respond(&Cqe { result, sq_head: self.sq.reported(), cid, status });
    }

    /// Data for the host and the command's success: together where SQ flow control is disabled (NVMe/TCP transport 1.1
    /// §3.6.2.9, SUCCESS), with a response where completions must report the queue's head.
    #[inline]
    fn give_data<T: Transport>(&self, cid: CommandId, data: Data<'_>, transport: &mut T) {
        transport.give(cid, self.sq.is_disabled, data);
        if !self.sq.is_disabled {
            self.respond(cid, Status::SUCCESS, transport);
        }
    }

    /// The backend has done what it queued.
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

    /// Answers an I/O command; `read_len` is 0 for all but reads.
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

    // ------------------------------------------------------------------------------------------------- time and the end

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

    /// The exchange of a command was aborted: it ends unanswered. What goes on of it at the backend keeps `ending`.
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

    /// Ends what the queue is; operations outstanding are aborted.
    pub fn end<B: NvmeBackend + ?Sized>(&mut self, backend: &mut B) {
        // First what others wait for, so that they learn when it has ended.
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
    /// Gives up what other connections know of.
    fn end<B: NvmeBackend + ?Sized>(self, backend: &mut B) {
        match self {
            Self::Authenticating(unproven) => unproven.behind.end(backend),
            Self::Admin(mut admin) => {
                admin.destroy();
                // Its I/O queues on other threads end now, not when they next look by themselves.
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

/// The connection that a queue answers on.
pub trait Transport {
    fn respond(&mut self, cqe: &Cqe);
    /// All data of a command for the host; where `is_success`, they complete it too.
    fn give(&mut self, cid: CommandId, is_success: bool, data: Data<'_>);
    /// Asks the host for all `len` bytes of a command's data; `slot` is what `Queue::solicited` knows them by.
    fn ask(&mut self, cid: CommandId, slot: u16, len: u32);
    /// Most bytes of data that a command's capsule may have from now on.
    fn set_max_command_data(&mut self, bytes: u32);
    fn transmit(&mut self) -> &mut Transmit;
}

/// Where data of the host go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Nowhere,
    /// To the backend, as data of the command in this slot.
    Backend(u16),
    /// To the queue itself.
    Queue(u16),
}

/// Whether a command says rightly where the `len` bytes that it takes are, of which `data_len` came in its capsule
/// (NVMe/TCP transport 1.1 §3.5, "SGL use").
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
