//! A table of sessions in which each owner has one at a time. A newer session ends the older one, and starts when no
//! operation of the older one continues.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{Ending, Endings, Origin, Shares};

/// The sessions of a target, over all its connections and threads. `K` identifies the owner, `V` is what the target
/// keeps of each session.
#[derive(Debug)]
pub struct SessionTable<K, V = ()> {
    live: Vec<Entry<K, V>>,
    /// Sessions that have ended while operations of them may continue.
    former: Vec<(K, Endings)>,
    shares: Shares,
}

#[derive(Debug)]
struct Entry<K, V> {
    owner: K,
    origin: Origin,
    value: V,
    is_ended: Arc<AtomicBool>,
    endings: Endings,
}

/// A live session's own part, on its own thread.
#[derive(Debug)]
pub struct LiveSession {
    is_ended: Arc<AtomicBool>,
    ending: Ending,
}

impl LiveSession {
    /// Whether another session has replaced it, or its target is gone. If so, it must end itself.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Held by operations that continue after the session. The next session of its owner waits for them.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }
}

impl<K: Clone + PartialEq, V> SessionTable<K, V> {
    pub fn new(shares: Shares) -> Self {
        Self { live: Vec::new(), former: Vec::new(), shares }
    }

    /// Opens a session, and ends the owner's earlier one. The new session may start when the endings are over; before
    /// that, an operation of an earlier session could still change data. `None` if there are too many sessions; the
    /// earlier one has ended in any case.
    pub fn open(&mut self, owner: K, origin: Origin, value: V) -> Option<(LiveSession, Endings)> {
        self.end_where(|entry| entry.owner == owner);
        let of_origin = self.live.iter().filter(|entry| entry.origin == origin).count();
        if !self.shares.has_room(self.live.len(), of_origin) {
            return None;
        }
        let mut waits_for = Endings::default();
        for (_, endings) in self.former.iter().filter(|(former, _)| *former == owner) {
            waits_for.append(endings.clone());
        }
        let session = LiveSession { is_ended: Arc::default(), ending: Ending::default() };
        let (mut endings, is_ended) = (Endings::default(), Arc::clone(&session.is_ended));
        endings.add(&session.ending);
        self.live.push(Entry { owner, origin, value, is_ended, endings });
        Some((session, waits_for))
    }

    /// Removes a session that has ended itself. Its operations were aborted; those that continue hold its ending.
    pub fn close(&mut self, session: &LiveSession) {
        self.end_where(|entry| Arc::ptr_eq(&entry.is_ended, &session.is_ended));
    }

    pub fn end_all(&mut self) {
        self.end_where(|_| true);
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.live.iter().map(|entry| &entry.value)
    }

    fn end_where(&mut self, is_meant: impl Fn(&Entry<K, V>) -> bool) {
        self.former.retain_mut(|(_, endings)| !endings.are_over());
        for entry in self.live.extract_if(.., |entry| is_meant(entry)) {
            entry.is_ended.store(true, Ordering::Release);
            self.former.push((entry.owner, entry.endings));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SessionTable<&'static str> {
        SessionTable::new(Shares { all: 4, of_origin: 2 })
    }

    #[test]
    fn a_session_of_the_same_owner_ends_the_older_one_and_waits_for_it() {
        let mut table = table();
        let (first, mut waits) = table.open("a", Origin::Address(1), ()).expect("room");
        assert!(waits.are_over());
        let (other, mut waits) = table.open("b", Origin::Address(1), ()).expect("room");
        assert!(waits.are_over());
        let (second, mut waits) = table.open("a", Origin::Address(1), ()).expect("room");
        assert_eq!([&first, &other, &second].map(LiveSession::is_ended), [true, false, false]);
        assert!(!waits.are_over());
        let on_disk = first.ending().clone();
        table.close(&first);
        drop(first);
        assert!(!waits.are_over(), "an operation of it goes on");
        drop(on_disk);
        assert!(waits.are_over());
        assert_eq!(table.values().count(), 2);
    }

    #[test]
    fn a_session_waits_for_all_earlier_ones_of_its_owner_however_they_ended() {
        let mut table = table();
        let (first, _) = table.open("a", Origin::Address(1), ()).expect("room");
        let on_disk = first.ending().clone();
        table.close(&first);
        drop(first);
        let (second, _) = table.open("a", Origin::Address(1), ()).expect("room");
        table.close(&second);
        drop(second);
        let (_third, mut waits) = table.open("a", Origin::Address(1), ()).expect("room");
        assert!(!waits.are_over(), "the first one's operation goes on");
        drop(on_disk);
        assert!(waits.are_over());
    }

    #[test]
    fn sessions_are_bounded_in_all_and_of_one_origin() {
        let mut table = table();
        let mut held = Vec::new();
        let mut open = |owner, origin| table.open(owner, Origin::Address(origin), ()).map(|opened| held.push(opened));
        assert!(open("a", 1).is_some() && open("b", 1).is_some());
        assert!(open("c", 1).is_none(), "the origin has its share");
        assert!(open("c", 2).is_some() && open("d", 3).is_some());
        assert!(open("e", 4).is_none(), "the table is full");
    }

    #[test]
    fn the_end_of_all_ends_each() {
        let mut table = table();
        let (one, _) = table.open("a", Origin::Address(1), ()).expect("room");
        table.end_all();
        assert!(one.is_ended() && table.values().next().is_none());
    }
}
