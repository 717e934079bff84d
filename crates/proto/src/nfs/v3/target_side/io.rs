//! READ, WRITE and COMMIT: the path of an I/O. Nothing here allocates, locks or searches in the steady state.

use slab::Slab;

use super::{Connection, Reached};
use crate::{
    Instant, IoId, Started, UnitError, UnitOp,
    nfs::{
        NfsBackend,
        common::{Attributes, ExportId, FileHandle, FileId, FileType, OpenFile, Stability},
        file_server::WriteUnderway,
        v3::{
            MAX_IO_BYTES, Procedure,
            arguments::{FileRange, WriteHead},
            results::{PreOp, Results, Wcc},
            types::Status,
        },
    },
    rpc::{Credentials, RpcError, Xid, message::encode_success, xdr::padding},
    wire::{Payload, Transmit},
};

/// The data of a call that its reply needs.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    xid: Xid,
    export: ExportId,
    file: FileId,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read { len: u32, eof: bool },
    Write { before: PreOp, len: u32, stability: Stability },
    Commit { before: PreOp },
}

impl Connection {
    pub(super) fn read<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        xid: Xid,
        who: &Credentials,
        range: &FileRange,
        backend: &mut B,
    ) {
        let FileRange { ref file, offset, count } = *range;
        let (reached, open) = match self.open(file, who, false, backend) {
            Ok(found) => found,
            Err(status) => return self.reply_failure(xid, Procedure::Read, status),
        };
        let left = open.attributes.size.saturating_sub(offset);
        let len = u64::from(count.min(MAX_IO_BYTES)).min(left) as u32;
        let eof = u64::from(len) == left;
        if len == 0 {
            return self.reply_read(xid, Some(open.attributes), eof, None);
        }
        let Some(id) = self.ios.begin(xid, &reached, Kind::Read { len, eof }) else {
            return self.reply_failure(xid, Procedure::Read, Status::Jukebox);
        };
        if open.is_ordinary {
            self.rpc.transmit.charge(Transmit::REQUEST + len as usize);
        }
        match backend.start(now, id, open.unit, UnitOp::Read { offset, len, durable: false }) {
            Started::Done(result) => {
                self.ios.end(id);
                self.read_done(xid, len, eof, Some(open.attributes), result);
            }
            Started::Queued => {}
            Started::NeedData => unreachable!("a read takes no data"),
        }
    }

    /// Starts a WRITE; `None` if it has been answered and its data must be dropped.
    pub(super) fn begin_write<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        xid: Xid,
        who: &Credentials,
        head: &WriteHead,
        backend: &mut B,
    ) -> Option<WriteUnderway<Xid>> {
        let WriteHead { ref file, offset, count, stability, data_len } = *head;
        let opened = if count == data_len && count <= MAX_IO_BYTES && offset.checked_add(count.into()).is_some() {
            self.open(file, who, true, backend)
        } else {
            Err(Status::Invalid) // RFC 1813 §3.3.7: count and the data's length differ.
        };
        let (reached, open) = match opened {
            Ok(found) => found,
            Err(status) => {
                self.reply_failure(xid, Procedure::Write, status);
                return None;
            }
        };
        let before = PreOp::from(&open.attributes);
        let kind = Kind::Write { before, len: count, stability };
        if count == 0 {
            self.reply_write(xid, Wcc { before: Some(before), after: Some(open.attributes) }, 0, stability, backend);
            return None;
        }
        let Some(id) = self.ios.begin(xid, &reached, kind) else {
            self.reply_failure(xid, Procedure::Write, Status::Jukebox);
            return None;
        };
        let durable = stability != Stability::Unstable;
        match backend.start(now, id, open.unit, UnitOp::Write { offset, len: count, durable }) {
            Started::NeedData => return Some(WriteUnderway::new(id, count, xid)),
            Started::Done(result) => self.answer_io(id, result, backend),
            Started::Queued => {}
        }
        None
    }

    /// Executes a WRITE at the end of its record.
    pub(super) fn finish_write<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        write: &WriteUnderway<Xid>,
        backend: &mut B,
    ) {
        let id = write.id;
        if write.left() > 0 {
            self.ios.end(id);
            backend.abort(id, None);
            return self.rpc.reply_error(write.call, RpcError::GarbageArguments);
        }
        match backend.finish(now, id) {
            Started::Done(result) => self.answer_io(id, result, backend),
            Started::Queued => {}
            Started::NeedData => unreachable!("all data were placed"),
        }
    }

    pub(super) fn commit<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        xid: Xid,
        who: &Credentials,
        range: &FileRange,
        backend: &mut B,
    ) {
        let (reached, open) = match self.open(&range.file, who, true, backend) {
            Ok(found) => found,
            Err(status) => return self.reply_failure(xid, Procedure::Commit, status),
        };
        let before = PreOp::from(&open.attributes);
        let Some(id) = self.ios.begin(xid, &reached, Kind::Commit { before }) else {
            return self.reply_failure(xid, Procedure::Commit, Status::Jukebox);
        };
        match backend.start(now, id, open.unit, UnitOp::Flush) {
            Started::Done(result) => self.answer_io(id, result, backend),
            Started::Queued => {}
            Started::NeedData => unreachable!("a flush takes no data"),
        }
    }

    /// Answers a call whose operation the backend has completed.
    pub(super) fn answer_io<B: NfsBackend + ?Sized>(
        &mut self,
        id: IoId,
        result: Result<Option<Payload>, UnitError>,
        backend: &mut B,
    ) {
        let Outstanding { xid, export, file, kind } = self.ios.end(id).expect("the backend has such an operation");
        let attributes = backend.attributes(export, file);
        match (kind, result) {
            (Kind::Read { len, eof }, result) => self.read_done(xid, len, eof, attributes, result),
            (Kind::Write { before, len, stability }, Ok(_)) => {
                let file = Wcc { before: Some(before), after: attributes };
                self.reply_write(xid, file, len, stability, backend);
            }
            (Kind::Commit { before }, Ok(_)) => {
                let file = Wcc { before: Some(before), after: attributes };
                let verifier = backend.write_verifier();
                encode_success(self.rpc.reply.begin_record(), xid);
                Results::Commit { file, verifier }.encode(&mut self.rpc.reply);
                self.rpc.send_reply();
            }
            (Kind::Write { .. }, Err(error)) => self.reply_failure(xid, Procedure::Write, status_of(error)),
            (Kind::Commit { .. }, Err(error)) => self.reply_failure(xid, Procedure::Commit, status_of(error)),
        }
    }

    fn open<B: NfsBackend + ?Sized>(
        &mut self,
        handle: &FileHandle,
        who: &Credentials,
        write: bool,
        backend: &mut B,
    ) -> Result<(Reached, OpenFile), Status> {
        let reached = self.reach(handle, who, backend)?;
        if write && reached.access.read_only {
            return Err(Status::ReadOnly);
        }
        let open = backend.open(reached.export, reached.file, &reached.who, write)?;
        match open.attributes.kind {
            FileType::Regular => Ok((reached, open)),
            FileType::Directory => Err(Status::IsDirectory),
            _ => Err(Status::Invalid),
        }
    }

    fn read_done(
        &mut self,
        xid: Xid,
        len: u32,
        eof: bool,
        attributes: Option<Attributes>,
        result: Result<Option<Payload>, UnitError>,
    ) {
        match result {
            Ok(data) => {
                // The file may have been truncated since its size was read.
                let got = data.as_ref().map_or(0, Payload::len);
                let data = data.map(|data| if got > len as usize { data.slice(0, len as usize) } else { data });
                self.reply_read(xid, attributes, eof || got < len as usize, data);
            }
            Err(error) => self.reply_failure(xid, Procedure::Read, status_of(error)),
        }
    }

    fn reply_read(&mut self, xid: Xid, attributes: Option<Attributes>, eof: bool, data: Option<Payload>) {
        let len = data.as_ref().map_or(0, Payload::len);
        let count = len as u32;
        encode_success(self.rpc.reply.begin_record(), xid);
        Results::Read { attributes, count, eof, data_len: count }.encode(&mut self.rpc.reply);
        self.rpc.transmit.put(self.rpc.reply.end_record(len + padding(len)));
        if let Some(data) = data {
            self.rpc.transmit.payload(data);
            self.rpc.transmit.zeros(padding(len));
        }
    }

    fn reply_write<B: NfsBackend + ?Sized>(
        &mut self,
        xid: Xid,
        file: Wcc,
        count: u32,
        stability: Stability,
        backend: &B,
    ) {
        // The backend distinguishes only durable or not. Durable data come with durable attributes.
        let committed = if stability == Stability::Unstable { stability } else { Stability::FileSync };
        encode_success(self.rpc.reply.begin_record(), xid);
        Results::Write { file, count, committed, verifier: backend.write_verifier() }.encode(&mut self.rpc.reply);
        self.rpc.send_reply();
    }
}

/// Outstanding operations of the backend, by their `IoId`.
#[derive(Debug)]
pub(super) struct IoTable {
    slots: Slab<Outstanding>,
    max: u32,
}

impl IoTable {
    pub(super) fn new(max: u32) -> Self {
        Self { slots: Slab::new(), max }
    }

    fn begin(&mut self, xid: Xid, reached: &Reached, kind: Kind) -> Option<IoId> {
        let outstanding = Outstanding { xid, export: reached.export, file: reached.file, kind };
        (self.slots.len() < self.max as usize).then(|| self.slots.insert(outstanding) as IoId)
    }

    fn end(&mut self, id: IoId) -> Option<Outstanding> {
        self.slots.try_remove(id as usize)
    }

    pub(super) fn abort_all<B: NfsBackend + ?Sized>(&mut self, backend: &mut B) {
        self.slots.iter().for_each(|(id, _)| backend.abort(id as IoId, None));
        self.slots.clear();
    }
}

fn status_of(error: UnitError) -> Status {
    match error {
        UnitError::NoUnit => Status::Stale,
        UnitError::OutOfRange => Status::FileTooBig,
        UnitError::ReadOnly => Status::ReadOnly,
        UnitError::NoSpace => Status::NoSpace,
        UnitError::Busy => Status::Jukebox,
        UnitError::Miscompare(_) | UnitError::Medium | UnitError::Aborted => Status::Io,
    }
}
