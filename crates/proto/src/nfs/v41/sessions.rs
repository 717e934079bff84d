//! Clients, their sessions, and the slots that ensure that every request is executed exactly once (RFC 8881 §2.10,
//! §18.35 and §18.36).

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::Arc,
    vec::{self, Vec},
};
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::{
    sync::atomic::Ordering::{Relaxed, Release, SeqCst},
    time::Duration,
};

use super::{
    MAX_CONTROL_LEN, MAX_IO_BYTES,
    codec::{ChannelAttributes, SessionId, Status, exchange},
    fattr::LEASE_SECONDS,
    operations::{CreateSessionArguments, ExchangeArguments, SequenceArguments},
};
#[cfg(all(loom, test))]
use crate::sequential::{AtomicU32, AtomicU64};
use crate::{Ending, Instant, Origin, Shares, wire::digest::crc32c};

/// How long a client may be silent without losing its state. After that it keeps the state until another client needs
/// it.
pub const LEASE: Duration = Duration::from_secs(LEASE_SECONDS as u64);
/// Maximum clients. A load has one per worker, a kernel one per server.
const CLIENTS: Shares = Shares { all: 16_384, of_origin: 4096 };
const MAX_SESSIONS_OF_CLIENT: usize = 64;
/// Maximum outstanding requests of a session.
pub const MAX_SLOTS: u32 = 1024;
/// Maximum slots of all sessions. With a cached reply for each of them this is 64 MiB.
const MAX_SLOTS_OF_ALL: usize = 1 << 15;
/// Maximum length of a reply that is cached in a slot. Replies of operations that change something are much shorter.
pub const MAX_CACHED_LEN: u32 = 2048;
/// Maximum operations of a COMPOUND in a session.
const MAX_OPERATIONS: u32 = 64;
/// Minimum lengths for a usable session: SEQUENCE, PUTFH, a short GETATTR and their results fit.
const MIN_REQUEST: u32 = 256;
const MIN_RESPONSE: u32 = 256;
/// All flags of CREATE_SESSION: persistence, back channel, RDMA (RFC 8881 §18.36).
const SESSION_FLAGS: u32 = 7;
/// Bytes of a request that its checksum covers.
pub const CHECKED_LEN: usize = 512;

/// A session as its connections on all threads see it. The path of an I/O takes no lock.
#[derive(Debug)]
pub struct Session {
    pub id: SessionId,
    pub client: u64,
    pub fore: ChannelAttributes,
    slots: Box<[AtomicU64]>,
    /// `GONE`, `ABORTED`, and how often requests ended with their connection (from `ABORT` on).
    state: AtomicU32,
    /// Held by operations that continue after their connection.
    ending: Ending,
    /// Time of the last request of the client; shared by all its sessions.
    heard: Arc<AtomicU64>,
    /// Rises whenever an open or lock changes.
    pub(super) epoch: Arc<AtomicU64>,
}

/// The phase of a slot, stored with the sequence number of its last request.
const IDLE: u64 = 0;
const BUSY: u64 = 1;
const KEPT: u64 = 2;
/// The data of its WRITE are arriving, so it has changed nothing yet.
const ARRIVING: u64 = 3;
const PHASE_BITS: u32 = 2;

/// The session executes nothing more.
const GONE: u32 = 1;
/// Requests ended with their connection, so their operations may still be under way.
const ABORTED: u32 = 2;
const ABORT: u32 = 4;

/// The part of a client ID that identifies this start of the server.
const BOOT_OF_CLIENT: u64 = (u32::MAX as u64) << 32;

/// How a request relates to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    New,
    /// A repeat whose reply was cached.
    Repeated,
    /// A repeat whose reply was not cached.
    RepeatedUncached,
}

impl Session {
    /// Checks slot, number of operations and length of a request against the session's limits.
    #[inline]
    pub fn check(&self, asked: &SequenceArguments, operations: u32, len: usize) -> Result<(), Status> {
        if asked.slot > self.highest_slot() {
            Err(Status::BadSlot)
        } else if asked.highest_slot > self.highest_slot() {
            Err(Status::BadHighSlot)
        } else if operations > self.fore.max_operations {
            Err(Status::TooManyOperations)
        } else if len > self.fore.max_request as usize {
            Err(Status::RequestTooBig)
        } else {
            Ok(())
        }
    }

    /// Occupies a slot for a request (RFC 8881 §2.10.6.1.3 and §18.46).
    #[inline]
    pub fn begin(&self, now: Instant, slot: u32, seqid: u32) -> Result<Turn, Status> {
        self.heard.store(now.0, Relaxed);
        let slot = self.slots.get(slot as usize).ok_or(Status::BadSlot)?;
        let word = slot.load(Relaxed);
        let (last, phase) = ((word >> PHASE_BITS) as u32, word & ((1 << PHASE_BITS) - 1));
        if seqid == last.wrapping_add(1) && !matches!(phase, BUSY | ARRIVING) {
            let taken = u64::from(seqid) << PHASE_BITS | BUSY;
            // Another connection of the session may have sent the same request first.
            if slot.compare_exchange(word, taken, SeqCst, Relaxed).is_err() {
                return Err(Status::Delay);
            }
            // Only now, because whoever ends the session looks at the slots afterwards.
            if self.state.load(SeqCst) & (GONE | ABORTED) != 0 {
                self.check_state().inspect_err(|_| slot.store(word, Relaxed))?;
            }
            return Ok(Turn::New);
        }
        if self.is_gone() {
            return Err(Status::BadSession);
        }
        if seqid != last {
            return Err(Status::SequenceMisordered);
        }
        match phase {
            BUSY | ARRIVING => Err(Status::Delay),
            KEPT => Ok(Turn::Repeated),
            // The slot has never had a request.
            _ if seqid == 0 => Err(Status::SequenceMisordered),
            _ => Ok(Turn::RepeatedUncached),
        }
    }

    /// Whether requests may be executed: not if the session is gone, or operations of aborted requests are under way,
    /// which might undo what newer requests write.
    #[cold]
    fn check_state(&self) -> Result<(), Status> {
        loop {
            let state = self.state.load(SeqCst);
            if state & GONE != 0 {
                return Err(Status::BadSession);
            }
            if state & ABORTED == 0 {
                return Ok(());
            }
            if !self.ending.is_over() {
                return Err(Status::Delay);
            }
            // Fails if another thread has aborted something since.
            let _ = self.state.compare_exchange(state, state & !ABORTED, SeqCst, Relaxed);
        }
    }

    /// Notes that the data of a slot's WRITE are still arriving. It has changed nothing yet.
    pub fn receives(&self, slot: u32, seqid: u32) {
        self.set(slot, seqid, ARRIVING);
    }

    /// The data have arrived. Fails if the session is gone, and the WRITE must not be executed.
    pub fn has_received(&self, slot: u32, seqid: u32) -> Result<(), Status> {
        self.slots[slot as usize].swap(u64::from(seqid) << PHASE_BITS | BUSY, SeqCst);
        if self.state.load(SeqCst) & GONE == 0 { Ok(()) } else { Err(Status::BadSession) }
    }

    /// What operations of requests that ended with their connection hold until they are over.
    pub fn ending(&self) -> Ending {
        let ending = self.ending.clone();
        // Only now, because whoever sees the new state looks at `ending` afterwards.
        self.state.fetch_add(ABORT, SeqCst);
        self.state.fetch_or(ABORTED, SeqCst);
        ending
    }

    /// Ends the session. Returns whether all its operations are over; if not, it must be asked again.
    fn end_all(&self) -> bool {
        self.state.fetch_or(GONE, SeqCst);
        let is_busy = |slot: &AtomicU64| slot.load(SeqCst) & ((1 << PHASE_BITS) - 1) == BUSY;
        !self.slots.iter().any(is_busy) && self.ending.is_over()
    }

    /// Notes that the request of a slot has been answered.
    #[inline]
    pub fn end(&self, slot: u32, seqid: u32, is_kept: bool) {
        self.set(slot, seqid, if is_kept { KEPT } else { IDLE });
    }

    /// Notes that the request of a slot was not executed, so that it may be sent again.
    pub fn forget(&self, slot: u32, seqid: u32) {
        self.set(slot, seqid.wrapping_sub(1), IDLE);
    }

    #[inline]
    fn set(&self, slot: u32, seqid: u32, phase: u64) {
        // Whoever sees that the request is over sees its effects, too.
        self.slots[slot as usize].store(u64::from(seqid) << PHASE_BITS | phase, Release);
    }

    pub fn highest_slot(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    pub fn is_gone(&self) -> bool {
        self.state.load(Relaxed) & GONE != 0
    }
}

/// A session and the cached replies of its slots.
#[derive(Debug)]
struct Kept {
    session: Arc<Session>,
    replies: Vec<Option<Reply>>,
}

#[derive(Debug)]
struct Reply {
    request: u32,
    bytes: Box<[u8]>,
}

#[derive(Debug)]
struct Client {
    owner: Box<[u8]>,
    verifier: [u8; 8],
    /// The user that created it.
    principal: u32,
    origin: Origin,
    is_confirmed: bool,
    /// Sequence number of the next CREATE_SESSION.
    sequence: u32,
    last_created: Option<Created>,
    is_reclaimed: bool,
    sessions: usize,
    heard: Arc<AtomicU64>,
}

/// The result of EXCHANGE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub client: u64,
    pub sequence: u32,
    pub is_confirmed: bool,
}

/// The result of CREATE_SESSION.
#[derive(Clone, Debug)]
pub struct Created {
    pub session: Arc<Session>,
    pub sequence: u32,
    pub back: ChannelAttributes,
}

/// The caller: a user at an address.
#[derive(Clone, Debug)]
pub struct Asker {
    pub principal: u32,
    pub origin: Origin,
}

/// All clients of a server.
#[derive(Debug, Default)]
pub struct Clients {
    known: BTreeMap<u64, Client>,
    sessions: BTreeMap<SessionId, Kept>,
    next_client: u32,
    next_session: u32,
    slots: usize,
    epoch: Arc<AtomicU64>,
}

impl Clients {
    pub(super) fn changed(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }

    /// EXCHANGE_ID (RFC 8881 §18.35.5). `boot` identifies this start of the server. Adds clients that must be removed
    /// to `gone`. `has_state` returns whether a client has any opens or locks.
    pub fn exchange(
        &mut self,
        now: Instant,
        boot: u32,
        asked: &ExchangeArguments<'_>,
        from: Asker,
        has_state: impl FnOnce(u64) -> bool,
        gone: &mut Vec<u64>,
    ) -> Result<Exchanged, Status> {
        if asked.flags & !exchange::OF_CLIENT != 0 || asked.owner.is_empty() {
            return Err(Status::Invalid);
        }
        if asked.wants_protection {
            return Err(Status::EncryptionUnsupported);
        }
        let confirmed = self.of_owner(asked.owner, true);
        if asked.flags & exchange::UPDATE_CONFIRMED != 0 {
            let (id, client) = confirmed.ok_or(Status::NoEntry)?;
            return match client {
                _ if client.verifier != asked.verifier => Err(Status::NotSame),
                _ if client.principal != from.principal => Err(Status::NotOwner),
                _ => Ok(Exchanged { client: id, sequence: client.sequence, is_confirmed: true }),
            };
        }
        if let Some((id, client)) = confirmed {
            if client.principal != from.principal {
                // A client without state is replaced at once.
                if !client.is_expired(now) && (client.sessions > 0 || has_state(id)) {
                    return Err(Status::ClientIdInUse);
                }
                gone.push(id);
            } else if client.verifier == asked.verifier {
                return Ok(Exchanged { client: id, sequence: client.sequence, is_confirmed: true });
            }
        }
        gone.extend(self.of_owner(asked.owner, false).map(|(id, _)| id));
        if !self.has_room(&from.origin, gone) {
            let makes_room = |id: &u64| self.has_room(&from.origin, &[&gone[..], &[*id]].concat());
            let Some(id) = self.dispensable(now, &from.origin).find(makes_room) else {
                gone.clear();
                return Err(Status::Delay);
            };
            gone.push(id);
        }
        self.next_client = self.next_client.wrapping_add(1);
        let id = u64::from(boot) << 32 | u64::from(self.next_client);
        let client = Client {
            owner: asked.owner.into(),
            verifier: asked.verifier,
            principal: from.principal,
            origin: from.origin,
            is_confirmed: false,
            sequence: 1,
            last_created: None,
            is_reclaimed: false,
            sessions: 0,
            heard: Arc::new(AtomicU64::new(now.0)),
        };
        self.known.insert(id, client);
        Ok(Exchanged { client: id, sequence: 1, is_confirmed: false })
    }

    /// CREATE_SESSION (RFC 8881 §18.36.4). `tag` turns a number into an identifier that cannot be guessed and that no
    /// earlier start of the server has used.
    pub fn create_session(
        &mut self,
        now: Instant,
        asked: &CreateSessionArguments,
        from: &Asker,
        tag: impl FnOnce(u64) -> [u8; 8],
        gone: &mut Vec<u64>,
    ) -> Result<Created, Status> {
        let client = self.known.get(&asked.client).ok_or(Status::StaleClientId)?;
        if !client.is_confirmed && client.is_expired(now) {
            // RFC 8881 §18.35.5: a client that is not confirmed within a lease is removed.
            gone.push(asked.client);
            return Err(Status::StaleClientId);
        }
        if let Some(created) = client.last_created.as_ref().filter(|created| created.sequence == asked.sequence) {
            return Ok(created.clone());
        }
        if asked.sequence != client.sequence {
            return Err(Status::SequenceMisordered);
        }
        if client.principal != from.principal {
            return Err(Status::ClientIdInUse);
        }
        if asked.flags & !SESSION_FLAGS != 0 {
            return Err(Status::Invalid);
        }
        if asked.fore.max_request < MIN_REQUEST || asked.fore.max_response < MIN_RESPONSE {
            return Err(Status::TooSmall);
        }
        let left = MAX_SLOTS_OF_ALL - self.slots;
        if client.sessions >= MAX_SESSIONS_OF_CLIENT || left == 0 {
            return Err(Status::NoSpace);
        }
        if !client.is_confirmed && !self.has_ended(&client.owner) {
            return Err(Status::Delay);
        }
        // Each session gets at most an eighth of the free slots, so that later ones get some too.
        let slots = asked.fore.max_requests.clamp(1, MAX_SLOTS).min(left.div_ceil(8) as u32);
        let fore = ChannelAttributes {
            header_pad: 0,
            max_request: asked.fore.max_request.min(MAX_IO_BYTES + MAX_CONTROL_LEN),
            max_response: asked.fore.max_response.min(MAX_IO_BYTES + MAX_CONTROL_LEN),
            max_response_cached: asked.fore.max_response_cached.min(MAX_CACHED_LEN),
            max_operations: asked.fore.max_operations.clamp(1, MAX_OPERATIONS),
            max_requests: slots,
        };
        let (heard, was_confirmed, owner) = (Arc::clone(&client.heard), client.is_confirmed, client.owner.clone());
        heard.store(now.0, Relaxed);
        if !was_confirmed {
            // The client has restarted, so its former state is removed.
            gone.extend(self.of_owner(&owner, true).map(|(id, _)| id));
        }
        self.next_session = self.next_session.wrapping_add(1);
        let number = asked.client & BOOT_OF_CLIENT | u64::from(self.next_session);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        id[8..].copy_from_slice(&tag(number));
        let session = Arc::new(Session {
            id: SessionId(id),
            client: asked.client,
            fore,
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            state: AtomicU32::new(0),
            ending: Ending::default(),
            heard,
            epoch: Arc::clone(&self.epoch),
        });
        self.slots += slots as usize;
        self.sessions.insert(session.id, Kept { session: Arc::clone(&session), replies: vec::Vec::new() });
        let back =
            ChannelAttributes { header_pad: 0, max_requests: asked.back.max_requests.clamp(1, 16), ..asked.back };
        let created = Created { session, sequence: asked.sequence, back };
        if let Some(client) = self.known.get_mut(&asked.client) {
            client.is_confirmed = true;
            client.sequence = client.sequence.wrapping_add(1);
            client.sessions += 1;
            client.last_created = Some(created.clone());
        }
        Ok(created)
    }

    /// Ends the sessions of an owner's confirmed client, which has restarted. Returns whether all their operations are
    /// over: what the restarted client writes must not be undone by its former self.
    fn has_ended(&self, owner: &[u8]) -> bool {
        let Some((former, _)) = self.of_owner(owner, true) else { return true };
        let sessions = self.sessions.values().filter(|kept| kept.session.client == former);
        sessions.filter(|kept| !kept.session.end_all()).count() == 0
    }

    pub fn session(&self, id: &SessionId) -> Option<&Arc<Session>> {
        self.sessions.get(id).map(|kept| &kept.session)
    }

    /// DESTROY_SESSION (RFC 8881 §18.37).
    pub fn destroy_session(&mut self, id: &SessionId) -> Result<(), Status> {
        let kept = self.sessions.remove(id).ok_or(Status::BadSession)?;
        kept.session.end_all();
        self.slots -= kept.session.slots.len();
        if let Some(client) = self.known.get_mut(&kept.session.client) {
            client.sessions -= 1;
            client.last_created.take_if(|created| created.session.id == *id);
        }
        Ok(())
    }

    /// Whether the client exists and has no session.
    pub fn is_idle(&self, client: u64) -> Result<bool, Status> {
        self.known.get(&client).map(|client| client.sessions == 0).ok_or(Status::StaleClientId)
    }

    /// RECLAIM_COMPLETE (RFC 8881 §18.51).
    pub fn reclaimed(&mut self, client: u64) -> Result<(), Status> {
        let client = self.known.get_mut(&client).ok_or(Status::StaleClientId)?;
        if core::mem::replace(&mut client.is_reclaimed, true) { Err(Status::CompleteAlready) } else { Ok(()) }
    }

    pub fn is_reclaimed(&self, client: u64) -> bool {
        self.known.get(&client).is_some_and(|client| client.is_reclaimed)
    }

    pub fn is_expired(&self, now: Instant, client: u64) -> bool {
        self.known.get(&client).is_none_or(|client| client.is_expired(now))
    }

    /// Removes a client and its sessions.
    pub(super) fn remove(&mut self, client: u64) {
        let sessions = self.sessions.values().filter(|kept| kept.session.client == client);
        let sessions: Vec<SessionId> = sessions.map(|kept| kept.session.id).collect();
        for id in sessions {
            let _ = self.destroy_session(&id);
        }
        self.known.remove(&client);
    }

    /// Caches the reply to the request in a slot.
    pub fn keep(&mut self, session: &SessionId, slot: u32, request: &[u8], reply: &[u8]) {
        let Some(kept) = self.sessions.get_mut(session) else { return };
        if kept.replies.is_empty() {
            kept.replies.resize_with(kept.session.slots.len(), || None);
        }
        if let Some(place) = kept.replies.get_mut(slot as usize) {
            *place = Some(Reply { request: checksum(request), bytes: reply.into() });
        }
    }

    /// Returns the cached reply to the same request; `Err` if there is none, or if the slot's request was a different
    /// one.
    pub fn recall(&self, session: &SessionId, slot: u32, request: &[u8]) -> Result<&[u8], Status> {
        let reply = self.sessions.get(session).and_then(|kept| kept.replies.get(slot as usize)?.as_ref());
        let reply = reply.ok_or(Status::RetryUncached)?;
        if reply.request == checksum(request) { Ok(&reply.bytes) } else { Err(Status::FalseRetry) }
    }

    fn of_owner(&self, owner: &[u8], is_confirmed: bool) -> Option<(u64, &Client)> {
        let found =
            self.known.iter().find(|(_, client)| *client.owner == *owner && client.is_confirmed == is_confirmed);
        found.map(|(id, client)| (*id, client))
    }

    /// Whether another client of this origin may come once the clients of `gone` are removed.
    fn has_room(&self, origin: &Origin, gone: &[u64]) -> bool {
        let stays = |(id, _): &(&u64, &Client)| !gone.contains(id);
        let of_origin = self.known.iter().filter(stays).filter(|(_, client)| client.origin == *origin).count();
        CLIENTS.has_room(self.known.iter().filter(stays).count(), of_origin)
    }

    /// The clients that can be removed for one of `origin`, in this order: those of the same origin whose lease has
    /// expired, others whose lease has expired, unconfirmed ones of the same origin. One of each is enough.
    fn dispensable(&self, now: Instant, origin: &Origin) -> impl Iterator<Item = u64> {
        let first = |is_meant: &dyn Fn(&Client) -> bool| {
            self.known.iter().find(|(_, client)| is_meant(client)).map(|(id, _)| *id)
        };
        let found = [
            first(&|client| client.origin == *origin && client.is_expired(now)),
            first(&|client| client.is_expired(now)),
            first(&|client| client.origin == *origin && !client.is_confirmed),
        ];
        found.into_iter().flatten()
    }
}

impl Client {
    fn is_expired(&self, now: Instant) -> bool {
        now > Instant(self.heard.load(Relaxed)) + LEASE
    }
}

fn checksum(request: &[u8]) -> u32 {
    crc32c(&request[..request.len().min(CHECKED_LEN)])
}

/// scripts/loom runs these: every order in which threads can use a session, up to some number of preemptions.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{model::Builder, thread};

    use super::*;

    const NOW: Instant = Instant(0);

    /// A session with slots, the operations that are under way, and whether it was said that all are over.
    struct Shared {
        session: Session,
        writing: AtomicU64,
        is_over: AtomicU32,
    }

    impl Shared {
        fn new(slots: u32) -> Arc<Self> {
            let attributes = ChannelAttributes {
                header_pad: 0,
                max_request: 0,
                max_response: 0,
                max_response_cached: 0,
                max_operations: 1,
                max_requests: slots,
            };
            let session = Session {
                id: SessionId([0; 16]),
                client: 0,
                fore: attributes,
                slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
                state: AtomicU32::new(0),
                ending: Ending::default(),
                heard: Arc::default(),
                epoch: Arc::default(),
            };
            Arc::new(Self { session, writing: AtomicU64::new(0), is_over: AtomicU32::new(0) })
        }

        fn write(&self) {
            self.writing.fetch_add(1, SeqCst);
            assert_eq!(self.is_over.load(SeqCst), 0);
            self.writing.fetch_sub(1, SeqCst);
        }

        fn asks_whether_it_is_over(&self) {
            if self.session.end_all() {
                self.is_over.store(1, SeqCst);
                assert_eq!(self.writing.load(SeqCst), 0);
            }
        }
    }

    fn every_order(slots: u32, threads: &'static [fn(&Shared)]) {
        let mut model = Builder::new();
        model.preemption_bound = Some(4);
        model.check(move || {
            let shared = Shared::new(slots);
            let (last, others) = threads.split_last().expect("a thread");
            let started: Vec<_> = others
                .iter()
                .map(|act| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || act(&shared))
                })
                .collect();
            last(&shared);
            started.into_iter().for_each(|each| each.join().expect("a thread that does not fail"));
        });
    }

    fn writes(shared: &Shared) {
        if shared.session.begin(NOW, 0, 1) == Ok(Turn::New) {
            shared.write();
            shared.session.end(0, 1, false);
        }
    }

    fn writes_what_arrives(shared: &Shared) {
        if shared.session.begin(NOW, 0, 1) == Ok(Turn::New) {
            shared.session.receives(0, 1);
            if shared.session.has_received(0, 1).is_ok() {
                shared.write();
            }
            shared.session.end(0, 1, false);
        }
    }

    /// Its connection ends while its write is under way.
    fn aborts(shared: &Shared) {
        if shared.session.begin(NOW, 0, 1) == Ok(Turn::New) {
            let ending = shared.session.ending();
            shared.session.forget(0, 1);
            shared.write();
            drop(ending);
        }
    }

    #[test]
    fn a_session_that_has_ended_executes_nothing() {
        every_order(1, &[writes, Shared::asks_whether_it_is_over]);
        every_order(1, &[writes_what_arrives, Shared::asks_whether_it_is_over]);
        every_order(1, &[aborts, Shared::asks_whether_it_is_over]);
    }

    /// The slot of an aborted write is free, so its writer may send it again over another connection.
    fn writes_again(shared: &Shared) {
        if shared.session.begin(NOW, 0, 1) == Ok(Turn::New) {
            assert_eq!(shared.writing.load(SeqCst), 0);
            shared.session.end(0, 1, false);
        }
    }

    fn uses_another_slot(shared: &Shared) {
        if shared.session.begin(NOW, 1, 1) == Ok(Turn::New) {
            shared.session.end(1, 1, false);
        }
    }

    #[test]
    fn a_write_that_is_sent_again_waits_for_its_aborted_copy() {
        every_order(1, &[aborts, writes_again]);
        every_order(2, &[aborts, writes_again, uses_another_slot]);
    }
}
