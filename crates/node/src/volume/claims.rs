//! Claims: which operations may change a part of a volume now, among all connections, protocols and threads of a
//! server.
//!
//! An operation that reads blocks, changes them and writes them back (an unaligned write, COMPARE AND WRITE, ORWRITE)
//! claims them exclusively. Whole-block writes share their blocks with each other. While there are no exclusive claims,
//! a whole-block write costs two additions to its thread's counter for that part of the volume: no lock, and no memory
//! that another thread writes. Claims that must wait are served in order of arrival.

use std::{
    array,
    rc::Rc,
    sync::{Arc, OnceLock, PoisonError, atomic::Ordering::SeqCst},
};

use iotax_proto::UnitError;

use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Mutex, MutexGuard};

/// Bytes that one counter of whole-block writes covers. Small, because a claim also waits for other writes under the
/// same counter.
const STRIPE_BYTES: u64 = 16 << 10;
/// Counters per volume and thread; stripes beyond them use the same counters again.
const STRIPES: usize = if cfg!(loom) { 4 } else { 1024 };
const COUNTERS_A_LINE: usize = if cfg!(loom) { 4 } else { 16 };
/// Maximum number of claims of a volume that are exclusive or waiting: each release searches all of them.
const ENTRIES_MAX: usize = 1024;

type Wake = Box<dyn Fn() + Send + Sync>;

/// A volume's claims, shared by all threads.
pub(crate) struct Claims {
    /// Number of exclusive claims in `entries`, held or waiting.
    alone: AtomicUsize,
    entries: Mutex<Entries>,
    wake: OnceLock<Wake>,
}

/// Whole-block writes of one thread that are under way, by stripe. An exclusive claim reads the counters of all
/// threads.
#[derive(Debug)]
struct Writes(Box<[CacheLine; STRIPES / COUNTERS_A_LINE]>);

/// Counters on their own cache line, apart from other threads' counters.
#[derive(Debug)]
#[repr(align(64))]
struct CacheLine([AtomicU32; COUNTERS_A_LINE]);

/// Exclusive claims, and all waiting claims in order of arrival.
#[derive(Debug, Default)]
struct Entries {
    list: Vec<Entry>,
    last_id: u64,
    /// Counters of each claimant.
    writes: Vec<Arc<Writes>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    part: Part,
    alone: bool,
    is_held: bool,
    ticket: Arc<Ticket>,
    /// Counters of its owner.
    writes: Arc<Writes>,
}

/// Tells the owner of a waiting claim that it is granted.
#[derive(Debug)]
struct Ticket {
    is_granted: AtomicBool,
    /// The mailbox of the owner's thread: set when a claim is granted.
    mailbox: Arc<AtomicBool>,
}

/// A range of bytes, and the stripes it touches.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    end: u64,
    first: u64,
    count: u64,
}

/// One thread's access to a volume's claims.
#[derive(Debug)]
pub(super) struct Claimant {
    claims: Arc<Claims>,
    writes: Arc<Writes>,
    mailbox: Arc<AtomicBool>,
}

/// A claim, held or waiting. It is released when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claimant: Rc<Claimant>,
    part: Part,
    alone: bool,
    /// A whole-block write that was aborted. It has an exclusive entry, and still counts as a write.
    aborted: bool,
    /// Its entry, if it has or had one.
    entry: Option<(u64, Arc<Ticket>)>,
}

impl Claims {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { alone: AtomicUsize::new(0), entries: Mutex::default(), wake: OnceLock::new() })
    }

    /// `wake` makes every thread look into its mailbox. Only the first call counts.
    pub(crate) fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Number of claims that are exclusive or waiting.
    #[cfg(all(test, not(loom)))]
    fn entries(&self) -> usize {
        self.lock().list.len()
    }

    #[cfg(all(test, not(loom)))]
    fn has_writes(&self) -> bool {
        self.lock().has_writes(&Part::new(0, STRIPE_BYTES * STRIPES as u64))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_others(&self, wakes_others: bool) {
        if wakes_others && let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

impl Writes {
    fn new() -> Arc<Self> {
        let line = |_| CacheLine(array::from_fn(|_| AtomicU32::new(0)));
        Arc::new(Self(Box::new(array::from_fn(line))))
    }

    #[inline]
    fn add(&self, part: &Part) {
        for stripe in part.first..part.first + part.count {
            self.of(stripe).fetch_add(1, SeqCst);
        }
    }

    #[inline]
    fn subtract(&self, part: &Part) {
        for stripe in part.first..part.first + part.count {
            self.of(stripe).fetch_sub(1, SeqCst);
        }
    }

    fn has_any(&self, part: &Part) -> bool {
        (part.first..part.first + part.count).any(|stripe| self.of(stripe).load(SeqCst) > 0)
    }

    #[inline]
    fn of(&self, stripe: u64) -> &AtomicU32 {
        let counter = stripe as usize % STRIPES;
        &self.0[counter / COUNTERS_A_LINE].0[counter % COUNTERS_A_LINE]
    }
}

impl Entries {
    fn has_writes(&self, part: &Part) -> bool {
        self.writes.iter().any(|writes| writes.has_any(part))
    }

    /// Grants the claims that waited for `released` and wait for nothing else. Returns whether any belongs to another
    /// thread.
    fn grant(&mut self, released: (&Part, bool), own: &Arc<AtomicBool>) -> bool {
        let mut wakes_others = false;
        for index in 0..self.list.len() {
            let (earlier, rest) = self.list.split_at_mut(index);
            let Some(entry) = rest.first_mut() else { break };
            let waited = !entry.is_held && conflicts(released, (&entry.part, entry.alone));
            let barred = || earlier.iter().any(|other| other.bars(&entry.part, entry.alone));
            let has_writes = || self.writes.iter().any(|writes| writes.has_any(&entry.part));
            if !waited || barred() || (entry.alone && has_writes()) {
                continue;
            }
            if !entry.alone {
                entry.writes.add(&entry.part);
            }
            entry.is_held = true;
            entry.ticket.is_granted.store(true, SeqCst);
            entry.ticket.mailbox.store(true, SeqCst);
            wakes_others |= !Arc::ptr_eq(&entry.ticket.mailbox, own);
        }
        self.list.retain(|entry| entry.alone || !entry.is_held);
        wakes_others
    }
}

impl Entry {
    fn bars(&self, part: &Part, alone: bool) -> bool {
        conflicts((&self.part, self.alone), (part, alone))
    }
}

/// Two exclusive claims conflict if they overlap. An exclusive claim and a whole-block write conflict if they touch the
/// same counter: nothing else is known of such a write.
fn conflicts(one: (&Part, bool), other: (&Part, bool)) -> bool {
    match (one, other) {
        ((one, true), (other, true)) => one.offset < other.end && other.offset < one.end,
        ((_, false), (_, false)) => false,
        ((one, _), (other, _)) => one.meets(other),
    }
}

impl Part {
    #[inline]
    fn new(offset: u64, len: u64) -> Self {
        let end = offset + len;
        let first = offset / STRIPE_BYTES;
        let count = (end.div_ceil(STRIPE_BYTES) - first).min(STRIPES as u64);
        Self { offset, end, first, count }
    }

    /// The stripe of a range that lies within one stripe, as most do.
    #[inline]
    fn only_stripe(offset: u64, len: u64) -> Option<u64> {
        let first = offset / STRIPE_BYTES;
        ((offset + len - 1) / STRIPE_BYTES == first).then_some(first)
    }

    fn meets(&self, other: &Self) -> bool {
        let distance = |from: &Self, to: &Self| to.first.wrapping_sub(from.first) % STRIPES as u64;
        distance(self, other) < self.count || distance(other, self) < other.count
    }
}

impl Claimant {
    /// `mailbox` is set when a waiting claim of this thread is granted.
    pub(super) fn new(claims: Arc<Claims>, mailbox: Arc<AtomicBool>) -> Rc<Self> {
        let writes = Writes::new();
        claims.lock().writes.push(Arc::clone(&writes));
        Rc::new(Self { claims, writes, mailbox })
    }

    /// Claims blocks for a whole-block write. Fails with `Busy` if too many claims wait.
    #[inline]
    pub(super) fn share(self: &Rc<Self>, offset: u64, len: u64) -> Result<Claim, UnitError> {
        let part = Part::new(offset, len);
        self.writes.add(&part);
        // Must follow the addition: then either this thread sees an earlier claim, or that claim sees this write.
        let entry = if self.claims.alone.load(SeqCst) == 0 { None } else { self.share_contended(&part)? };
        Ok(Claim { claimant: Rc::clone(self), part, alone: false, aborted: false, entry })
    }

    #[cold]
    fn share_contended(&self, part: &Part) -> Result<Option<(u64, Arc<Ticket>)>, UnitError> {
        let mut entries = self.claims.lock();
        if !entries.list.iter().any(|entry| entry.bars(part, false)) {
            return Ok(None);
        }
        self.writes.subtract(part);
        let waiting = self.enter(&mut entries, part, false);
        // Another claim may have seen the raised counter and waits.
        let wakes_others = entries.grant((part, false), &self.mailbox);
        drop(entries);
        self.claims.wake_others(wakes_others);
        waiting.map(Some)
    }

    /// Begins a write whose data are placed as they arrive: it shares its blocks until `write_ends`. Returns false, and
    /// shares nothing, if any of its blocks are claimed exclusively or an exclusive claim waits for them.
    #[inline]
    pub(super) fn write_begins(&self, offset: u64, len: u64) -> bool {
        match Part::only_stripe(offset, len) {
            Some(stripe) => _ = self.writes.of(stripe).fetch_add(1, SeqCst),
            None => self.writes.add(&Part::new(offset, len)),
        }
        self.claims.alone.load(SeqCst) == 0 || self.may_write(&Part::new(offset, len))
    }

    #[inline]
    pub(super) fn write_ends(&self, offset: u64, len: u64) {
        match Part::only_stripe(offset, len) {
            Some(stripe) => _ = self.writes.of(stripe).fetch_sub(1, SeqCst),
            None => self.writes.subtract(&Part::new(offset, len)),
        }
        if self.claims.alone.load(SeqCst) > 0 {
            self.wrote(self.claims.lock(), &Part::new(offset, len));
        }
    }

    #[cold]
    fn may_write(&self, part: &Part) -> bool {
        let entries = self.claims.lock();
        let is_free = !entries.list.iter().any(|entry| entry.bars(part, false));
        if !is_free {
            self.writes.subtract(part);
            // Another claim may have seen the raised counter and waits.
            self.wrote(entries, part);
        }
        is_free
    }

    #[cold]
    fn wrote(&self, mut entries: MutexGuard<'_, Entries>, part: &Part) {
        let wakes_others = entries.grant((part, false), &self.mailbox);
        drop(entries);
        self.claims.wake_others(wakes_others);
    }

    /// Claims blocks for an operation that reads them, and must find them unchanged when it writes. Fails with `Busy`
    /// if too many claims wait.
    pub(super) fn exclude(self: &Rc<Self>, offset: u64, len: u64) -> Result<Claim, UnitError> {
        let part = Part::new(offset, len);
        let mut entries = self.claims.lock();
        let entry = self.enter(&mut entries, &part, true)?;
        self.claims.alone.fetch_add(1, SeqCst);
        let has_writes = entries.has_writes(&part);
        let (last, earlier) = entries.list.split_last_mut().ok_or(UnitError::Busy)?;
        if !has_writes && !earlier.iter().any(|other| other.bars(&part, true)) {
            last.is_held = true;
            entry.1.is_granted.store(true, SeqCst);
        }
        drop(entries);
        Ok(Claim { claimant: Rc::clone(self), part, alone: true, aborted: false, entry: Some(entry) })
    }

    fn enter(&self, entries: &mut Entries, part: &Part, alone: bool) -> Result<(u64, Arc<Ticket>), UnitError> {
        if entries.list.len() >= ENTRIES_MAX {
            return Err(UnitError::Busy);
        }
        entries.last_id += 1;
        let ticket = Arc::new(Ticket { is_granted: AtomicBool::new(false), mailbox: Arc::clone(&self.mailbox) });
        let writes = Arc::clone(&self.writes);
        let entry =
            Entry { id: entries.last_id, part: *part, alone, is_held: false, ticket: Arc::clone(&ticket), writes };
        entries.list.push(entry);
        Ok((entries.last_id, ticket))
    }
}

/// By now none of its claims is left, because each holds a reference to it.
impl Drop for Claimant {
    fn drop(&mut self) {
        self.claims.lock().writes.retain(|each| !Arc::ptr_eq(each, &self.writes));
    }
}

impl Claim {
    #[inline]
    pub(super) fn is_granted(&self) -> bool {
        self.entry.as_ref().is_none_or(|(_, ticket)| ticket.is_granted.load(SeqCst))
    }

    /// For a write that was aborted while the disk works on it: later claims on its blocks wait until the disk has
    /// ended it, because otherwise the aborted write could undo theirs. Earlier exclusive claims wait for it as before.
    /// If too many claims wait already, this claim stays as it was.
    #[must_use]
    pub(super) fn abandoned(mut self) -> Self {
        if self.alone || !self.is_granted() {
            return self;
        }
        let claims = Arc::clone(&self.claimant.claims);
        let mut entries = claims.lock();
        if let Ok(entry) = self.claimant.enter(&mut entries, &self.part, true) {
            if let Some(last) = entries.list.last_mut() {
                last.is_held = true;
            }
            entry.1.is_granted.store(true, SeqCst);
            claims.alone.fetch_add(1, SeqCst);
            (self.alone, self.aborted, self.entry) = (true, true, Some(entry));
        }
        drop(entries);
        self
    }

    #[cold]
    fn release_contended(&self) {
        let claims = &self.claimant.claims;
        let mut entries = claims.lock();
        let id = self.entry.as_ref().map(|(id, _)| *id);
        let entered = entries.list.len();
        entries.list.retain(|entry| Some(entry.id) != id);
        if self.alone {
            claims.alone.fetch_sub(1, SeqCst);
        } else if id.is_some() && entries.list.len() == entered {
            // It waited and was granted, which removed its entry.
            self.claimant.writes.subtract(&self.part);
        }
        let mut wakes_others = entries.grant((&self.part, self.alone), &self.claimant.mailbox);
        if self.aborted {
            // Exclusive claims waited for its counter, later whole-block writes for its entry.
            self.claimant.writes.subtract(&self.part);
            wakes_others |= entries.grant((&self.part, false), &self.claimant.mailbox);
        }
        drop(entries);
        claims.wake_others(wakes_others);
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        if self.entry.is_none() {
            self.claimant.writes.subtract(&self.part);
            if self.claimant.claims.alone.load(SeqCst) == 0 {
                return;
            }
        }
        self.release_contended();
    }
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claims({} alone)", self.alone.load(SeqCst))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn claimant(claims: &Arc<Claims>) -> Rc<Claimant> {
        Claimant::new(Arc::clone(claims), Arc::default())
    }

    #[test]
    fn blocks_of_an_aborted_write_are_nobodys_until_the_disk_has_ended_it() {
        let claims = Claims::new();
        let one = claimant(&claims);
        let beside = one.share(4096, 4096).expect("room");
        let aborted = one.share(0, 4096).expect("room").abandoned();
        let after = one.share(0, 4096).expect("room");
        assert!(beside.is_granted() && !after.is_granted());
        drop(aborted);
        assert!(after.is_granted());
        drop((after, beside));
        assert_eq!((claims.entries(), claims.alone.load(SeqCst)), (0, 0));
        assert!(!claims.has_writes());
    }

    #[test]
    fn changes_that_wait_for_a_write_get_their_turn_only_when_the_disk_has_ended_it_although_it_is_aborted() {
        for at in [0, 8192] {
            let claims = Claims::new();
            let (one, other) = (claimant(&claims), claimant(&claims));
            let write = one.share(0, 4096).expect("room");
            let change = other.exclude(at, 512).expect("room");
            assert!(!change.is_granted());
            let aborted = write.abandoned();
            // A write that comes and waits makes the claims look whether they may go on.
            let later = one.share(8192, 4096).expect("room");
            assert!(!change.is_granted(), "the disk still works on the aborted write");
            drop(aborted);
            assert!(change.is_granted() && !later.is_granted());
            drop(change);
            assert!(later.is_granted());
            drop(later);
            assert_eq!((claims.entries(), claims.alone.load(SeqCst)), (0, 0));
            assert!(!claims.has_writes());
        }
    }

    #[test]
    fn whole_block_writes_share_and_wait_only_for_what_they_overlap() {
        let claims = Claims::new();
        let one = claimant(&claims);
        let (first, second) = (one.share(0, 4096).expect("room"), one.share(0, 4096).expect("room"));
        assert!(first.is_granted() && second.is_granted() && claims.entries() == 0);
        let alone = one.exclude(512, 512).expect("room");
        assert!(!alone.is_granted(), "two writes are under way");
        let late = one.share(0, 512).expect("room");
        assert!(!late.is_granted(), "it came after who waits");
        assert!(one.share(1 << 20, 4096).expect("room").is_granted(), "it is elsewhere");
        drop(first);
        assert!(!alone.is_granted());
        drop(second);
        assert!(alone.is_granted() && !late.is_granted());
        drop(alone);
        assert!(late.is_granted());
        drop(late);
        assert_eq!((claims.entries(), claims.alone.load(SeqCst)), (0, 0));
        assert!(!claims.has_writes());
    }

    #[test]
    fn claims_of_other_threads_are_waited_for_and_forgotten_with_them() {
        let claims = Claims::new();
        let (one, other) = (claimant(&claims), claimant(&claims));
        let write = one.share(0, 4096).expect("room");
        let alone = other.exclude(512, 512).expect("room");
        assert!(!alone.is_granted(), "another thread writes there");
        drop(write);
        assert!(alone.is_granted());
        let waits = one.share(0, 4096).expect("room");
        assert!(!waits.is_granted());
        drop(alone);
        assert!(waits.is_granted() && one.writes.has_any(&Part::new(0, 512)), "it counts as its owner's");
        drop((waits, one, other));
        assert_eq!((claims.entries(), claims.lock().writes.len()), (0, 0));
    }

    #[test]
    fn those_who_want_blocks_alone_take_turns_in_order_where_they_overlap() {
        let claims = Claims::new();
        let one = claimant(&claims);
        let mut all: Vec<Claim> = (0..5).map(|_| one.exclude(0, 512).expect("room")).collect();
        assert!(one.exclude(512, 512).expect("room").is_granted(), "the block beside is another's");
        for _ in 0..5 {
            assert_eq!(all.iter().filter(|claim| claim.is_granted()).count(), 1);
            assert!(all[0].is_granted());
            all.remove(0);
        }
        let (held, waits) = (one.exclude(0, 512).expect("room"), one.exclude(0, 512).expect("room"));
        drop(waits);
        drop(held);
        assert_eq!((claims.entries(), claims.alone.load(SeqCst)), (0, 0), "who gives up is forgotten");
    }

    #[test]
    fn a_stripe_used_again_far_off_counts_for_both_its_places() {
        let claims = Claims::new();
        let one = claimant(&claims);
        let far = STRIPE_BYTES * STRIPES as u64 * 3;
        let write = one.share(far, 4096).expect("room");
        let alone = one.exclude(0, 512).expect("room");
        assert!(!alone.is_granted());
        let later = one.share(far + 4096, 4096).expect("room");
        assert!(!later.is_granted(), "it would keep the counter up for ever");
        drop(write);
        assert!(alone.is_granted());
    }

    #[test]
    fn too_many_who_wait_are_told_to_come_again() {
        let claims = Claims::new();
        let one = claimant(&claims);
        let held: Vec<_> = std::iter::from_fn(|| one.exclude(0, 512).ok()).take(ENTRIES_MAX * 2).collect();
        assert_eq!(held.len(), ENTRIES_MAX);
        assert_eq!(one.share(0, 512).err(), Some(UnitError::Busy));
        assert!(one.share(1 << 20, 512).is_ok());
        drop(held);
        assert!(one.share(0, 512).expect("room").is_granted());
        assert!(!claims.has_writes());
    }

    #[test]
    fn threads_never_change_the_same_blocks_at_the_same_time() {
        use std::sync::atomic::AtomicI64;
        const ROUNDS: usize = 3000;
        let (claims, inside) = (Claims::new(), [const { AtomicI64::new(0) }; 4]);
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (claims, inside) = (&claims, &inside);
                scope.spawn(move || {
                    let one = claimant(claims);
                    for round in 0..ROUNDS {
                        let (block, alone) = ((round * 7 + thread) % 4, (round + thread) % 3 == 0);
                        let at = block as u64 * 512;
                        let claim = if alone { one.exclude(at, 512) } else { one.share(at, 512) }.expect("room");
                        while !claim.is_granted() {
                            std::thread::yield_now();
                        }
                        // Each shared claim adds 1; an exclusive one subtracts 1000.
                        let change = if alone { -1000 } else { 1 };
                        let before = inside[block].fetch_add(change, SeqCst);
                        assert!(if alone { before == 0 } else { before >= 0 }, "{before}");
                        inside[block].fetch_sub(change, SeqCst);
                    }
                });
            }
        });
        assert_eq!((claims.entries(), claims.alone.load(SeqCst)), (0, 0));
        assert!(!claims.has_writes());
    }
}

/// scripts/loom runs these: every order in which the threads can use what they share, up to some number of preemptions.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        model::Builder,
        sync::{Notify, atomic::AtomicI64},
        thread,
    };

    use super::*;

    /// What one thread does: claims these bytes, and holds them for a moment.
    #[derive(Clone, Copy)]
    enum Does {
        Share,
        Exclude,
        /// Another block under the same counter.
        ExcludeBeside,
        /// A write whose data are placed as they arrive.
        Place,
        /// A shared write that is aborted while the disk works on it.
        Abandon,
    }

    /// `preemptions` bounds how often a thread loses its processor in one order. All threads are woken, as all drivers are.
    fn every_order(preemptions: usize, all: &'static [Does]) {
        let mut model = Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let (claims, inside) = (Claims::new(), Arc::new(AtomicI64::new(0)));
            let bells: Vec<_> = all.iter().map(|_| Arc::new(Notify::new())).collect();
            let ringing = bells.clone();
            claims.wake_with(move || ringing.iter().for_each(|bell| bell.notify()));
            let work = |does: Does, bell: Arc<Notify>| {
                let (claims, inside) = (Arc::clone(&claims), Arc::clone(&inside));
                move || act(does, claims, &inside, &bell)
            };
            let (last, others) = bells.split_last().expect("a thread");
            let threads: Vec<_> =
                others.iter().zip(all).map(|(bell, does)| thread::spawn(work(*does, Arc::clone(bell)))).collect();
            work(all[others.len()], Arc::clone(last))();
            threads.into_iter().for_each(|each| each.join().unwrap());
            assert_eq!((claims.lock().list.len(), claims.alone.load(SeqCst)), (0, 0));
        });
    }

    fn act(does: Does, claims: Arc<Claims>, inside: &AtomicI64, bell: &Notify) {
        let mailbox = Arc::new(AtomicBool::new(false));
        let own = Claimant::new(claims, Arc::clone(&mailbox));
        let hold = |alone: bool| {
            // Each shared claim adds 1; an exclusive one subtracts 1000.
            let change = if alone { -1000 } else { 1 };
            let before = inside.fetch_add(change, SeqCst);
            assert!(if alone { before == 0 } else { before >= 0 }, "{before}");
            inside.fetch_sub(change, SeqCst);
        };
        if matches!(does, Does::Place) && own.write_begins(0, 512) {
            hold(false);
            return own.write_ends(0, 512);
        }
        let alone = matches!(does, Does::Exclude | Does::ExcludeBeside);
        let at = if matches!(does, Does::ExcludeBeside) { 8192 } else { 0 };
        let claim = if alone { own.exclude(at, 512) } else { own.share(at, 512) }.expect("room");
        while !claim.is_granted() {
            while !mailbox.swap(false, SeqCst) {
                bell.wait();
            }
        }
        let claim = if matches!(does, Does::Abandon) { claim.abandoned() } else { claim };
        hold(alone);
        drop(claim);
    }

    #[test]
    fn a_write_and_a_change_never_meet_and_who_waits_is_woken() {
        every_order(4, &[Does::Share, Does::Exclude]);
        every_order(4, &[Does::Place, Does::Exclude]);
    }

    #[test]
    fn two_changes_never_meet_and_who_waits_is_woken() {
        every_order(4, &[Does::Exclude, Does::Exclude]);
    }

    #[test]
    fn an_aborted_write_is_waited_for() {
        every_order(4, &[Does::Abandon, Does::Exclude]);
        every_order(4, &[Does::Abandon, Does::ExcludeBeside]);
        every_order(4, &[Does::Abandon, Does::Share]);
        every_order(2, &[Does::Abandon, Does::Exclude, Does::Share]);
    }

    #[test]
    fn three_threads_take_their_turns() {
        every_order(2, &[Does::Share, Does::Exclude, Does::Exclude]);
        every_order(2, &[Does::Share, Does::Place, Does::Exclude]);
    }
}
