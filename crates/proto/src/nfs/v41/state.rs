//! Opens and locks of clients (RFC 8881 §9). Nothing survives a restart of the server, so nothing can be reclaimed
//! (§8.4.3: without stable storage all reclaims are rejected).

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

use super::{
    codec::{StateId, Status, share},
    operations::{LockRange, Owner},
    sessions::Clients,
};
use crate::{
    Instant, Shares,
    nfs::common::{ExportId, FileId},
};

/// Maximum opens and lock states, and a client's share of what others leave.
const STATES: Shares = Shares { all: 1 << 16, of_origin: 1 << 14 };
/// The same of locked ranges.
const RANGES: Shares = Shares { all: 1 << 16, of_origin: 1 << 14 };

pub type FileKey = (ExportId, FileId);

/// The NFSv4.1 state that all connections of a server share.
#[derive(Debug, Default)]
pub struct Shared {
    pub clients: Clients,
    pub opens: Opens,
}

impl Shared {
    pub fn remove_client(&mut self, client: u64) {
        self.clients.remove(client);
        self.opens.remove_client(client);
        self.clients.changed();
    }

    pub fn remove_clients(&mut self, gone: &[u64]) {
        for client in gone {
            self.remove_client(*client);
        }
    }

    /// OPEN: creates an open, or extends the owner's open. Removes clients whose conflicting opens have an expired
    /// lease.
    pub fn open(
        &mut self,
        now: Instant,
        client: u64,
        owner: &[u8],
        file: FileKey,
        (access, deny): (u32, u32),
    ) -> Result<StateId, Status> {
        self.check_share(now, client, owner, file, (access, deny))?;
        let opened = self.opens.open(client, owner, file, access, deny);
        self.clients.changed();
        opened
    }

    /// Checks that no other open excludes this one.
    pub fn check_share(
        &mut self,
        now: Instant,
        client: u64,
        owner: &[u8],
        file: FileKey,
        (access, deny): (u32, u32),
    ) -> Result<(), Status> {
        while let Some(other) = self.opens.sharing_conflict(client, owner, file, access, deny) {
            self.give_up(now, other)?;
        }
        Ok(())
    }

    /// LOCK. `state` is the lock state for which the lock is taken.
    pub fn lock(
        &mut self,
        now: Instant,
        client: u64,
        state: u64,
        range: LockRange,
        is_exclusive: bool,
    ) -> Result<StateId, LockError> {
        let (start, last) = bounds(range)?;
        let lock = self.opens.locks.get(&state).ok_or(Status::BadStateId)?;
        let (file, owner) = (lock.file, lock.owner.clone());
        let may_write = self.opens.shares.get(&lock.open).is_some_and(|open| open.access & share::WRITE != 0);
        if is_exclusive && !may_write {
            return Err(Status::OpenMode.into());
        }
        self.free_range(now, client, &owner, file, (start, last), is_exclusive)?;
        Ok(self.opens.hold(state, file, (start, last), is_exclusive)?)
    }

    /// LOCKT, and the first half of LOCK: checks that no other owner holds the range.
    pub fn test_lock(
        &mut self,
        now: Instant,
        client: u64,
        owner: &[u8],
        file: FileKey,
        range: LockRange,
        is_exclusive: bool,
    ) -> Result<(), LockError> {
        let bounds = bounds(range)?;
        self.free_range(now, client, owner, file, bounds, is_exclusive)
    }

    fn free_range(
        &mut self,
        now: Instant,
        client: u64,
        owner: &[u8],
        file: FileKey,
        bounds: (u64, u64),
        is_exclusive: bool,
    ) -> Result<(), LockError> {
        while let Some(denied) = self.opens.lock_conflict(client, owner, file, bounds, is_exclusive) {
            if self.give_up(now, denied.client).is_err() {
                return Err(LockError::Denied(denied));
            }
        }
        Ok(())
    }

    /// Removes a conflicting client if its lease has expired.
    fn give_up(&mut self, now: Instant, client: u64) -> Result<(), Status> {
        if !self.clients.is_expired(now, client) {
            return Err(Status::ShareDenied);
        }
        self.remove_client(client);
        Ok(())
    }
}

/// Why a lock is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
    Status(Status),
    Denied(Denied),
}

impl From<Status> for LockError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub range: LockRange,
    pub is_exclusive: bool,
    pub client: u64,
    pub owner: Box<[u8]>,
}

#[derive(Debug)]
struct Open {
    client: u64,
    owner: Box<[u8]>,
    file: FileKey,
    access: u32,
    deny: u32,
    /// The requested values of access, one bit per value. OPEN_DOWNGRADE may return only to these.
    accesses: u8,
    /// The same for deny.
    denies: u8,
    seqid: u32,
    /// Lock states that are based on it.
    locks: Vec<u64>,
}

#[derive(Debug)]
struct LockState {
    client: u64,
    owner: Box<[u8]>,
    open: u64,
    file: FileKey,
    seqid: u32,
}

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    state: u64,
    start: u64,
    last: u64,
    is_exclusive: bool,
}

#[derive(Debug, Default)]
struct FileState {
    opens: Vec<u64>,
    locks: Vec<HeldLock>,
}

/// The kind of state that a stateid refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Open,
    Lock,
}

/// Opens and locks, by the number in their stateids. Numbers are never reused.
#[derive(Debug, Default)]
pub struct Opens {
    boot: u32,
    next: u64,
    shares: BTreeMap<u64, Open>,
    locks: BTreeMap<u64, LockState>,
    files: BTreeMap<FileKey, FileState>,
    of_client: BTreeMap<u64, Used>,
    /// Number of locked ranges.
    held: usize,
}

/// What a client has.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Opens and lock states.
    states: usize,
    /// Locked ranges.
    ranges: usize,
}

impl Opens {
    /// Sets the number that identifies this start of the server in stateids.
    pub fn set_boot(&mut self, boot: u32) {
        self.boot = boot;
    }

    /// Finds a client's state by its stateid (RFC 8881 §8.2.4). A `seqid` of 0 means the latest.
    pub fn find(&self, client: u64, state: &StateId) -> Result<(u64, Kind), Status> {
        let (boot, number) = state.other.split_first_chunk::<4>().ok_or(Status::BadStateId)?;
        if u32::from_be_bytes(*boot) != self.boot {
            return Err(if state.is_special() { Status::BadStateId } else { Status::StaleStateId });
        }
        let number = number.try_into().map(u64::from_be_bytes).map_err(|_| Status::BadStateId)?;
        let (kind, owner, seqid) = if let Some(open) = self.shares.get(&number) {
            (Kind::Open, open.client, open.seqid)
        } else {
            let lock = self.locks.get(&number).ok_or(Status::BadStateId)?;
            (Kind::Lock, lock.client, lock.seqid)
        };
        match state.seqid {
            _ if owner != client => Err(Status::BadStateId),
            0 => Ok((number, kind)),
            given if given > seqid => Err(Status::BadStateId),
            given if given < seqid => Err(Status::OldStateId),
            _ => Ok((number, kind)),
        }
    }

    /// Finds an open by its stateid.
    pub fn find_open(&self, client: u64, file: FileKey, state: &StateId) -> Result<u64, Status> {
        let (number, kind) = self.find(client, state)?;
        let is_of_file = self.shares.get(&number).is_some_and(|open| open.file == file);
        if kind == Kind::Open && is_of_file { Ok(number) } else { Err(Status::BadStateId) }
    }

    /// Checks whether a stateid allows a READ or WRITE (RFC 8881 §9.1.2). Locks are advisory; share reservations are
    /// mandatory.
    pub fn check_io(&self, client: u64, file: FileKey, state: &StateId, writes: bool) -> Result<(), Status> {
        if *state == StateId::ANONYMOUS || *state == StateId::BYPASS {
            let denied = if writes { share::WRITE } else { share::READ };
            let opens = self.files.get(&file).into_iter().flat_map(|file| &file.opens);
            let is_denied = opens.filter_map(|number| self.shares.get(number)).any(|open| open.deny & denied != 0);
            // The bypass stateid ignores only share reservations that deny reading.
            return if is_denied && (writes || *state == StateId::ANONYMOUS) { Err(Status::Locked) } else { Ok(()) };
        }
        let (number, kind) = self.find(client, state)?;
        let open = match kind {
            Kind::Open => self.shares.get(&number),
            Kind::Lock => self.locks.get(&number).and_then(|lock| self.shares.get(&lock.open)),
        };
        let open = open.filter(|open| open.file == file).ok_or(Status::BadStateId)?;
        // RFC 8881 §18.22.3: write access includes read access, because a client may have to fill a page.
        if writes && open.access & share::WRITE == 0 { Err(Status::OpenMode) } else { Ok(()) }
    }

    /// A client that has a conflicting open.
    fn sharing_conflict(&self, client: u64, owner: &[u8], file: FileKey, access: u32, deny: u32) -> Option<u64> {
        let opens = self.files.get(&file)?.opens.iter().filter_map(|number| self.shares.get(number));
        let mut others = opens.filter(|open| (open.client, &*open.owner) != (client, owner));
        others.find(|open| open.access & deny != 0 || open.deny & access != 0).map(|open| open.client)
    }

    fn open(&mut self, client: u64, owner: &[u8], file: FileKey, access: u32, deny: u32) -> Result<StateId, Status> {
        let known = self.files.get(&file).into_iter().flat_map(|file| &file.opens).copied();
        let known = known
            .into_iter()
            .find(|number| self.shares.get(number).is_some_and(|open| open.client == client && *open.owner == *owner));
        let number = if let Some(number) = known {
            number
        } else {
            {
                let number = self.new_number(client)?;
                let open = Open {
                    client,
                    owner: owner.into(),
                    file,
                    access: 0,
                    deny: 0,
                    accesses: 0,
                    denies: 0,
                    seqid: 0,
                    locks: Vec::new(),
                };
                self.shares.insert(number, open);
                self.files.entry(file).or_default().opens.push(number);
                number
            }
        };
        let boot = self.boot;
        let open = self.shares.get_mut(&number).ok_or(Status::ServerFault)?;
        open.access |= access;
        open.deny |= deny;
        open.accesses |= 1 << access;
        open.denies |= 1 << deny;
        Ok(step(&mut open.seqid, boot, number))
    }

    /// OPEN_DOWNGRADE (RFC 8881 §18.18).
    pub fn downgrade(&mut self, number: u64, access: u32, deny: u32) -> Result<StateId, Status> {
        let boot = self.boot;
        let open = self.shares.get_mut(&number).ok_or(Status::BadStateId)?;
        let was_asked = open.accesses >> access & 1 == 1 && open.denies >> deny & 1 == 1;
        if !was_asked || access & !open.access != 0 || deny & !open.deny != 0 {
            return Err(Status::Invalid);
        }
        (open.access, open.deny) = (access, deny);
        // OPEN_DOWNGRADE can no longer return to values beyond the new ones.
        open.accesses = within(open.accesses, access);
        open.denies = within(open.denies, deny);
        Ok(step(&mut open.seqid, boot, number))
    }

    /// CLOSE (RFC 8881 §18.2): also removes the locks of the open.
    pub fn close(&mut self, number: u64) -> Result<(), Status> {
        let open = self.shares.remove(&number).ok_or(Status::BadStateId)?;
        for lock in &open.locks {
            self.locks.remove(lock);
        }
        if let Some(file) = self.files.get_mut(&open.file) {
            let before = file.locks.len();
            file.locks.retain(|held| self.locks.contains_key(&held.state));
            file.opens.retain(|open| *open != number);
            let removed = before - file.locks.len();
            self.count_ranges(open.client, 0, removed);
        }
        self.drop_numbers(open.client, 1 + open.locks.len());
        self.forget_idle(open.file);
        Ok(())
    }

    /// Finds or creates the lock state of an owner for an open.
    pub fn lock_state(&mut self, open: u64, owner: Owner<'_>) -> Result<u64, Status> {
        let Some(Open { client, file, locks, .. }) = self.shares.get(&open) else { return Err(Status::BadStateId) };
        let (client, file) = (*client, *file);
        let is_owners = |number: &&u64| self.locks.get(number).is_some_and(|lock| *lock.owner == *owner.name);
        if let Some(number) = locks.iter().find(is_owners) {
            return Ok(*number);
        }
        let number = self.new_number(client)?;
        self.locks.insert(number, LockState { client, owner: owner.name.into(), open, file, seqid: 0 });
        if let Some(open) = self.shares.get_mut(&open) {
            open.locks.push(number);
        }
        Ok(number)
    }

    /// Removes a lock state that has never held a lock.
    pub fn drop_unused(&mut self, lock: u64) {
        if self.locks.get(&lock).is_some_and(|state| state.seqid == 0) {
            self.drop_lock(lock);
        }
    }

    /// Finds a lock state by its stateid.
    pub fn find_lock(&self, client: u64, file: FileKey, state: &StateId) -> Result<u64, Status> {
        let (number, kind) = self.find(client, state)?;
        let is_of_file = self.locks.get(&number).is_some_and(|lock| lock.file == file);
        if kind == Kind::Lock && is_of_file { Ok(number) } else { Err(Status::BadStateId) }
    }

    fn lock_conflict(
        &self,
        client: u64,
        owner: &[u8],
        file: FileKey,
        (start, last): (u64, u64),
        is_exclusive: bool,
    ) -> Option<Denied> {
        self.files.get(&file)?.locks.iter().find_map(|held| {
            let state = self.locks.get(&held.state)?;
            let overlaps = held.start <= last && start <= held.last;
            let is_own = state.client == client && *state.owner == *owner;
            (overlaps && !is_own && (is_exclusive || held.is_exclusive)).then(|| Denied {
                range: LockRange {
                    offset: held.start,
                    len: if held.last == u64::MAX { u64::MAX } else { held.last - held.start + 1 },
                },
                is_exclusive: held.is_exclusive,
                client: state.client,
                owner: state.owner.clone(),
            })
        })
    }

    /// Adds a lock, replacing what its owner held in that range.
    fn hold(&mut self, state: u64, file: FileKey, bounds: (u64, u64), is_exclusive: bool) -> Result<StateId, Status> {
        let client = self.locks.get(&state).ok_or(Status::BadStateId)?.client;
        // It may also split a range.
        if !RANGES.has_room(self.held + 1, self.used(client).ranges + 1) {
            return Err(Status::Delay);
        }
        self.cut(state, file, bounds);
        self.files.entry(file).or_default().locks.push(HeldLock {
            state,
            start: bounds.0,
            last: bounds.1,
            is_exclusive,
        });
        self.count_ranges(client, 1, 0);
        self.step_lock(state)
    }

    /// LOCKU (RFC 8881 §18.12).
    pub fn unlock(&mut self, state: u64, range: LockRange) -> Result<StateId, Status> {
        let bounds = bounds(range)?;
        let LockState { file, client, .. } = *self.locks.get(&state).ok_or(Status::BadStateId)?;
        // Only what stays on both sides of the range takes more room.
        let splits = |held: &HeldLock| held.state == state && held.start < bounds.0 && bounds.1 < held.last;
        if !RANGES.has_room(self.held, self.used(client).ranges)
            && self.files.get(&file).is_some_and(|file| file.locks.iter().any(splits))
        {
            return Err(Status::Delay);
        }
        self.cut(state, file, bounds);
        self.step_lock(state)
    }

    /// FREE_STATEID (RFC 8881 §18.38).
    pub fn free(&mut self, client: u64, state: &StateId) -> Result<(), Status> {
        let (number, kind) = self.find(client, state)?;
        if kind == Kind::Open {
            return Err(Status::LocksHeld);
        }
        let file = self.locks.get(&number).ok_or(Status::BadStateId)?.file;
        let holds = |file: &FileState| file.locks.iter().any(|held| held.state == number);
        if self.files.get(&file).is_some_and(holds) {
            return Err(Status::LocksHeld);
        }
        self.drop_lock(number);
        Ok(())
    }

    pub fn has_state(&self, client: u64) -> bool {
        self.of_client.contains_key(&client)
    }

    fn drop_lock(&mut self, number: u64) {
        let Some(lock) = self.locks.remove(&number) else { return };
        if let Some(open) = self.shares.get_mut(&lock.open) {
            open.locks.retain(|of_open| *of_open != number);
        }
        self.drop_numbers(lock.client, 1);
    }

    fn drop_numbers(&mut self, client: u64, count: usize) {
        if let Some(used) = self.of_client.get_mut(&client) {
            used.states = used.states.saturating_sub(count);
            if used.states == 0 {
                self.of_client.remove(&client);
            }
        }
    }

    fn remove_client(&mut self, client: u64) {
        let opens: Vec<u64> =
            self.shares.iter().filter(|(_, open)| open.client == client).map(|(number, _)| *number).collect();
        for number in opens {
            let _ = self.close(number);
        }
    }

    fn step_lock(&mut self, state: u64) -> Result<StateId, Status> {
        let boot = self.boot;
        let lock = self.locks.get_mut(&state).ok_or(Status::BadStateId)?;
        Ok(step(&mut lock.seqid, boot, state))
    }

    /// Removes a range from the locks of a state.
    fn cut(&mut self, state: u64, file: FileKey, (start, last): (u64, u64)) {
        let Some(file) = self.files.get_mut(&file) else { return };
        let Some(client) = self.locks.get(&state).map(|lock| lock.client) else { return };
        let before = file.locks.len();
        let mut rest = Vec::new();
        file.locks.retain(|held| {
            if held.state != state || held.last < start || last < held.start {
                return true;
            }
            if held.start < start {
                rest.push(HeldLock { last: start - 1, ..*held });
            }
            if last < held.last {
                rest.push(HeldLock { start: last + 1, ..*held });
            }
            false
        });
        let removed = before - file.locks.len();
        let added = rest.len();
        file.locks.append(&mut rest);
        self.count_ranges(client, added, removed);
    }

    fn count_ranges(&mut self, client: u64, added: usize, removed: usize) {
        self.held = self.held + added - removed;
        if let Some(used) = self.of_client.get_mut(&client) {
            used.ranges = used.ranges + added - removed;
        }
    }

    fn used(&self, client: u64) -> Used {
        self.of_client.get(&client).copied().unwrap_or_default()
    }

    fn forget_idle(&mut self, file: FileKey) {
        if self.files.get(&file).is_some_and(|file| file.opens.is_empty() && file.locks.is_empty()) {
            self.files.remove(&file);
        }
    }

    /// Checks whether a client may have another open or lock state.
    pub fn check_room(&self, client: u64) -> Result<(), Status> {
        let all = self.shares.len() + self.locks.len();
        if STATES.has_room(all, self.used(client).states) { Ok(()) } else { Err(Status::Delay) }
    }

    fn new_number(&mut self, client: u64) -> Result<u64, Status> {
        self.check_room(client)?;
        self.of_client.entry(client).or_default().states += 1;
        self.next += 1;
        Ok(self.next)
    }
}

/// Returns the subset of `values` that contain no bits outside of `value`.
fn within(values: u8, value: u32) -> u8 {
    (0..4).filter(|each| values >> each & 1 == 1 && each & !value == 0).fold(0, |all, each| all | 1 << each)
}

/// Advances a stateid after a change.
fn step(seqid: &mut u32, boot: u32, number: u64) -> StateId {
    // RFC 8881 §8.2.2: 0 means the latest, so it is skipped.
    *seqid = seqid.checked_add(1).unwrap_or(1);
    let mut other = [0; 12];
    other[..4].copy_from_slice(&boot.to_be_bytes());
    other[4..].copy_from_slice(&number.to_be_bytes());
    StateId { seqid: *seqid, other }
}

/// First and last byte of a range (RFC 8881 §18.10.3).
fn bounds(range: LockRange) -> Result<(u64, u64), Status> {
    match range.len {
        0 => Err(Status::Invalid),
        u64::MAX => Ok((range.offset, u64::MAX)),
        len => range.offset.checked_add(len - 1).map(|last| (range.offset, last)).ok_or(Status::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const FILE: FileKey = (0, FileId { number: 2, generation: 0 });
    const NOW: Instant = Instant(0);

    fn range(offset: u64, len: u64) -> LockRange {
        LockRange { offset, len }
    }

    fn owner(name: &'static [u8]) -> Owner<'static> {
        Owner { client: 0, name }
    }

    #[test]
    fn share_reservations_keep_others_out_and_an_owner_has_one_open_of_a_file() {
        let mut opens = Opens::default();
        let first = opens.open(1, b"a", FILE, share::READ, share::WRITE).expect("an open");
        assert_eq!(opens.sharing_conflict(2, b"a", FILE, share::WRITE, 0), Some(1));
        assert_eq!(opens.sharing_conflict(2, b"a", FILE, share::READ, share::READ), Some(1));
        assert_eq!(opens.sharing_conflict(1, b"b", FILE, share::READ, 0), None);
        let more = opens.open(1, b"a", FILE, share::WRITE, 0).expect("more of it");
        assert_eq!((first.other, first.seqid, more.seqid), (more.other, 1, 2));
        assert_eq!(opens.find(1, &first), Err(Status::OldStateId));
        assert_eq!(opens.find(2, &more), Err(Status::BadStateId));
        assert_eq!(opens.check_io(1, FILE, &StateId { seqid: 0, ..first }, true), Ok(()));
        assert_eq!(opens.check_io(1, FILE, &StateId::ANONYMOUS, true), Err(Status::Locked));
        let (number, _) = opens.find(1, &more).expect("an open");
        assert_eq!(opens.downgrade(number, share::BOTH, 0), Err(Status::Invalid), "never asked for in one");
        let less = opens.downgrade(number, share::READ, share::WRITE).expect("less of it");
        assert_eq!(opens.check_io(1, FILE, &less, true), Err(Status::OpenMode));
        opens.close(number).expect("a close");
        assert!(opens.files.is_empty() && opens.of_client.is_empty());
    }

    #[test]
    fn locks_are_cut_and_told_to_who_is_denied() {
        let mut shared = Shared::default();
        let both = (share::BOTH, 0);
        let mut locker = |client, name| {
            let open = shared.open(NOW, client, b"o", FILE, both).expect("an open");
            let open = shared.opens.find_open(client, FILE, &open).expect("an open");
            shared.opens.lock_state(open, owner(name)).expect("a state")
        };
        let (mine, theirs) = (locker(1, b"mine"), locker(2, b"theirs"));
        let file = |shared: &Shared| {
            let mut held: Vec<(u64, u64, bool)> =
                shared.opens.files[&FILE].locks.iter().map(|held| (held.start, held.last, held.is_exclusive)).collect();
            held.sort_unstable();
            held
        };
        shared.lock(NOW, 1, mine, range(0, 100), true).expect("a lock");
        shared.lock(NOW, 1, mine, range(40, 20), false).expect("a weaker one within it");
        assert_eq!(file(&shared), [(0, 39, true), (40, 59, false), (60, 99, true)]);
        shared.opens.unlock(mine, range(50, u64::MAX)).expect("an unlock");
        assert_eq!(file(&shared), [(0, 39, true), (40, 49, false)]);
        assert_eq!(shared.opens.held, 2);
        shared.lock(NOW, 2, theirs, range(40, 5), false).expect("readers share");
        // The clients of this test have never sent a request, so their leases have expired and they are removed.
        shared.lock(NOW, 2, theirs, range(0, 5), true).expect("a lock of one whose lease is over");
        assert_eq!(file(&shared), [(0, 4, true), (40, 44, false)]);
        assert_eq!(shared.lock(NOW, 2, theirs, range(5, 0), true), Err(Status::Invalid.into()));
        assert_eq!(shared.lock(NOW, 2, theirs, range(u64::MAX, 2), true), Err(Status::Invalid.into()));
    }

    #[test]
    fn states_are_limited_and_locks_that_are_held_are_not_freed() {
        let mut opens = Opens::default();
        let open = opens.open(1, b"o", FILE, share::BOTH, 0).expect("an open");
        let number = opens.find_open(1, FILE, &open).expect("an open");
        let lock = opens.lock_state(number, owner(b"l")).expect("a state");
        let held = opens.hold(lock, FILE, (0, 9), true).expect("a lock");
        assert_eq!(opens.free(1, &held), Err(Status::LocksHeld));
        let free = opens.unlock(lock, range(0, 10)).expect("an unlock");
        assert_eq!(opens.free(1, &free), Ok(()));
        assert_eq!(opens.find(1, &free), Err(Status::BadStateId));
        let many = vec![0; STATES.of_origin];
        let refused = many.iter().zip(0_u32..).find_map(|(_, at)| {
            opens.open(1, &at.to_be_bytes(), (0, FileId { number: at.into(), generation: 1 }), share::READ, 0).err()
        });
        assert_eq!(refused, Some(Status::Delay));
    }

    #[test]
    fn a_client_with_all_locks_that_it_may_have_leaves_some_to_others_and_can_give_them_up() {
        let mut opens = Opens::default();
        let locker = |opens: &mut Opens, client| {
            let open = opens.open(client, b"o", FILE, share::BOTH, 0).expect("an open");
            let number = opens.find_open(client, FILE, &open).expect("an open");
            opens.lock_state(number, owner(b"l")).expect("a state")
        };
        let (greedy, other) = (locker(&mut opens, 1), locker(&mut opens, 2));
        let mut held = 0;
        while opens.hold(greedy, FILE, (1_000 + 3 * held, 1_001 + 3 * held), true).is_ok() {
            held += 1;
        }
        assert!(held as usize <= RANGES.of_origin && held as usize > RANGES.of_origin / 2, "{held}");
        opens.hold(other, FILE, (0, 9), true).expect("room for others");
        opens.unlock(other, range(4, 2)).expect("room for others");
        assert_eq!(opens.used(2).ranges, 2);
        while opens.held < RANGES.all {
            let file = opens.files.get_mut(&FILE).expect("a file");
            file.locks.push(HeldLock { state: greedy, start: u64::MAX, last: u64::MAX, is_exclusive: true });
            opens.count_ranges(1, 1, 0);
        }
        assert_eq!(opens.hold(other, FILE, (20, 29), true), Err(Status::Delay), "the table is full");
        opens.unlock(greedy, range(1_000, 2)).expect("less of it takes no room");
        let number = opens.shares.iter().find(|(_, open)| open.client == 1).map(|(number, _)| *number);
        opens.close(number.expect("an open")).expect("a close");
        assert_eq!((opens.held, opens.used(1).ranges), (2, 0));
    }
}
