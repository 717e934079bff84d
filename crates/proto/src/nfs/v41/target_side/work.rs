//! A COMPOUND in progress: its state, its file handles and its reply so far.

use alloc::{sync::Arc, vec::Vec};

use crate::{
    IoId,
    nfs::{
        NfsBackend,
        common::{ExportAccess, ExportId, FileHandle, FileId, Handles},
        v41::{
            codec::{OpCode, StateId, Status},
            fattr::Bitmap,
            operations::SequenceArguments,
            sessions::{CHECKED_LEN, MAX_CACHED_LEN, Session},
            state::Shared,
        },
    },
    rpc::{Credentials, Encoder, Xid, xdr::padding},
    wire::{Payload, Reader, Transmit},
};

/// Position of the status in a reply, after the record's mark and the head of RPC.
pub(super) const STATUS_AT: usize = 28;
/// An upper limit for the result of any operation that changes something. The space is reserved before the operation.
const CHANGE_RESULT_LEN: usize = 256;
/// Maximum length in bytes of a reply whose memory is kept for reuse.
pub(super) const SPARE_LEN: usize = 4096;
/// Number of the directory above all exports.
pub(super) const ROOTS_NUMBER: u64 = 1;
/// The export ID in the handle of the directory above all exports.
pub(super) const NO_EXPORT: ExportId = ExportId::MAX;

/// A COMPOUND in progress. It is taken from the connection's spare ones and returned there.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) xid: Xid,
    pub(super) who: Credentials,
    pub(super) minor: u32,
    pub(super) total: u32,
    /// Number of operations whose results are in the reply.
    pub(super) done: u32,
    pub(super) stop_at: u32,
    pub(super) status: Option<Status>,
    pub(super) reply: Encoder,
    pub(super) count_at: usize,
    /// Position of the current operation's result, and the operation's number.
    pub(super) result_at: usize,
    operation: u32,
    /// Payloads that the reply refers to, and their positions.
    pub(super) splices: Vec<(usize, Payload)>,
    /// Length of these payloads in bytes, with padding.
    pub(super) spliced: usize,
    /// The operations that wait for the current one.
    pub(super) rest: Vec<u8>,
    /// The request, if its reply must be cached: a repeat must be the same.
    pub(super) request: Vec<u8>,
    pub(super) current: Option<Place>,
    pub(super) saved: Option<Place>,
    pub(super) state: StateId,
    pub(super) saved_state: StateId,
    pub(super) slot: Option<Slot>,
    /// The request is a repeat whose reply was not cached, so nothing more is executed.
    pub(super) is_uncached_repeat: bool,
    /// The cached reply has been sent.
    pub(super) is_answered: bool,
}

/// The slot of a request.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) session: Arc<Session>,
    pub(super) number: u32,
    pub(super) seqid: u32,
    pub(super) is_kept: bool,
}

impl Work {
    /// Pauses the COMPOUND after its first `count` operations.
    pub(super) fn pause_after(&mut self, count: u32) {
        self.stop_at = count;
    }

    /// Starts the result of the WRITE before which the COMPOUND was paused.
    pub(super) fn begin_write_result(&mut self) {
        self.begin_result(OpCode::Write as u32);
    }

    /// Ends the current operation with an error.
    pub(super) fn fail(&mut self, status: Status) {
        self.end_result(Err(status));
    }

    /// The current file or directory.
    pub(super) fn place(&self) -> Result<Place, Status> {
        self.current.ok_or(Status::NoFileHandle)
    }

    /// Like `place`, but the file must be in an export.
    pub(super) fn file(&self) -> Result<Reached, Status> {
        match self.place()? {
            Place::File(reached) => Ok(reached),
            Place::Roots => Err(Status::IsDirectory),
        }
    }

    /// Resolves a stateid, which may refer to the current one (RFC 8881 §16.2.3.1.2).
    pub(super) fn named_state(&self, state: &StateId) -> Result<StateId, Status> {
        match state {
            state if *state != StateId::CURRENT => Ok(*state),
            _ if self.state == StateId::ANONYMOUS => Err(Status::BadStateId),
            _ => Ok(self.state),
        }
    }

    /// The client, if the request has a session.
    pub(super) fn client(&self) -> Result<u64, Status> {
        self.slot.as_ref().map(|slot| slot.session.client).ok_or(Status::OperationNotInSession)
    }

    #[inline]
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        self.slot.as_ref().map(|slot| &slot.session)
    }

    /// Notes the request's slot, and encodes the result of SEQUENCE.
    #[inline]
    pub(super) fn take_slot(&mut self, session: Arc<Session>, asked: &SequenceArguments) {
        put_sequence(&mut self.reply, &session, asked);
        self.slot = Some(Slot { session, number: asked.slot, seqid: asked.seqid, is_kept: asked.cache_this });
    }

    /// The data of a WRITE are still arriving.
    pub(super) fn receives(&self) {
        if let Some(slot) = &self.slot {
            slot.session.receives(slot.number, slot.seqid);
        }
    }

    /// The data have arrived. Fails if the session ended meanwhile.
    pub(super) fn has_received(&self) -> Result<(), Status> {
        self.slot.as_ref().map_or(Ok(()), |slot| slot.session.has_received(slot.number, slot.seqid))
    }

    /// Bytes left in the reply according to the session's limits.
    pub(super) fn room(&self) -> usize {
        let most = self.session().map_or(SPARE_LEN, |session| session.fore.max_response as usize);
        most.saturating_sub(self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.reply.len() - 4 + self.spliced
    }

    /// Adds a payload and its padding by reference.
    pub(super) fn splice(&mut self, data: Payload) {
        let len = data.len();
        self.spliced += len + padding(len);
        self.splices.push((self.reply.len(), data));
    }

    /// Starts the result of the next operation.
    #[inline]
    pub(super) fn begin_result(&mut self, number: u32) {
        (self.result_at, self.operation) = (self.reply.len(), number);
        self.reply.u32(number).u32(0);
        self.done += 1;
    }

    /// Ends the result of an operation. If it failed, only the status stays in the result, except for the conflicting
    /// lock of a denied lock. A failed SETATTR says that it set no attributes (RFC 8881 §18.30.2).
    pub(super) fn end_result(&mut self, outcome: Result<(), Status>) {
        let outcome = outcome.and_then(|()| self.check_length());
        let Err(status) = outcome else { return };
        if status != Status::Denied {
            self.reply.truncate(self.result_at + 8);
            while let Some((at, data)) = self.splices.pop_if(|(at, _)| *at > self.result_at) {
                debug_assert!(at <= self.reply.len() + 8, "data stand in their own result");
                self.spliced -= data.len() + padding(data.len());
            }
            if self.operation == OpCode::SetAttr as u32 {
                Bitmap::default().encode(&mut self.reply);
            }
        }
        self.reply.patch(self.result_at + 4, status as u32);
        self.status = Some(status);
    }

    /// Checks whether the reply is within the session's limits.
    #[inline]
    pub(super) fn check_length(&self) -> Result<(), Status> {
        let Some(Slot { session, is_kept, .. }) = &self.slot else { return Ok(()) };
        match self.len() {
            len if len > session.fore.max_response as usize => Err(Status::ReplyTooBig),
            len if *is_kept && len > session.fore.max_response_cached as usize => Err(Status::ReplyTooBigToCache),
            _ => Ok(()),
        }
    }

    /// Like `check_length`, before an operation that changes something.
    pub(super) fn check_room_to_change(&self) -> Result<(), Status> {
        let Some(Slot { session, is_kept, .. }) = &self.slot else { return Ok(()) };
        match self.len() + CHANGE_RESULT_LEN {
            len if len > session.fore.max_response as usize => Err(Status::ReplyTooBig),
            len if *is_kept && len > session.fore.max_response_cached as usize => Err(Status::ReplyTooBigToCache),
            _ => Ok(()),
        }
    }
}

impl Work {
    /// Notes the start of the request, with which a repeat is compared.
    pub(super) fn note_request(&mut self, mut arguments: Reader<'_>) {
        self.request.clear();
        let len = arguments.remaining().min(CHECKED_LEN);
        self.request.extend_from_slice(arguments.take(len).unwrap_or_default());
    }

    /// The whole reply in one buffer, for the cache. It is short.
    pub(super) fn whole_reply(&self) -> Vec<u8> {
        let mut whole = Vec::with_capacity((MAX_CACHED_LEN as usize).min(self.len() + 4));
        let mut at = 0;
        for (splice_at, data) in &self.splices {
            whole.extend_from_slice(&self.reply.bytes()[at..*splice_at]);
            data.for_each_piece(|piece| whole.extend_from_slice(piece));
            whole.resize(whole.len() + padding(data.len()), 0);
            at = *splice_at;
        }
        whole.extend_from_slice(&self.reply.bytes()[at..]);
        whole
    }

    #[inline]
    pub(super) fn send(&mut self, transmit: &mut Transmit) {
        let mut at = 0;
        for (splice_at, data) in self.splices.drain(..) {
            transmit.put(&self.reply.bytes()[at..splice_at]);
            let pad = padding(data.len());
            transmit.payload(data);
            transmit.zeros(pad);
            at = splice_at;
        }
        if at < self.reply.len() {
            transmit.put(&self.reply.bytes()[at..]);
        }
    }
}

impl Work {
    pub(super) fn go_to(&mut self, place: Place) {
        self.current = Some(place);
        self.state = StateId::ANONYMOUS;
    }

    /// The saved file, which must be in the same export as the current one.
    pub(super) fn saved_file(&self, current: &Reached) -> Result<FileId, Status> {
        match self.saved.ok_or(Status::NoFileHandle)? {
            Place::File(saved) if saved.export == current.export => Ok(saved.file),
            _ => Err(Status::CrossDevice),
        }
    }
}

/// The result of SEQUENCE (RFC 8881 §18.46).
#[inline]
pub(super) fn put_sequence(reply: &mut Encoder, session: &Session, asked: &SequenceArguments) {
    let highest = session.highest_slot();
    reply.raw(&asked.session.0).words([asked.seqid, asked.slot, highest, highest, 0]);
}

/// The file or directory that a file handle refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The directory above all exports.
    Roots,
    File(Reached),
}

/// A file that a caller may access, and with whose rights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) export: ExportId,
    pub(super) file: FileId,
    pub(super) who: Credentials,
    pub(super) access: ExportAccess,
}

impl Place {
    pub(super) fn handle(&self, handles: &Handles) -> FileHandle {
        match self {
            Self::Roots => handles.encode(NO_EXPORT, FileId { number: ROOTS_NUMBER, generation: FileId::LASTING }),
            Self::File(reached) => handles.encode(reached.export, reached.file),
        }
    }
}

impl Reached {
    pub(super) fn at(&self, file: FileId) -> Place {
        Place::File(Self { file, ..*self })
    }

    /// Checks that the file may be changed.
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        if self.access.read_only { Err(Status::ReadOnly) } else { Ok(()) }
    }
}

/// The state of an operation.
#[derive(Debug)]
pub(super) enum Step {
    Done,
    /// Queued in the backend; the rest of the COMPOUND waits.
    Queued(IoId),
}

/// Calls `use_it` with the state that all connections share.
pub(super) fn with_shared<B: NfsBackend + ?Sized, T>(
    backend: &mut B,
    use_it: impl FnOnce(&mut Shared) -> Result<T, Status>,
) -> Result<T, Status> {
    let (mut use_it, mut result) = (Some(use_it), Err(Status::ServerFault));
    backend.with_state(&mut |state| {
        if let Some(use_it) = use_it.take() {
            result = use_it(&mut state.v41);
        }
    });
    result
}
