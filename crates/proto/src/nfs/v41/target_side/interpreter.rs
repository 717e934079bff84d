//! Executes a COMPOUND from its first operation to its reply (RFC 8881 §2.10.6 and §16.2). Also the operations on
//! clients and sessions.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use super::{
    BOUND_MAX, Connection,
    io::Kind,
    opening::on_state,
    work::{SPARE_LEN, STATUS_AT, Slot, Step, Work, put_sequence, with_shared},
};
use crate::{
    Instant, Origin,
    nfs::{
        NfsBackend,
        v41::{
            MINOR_VERSIONS,
            codec::{CompoundHead, OpCode, SessionId, StateId, Status, exchange},
            operations::{CreateSessionArguments, ExchangeArguments, Operation, SequenceArguments},
            sessions::{Asker, Session, Turn},
        },
    },
    rpc::{Credentials, Encoder, Xid, message::encode_success},
    wire::{Reader, Transmit},
};

/// Name of this implementation in EXCHANGE_ID.
const DOMAIN: &[u8] = b"iotax";

impl Connection {
    #[inline]
    pub(super) fn begin_work(&mut self, xid: Xid, who: Credentials, head: &CompoundHead<'_>) -> Box<Work> {
        let mut work = self.spare.pop().unwrap_or_default();
        work.xid = xid;
        work.who = who;
        work.minor = head.minor;
        (work.total, work.stop_at, work.done) = (head.operations, head.operations, 0);
        work.status = (!MINOR_VERSIONS.contains(&head.minor)).then_some(Status::MinorVersionMismatch);
        encode_success(work.reply.begin_record(), xid);
        work.reply.u32(0).opaque(head.tag);
        work.count_at = work.reply.len();
        work.reply.u32(0);
        work
    }

    /// Executes operations. `arguments` is the whole COMPOUND; `reader` is at its next operation.
    #[inline]
    pub(super) fn run<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: Box<Work>,
        arguments: Reader<'_>,
        reader: Reader<'_>,
        backend: &mut B,
    ) {
        let paused = self.run_until_paused(now, work, arguments, reader, backend);
        debug_assert!(paused.is_none(), "it runs to its end");
    }

    /// Like `run`. Returns the COMPOUND if it was to be paused and no operation has failed.
    pub(super) fn run_until_paused<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        mut work: Box<Work>,
        arguments: Reader<'_>,
        mut reader: Reader<'_>,
        backend: &mut B,
    ) -> Option<Box<Work>> {
        while work.status.is_none() && work.done < work.stop_at {
            match self.step(now, &mut work, arguments, &mut reader, backend) {
                Ok(Step::Done) => work.end_result(Ok(())),
                Ok(Step::Queued(id)) => {
                    work.rest.extend_from_slice(reader.take(reader.remaining()).unwrap_or_default());
                    self.ios.park(id, work);
                    return None;
                }
                Err(status) => work.end_result(Err(status)),
            }
            if work.is_answered {
                self.put_away(work);
                return None;
            }
        }
        if work.status.is_none() && work.done < work.total {
            return Some(work);
        }
        self.finish(work, backend);
        None
    }

    /// Continues after an operation that was waited for.
    pub(super) fn go_on<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        mut work: Box<Work>,
        outcome: Result<(), Status>,
        backend: &mut B,
    ) {
        work.end_result(outcome);
        work.stop_at = work.total;
        let mut rest = core::mem::take(&mut work.rest);
        self.run(now, work, Reader::new(&[]), Reader::new(&rest), backend);
        if let Some(last) = self.spare.last_mut() {
            // Reuse its memory.
            rest.clear();
            last.rest = rest;
        }
    }

    /// Executes one operation.
    #[inline]
    fn step<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        arguments: Reader<'_>,
        reader: &mut Reader<'_>,
        backend: &mut B,
    ) -> Result<Step, Status> {
        let Ok(number) = reader.u32_be() else {
            work.begin_result(OpCode::Illegal as u32);
            return Err(Status::BadXdr);
        };
        let Some(code) = OpCode::of_minor_version(number, work.minor) else {
            work.begin_result(OpCode::Illegal as u32);
            return Err(Status::IllegalOperation);
        };
        work.begin_result(number);
        if work.done == 1 {
            if code == OpCode::Sequence {
                let asked = SequenceArguments::decode(reader)?;
                return self.sequence(now, work, &asked, arguments, backend);
            }
            check_without_session(code, work.total)?;
        } else if work.is_uncached_repeat {
            return Err(Status::RetryUncached);
        }
        match code {
            OpCode::PutFh => {
                work.current = Some(self.put_handle(work, reader, backend)?);
                work.state = StateId::ANONYMOUS;
                Ok(Step::Done)
            }
            OpCode::Read => self.read(now, work, reader, backend),
            OpCode::Write => self.write(now, work, reader, backend),
            _ => {
                self.rpc.transmit.charge(cost(code));
                if changes(code) {
                    work.check_room_to_change()?;
                }
                let operation = Operation::decode(code, reader)?;
                self.operate(now, work, code, &operation, backend)
            }
        }
    }

    fn operate<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        code: OpCode,
        operation: &Operation<'_>,
        backend: &mut B,
    ) -> Result<Step, Status> {
        match operation {
            Operation::Commit { offset, count } => return self.commit(now, work, *offset, *count, backend),
            Operation::Allocate(asked) => return self.change_space(now, work, Kind::Allocate, asked, backend),
            Operation::Deallocate(asked) => return self.change_space(now, work, Kind::Deallocate, asked, backend),
            Operation::Seek(asked) => self.seek(work, asked, backend)?,
            Operation::Sequence(_) => return Err(Status::SequencePosition),
            Operation::ExchangeId(asked) => self.exchange(now, work, asked, backend)?,
            Operation::CreateSession(asked) => self.create_session(now, work, asked, backend)?,
            Operation::DestroySession(id) => self.destroy_session(work, id, backend)?,
            Operation::BindConnToSession { session, direction, .. } => {
                self.bind(work, session, *direction, backend)?;
            }
            Operation::DestroyClientId(client) => {
                let client = *client;
                with_shared(backend, |shared| {
                    if !shared.clients.is_idle(client)? || shared.opens.has_state(client) {
                        return Err(Status::ClientIdBusy);
                    }
                    shared.remove_client(client);
                    Ok(())
                })?;
            }
            Operation::ReclaimComplete { of_one_file_system } => {
                let client = work.client()?;
                if !*of_one_file_system {
                    with_shared(backend, |shared| shared.clients.reclaimed(client))?;
                }
            }
            // There are no callbacks, so any credentials for them are accepted.
            Operation::BackchannelCtl { .. } => {}
            Operation::Open(_)
            | Operation::Close { .. }
            | Operation::OpenDowngrade { .. }
            | Operation::Lock { .. }
            | Operation::LockT { .. }
            | Operation::LockU { .. }
            | Operation::TestStateId(_)
            | Operation::FreeStateId(_) => on_state(now, work, operation, backend)?,
            // RFC 8881 §18.47: without SP4_SSV no SSV can be set.
            Operation::Unserved if code == OpCode::SetSsv => return Err(Status::Invalid),
            Operation::Unserved => return Err(Status::NotSupported),
            _ => self.on_place(now, work, operation, backend)?,
        }
        Ok(Step::Done)
    }

    /// SEQUENCE (RFC 8881 §18.46).
    #[inline]
    fn sequence<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        asked: &SequenceArguments,
        arguments: Reader<'_>,
        backend: &mut B,
    ) -> Result<Step, Status> {
        let session = match &self.session {
            Some(session) if session.id == asked.session && !session.is_gone() => Arc::clone(session),
            _ => {
                let found = with_shared(backend, |shared| Ok(shared.clients.session(&asked.session).cloned()))?;
                let session = found.ok_or(Status::BadSession)?;
                self.bind_to(Arc::clone(&session));
                session
            }
        };
        session.check(asked, work.total, arguments.remaining())?;
        match session.begin(now, asked.slot, asked.seqid)? {
            Turn::New => {}
            Turn::Repeated => return self.repeat(work, asked, arguments, backend),
            Turn::RepeatedUncached => work.is_uncached_repeat = true,
        }
        if work.is_uncached_repeat {
            put_sequence(&mut work.reply, &session, asked);
        } else {
            work.take_slot(session, asked);
            if asked.cache_this {
                work.note_request(arguments);
            }
        }
        Ok(Step::Done)
    }

    /// Sends the cached reply of the request.
    fn repeat<B: NfsBackend + ?Sized>(
        &mut self,
        work: &mut Work,
        asked: &SequenceArguments,
        mut arguments: Reader<'_>,
        backend: &mut B,
    ) -> Result<Step, Status> {
        let request = arguments.take(arguments.remaining()).unwrap_or_default();
        let (xid, transmit) = (work.xid, &mut self.rpc.transmit);
        with_shared(backend, |shared| {
            let reply = shared.clients.recall(&asked.session, asked.slot, request)?;
            transmit.put(reply);
            transmit.tail_mut(reply.len())[4..8].copy_from_slice(&xid.0.to_be_bytes());
            Ok(())
        })?;
        work.is_answered = true;
        Ok(Step::Done)
    }

    /// Sends the reply, and caches it if the client requested that.
    pub(super) fn finish<B: NfsBackend + ?Sized>(&mut self, mut work: Box<Work>, backend: &mut B) {
        work.reply.patch(STATUS_AT, work.status.map_or(0, |status| status as u32));
        work.reply.patch(work.count_at, work.done);
        work.reply.end_record(work.spliced);
        if let Some(Slot { session, number, seqid, is_kept }) = work.slot.take() {
            if is_kept {
                let reply = work.whole_reply();
                let request = &work.request;
                let _ = with_shared(backend, |shared| {
                    shared.clients.keep(&session.id, number, request, &reply);
                    Ok(())
                });
            }
            session.end(number, seqid, is_kept);
        }
        work.send(&mut self.rpc.transmit);
        self.put_away(work);
    }

    /// Ends a COMPOUND when its connection ends. If its reply must be cached, the reply says how far it came. Otherwise
    /// the slot counts as unused, so that the request may be sent again.
    pub(super) fn give_up<B: NfsBackend + ?Sized>(&mut self, mut work: Box<Work>, backend: &mut B) {
        match &work.slot {
            Some(slot) if slot.is_kept => {
                work.end_result(Err(Status::Delay));
                self.finish(work, backend);
            }
            _ => {
                if let Some(slot) = work.slot.take() {
                    slot.session.forget(slot.number, slot.seqid);
                }
            }
        }
    }

    fn put_away(&mut self, mut work: Box<Work>) {
        work.splices.clear();
        work.spliced = 0;
        work.rest.clear();
        (work.current, work.saved) = (None, None);
        (work.state, work.saved_state) = (StateId::ANONYMOUS, StateId::ANONYMOUS);
        work.slot = None;
        (work.is_uncached_repeat, work.is_answered) = (false, false);
        if work.reply.len() > SPARE_LEN {
            work.reply = Encoder::default();
        }
        self.spare.push(work);
    }

    fn exchange<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        asked: &ExchangeArguments<'_>,
        backend: &mut B,
    ) -> Result<(), Status> {
        let verifier = backend.write_verifier();
        let (boot, from) = (boot_of(verifier), self.asker(work));
        let exchanged = with_shared(backend, |shared| {
            shared.opens.set_boot(boot);
            let mut gone = Vec::new();
            let has_state = |client: u64| shared.opens.has_state(client);
            let exchanged = shared.clients.exchange(now, boot, asked, from, has_state, &mut gone);
            shared.remove_clients(&gone);
            exchanged
        })?;
        let confirmed = if exchanged.is_confirmed { exchange::CONFIRMED } else { 0 };
        let encoder = &mut work.reply;
        encoder.u64(exchanged.client).u32(exchanged.sequence).u32(exchange::USE_NON_PNFS | confirmed);
        encoder.u32(0); // SP4_NONE
        // All addresses of the server belong to one, also after a restart with the same key, and no other server does.
        let server = self.config.handles.tag_of(b"server");
        encoder.u64(0).opaque(&server).opaque(&server);
        encoder.u32(1).opaque(DOMAIN).opaque(DOMAIN).u64(0).u32(0);
        Ok(())
    }

    fn create_session<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        asked: &CreateSessionArguments,
        backend: &mut B,
    ) -> Result<(), Status> {
        let (from, handles) = (self.asker(work), self.config.handles);
        let created = with_shared(backend, |shared| {
            let mut gone = Vec::new();
            let tag = |number: u64| handles.tag_of(&number.to_be_bytes());
            let created = shared.clients.create_session(now, asked, &from, tag, &mut gone);
            shared.remove_clients(&gone);
            created
        })?;
        // Flags: the session is not persistent, and has neither back channel nor RDMA.
        let encoder = &mut work.reply;
        encoder.raw(&created.session.id.0).u32(created.sequence).u32(0);
        created.session.fore.encode(encoder);
        created.back.encode(encoder);
        self.bind_to(created.session);
        Ok(())
    }

    fn destroy_session<B: NfsBackend + ?Sized>(
        &mut self,
        work: &Work,
        id: &SessionId,
        backend: &mut B,
    ) -> Result<(), Status> {
        // RFC 8881 §18.37.3: in the session that it ends it must be the last operation, and come over a connection
        // bound to that session.
        if work.session().is_some_and(|session| session.id == *id) && work.done < work.total {
            return Err(Status::NotOnlyOperation);
        }
        let is_bound = self.bound.contains(id);
        with_shared(backend, |shared| match shared.clients.session(id) {
            Some(_) if !is_bound => Err(Status::ConnectionNotBound),
            _ => shared.clients.destroy_session(id),
        })?;
        self.session.take_if(|session| session.id == *id);
        self.bound.retain(|bound| bound != id);
        Ok(())
    }

    /// Binds the connection to a session. A client need not request this (RFC 8881 §2.10.3.1, SP4_NONE).
    fn bind_to(&mut self, session: Arc<Session>) {
        if !self.bound.contains(&session.id) {
            if self.bound.len() == BOUND_MAX {
                self.bound.remove(0);
            }
            self.bound.push(session.id);
        }
        self.session = Some(session);
    }

    /// BIND_CONN_TO_SESSION (RFC 8881 §18.34): every connection may carry the requests of every session; there are no
    /// callbacks.
    fn bind<B: NfsBackend + ?Sized>(
        &mut self,
        work: &mut Work,
        id: &SessionId,
        direction: u32,
        backend: &mut B,
    ) -> Result<(), Status> {
        const FORE: u32 = 1;
        const BACK: u32 = 2;
        const DIRECTIONS: [u32; 4] = [FORE, BACK, 3, 7];
        if work.total != 1 {
            return Err(Status::NotOnlyOperation);
        }
        if !DIRECTIONS.contains(&direction) {
            return Err(Status::Invalid);
        }
        let session = with_shared(backend, |shared| Ok(shared.clients.session(id).cloned()))?;
        self.bind_to(session.ok_or(Status::BadSession)?);
        work.reply.raw(&id.0).u32(if direction == BACK { BACK } else { FORE }).boolean(false);
        Ok(())
    }

    fn asker(&self, work: &Work) -> Asker {
        Asker { principal: work.who.uid, origin: Origin::of_address(self.config.peer.address) }
    }
}

/// Checks an operation at the start of a COMPOUND without SEQUENCE. It must be the only operation (RFC 8881 §2.10.2 and
/// §2.10.8.3).
fn check_without_session(code: OpCode, total: u32) -> Result<(), Status> {
    match code {
        OpCode::ExchangeId
        | OpCode::CreateSession
        | OpCode::DestroySession
        | OpCode::BindConnToSession
        | OpCode::DestroyClientId => {
            if total == 1 {
                Ok(())
            } else {
                Err(Status::NotOnlyOperation)
            }
        }
        _ => Err(Status::OperationNotInSession),
    }
}

/// Whether an operation has an effect that cannot be undone if its result turns out to be too long.
fn changes(code: OpCode) -> bool {
    matches!(
        code,
        OpCode::Close
            | OpCode::Create
            | OpCode::Link
            | OpCode::Lock
            | OpCode::LockU
            | OpCode::Open
            | OpCode::OpenDowngrade
            | OpCode::Remove
            | OpCode::Rename
            | OpCode::SetAttr
            | OpCode::FreeStateId
            | OpCode::ReclaimComplete
            | OpCode::Allocate
            | OpCode::Deallocate
    )
}

/// The maximum cost of an operation, in units of `Transmit::charge`.
fn cost(code: OpCode) -> usize {
    match code {
        // May encode hundreds of entries with attributes and handles, or check all parent directories, or search all
        // clients.
        OpCode::ReadDir | OpCode::Rename | OpCode::Create | OpCode::ExchangeId | OpCode::CreateSession => {
            Transmit::TURN / 2
        }
        // May truncate a file and free what it had reserved, or search all opens and locks of a file.
        OpCode::SetAttr
        | OpCode::Open
        | OpCode::Remove
        | OpCode::Lock
        | OpCode::LockT
        | OpCode::Close
        | OpCode::Allocate
        | OpCode::Deallocate
        | OpCode::Seek => Transmit::TURN / 8,
        OpCode::GetAttr | OpCode::GetFh => Transmit::REQUEST / 4,
        _ => Transmit::REQUEST,
    }
}

/// A number that identifies this start of the server.
fn boot_of(verifier: [u8; 8]) -> u32 {
    let verifier = u64::from_be_bytes(verifier);
    (verifier >> 32) as u32 ^ verifier as u32
}
