//! Clients, their sessions, and the slots that make every request happen once (RFC 8881 §2.10, §18.35 and §18.36).

use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::Arc,
    vec::{self, Vec},
};
use core::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::{
    MAX_CONTROL_LEN, MAX_IO_BYTES,
    codec::{ChannelAttributes, SessionId, Status, exchange},
    fattr::LEASE_SECONDS,
    operations::{CreateSessionArguments, ExchangeArguments, SequenceArguments},
};
use crate::{Instant, Origin, Shares, wire::digest::crc32c};

/// How long a client may be silent and keep its state. After that it keeps it until somebody else needs it.
pub const LEASE: Duration = Duration::from_secs(LEASE_SECONDS as u64);
/// Clients: a load has one for each of its workers, a kernel one for a server.
const CLIENTS: Shares = Shares { all: 16_384, of_origin: 4096 };
const MAX_SESSIONS_OF_CLIENT: usize = 64;
/// Requests that a session may have under way.
pub const MAX_SLOTS: u32 = 1024;
/// Of all sessions: with a kept reply for each of them, 64 MiB.
const MAX_SLOTS_OF_ALL: usize = 1 << 15;
/// Longest reply that is kept in a slot. Those of operations that change something stay far below.
pub const MAX_CACHED_LEN: u32 = 2048;
/// Most operations of a COMPOUND in a session.
const MAX_OPERATIONS: u32 = 64;
/// Lengths below which no session is of use: SEQUENCE, PUTFH and a short GETATTR and their results fit.
const MIN_REQUEST: u32 = 256;
const MIN_RESPONSE: u32 = 256;
/// CREATE_SESSION's flags that there are: persistence, a back channel, RDMA (RFC 8881 §18.36).
const SESSION_FLAGS: u32 = 7;
/// Bytes of a request that its checksum covers.
pub const CHECKED_LEN: usize = 512;

/// A session as its connections, on whatever thread, see it. On the path of an I/O nothing is locked.
#[derive(Debug)]
pub struct Session {
    pub id: SessionId,
    pub client: u64,
    pub fore: ChannelAttributes,
    slots: Box<[AtomicU64]>,
    is_gone: AtomicBool,
    /// When the client was last heard of; all its sessions share it.
    heard: Arc<AtomicU64>,
    /// Changes whenever an open or a lock does.
    pub(super) epoch: Arc<AtomicU64>,
}

/// What a slot has, beside the sequence number of its last request.
const IDLE: u64 = 0;
const BUSY: u64 = 1;
const KEPT: u64 = 2;
const PHASE_BITS: u32 = 2;

/// Of a client's identifier, what tells this start of the server from others.
const BOOT_OF_CLIENT: u64 = (u32::MAX as u64) << 32;

/// How a request stands to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    New,
    /// The reply to it was kept.
    Repeated,
    /// It was answered, and the reply not kept.
    RepeatedUncached,
}

impl Session {
    /// Whether a request of so many operations and bytes is one that the session takes.
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

    /// Takes a slot for a request (RFC 8881 §2.10.6.1.3 and §18.46).
    #[inline]
    pub fn begin(&self, now: Instant, slot: u32, seqid: u32) -> Result<Turn, Status> {
        if self.is_gone.load(Relaxed) {
            return Err(Status::BadSession);
        }
        self.heard.store(now.0, Relaxed);
        let slot = self.slots.get(slot as usize).ok_or(Status::BadSlot)?;
        let word = slot.load(Relaxed);
        let (last, phase) = ((word >> PHASE_BITS) as u32, word & ((1 << PHASE_BITS) - 1));
        if seqid == last.wrapping_add(1) && phase != BUSY {
            let taken = u64::from(seqid) << PHASE_BITS | BUSY;
            // Another connection of the session may have been faster, with the same request.
            let swapped = slot.compare_exchange(word, taken, Relaxed, Relaxed);
            return if swapped.is_ok() { Ok(Turn::New) } else { Err(Status::Delay) };
        }
        if seqid != last {
            return Err(Status::SequenceMisordered);
        }
        match phase {
            BUSY => Err(Status::Delay),
            KEPT => Ok(Turn::Repeated),
            // Nothing was ever asked for there.
            _ if seqid == 0 => Err(Status::SequenceMisordered),
            _ => Ok(Turn::RepeatedUncached),
        }
    }

    /// The request of a slot is answered.
    #[inline]
    pub fn end(&self, slot: u32, seqid: u32, is_kept: bool) {
        self.set(slot, seqid, if is_kept { KEPT } else { IDLE });
    }

    /// The request of a slot was not carried out: it may be sent again.
    pub fn forget(&self, slot: u32, seqid: u32) {
        self.set(slot, seqid.wrapping_sub(1), IDLE);
    }

    #[inline]
    fn set(&self, slot: u32, seqid: u32, phase: u64) {
        self.slots[slot as usize].store(u64::from(seqid) << PHASE_BITS | phase, Relaxed);
    }

    pub fn highest_slot(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

/// A session with what its slots keep.
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
    /// The user that established it.
    principal: u32,
    origin: Origin,
    is_confirmed: bool,
    /// Of the next CREATE_SESSION.
    sequence: u32,
    last_created: Option<Created>,
    is_reclaimed: bool,
    sessions: usize,
    heard: Arc<AtomicU64>,
}

/// What EXCHANGE_ID gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub client: u64,
    pub sequence: u32,
    pub is_confirmed: bool,
}

/// What CREATE_SESSION gave.
#[derive(Clone, Debug)]
pub struct Created {
    pub session: Arc<Session>,
    pub sequence: u32,
    pub back: ChannelAttributes,
}

/// Who asks: a user at an address.
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

    /// EXCHANGE_ID (RFC 8881 §18.35.5). `boot` tells this start of the server from others. Clients that have to go for it are
    /// in `gone`. `has_state`: whether one has anything open or locked.
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
                // Who has no state makes way at once.
                if !client.is_expired(now) && (client.sessions > 0 || has_state(id)) {
                    return Err(Status::ClientIdInUse);
                }
                gone.push(id);
            } else if client.verifier == asked.verifier {
                return Ok(Exchanged { client: id, sequence: client.sequence, is_confirmed: true });
            }
        }
        gone.extend(self.of_owner(asked.owner, false).map(|(id, _)| id));
        if !self.has_room(&from.origin) {
            gone.extend(self.dispensable(now, &from.origin));
            if gone.is_empty() {
                return Err(Status::Delay);
            }
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

    /// CREATE_SESSION (RFC 8881 §18.36.4). `tag` makes an identifier that nobody guesses of a number, which is none of an earlier
    /// start of the server.
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
            // RFC 8881 §18.35.5: who was not confirmed within a lease goes.
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
        // Of what is left everybody gets a part, so that the next one gets something too.
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
            // The client has restarted: what it had before goes.
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
            is_gone: AtomicBool::new(false),
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

    pub fn session(&self, id: &SessionId) -> Option<&Arc<Session>> {
        self.sessions.get(id).map(|kept| &kept.session)
    }

    /// DESTROY_SESSION (RFC 8881 §18.37).
    pub fn destroy_session(&mut self, id: &SessionId) -> Result<(), Status> {
        let kept = self.sessions.remove(id).ok_or(Status::BadSession)?;
        kept.session.is_gone.store(true, Relaxed);
        self.slots -= kept.session.slots.len();
        if let Some(client) = self.known.get_mut(&kept.session.client) {
            client.sessions -= 1;
            client.last_created.take_if(|created| created.session.id == *id);
        }
        Ok(())
    }

    /// Whether there is such a client and no session of its own.
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

    /// Forgets a client and its sessions.
    pub(super) fn remove(&mut self, client: u64) {
        let sessions = self.sessions.values().filter(|kept| kept.session.client == client);
        let sessions: Vec<SessionId> = sessions.map(|kept| kept.session.id).collect();
        for id in sessions {
            let _ = self.destroy_session(&id);
        }
        self.known.remove(&client);
    }

    /// Keeps the reply to the request that a slot has.
    pub fn keep(&mut self, session: &SessionId, slot: u32, request: &[u8], reply: &[u8]) {
        let Some(kept) = self.sessions.get_mut(session) else { return };
        if kept.replies.is_empty() {
            kept.replies.resize_with(kept.session.slots.len(), || None);
        }
        if let Some(place) = kept.replies.get_mut(slot as usize) {
            *place = Some(Reply { request: checksum(request), bytes: reply.into() });
        }
    }

    /// The reply that the same request got before; another request in its place is told so.
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

    fn has_room(&self, origin: &Origin) -> bool {
        let of_origin = self.known.values().filter(|client| client.origin == *origin).count();
        CLIENTS.has_room(self.known.len(), of_origin)
    }

    /// A client that makes room: one whose lease is over, or one of the same origin that was never confirmed.
    fn dispensable(&self, now: Instant, origin: &Origin) -> Option<u64> {
        let expired = self.known.iter().find(|(_, client)| client.is_expired(now));
        let unconfirmed = || self.known.iter().find(|(_, client)| !client.is_confirmed && client.origin == *origin);
        expired.or_else(unconfirmed).map(|(id, _)| *id)
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
