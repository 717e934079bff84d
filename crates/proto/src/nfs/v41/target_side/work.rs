//! A COMPOUND under way: where it stands, what it is about, and its reply so far.

use alloc::{sync::Arc, vec::Vec};

use crate::{
    IoId,
    nfs::{
        NfsBackend,
        common::{ExportAccess, ExportId, FileHandle, FileId, Handles},
        v41::{
            codec::{OpCode, StateId, Status},
            operations::SequenceArguments,
            sessions::{CHECKED_LEN, MAX_CACHED_LEN, Session},
            state::Shared,
        },
    },
    rpc::{Credentials, Encoder, Xid, xdr::padding},
    wire::{Payload, Reader, Transmit},
};

/// Where the status stands in a reply: behind the record's mark and RPC's head.
pub(super) const STATUS_AT: usize = 28;
/// More than the result of any operation that changes something, so that there is room for it before it is done.
const CHANGE_RESULT_LEN: usize = 256;
/// Replies whose memory is kept for later ones, in bytes.
pub(super) const SPARE_LEN: usize = 4096;
/// Number of the directory above all exports.
pub(super) const ROOTS_NUMBER: u64 = 1;
/// Stands for an export in its handle.
pub(super) const NO_EXPORT: ExportId = ExportId::MAX;

/// A COMPOUND under way. It is taken from the connection's spare ones and goes back there.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) xid: Xid,
    pub(super) who: Credentials,
    pub(super) minor: u32,
    pub(super) total: u32,
    /// Operations of which results stand in the reply.
    pub(super) done: u32,
    pub(super) stop_at: u32,
    pub(super) status: Option<Status>,
    pub(super) reply: Encoder,
    pub(super) count_at: usize,
    /// Where the result of the operation under way begins.
    pub(super) result_at: usize,
    /// Data that stand in the reply by name, and where; and how many bytes they add.
    pub(super) splices: Vec<(usize, Payload)>,
    pub(super) spliced: usize,
    /// The operations that wait for the one under way.
    pub(super) rest: Vec<u8>,
    /// A request whose reply is kept: a repeat has to say the same.
    pub(super) request: Vec<u8>,
    pub(super) current: Option<Place>,
    pub(super) saved: Option<Place>,
    pub(super) state: StateId,
    pub(super) saved_state: StateId,
    pub(super) slot: Option<Slot>,
    /// The request is a repeat whose reply was not kept: nothing further is done.
    pub(super) is_uncached_repeat: bool,
    /// The answer was sent as it was kept.
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
    /// Stops before the operation that follows the first `count`.
    pub(super) fn pause_after(&mut self, count: u32) {
        self.stop_at = count;
    }

    /// Begins the result of the WRITE before which it was paused.
    pub(super) fn begin_write_result(&mut self) {
        self.begin_result(OpCode::Write as u32);
    }

    /// The operation under way failed.
    pub(super) fn fail(&mut self, status: Status) {
        self.end_result(Err(status));
    }

    /// The file or directory that operations are about.
    pub(super) fn place(&self) -> Result<Place, Status> {
        self.current.ok_or(Status::NoFileHandle)
    }

    /// As `place`, of an export.
    pub(super) fn file(&self) -> Result<Reached, Status> {
        match self.place()? {
            Place::File(reached) => Ok(reached),
            Place::Roots => Err(Status::IsDirectory),
        }
    }

    /// The stateid that an operation names, which may be the current one (RFC 8881 §16.2.3.1.2).
    pub(super) fn named_state(&self, state: &StateId) -> Result<StateId, Status> {
        match state {
            state if *state != StateId::CURRENT => Ok(*state),
            _ if self.state == StateId::ANONYMOUS => Err(Status::BadStateId),
            _ => Ok(self.state),
        }
    }

    /// The client, where the request has a session.
    pub(super) fn client(&self) -> Result<u64, Status> {
        self.slot.as_ref().map(|slot| slot.session.client).ok_or(Status::OperationNotInSession)
    }

    #[inline]
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        self.slot.as_ref().map(|slot| &slot.session)
    }

    /// The request has a slot of its session: puts the result of SEQUENCE.
    #[inline]
    pub(super) fn take_slot(&mut self, session: Arc<Session>, asked: &SequenceArguments) {
        put_sequence(&mut self.reply, &session, asked);
        self.slot = Some(Slot { session, number: asked.slot, seqid: asked.seqid, is_kept: asked.cache_this });
    }

    /// Room for what is still to be put, as the session's channel was agreed.
    pub(super) fn room(&self) -> usize {
        let most = self.session().map_or(SPARE_LEN, |session| session.fore.max_response as usize);
        most.saturating_sub(self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.reply.len() - 4 + self.spliced
    }

    /// Puts data by name, with their padding.
    pub(super) fn splice(&mut self, data: Payload) {
        let len = data.len();
        self.spliced += len + padding(len);
        self.splices.push((self.reply.len(), data));
    }

    /// Begins the result of the next operation.
    #[inline]
    pub(super) fn begin_result(&mut self, number: u32) {
        self.result_at = self.reply.len();
        self.reply.u32(number).u32(0);
        self.done += 1;
    }

    /// What an operation came to, as its result says it. Where it failed nothing but the status is left, but for what is in the way of a
    /// lock.
    pub(super) fn end_result(&mut self, outcome: Result<(), Status>) {
        let outcome = outcome.and_then(|()| self.check_length());
        let Err(status) = outcome else { return };
        if status != Status::Denied {
            self.reply.truncate(self.result_at + 8);
            while let Some((at, data)) = self.splices.pop_if(|(at, _)| *at > self.result_at) {
                debug_assert!(at <= self.reply.len() + 8, "data stand in their own result");
                self.spliced -= data.len() + padding(data.len());
            }
        }
        self.reply.patch(self.result_at + 4, status as u32);
        self.status = Some(status);
    }

    /// Whether the reply is still one that the session allows.
    #[inline]
    pub(super) fn check_length(&self) -> Result<(), Status> {
        let Some(Slot { session, is_kept, .. }) = &self.slot else { return Ok(()) };
        match self.len() {
            len if len > session.fore.max_response as usize => Err(Status::ReplyTooBig),
            len if *is_kept && len > session.fore.max_response_cached as usize => Err(Status::ReplyTooBigToCache),
            _ => Ok(()),
        }
    }

    /// As `check_length`, before something is changed.
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
    /// Notes what a repeat of the request has to say.
    pub(super) fn note_request(&mut self, mut arguments: Reader<'_>) {
        self.request.clear();
        let len = arguments.remaining().min(CHECKED_LEN);
        self.request.extend_from_slice(arguments.take(len).unwrap_or_default());
    }

    /// The reply in one piece, for the cache: its data are few.
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

    /// The saved file, which has to be in the same export as the current one.
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

/// What a file handle leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The directory above all exports.
    Roots,
    File(Reached),
}

/// A file that a caller may reach, and as whom.
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

    /// It may be changed.
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        if self.access.read_only { Err(Status::ReadOnly) } else { Ok(()) }
    }
}

/// How an operation stands.
#[derive(Debug)]
pub(super) enum Step {
    Done,
    /// The backend has it; the rest of the COMPOUND waits.
    Queued(IoId),
}

/// Calls `use_it` with what all connections share.
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
