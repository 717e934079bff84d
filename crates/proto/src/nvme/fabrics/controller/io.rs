//! I/O commands: from the capsule to the backend, without a lock or an allocation.

use alloc::rc::Rc;
use core::time::Duration;

use super::{
    Destination, Phase, Queue, Transport, check_controller_data, check_host_data,
    slots::{Control, State},
};
use crate::{
    Instant, IoId, Shared, Started, UnitId, UnitOp, Violation, ViolationKind,
    nvme::{
        CommandId, ControllerId, NvmeBackend, QueueId, Sqe, Status, Subsystem,
        command::{Sgl, fabrics},
        io::{Command, NamespaceTable, RANGES_LEN_MAX},
        subsystem::{Generation, with_subsystem},
    },
};

/// How often an idle queue looks whether its controller still lives.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What an I/O queue has beside the connection.
pub(super) struct IoQueueState {
    subsystem: Rc<dyn Shared<Subsystem>>,
    cntlid: ControllerId,
    qid: QueueId,
    generation: Generation,
    /// The generation's number when `namespaces` was made; 0 before.
    seen: u64,
    namespaces: NamespaceTable,
    last_look: Instant,
}

impl IoQueueState {
    pub(super) fn new(
        now: Instant,
        subsystem: Rc<dyn Shared<Subsystem>>,
        cntlid: ControllerId,
        qid: QueueId,
        generation: Generation,
    ) -> Self {
        Self { subsystem, cntlid, qid, generation, seen: 0, namespaces: NamespaceTable::default(), last_look: now }
    }

    pub(super) fn qid(&self) -> QueueId {
        self.qid
    }

    pub(super) fn next_look(&self) -> Instant {
        self.last_look + LOOK_INTERVAL
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.last_look = now;
        if self.generation.is_dead() { Err(GONE) } else { Ok(()) }
    }

    pub(super) fn detach(&self) {
        with_subsystem(&*self.subsystem, |subsystem| {
            subsystem.detach_io_queue(self.cntlid, self.qid, &self.generation);
        });
    }

    /// Reads the namespaces again after a change.
    #[cold]
    fn reload<B: NvmeBackend + ?Sized>(&mut self, generation: u64, backend: &B) -> Result<(), Violation> {
        if generation == Generation::DEAD {
            return Err(GONE);
        }
        let namespaces = with_subsystem(&*self.subsystem, |subsystem| subsystem.namespaces().to_vec());
        self.namespaces.load(&namespaces, backend);
        self.seen = generation;
        Ok(())
    }
}

const GONE: Violation = Violation {
    kind: ViolationKind::Misbehaved,
    at: None,
    rule: "NVMe base 2.1 §3.7: the controller was reset or has ended, and with it its I/O queues",
};

/// Bytes that come with a Dataset Management command of `len` bytes of ranges. Hosts may give a buffer of the most that
/// there can be (Linux always does); the number of ranges says which of it counts (NVM command set 1.1 §3.3.3).
fn ranges_len(sqe: &Sqe, len: u32) -> u32 {
    match sqe.sgl() {
        Sgl::InCapsule { len: told, .. } | Sgl::Transport { len: told } if (len..=RANGES_LEN_MAX).contains(&told) => {
            told
        }
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
    ) -> Result<Destination, Violation> {
        let Phase::Io(io) = &mut self.phase else { unreachable!("a command of an I/O queue") };
        let generation = io.generation.get();
        if generation != io.seen {
            io.reload(generation, backend)?;
        }
        if sqe.is_fabrics() {
            self.on_io_fabrics(sqe, transport, backend);
            return Ok(Destination::Nowhere);
        }
        Ok(match io.namespaces.parse(sqe, self.config.limits.max_transfer_bytes) {
            Ok(Command::Op { unit, op }) => self.start(now, sqe, data_len, (unit, op), transport, backend),
            Ok(Command::Ranges { len }) => self.take_control_data(sqe, data_len, ranges_len(sqe, len), transport),
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
                self.slots.take(cid, State::Receiving).data_len = take_len;
                return self.receive_data(index, data_len > 0, transport);
            }
            Started::Queued => {
                assert_eq!(take_len, 0, "a backend takes an operation's data before it queues it");
                self.slots.take(cid, State::Queued).read_len = read_len;
            }
        }
        Destination::Nowhere
    }

    /// All ranges of a Dataset Management command.
    pub(super) fn on_ranges<T: Transport, B: NvmeBackend + ?Sized>(
        &mut self,
        now: Instant,
        cid: CommandId,
        control: &Control,
        transport: &mut T,
        backend: &mut B,
    ) {
        let Phase::Io(io) = &self.phase else { unreachable!("ranges come on an I/O queue") };
        match io.namespaces.deallocation(&control.sqe, &control.data) {
            Ok(Some((unit, op))) => {
                let index = self.slots.peek().expect("a slot, since the command was taken");
                match backend.start(now, IoId::from(index), unit, op) {
                    Started::Done(result) => self.finish(cid, 0, result, transport),
                    Started::Queued => {
                        self.slots.take(cid, State::Queued);
                    }
                    Started::NeedData => panic!("a backend wants data of an operation that has none"),
                }
            }
            Ok(None) => self.respond(cid, Status::SUCCESS, transport),
            Err(status) => self.respond(cid, status, transport),
        }
    }

    /// Of the fabrics commands an I/O queue knows Disconnect (NVMe base 2.1 §6.4).
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
