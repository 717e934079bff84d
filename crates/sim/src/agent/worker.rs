//! One connection of an agent: an initiator, its commands by tag, and what it reports to the registers.

use std::time::Duration;

use iotax_node::{protocols::AnyInitiator, seeded::SeededRng};
use iotax_proto::{
    Geometry, InitiatorEvents, Instant, Io, IoError, Payload, Refusal, Reserve, Tag, Transmit, Violation,
};

use crate::{
    board::{Board, SharedBoard},
    disk::SECTOR,
    fence::Port,
    register::{HostConnection, content},
};

/// Maximum number of sectors of an I/O, and of a read in the liveness phase.
const SECTORS_MAX: u64 = 24;
const LOOK_SECTORS: usize = 64;
/// Sense data of SPC-5 annex F and a status of NVMe base 2.1 §4.2.3, encoded as in `IoError`.
const INTERNAL_TARGET_FAILURE: u32 = 0x04_4400;
const INTERNAL_ERROR: u32 = 0x006;

#[expect(clippy::struct_excessive_bools, reason = "independent facts about a connection, not the states of a machine")]
pub(crate) struct Worker {
    initiator: AnyInitiator,
    connection: HostConnection,
    tags: Vec<Option<Command>>,
    pub(super) is_ready: bool,
    pub(super) closed: bool,
    /// The agent has handled that its connection was closed.
    pub(super) told: bool,
    pub(super) violation: Option<Violation>,
    /// Sectors per block of its unit.
    grain: usize,
    next_at: Instant,
    /// The result of the last flush that was sent alone, if it has completed.
    flushed: Option<bool>,
    /// The last read of the liveness phase failed and must be repeated.
    looked_failed: bool,
    port: Port,
    /// Whether it is registered, as far as it knows.
    pub(super) is_member: bool,
}

/// A command. Commands that change something also have a number of the fence, which records when they began.
#[derive(Debug)]
enum Command {
    Read { id: u64, data: Vec<u8>, came: usize },
    Write { id: u64, fence: u64 },
    Flush { id: u64, fence: u64 },
    Register { fence: u64 },
    Reserve { fence: u64 },
}

impl Command {
    /// Whether it reserves or preempts. If it is refused, that shows nothing about this port's registration.
    fn reserves(&self) -> bool {
        matches!(self, Self::Reserve { .. })
    }
}

impl Worker {
    pub(super) fn new(initiator: AnyInitiator, depth: u32, connection: HostConnection, port: Port) -> Self {
        Self {
            initiator,
            connection,
            tags: (0..depth).map(|_| None).collect(),
            is_ready: false,
            closed: false,
            told: false,
            violation: None,
            grain: 1,
            next_at: Instant(0),
            flushed: None,
            looked_failed: false,
            port,
            is_member: false,
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.tags.iter().flatten().count()
    }

    fn free_tag(&mut self) -> Option<usize> {
        self.tags.iter().position(Option::is_none).filter(|_| self.initiator.get().credits() > 0)
    }

    /// Registers with its client's key, while no other command is under way.
    pub(super) fn register(&mut self, now: Instant, board: &SharedBoard) {
        if self.under_way() == 0
            && let Some(tag) = self.free_tag()
        {
            let board = &mut *board.borrow_mut();
            let fence = board.fence.begin_register(self.port);
            board.register.host_is_back(self.port.0);
            let io = Io::Reserve(Reserve::Register { key: key_of(self.port.0) });
            self.submit(now, tag, Command::Register { fence }, io, board);
        }
    }

    /// Reserves the unit, or preempts another host.
    pub(super) fn reserve(&mut self, now: Instant, other: Option<usize>, board: &SharedBoard) {
        let Some(tag) = self.free_tag() else { return };
        let board = &mut *board.borrow_mut();
        let key = key_of(self.port.0);
        let (fence, io) = match other {
            None => (board.fence.begin_hold(), Io::Reserve(Reserve::Hold { key })),
            Some(other) => {
                let io = Io::Reserve(Reserve::PreemptAndAbort { key, victim: key_of(other) });
                let io = if board.forgets_preemptions { Io::Flush } else { io };
                (board.fence.begin_preempt(other), io)
            }
        };
        self.submit(now, tag, Command::Reserve { fence }, io, board);
    }

    pub(super) fn credits(&mut self) -> usize {
        self.initiator.get().credits()
    }

    pub(super) fn transmit(&mut self) -> &mut Transmit {
        self.initiator.get().transmit()
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.initiator.get().close(now);
    }

    /// `works`: whether it may begin I/O of its own.
    pub(super) fn next_due(&self, works: bool) -> Option<Instant> {
        let own = (works && self.tags.iter().any(Option::is_none)).then_some(self.next_at);
        self.initiator.poll_timeout().into_iter().chain(own).min()
    }

    // --------------------------------------------------------------------------------------------------------- actions

    /// Starts the next random I/O when its time has come.
    pub(super) fn do_anything(
        &mut self,
        now: Instant,
        random: &mut SeededRng,
        board: &SharedBoard,
        pause: Duration,
        has_zeroes: bool,
    ) {
        if now < self.next_at || self.initiator.get().credits() == 0 {
            return;
        }
        let Some(tag) = self.tags.iter().position(Option::is_none) else { return };
        self.next_at = now + Duration::from_nanos(random.below(pause.as_nanos() as u64) + 1);
        let mut board = board.borrow_mut();
        let (sectors, grain) = (board.register.sectors(), self.grain);
        let count = (random.below(SECTORS_MAX) as usize + 1).next_multiple_of(grain);
        let first = random.below((sectors - count) as u64 + 1) as usize / grain * grain;
        let what = random.below(100);
        let own = matches!(self.initiator, AnyInitiator::Iscsi(_)).then_some(self.connection.0);
        let (command, io) = if what < 10 {
            flush(&mut board)
        } else if what < 60 && !board.register.is_busy(first, count, own) {
            let zeros = has_zeroes && what < 16;
            let id = board.register.begin_write(first, count, zeros);
            let offset = (first * SECTOR) as u64;
            let io = if zeros {
                Io::WriteZeroes { offset, len: (count * SECTOR) as u32 }
            } else {
                let mut data = vec![0; count * SECTOR];
                for (index, sector) in (first..).zip(data.chunks_mut(SECTOR)) {
                    content(id, index, sector);
                }
                Io::Write { offset, data: Payload::from_vec(data), durable: false }
            };
            (Command::Write { id, fence: board.fence.now() }, io)
        } else {
            read(&mut board, first, count)
        };
        self.submit(now, tag, command, io, &mut board);
    }

    /// Flushes while no other command is under way. Returns the result once there is one.
    pub(super) fn flush_alone(&mut self, now: Instant, board: &SharedBoard) -> Option<bool> {
        if let Some(flushed) = self.flushed.take() {
            return Some(flushed);
        }
        if self.under_way() == 0 && self.initiator.get().credits() > 0 {
            let board = &mut *board.borrow_mut();
            let (command, io) = flush(board);
            self.submit(now, 0, command, io, board);
        }
        None
    }

    /// Continues reading the volume. Returns true if everything was read and no command is under way.
    pub(super) fn look(&mut self, now: Instant, board: &SharedBoard, looked: &mut usize) -> bool {
        if self.under_way() > 0 || self.initiator.get().credits() == 0 {
            return false;
        }
        let board = &mut *board.borrow_mut();
        if std::mem::take(&mut self.looked_failed) {
            *looked = looked.saturating_sub(LOOK_SECTORS);
        }
        let count = LOOK_SECTORS.min(board.register.sectors() - *looked);
        if count == 0 {
            return true;
        }
        let (command, io) = read(board, *looked, count);
        *looked += count;
        self.submit(now, 0, command, io, board);
        false
    }

    fn submit(&mut self, now: Instant, tag: usize, command: Command, io: Io, board: &mut Board) {
        board.counts.submitted += 1;
        self.tags[tag] = Some(command);
        if let Err(misuse) = self.initiator.get().submit(now, tag as Tag, io) {
            board.find(format!("an I/O that may be submitted is refused: {misuse}"));
        }
    }

    // ---------------------------------------------------------------------------------------------------------- events

    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8], board: &SharedBoard) {
        self.with(board, |initiator, events| initiator.get().receive(now, bytes, events));
    }

    pub(super) fn timer(&mut self, now: Instant, board: &SharedBoard) {
        if self.initiator.poll_timeout().is_some_and(|at| at <= now) {
            self.with(board, |initiator, events| initiator.get().handle_timeout(now, events));
        }
    }

    pub(super) fn disconnected(&mut self, now: Instant, board: &SharedBoard) {
        self.with(board, |initiator, events| {
            initiator.get().disconnected(now, events);
            Ok(())
        });
        let left = self.under_way();
        if left > 0 {
            board.borrow_mut().find(format!("{left} commands were not given back with their connection"));
        }
    }

    fn with(
        &mut self,
        board: &SharedBoard,
        use_it: impl FnOnce(&mut AnyInitiator, &mut dyn InitiatorEvents) -> Result<(), Violation>,
    ) {
        let mut events = Events {
            connection: self.connection,
            port: self.port,
            is_member: &mut self.is_member,
            tags: &mut self.tags,
            is_ready: &mut self.is_ready,
            closed: &mut self.closed,
            grain: &mut self.grain,
            flushed: &mut self.flushed,
            looked_failed: &mut self.looked_failed,
            board: &mut board.borrow_mut(),
        };
        if let Err(violation) = use_it(&mut self.initiator, &mut events) {
            self.violation.get_or_insert(violation);
        }
    }
}

fn key_of(host: usize) -> u64 {
    host as u64 + 1
}

fn flush(board: &mut Board) -> (Command, Io) {
    (Command::Flush { id: board.register.begin_flush(), fence: board.fence.now() }, Io::Flush)
}

fn read(board: &mut Board, first: usize, count: usize) -> (Command, Io) {
    let id = board.register.begin_read(first, count);
    let len = count * SECTOR;
    let io = Io::Read { offset: (first * SECTOR) as u64, len: len as u32 };
    (Command::Read { id, data: vec![0; len], came: 0 }, io)
}

struct Events<'a> {
    connection: HostConnection,
    port: Port,
    is_member: &'a mut bool,
    tags: &'a mut [Option<Command>],
    is_ready: &'a mut bool,
    closed: &'a mut bool,
    grain: &'a mut usize,
    flushed: &'a mut Option<bool>,
    looked_failed: &'a mut bool,
    board: &'a mut Board,
}

impl InitiatorEvents for Events<'_> {
    fn ready(&mut self, _: Instant, geometry: &Geometry) {
        let expected = (self.board.register.sectors() * SECTOR) as u64;
        if geometry.size_bytes != expected {
            self.board.find(format!("the unit has {} bytes and not {expected}", geometry.size_bytes));
        }
        *self.is_ready = true;
        *self.grain = (geometry.block_size as usize / SECTOR).max(1);
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        let offset = offset as usize;
        match self.tags.get_mut(tag as usize) {
            Some(Some(Command::Read { data, came, .. })) if offset + bytes.len() <= data.len() => {
                data[offset..offset + bytes.len()].copy_from_slice(bytes);
                *came += bytes.len();
            }
            other => self.board.findings.push(format!("{} bytes at {offset} came for {other:?}", bytes.len())),
        }
    }

    fn complete(&mut self, _: Instant, tag: Tag, result: Result<(), IoError>) {
        let Some(command) = self.tags.get_mut(tag as usize).and_then(Option::take) else {
            return self.board.find(format!("tag {tag} ended and had not begun: {result:?}"));
        };
        let counts = &mut self.board.counts;
        let conflicts = matches!(result, Err(IoError::Failed { refusal: Refusal::InUse, .. }));
        match &result {
            Ok(()) => counts.done += 1,
            Err(IoError::ConnectionLost) => counts.lost += 1,
            Err(_) if conflicts => counts.fenced += 1,
            Err(IoError::Aborted) if self.board.fence.preemptions > 0 => counts.fenced += 1,
            // It waited too long for the commands that it aborts, because the disk was slow.
            Err(IoError::Failed { status: INTERNAL_TARGET_FAILURE | INTERNAL_ERROR, .. }) if command.reserves() => {
                counts.fenced += 1;
            }
            Err(_) => counts.failed += 1,
        }
        if conflicts {
            if !command.reserves() {
                *self.is_member = false;
            }
            if matches!(command, Command::Read { .. } | Command::Register { .. }) {
                self.board.find(format!("{:?} was refused what a reservation against writes leaves free", self.port));
            }
        }
        if let Command::Write { fence, .. } | Command::Flush { fence, .. } = &command {
            let checked = match &result {
                Ok(()) => self.board.fence.check_done(self.port, *fence),
                Err(_) if conflicts => self.board.fence.check_refused(self.port, *fence),
                Err(_) => Ok(()),
            };
            if let Err(wrong) = checked {
                self.board.find(wrong);
            }
        }
        let register = &mut self.board.register;
        match (command, &result) {
            (Command::Read { id, data, came }, Ok(())) => {
                if came != data.len() {
                    let what = format!("a read of {} bytes ended with {came} bytes of data", data.len());
                    self.board.findings.push(what);
                } else if let Err(wrong) = register.read_done(id, &data) {
                    self.board.find(wrong.0);
                }
            }
            (Command::Read { id, .. }, Err(_)) => {
                register.read_failed(id);
                *self.looked_failed = true;
            }
            (Command::Write { id, .. }, Ok(())) => register.write_done(id),
            (Command::Write { id, .. }, Err(IoError::ConnectionLost)) => register.write_lost(id, self.connection),
            (Command::Write { id, .. }, Err(_)) => register.write_failed(id),
            (Command::Register { fence }, Ok(())) => {
                self.board.fence.done(fence);
                *self.is_member = true;
            }
            (Command::Reserve { fence }, Ok(())) => {
                if let Some(fenced) = self.board.fence.done(fence) {
                    self.board.counts.preempted += 1;
                    if self.board.registers_hosts {
                        register.host_is_fenced(fenced);
                    } else {
                        register.host_is_new(fenced);
                    }
                }
            }
            (Command::Register { fence } | Command::Reserve { fence }, Err(IoError::ConnectionLost)) => {
                self.board.fence.lost(fence, self.connection);
            }
            (Command::Register { fence } | Command::Reserve { fence }, Err(_)) => self.board.fence.failed(fence),
            (Command::Flush { id, .. }, result) => {
                if result.is_ok() {
                    register.flush_done(id);
                } else {
                    register.flush_failed(id);
                }
                *self.flushed = Some(result.is_ok());
            }
        }
    }

    fn closed(&mut self, _: Instant) {
        *self.closed = true;
    }
}
