//! I/O commands: from the capsule to the backend, without lock or allocation.

use alloc::{rc::Rc, vec::Vec};
use core::time::Duration;

use super::{
    Destination, Phase, Queue, Transport, check_controller_data, check_host_data,
    slots::{Control, Slots, State},
};
use crate::{
    Ending, Instant, IoId, Rule, Shared, Started, Transmit, UnitId, UnitOp, Violation, Wait, WaitOutcome,
    nvme::{
        CommandId, ControllerId, Cqe, NvmeBackend, QueueId, Sqe, Status, Subsystem,
        command::{Sgl, fabrics, nvm},
        fabrics::Data,
        io::{Command, NamespaceTable, RANGES_LEN_MAX},
        reserve::KEYS_LEN_MAX,
        subsystem::{Generation, HostId, with_subsystem},
    },
};

/// How often an idle queue checks whether its controller still exists.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The state of an I/O queue in addition to `Queue`.
pub(super) struct IoQueueState {
    subsystem: Rc<dyn Shared<Subsystem>>,
    cntlid: ControllerId,
    qid: QueueId,
    host: HostId,
    generation: Generation,
    /// Held by operations of this queue that continue after it.
    ending: Ending,
    /// The generation number when `namespaces` was built; 0 before.
    seen: u64,
    namespaces: NamespaceTable,
    last_look: Instant,
    /// Commands that aborted others, by slot. They are answered when the aborted ones have ended.
    waiting: Vec<(u16, Wait)>,
}

/// Namespaces of which another host ended this queue's commands.
type Purged = Vec<(u32, Ending)>;

impl IoQueueState {
    pub(super) fn new(
        now: Instant,
        subsystem: Rc<dyn Shared<Subsystem>>,
        cntlid: ControllerId,
        (qid, host): (QueueId, HostId),
        (generation, ending): (Generation, Ending),
    ) -> Self {
        Self {
            subsystem,
            cntlid,
            qid,
            host,
            generation,
            ending,
            seen: 0,
            namespaces: NamespaceTable::default(),
            last_look: now,
            waiting: Vec::new(),
        }
    }

    pub(super) fn qid(&self) -> QueueId {
        self.qid
    }

    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    pub(super) fn next_look(&self) -> Instant {
        self.last_look + if self.waiting.is_empty() { LOOK_INTERVAL } else { Wait::POLL }
    }

    pub(super) fn take_purged(&self) -> Purged {
        with_subsystem(&*self.subsystem, |subsystem| subsystem.take_purged(self.qid, &self.generation))
    }

    /// Removes the command in that slot from those that wait for an answer.
    pub(super) fn forget_waiting(&mut self, slot: u16) {
        self.waiting.retain(|(waiting, _)| *waiting != slot);
    }

    pub(super) fn detach(&self) {
        with_subsystem(&*self.subsystem, |subsystem| {
            subsystem.detach_io_queue(self.cntlid, self.qid, &self.generation);
        });
    }

    /// Reads the namespaces again after a change, and ends the commands that other hosts ended. `Err` if the controller
    /// is gone.
    #[cold]
    #[inline(never)]
    fn catch_up<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        slots: &mut Slots,
        sq_head: u16,
        transport: &mut T,
        backend: &mut B,
    ) -> Result<(), &'static Rule> {
        let generation = self.generation.get();
        let is_gone = generation == Generation::DEAD;
        let purged = if is_gone { self.take_purged() } else { self.reload(generation, backend) };
        let respond = |cid| transport.respond(&Cqe { result: 0, sq_head, cid, status: Status::PREEMPTED });
        end_purged(&purged, slots, respond, backend);
        if is_gone { Err(GONE) } else { Ok(()) }
    }

    /// Reads the namespaces again, and returns those of which other hosts ended commands.
    fn reload<B: NvmeBackend + ?Sized>(&mut self, generation: u64, backend: &B) -> Purged {
        let ((view, refused), purged) = with_subsystem(&*self.subsystem, |subsystem| {
            (subsystem.view(self.cntlid, &self.host), subsystem.take_purged(self.qid, &self.generation))
        });
        self.namespaces.load(view.iter().map(|(namespace, barred)| (namespace, *barred)), refused, backend);
        self.seen = generation;
        purged
    }
}

/// Ends the commands that other hosts ended, and calls `respond` for those that are over at once. Operations that
/// continue in the backend hold the endings.
pub(super) fn end_purged<B: NvmeBackend + ?Sized>(
    purged: &[(u32, Ending)],
    slots: &mut Slots,
    mut respond: impl FnMut(CommandId),
    backend: &mut B,
) {
    for (nsid, ending) in purged {
        slots.purge(*nsid, |index| backend.abort(IoId::from(index), Some(ending.clone())), &mut respond);
    }
}

const GONE: &Rule = rule!("NVMe base 2.1 §3.7: the controller was reset or has ended, and with it its I/O queues");

/// Bytes of data that come with a command whose ranges or keys have `len` bytes. A host may send a buffer of the
/// maximum size, as Linux does; the command states how much of it counts (NVM command set 1.1 §3.3.3).
fn given_len(sqe: &Sqe, len: u32, len_max: u32) -> u32 {
    match sqe.sgl() {
        Sgl::InCapsule { len: told, .. } | Sgl::Transport { len: told } if (len..=len_max).contains(&told) => told,
        _ => len,
    }
}

impl Queue {
    #[inline]
    pub(super) fn on_io_command<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data_len: u32,
        transport: &mut T,
        backend: &mut B,
    ) -> Result<Destination, &'static Rule> {
        let Phase::Io(io) = &mut self.phase else { unreachable!("a command of an I/O queue") };
        if io.generation.get() != io.seen {
            io.catch_up(&mut self.slots, self.sq.reported(), transport, backend)?;
        }
        if sqe.is_fabrics() {
            self.on_io_fabrics(sqe, transport, backend);
            return Ok(Destination::Nowhere);
        }
        Ok(match io.namespaces.parse(sqe, self.config.limits.max_transfer_bytes) {
            Ok(Command::Op { unit, op }) => self.start(now, sqe, data_len, (unit, op), transport, backend),
            Ok(Command::Ranges { len }) => {
                self.take_control_data(sqe, data_len, given_len(sqe, len, RANGES_LEN_MAX), transport)
            }
            Ok(Command::Reserve { len }) => {
                self.take_control_data(sqe, data_len, given_len(sqe, len, KEYS_LEN_MAX), transport)
            }
            Ok(Command::Report { len }) => {
                self.report(sqe, len, transport);
                Destination::Nowhere
            }
            Err(status) => {
                self.respond(sqe.cid(), status, transport);
                Destination::Nowhere
            }
        })
    }

    #[inline]
    fn start<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data_len: u32,
        (unit, op): (UnitId, UnitOp),
        transport: &mut T,
        backend: &mut B,
    ) -> Destination {
        let cid = sqe.cid();
        let read_len = if let UnitOp::Read { len, .. } = op { len } else { 0 };
        let take_len = op.data_len();
        let checked = if read_len > 0 {
            check_controller_data(sqe, read_len)
        } else if take_len > 0 {
            check_host_data(sqe, data_len, take_len)
        } else {
            Ok(())
        };
        if let Err(status) = checked {
            self.respond(cid, status, transport);
            return Destination::Nowhere;
        }
        let index = self.slots.peek().expect("a slot, since the command was taken");
        match backend.start(now, IoId::from(index), unit, op) {
            Started::Done(result) => self.finish(cid, read_len, result, transport),
            Started::NeedData => {
                assert!(take_len > 0, "a backend wants data of an operation that has none");
                self.slots.take((cid, sqe.nsid()), State::Receiving).data_len = take_len;
                return self.receive_data(index, data_len > 0, transport);
            }
            Started::Queued => {
                assert_eq!(take_len, 0, "a backend takes an operation's data before it queues it");
                self.slots.take((cid, sqe.nsid()), State::Queued).read_len = read_len;
            }
        }
        Destination::Nowhere
    }

    /// Reads what has changed since the last check, and ends the commands that other hosts ended; `Err` if the
    /// controller is gone.
    fn look<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        transport: &mut T,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Phase::Io(io) = &mut self.phase else { unreachable!("an I/O queue looks") };
        if io.generation.get() == io.seen {
            return Ok(());
        }
        io.catch_up(&mut self.slots, self.sq.reported(), transport, backend).map_err(Violation::misbehaved)
    }

    /// Applies what other hosts did to this queue. This may end commands that other hosts wait for, and commands that
    /// this queue waits for. A controller reports its events.
    pub fn handle_notification<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        transport: &mut T,
        backend: &mut B,
    ) {
        match &mut self.phase {
            Phase::Io(_) => {
                if self.look(transport, backend).is_err() {
                    return self.end(backend);
                }
                self.answer_waiting(now, transport);
            }
            Phase::Admin(admin) => {
                admin.look_for_changes();
                self.tell_events(transport);
            }
            Phase::Connecting | Phase::Authenticating(_) | Phase::Closing => {}
        }
    }

    pub(super) fn on_io_timeout<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        transport: &mut T,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Phase::Io(io) = &mut self.phase else { unreachable!("an I/O queue looks") };
        io.last_look = now;
        self.look(transport, backend)?;
        self.answer_waiting(now, transport);
        Ok(())
    }

    /// Answers the commands whose aborts are complete or have timed out.
    fn answer_waiting<T: Transport>(&mut self, now: Instant, transport: &mut T) {
        let Phase::Io(io) = &mut self.phase else { unreachable!("asked of an I/O queue") };
        let sq_head = self.sq.reported();
        io.waiting.retain_mut(|(index, wait)| {
            let status = match wait.outcome(now) {
                WaitOutcome::Waits => return true,
                WaitOutcome::Ended => Status::SUCCESS,
                WaitOutcome::TooLong => Status::INTERNAL_ERROR,
            };
            let cid = self.slots.slot(*index).cid;
            self.slots.release(*index);
            transport.respond(&Cqe { result: 0, sq_head, cid, status });
            false
        });
    }

    fn report<T: Transport>(&mut self, sqe: &Sqe, len: u32, transport: &mut T) {
        let Phase::Io(io) = &self.phase else { unreachable!("asked of an I/O queue") };
        transport.transmit().charge(Transmit::REQUEST + len as usize);
        let report = || with_subsystem(&*io.subsystem, |subsystem| subsystem.report(sqe, len as usize));
        let reported = check_controller_data(sqe, len).and_then(|()| report().map_err(Status::do_not_retry));
        match reported {
            Ok(data) => self.give_data(sqe.cid(), Data::Bytes(&data), transport),
            Err(status) => self.respond(sqe.cid(), status, transport),
        }
    }

    /// Processes the complete data of a Dataset Management or reservation command.
    pub(super) fn on_io_data<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        if control.sqe.opcode() == nvm::DATASET_MANAGEMENT {
            self.on_ranges(now, control, transport, backend);
        } else {
            self.on_keys(now, control, transport, backend);
        }
    }

    /// Processes the keys of a reservation command. If it aborted commands, it is answered when these have ended.
    fn on_keys<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        let Phase::Io(io) = &mut self.phase else { unreachable!("keys come on an I/O queue") };
        let (sqe, host) = (&control.sqe, io.host);
        transport.transmit().charge(Transmit::REQUEST);
        match with_subsystem(&*io.subsystem, |subsystem| subsystem.reserve(host, sqe, &control.data)) {
            Ok(endings) => {
                let index = self.slots.peek().expect("a slot, since the command was taken");
                self.slots.take((sqe.cid(), sqe.nsid()), State::Waiting);
                io.waiting.push((index, Wait::begin(now, endings, || backend.notify_others())));
                io.last_look = now;
                self.answer_waiting(now, transport);
            }
            Err(status) => self.respond(sqe.cid(), status.do_not_retry(), transport),
        }
    }

    /// Processes the ranges of a Dataset Management command.
    fn on_ranges<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        let cid = control.sqe.cid();
        // Commands that had started may still complete after their controller is gone.
        let _ = self.look(transport, backend);
        let Phase::Io(io) = &self.phase else { unreachable!("ranges come on an I/O queue") };
        match io.namespaces.deallocation(&control.sqe, &control.data) {
            Ok(Some((unit, op))) => {
                let index = self.slots.peek().expect("a slot, since the command was taken");
                match backend.start(now, IoId::from(index), unit, op) {
                    Started::Done(result) => self.finish(cid, 0, result, transport),
                    Started::Queued => {
                        self.slots.take((cid, control.sqe.nsid()), State::Queued);
                    }
                    Started::NeedData => panic!("a backend wants data of an operation that has none"),
                }
            }
            Ok(None) => self.respond(cid, Status::SUCCESS, transport),
            Err(status) => self.respond(cid, status, transport),
        }
    }

    /// Disconnect is the only fabrics command of an I/O queue (NVMe base 2.1 §6.4).
    fn on_io_fabrics<T: Transport, B: NvmeBackend + ?Sized>(&mut self, sqe: &Sqe, transport: &mut T, backend: &mut B) {
        let status = match sqe.fabrics_type() {
            fabrics::DISCONNECT if sqe.u16(40) == 0 => Status::SUCCESS,
            fabrics::DISCONNECT => Status::CONNECT_INCOMPATIBLE_FORMAT.do_not_retry(),
            fabrics::CONNECT => Status::SEQUENCE_ERROR.do_not_retry(),
            _ => Status::INVALID_OPCODE.do_not_retry(),
        };
        self.respond(sqe.cid(), status, transport);
        if status.is_success() {
            self.end(backend);
        }
    }
}
