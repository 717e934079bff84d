//! READ, WRITE and COMMIT: the path of an I/O. Nothing here allocates, locks or searches in the steady state.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use slab::Slab;

use super::{
    CHECKED, Connection, MAX_CONTROL_LEN,
    work::{Place, Reached, Step, Work, with_shared},
};
use crate::{
    Instant, IoId, Started, UnitError, UnitOp, Violation,
    nfs::{
        NfsBackend,
        common::{FileType, OpenFile, Stability},
        file_server::{Rest, WriteUnderway},
        v41::{
            MAX_IO_BYTES,
            codec::{OpCode, StateId, Status},
            operations::{ReadArguments, WriteHead},
            sessions::Session,
            state::FileKey,
        },
    },
    rpc::{Encoder, xdr::padding},
    wire::{Payload, Reader, Transmit},
};

/// Bytes that the result of a READ needs around its data: status, eof, length, padding.
const READ_RESULT_LEN: usize = 20;

/// The state of a WRITE after its start.
enum Begun {
    NeedsData(IoId),
    Step(Step),
}

/// The COMPOUND of a WRITE whose data are arriving.
#[derive(Debug)]
pub(in crate::nfs) struct Interrupted {
    work: Box<Work>,
    /// Bytes of padding received.
    padded: usize,
}

impl Interrupted {
    /// Keeps the operations after the `len` bytes of data until the WRITE has ended. Drops the padding before them.
    pub(super) fn hold(&mut self, len: u32, after: &[u8]) -> Result<(), Violation> {
        let pad = after.len().min(padding(len as usize) - self.padded);
        self.padded += pad;
        let operations = &after[pad..];
        if self.work.rest.len() + operations.len() > MAX_CONTROL_LEN as usize {
            return Err(misbehaved!("RFC 8881 §16.2: more behind the data of a WRITE than any operations"));
        }
        self.work.rest.extend_from_slice(operations);
        Ok(())
    }
}

/// A stateid that has been checked for a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckedState {
    client: u64,
    state: StateId,
    file: Option<FileKey>,
    writes: bool,
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Read { len: u32, eof: bool },
    Write { len: u32, stability: Stability },
    Commit,
    Allocate,
    Deallocate,
}

impl Kind {
    #[inline]
    pub(super) fn code(self) -> OpCode {
        match self {
            Self::Read { .. } => OpCode::Read,
            Self::Write { .. } => OpCode::Write,
            Self::Commit => OpCode::Commit,
            Self::Allocate => OpCode::Allocate,
            Self::Deallocate => OpCode::Deallocate,
        }
    }

    /// Length of the data in bytes.
    #[inline]
    pub(super) fn len(self) -> u32 {
        match self {
            Self::Read { len, .. } | Self::Write { len, .. } => len,
            Self::Commit | Self::Allocate | Self::Deallocate => 0,
        }
    }
}

impl Connection {
    #[inline]
    pub(super) fn read<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        reader: &mut Reader<'_>,
        backend: &mut B,
    ) -> Result<Step, Status> {
        let asked = ReadArguments::decode(reader)?;
        let open = self.open_for_io(work, &asked.state, false, backend)?;
        let (kind, operation) = read_range(&asked, open.attributes.size, work.room());
        if kind.len() == 0 {
            return io_done(work, kind, Ok(None), backend).map(|()| Step::Done);
        }
        if open.is_ordinary {
            self.rpc.transmit.charge(Transmit::REQUEST + kind.len() as usize);
        }
        let id = self.ios.begin(kind)?;
        match backend.start(now, id, open.unit, operation) {
            Started::Done(result) => {
                self.ios.end(id);
                io_done(work, kind, result, backend).map(|()| Step::Done)
            }
            Started::Queued => Ok(Step::Queued(id)),
            Started::NeedData => unreachable!("a read takes no data"),
        }
    }

    /// Executes a WRITE whose data are complete.
    #[inline]
    pub(super) fn write<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        reader: &mut Reader<'_>,
        backend: &mut B,
    ) -> Result<Step, Status> {
        let head = WriteHead::decode(reader)?;
        let data = reader.take(head.len as usize).map_err(|_| Status::BadXdr)?;
        reader.skip(padding(data.len())).map_err(|_| Status::BadXdr)?;
        match self.start_write(now, work, &head, backend)? {
            Begun::NeedsData(id) => {
                backend.place(id, 0, data);
                let finished = backend.finish(now, id);
                self.write_finished(id, work, finished, backend)
            }
            Begun::Step(step) => Ok(step),
        }
    }

    /// Starts the WRITE of a COMPOUND whose earlier operations have been executed and whose data are still arriving.
    /// `Err` if the data must be dropped: it contains the COMPOUND if that must be answered now, or `None` if it waits
    /// for the backend.
    pub(super) fn begin_write<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        mut work: Box<Work>,
        head: &WriteHead,
        backend: &mut B,
    ) -> Result<WriteUnderway<Interrupted>, Option<Box<Work>>> {
        work.begin_write_result();
        match self.start_write(now, &mut work, head, backend) {
            Ok(Begun::NeedsData(id)) => {
                work.receives();
                Ok(WriteUnderway::new(id, head.len, Interrupted { work, padded: 0 }))
            }
            // The backend takes no data, so the WRITE fails, and the operations after it are not executed.
            Ok(Begun::Step(Step::Queued(id))) => {
                self.ios.park(id, work);
                Err(None)
            }
            Ok(Begun::Step(Step::Done)) => {
                work.fail(Status::ServerFault);
                Err(Some(work))
            }
            Err(status) => {
                work.fail(status);
                Err(Some(work))
            }
        }
    }

    /// Starts a WRITE. A WRITE without data is completed at once.
    #[inline]
    fn start_write<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        head: &WriteHead,
        backend: &mut B,
    ) -> Result<Begun, Status> {
        let (kind, operation) = write_range(head)?;
        let open = self.open_for_io(work, &head.state, true, backend)?;
        if kind.len() == 0 {
            return io_done(work, kind, Ok(None), backend).map(|()| Begun::Step(Step::Done));
        }
        let id = self.ios.begin(kind)?;
        match backend.start(now, id, open.unit, operation) {
            Started::NeedData => Ok(Begun::NeedsData(id)),
            started => self.write_finished(id, work, started, backend).map(Begun::Step),
        }
    }

    #[inline]
    pub(super) fn write_finished<B: NfsBackend + ?Sized>(
        &mut self,
        id: IoId,
        work: &mut Work,
        finished: Started,
        backend: &mut B,
    ) -> Result<Step, Status> {
        match finished {
            Started::Done(result) => {
                let kind = self.ios.end(id);
                io_done(work, kind, result, backend).map(|()| Step::Done)
            }
            Started::Queued => Ok(Step::Queued(id)),
            Started::NeedData => unreachable!("all data were placed"),
        }
    }

    /// Executes a WRITE at the end of its record.
    pub(super) fn finish_write<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        write: WriteUnderway<Interrupted>,
        backend: &mut B,
    ) {
        let is_incomplete = write.left() > 0 || write.call.padded < padding(write.len() as usize);
        let WriteUnderway { id, call: Interrupted { mut work, .. }, .. } = write;
        let refused = if is_incomplete { Err(Status::BadXdr) } else { work.has_received() };
        let outcome = if let Err(status) = refused {
            self.ios.end(id);
            backend.abort(id, None);
            Err(status)
        } else {
            let finished = backend.finish(now, id);
            match self.write_finished(id, &mut work, finished, backend) {
                Ok(Step::Queued(id)) => return self.ios.park(id, work),
                Ok(Step::Done) => Ok(()),
                Err(status) => Err(status),
            }
        };
        self.go_on(now, work, outcome, backend);
    }

    pub(super) fn commit<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        offset: u64,
        count: u32,
        backend: &mut B,
    ) -> Result<Step, Status> {
        if offset.checked_add(count.into()).is_none() {
            return Err(Status::Invalid);
        }
        let reached = work.file()?;
        let open = open(&reached, true, backend)?;
        let id = self.ios.begin(Kind::Commit)?;
        let started = backend.start(now, id, open.unit, UnitOp::Flush);
        self.write_finished(id, work, started, backend)
    }

    /// Continues a COMPOUND whose operation the backend has completed.
    pub(super) fn continue_work<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        id: IoId,
        result: Result<Option<Payload>, UnitError>,
        backend: &mut B,
    ) {
        let Outstanding { kind, work } = self.ios.slots.remove(id as usize);
        let mut work = work.expect("a COMPOUND waits for what was queued");
        let outcome = io_done(&mut work, kind, result, backend);
        self.go_on(now, work, outcome, backend);
    }

    /// Ends all waiting COMPOUNDs because the connection is lost.
    pub(super) fn give_up_all<B: NfsBackend + ?Sized>(&mut self, backend: &mut B) {
        if let Rest::WriteData(write) = core::mem::replace(&mut self.receiving.rest, Rest::Skip) {
            self.ios.end(write.id);
            backend.abort(write.id, None);
            self.give_up(write.call.work, backend);
        }
        for (id, Outstanding { work, .. }) in core::mem::take(&mut self.ios.slots) {
            let ending = work.as_ref().and_then(|work| work.session()).map(|session| session.ending());
            backend.abort(id as IoId, ending);
            if let Some(work) = work {
                self.give_up(work, backend);
            }
        }
    }

    /// Opens the file of an I/O, if the stateid allows the I/O.
    #[inline]
    pub(super) fn open_for_io<B: NfsBackend + ?Sized>(
        &mut self,
        work: &Work,
        state: &StateId,
        writes: bool,
        backend: &mut B,
    ) -> Result<OpenFile, Status> {
        let Some(Place::File(reached)) = &work.current else {
            return work.file().and(Err(Status::IsDirectory));
        };
        self.check_state(work, state, (reached.export, reached.file), writes, backend)?;
        open(reached, writes, backend)
    }

    /// Checks whether a stateid allows an I/O on a file. The result is cached until any open or lock changes.
    #[inline]
    pub(super) fn check_state<B: NfsBackend + ?Sized>(
        &mut self,
        work: &Work,
        state: &StateId,
        file: FileKey,
        writes: bool,
        backend: &mut B,
    ) -> Result<(), Status> {
        let session = work.session().ok_or(Status::OperationNotInSession)?;
        if is_checked(&self.checked, session, state, file, writes) {
            return Ok(());
        }
        // Read the epoch first, so that a change during the check is noticed.
        let (client, epoch) = (session.client, session.epoch.load(Relaxed));
        let named = work.named_state(state)?;
        with_shared(backend, |shared| shared.opens.check_io(client, file, &named, writes))?;
        self.checked[place_of(state)] = CheckedState { client, state: *state, file: Some(file), writes, epoch };
        Ok(())
    }
}

/// The position of a stateid in the cache of checks.
#[inline]
fn place_of(state: &StateId) -> usize {
    usize::from(state.other[11]) % CHECKED
}

/// Whether the cache shows that the stateid allows such an I/O, and no open or lock has changed since.
#[inline]
pub(super) fn is_checked(
    checked: &[CheckedState; CHECKED],
    session: &Session,
    state: &StateId,
    file: FileKey,
    writes: bool,
) -> bool {
    let kept = &checked[place_of(state)];
    kept.state == *state
        && kept.file == Some(file)
        && (kept.client, kept.epoch) == (session.client, session.epoch.load(Relaxed))
        && (kept.writes || !writes)
        && *state != StateId::CURRENT
}

#[inline]
pub(super) fn open<B: NfsBackend + ?Sized>(
    reached: &Reached,
    writes: bool,
    backend: &mut B,
) -> Result<OpenFile, Status> {
    if writes && reached.access.read_only {
        return Err(Status::ReadOnly);
    }
    let open = backend.open(reached.export, reached.file, &reached.who, writes)?;
    match open.attributes.kind {
        FileType::Regular => Ok(open),
        FileType::Directory => Err(Status::IsDirectory),
        FileType::Symlink => Err(Status::Symlink),
        _ => Err(Status::WrongType),
    }
}

/// The range of a READ from a file of `size` bytes, with at most `room` bytes for its result.
#[inline]
pub(super) fn read_range(asked: &ReadArguments, size: u64, room: usize) -> (Kind, UnitOp) {
    let left = size.saturating_sub(asked.offset);
    let room = room.saturating_sub(READ_RESULT_LEN) as u64;
    let len = u64::from(asked.count.min(MAX_IO_BYTES)).min(left).min(room) as u32;
    let kind = Kind::Read { len, eof: u64::from(len) == left };
    (kind, UnitOp::Read { offset: asked.offset, len, durable: false })
}

#[inline]
pub(super) fn write_range(asked: &WriteHead) -> Result<(Kind, UnitOp), Status> {
    let WriteHead { offset, stability, len, .. } = *asked;
    if len > MAX_IO_BYTES || offset.checked_add(len.into()).is_none() {
        return Err(Status::Invalid);
    }
    Ok((Kind::Write { len, stability }, UnitOp::Write { offset, len, durable: stability != Stability::Unstable }))
}

fn io_done<B: NfsBackend + ?Sized>(
    work: &mut Work,
    kind: Kind,
    result: Result<Option<Payload>, UnitError>,
    backend: &B,
) -> Result<(), Status> {
    let data = result.map_err(status_of)?;
    if let Some(data) = put_result(&mut work.reply, kind, data, backend) {
        work.splice(data);
    }
    Ok(())
}

/// Encodes the result of an I/O. The data of a READ must follow.
#[inline]
pub(super) fn put_result<B: NfsBackend + ?Sized>(
    reply: &mut Encoder,
    kind: Kind,
    data: Option<Payload>,
    backend: &B,
) -> Option<Payload> {
    match kind {
        Kind::Read { len, eof } => {
            // The file may have been truncated since its size was read.
            let got = data.as_ref().map_or(0, Payload::len);
            let data = data.map(|data| if got > len as usize { data.slice(0, len as usize) } else { data });
            reply.boolean(eof || got < len as usize).u32(len.min(got as u32));
            data
        }
        Kind::Write { len, stability } => {
            // The backend distinguishes only durable or not. Durable data come with durable attributes.
            let committed = if stability == Stability::Unstable { stability } else { Stability::FileSync };
            reply.u32(len).u32(committed as u32).raw(&backend.write_verifier());
            None
        }
        Kind::Commit => {
            reply.raw(&backend.write_verifier());
            None
        }
        Kind::Allocate | Kind::Deallocate => None,
    }
}

/// Outstanding operations of the backend, by their `IoId`, and the COMPOUNDs that wait for them.
#[derive(Debug)]
pub(super) struct IoTable {
    slots: Slab<Outstanding>,
    max: u32,
}

#[derive(Debug)]
struct Outstanding {
    kind: Kind,
    work: Option<Box<Work>>,
}

impl IoTable {
    pub(super) fn new(max: u32) -> Self {
        Self { slots: Slab::new(), max }
    }

    pub(super) fn begin(&mut self, kind: Kind) -> Result<IoId, Status> {
        if self.slots.len() >= self.max as usize {
            return Err(Status::Delay);
        }
        Ok(self.slots.insert(Outstanding { kind, work: None }) as IoId)
    }

    pub(super) fn end(&mut self, id: IoId) -> Kind {
        self.slots.remove(id as usize).kind
    }

    /// Lets a COMPOUND wait for an operation.
    pub(super) fn park(&mut self, id: IoId, work: Box<Work>) {
        self.slots[id as usize].work = Some(work);
    }
}

pub(super) fn status_of(error: UnitError) -> Status {
    match error {
        UnitError::NoUnit => Status::Stale,
        UnitError::OutOfRange => Status::FileTooBig,
        UnitError::ReadOnly => Status::ReadOnly,
        UnitError::NoSpace => Status::NoSpace,
        UnitError::Busy => Status::Delay,
        UnitError::Miscompare(_) | UnitError::Medium | UnitError::Aborted => Status::Io,
    }
}
