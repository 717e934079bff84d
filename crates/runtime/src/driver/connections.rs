//! The connections of a port by id, and lists of those that wait for something. Generations prevent a late event of an
//! ended connection from being taken for one of its successor.

use std::{collections::VecDeque, mem, os::fd::OwnedFd};

use iotax_node::{CloseReason, ConnId};
use iotax_proto::Instant;

use super::life::Life;

/// The part of a connection that both ports treat alike.
pub(super) trait Connection {
    fn socket(&self) -> &OwnedFd;
    fn life(&self) -> &Life;
    fn life_mut(&mut self) -> &mut Life;
    fn is_connecting(&self) -> bool;
    /// Whether it has ended, although the kernel still has an operation on it.
    fn is_over(&self) -> bool {
        false
    }
}

/// A dense table. An id is in use from `insert` or `reserve` until `release`, even after its connection was removed.
#[derive(Debug)]
pub(super) struct Connections<C> {
    slots: Vec<ConnectionSlot<C>>,
    /// Number of connections present.
    len: usize,
    /// Connections that may have something for the node.
    ready: Turns,
    /// Connections with bytes to send.
    dirty: Turns,
    /// Connections from which the node accepts no bytes now.
    paused: Vec<ConnId>,
    closing_count: usize,
    /// Closing connections by key, in order of their deadlines: all are given the same time.
    closing: VecDeque<(u64, Instant)>,
    /// Connections that have ended. The node is not informed yet.
    pub(super) gone: VecDeque<(ConnId, CloseReason)>,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about an id, not the states of a machine")]
struct ConnectionSlot<C> {
    conn: Option<C>,
    in_use: bool,
    generation: u32,
    /// The lists that contain the connection. An id that is in a list without its mark is skipped.
    queued: bool,
    dirty: bool,
    paused: bool,
}

/// Ids that wait for their turn; ids added during a turn wait for the next.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Vec<ConnId>,
    spare: Vec<ConnId>,
}

impl Turns {
    /// Takes the waiting ids; `give_back` returns the list so that its memory is reused.
    fn take(&mut self) -> Vec<ConnId> {
        mem::replace(&mut self.waiting, mem::take(&mut self.spare))
    }

    fn give_back(&mut self, mut list: Vec<ConnId>) {
        list.clear();
        self.spare = list;
    }
}

/// Generations are part of an event's data: 24 bits beside the id and a kind.
const GENERATION_MASK: u32 = 0x00FF_FFFF;

/// More connections than one thread can reasonably serve; prevents a wrong id from growing the table without limit.
const MAX_IDS: u32 = 1 << 20;

impl<C> Connections<C> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            len: 0,
            ready: Turns::default(),
            dirty: Turns::default(),
            paused: Vec::new(),
            closing_count: 0,
            closing: VecDeque::new(),
            gone: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of connections that are not closing.
    pub(super) fn open_count(&self) -> usize {
        self.len.saturating_sub(self.closing_count)
    }

    /// The lowest unused id.
    pub(super) fn free_id(&self) -> ConnId {
        let free = self.slots.iter().position(|slot| !slot.in_use).unwrap_or(self.slots.len());
        ConnId(u32::try_from(free).unwrap_or(u32::MAX))
    }

    pub(super) fn insert(&mut self, id: ConnId, conn: C) {
        self.reserve(id);
        self.slots[id.0 as usize].conn = Some(conn);
        self.len += 1;
    }

    /// Marks an id as used without a connection.
    pub(super) fn reserve(&mut self, id: ConnId) {
        assert!(id.0 < MAX_IDS, "connection ids are dense and small: {id:?}");
        let index = id.0 as usize;
        while self.slots.len() <= index {
            let generation = 0;
            self.slots.push(ConnectionSlot {
                conn: None,
                in_use: false,
                generation,
                queued: false,
                dirty: false,
                paused: false,
            });
        }
        let slot = &mut self.slots[index];
        assert!(!slot.in_use, "{id:?} is in use");
        let generation = (slot.generation + 1) & GENERATION_MASK;
        *slot = ConnectionSlot { conn: None, in_use: true, generation, queued: false, dirty: false, paused: false };
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut C> {
        self.slots.get_mut(id.0 as usize)?.conn.as_mut()
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&C> {
        self.slots.get(id.0 as usize)?.conn.as_ref()
    }

    /// The ids of all connections present.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> {
        let present = self.slots.iter().zip(0..).filter(|(slot, _)| slot.conn.is_some());
        present.map(|(_, id)| ConnId(id))
    }

    /// Removes a connection; its id stays in use.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<C> {
        let conn = self.slots.get_mut(id.0 as usize)?.conn.take()?;
        self.len -= 1;
        Some(conn)
    }

    /// Makes the id of a removed connection available.
    pub(super) fn release(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.0 as usize];
        assert!(slot.conn.is_none() && slot.in_use, "{id:?} is released once, after its removal");
        slot.in_use = false;
    }

    /// The data of this connection's events: generation above, id below.
    pub(super) fn key(&self, id: ConnId) -> u64 {
        (u64::from(self.slots[id.0 as usize].generation) << 32) | u64::from(id.0)
    }

    /// The id in a key, unless its connection is gone. Bits above the generation are ignored.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<ConnId> {
        let id = (key & 0xFFFF_FFFF) as u32;
        let generation = (key >> 32) as u32 & GENERATION_MASK;
        let slot = self.slots.get(id as usize)?;
        (slot.generation == generation && slot.conn.is_some()).then_some(ConnId(id))
    }

    #[inline]
    fn slot_of_present(&mut self, id: ConnId) -> Option<&mut ConnectionSlot<C>> {
        self.slots.get_mut(id.0 as usize).filter(|slot| slot.conn.is_some())
    }

    /// Lists a connection for a turn.
    #[inline]
    pub(super) fn queue(&mut self, id: ConnId) {
        if let Some(slot) = self.slot_of_present(id)
            && !mem::replace(&mut slot.queued, true)
        {
            self.ready.waiting.push(id);
        }
    }

    /// Takes the connections whose turn it is; check each with `take_turn`.
    pub(super) fn take_ready(&mut self) -> Vec<ConnId> {
        self.ready.take()
    }

    /// Whether it is still this connection's turn; this ends it.
    #[inline]
    pub(super) fn take_turn(&mut self, id: ConnId) -> bool {
        self.slot_of_present(id).is_some_and(|slot| mem::take(&mut slot.queued))
    }

    pub(super) fn give_back_ready(&mut self, list: Vec<ConnId>) {
        self.ready.give_back(list);
    }

    /// Lists a connection that has bytes to send.
    #[inline]
    pub(super) fn has_bytes(&mut self, id: ConnId) {
        if let Some(slot) = self.slot_of_present(id)
            && !mem::replace(&mut slot.dirty, true)
        {
            self.dirty.waiting.push(id);
        }
    }

    /// Takes the connections that had bytes to send; check each with `take_dirty_mark`.
    pub(super) fn take_dirty(&mut self) -> Vec<ConnId> {
        self.dirty.take()
    }

    /// Whether the connection still exists. Bytes that it gets from now on list it again.
    #[inline]
    pub(super) fn take_dirty_mark(&mut self, id: ConnId) -> bool {
        self.slot_of_present(id).map(|slot| slot.dirty = false).is_some()
    }

    pub(super) fn give_back_dirty(&mut self, list: Vec<ConnId>) {
        self.dirty.give_back(list);
    }

    /// Whether a turn or a send waits.
    pub(super) fn has_work(&self) -> bool {
        !self.ready.waiting.is_empty() || !self.dirty.waiting.is_empty()
    }

    /// Lists a connection from which the node accepts no bytes now.
    pub(super) fn pause(&mut self, id: ConnId) {
        if let Some(slot) = self.slot_of_present(id)
            && !mem::replace(&mut slot.paused, true)
        {
            self.paused.push(id);
        }
    }

    /// A connection begins to close in order.
    pub(super) fn start_closing(&mut self, id: ConnId, deadline: Instant) {
        self.closing_count += 1;
        self.closing.push_back((self.key(id), deadline));
    }

    /// A connection that was closing in order has ended.
    pub(super) fn has_closed(&mut self) {
        self.closing_count -= 1;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing_count > 0
    }

    /// When the first closing connection becomes overdue.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.closing.front().map(|&(_, deadline)| deadline)
    }

    /// The next closing connection whose time has passed. It may have ended already.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<u64> {
        let &(key, deadline) = self.closing.front()?;
        (deadline <= now).then(|| {
            self.closing.pop_front();
            key
        })
    }
}

impl<C: Connection> Connections<C> {
    /// Lists paused connections for a turn if the node accepts their bytes again, or if their bytes are to be
    /// discarded.
    pub(super) fn resume(&mut self, wants_receive: impl Fn(ConnId) -> bool) {
        let mut at = 0;
        while let Some(&id) = self.paused.get(at) {
            let over = |conn: &C| conn.life().discards(false) || conn.is_over();
            if self.get(id).is_none_or(over) || wants_receive(id) {
                self.paused.swap_remove(at);
                self.slots[id.0 as usize].paused = false;
                self.queue(id);
            } else {
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_free_only_after_release_and_old_keys_find_nothing() {
        let mut conns = Connections::new();
        conns.insert(ConnId(0), 'a');
        conns.insert(ConnId(1), 'b');
        let old = conns.key(ConnId(0));
        assert_eq!(conns.find(old), Some(ConnId(0)));
        assert_eq!(conns.remove(ConnId(0)), Some('a'));
        assert_eq!(conns.find(old), None);
        assert_eq!(conns.free_id(), ConnId(2));
        conns.release(ConnId(0));
        assert_eq!(conns.free_id(), ConnId(0));
        conns.insert(ConnId(0), 'c');
        assert_eq!(conns.find(old), None);
        assert_eq!(conns.find(conns.key(ConnId(0)) | 7 << 56), Some(ConnId(0)));
        assert_eq!((conns.len(), conns.is_empty()), (2, false));
    }

    #[test]
    fn a_connection_is_listed_once_and_passed_over_when_another_took_its_id() {
        let mut conns = Connections::new();
        let id = ConnId(0);
        conns.insert(id, 'a');
        conns.queue(id);
        conns.queue(id);
        let turn = conns.take_ready();
        assert_eq!(turn, [id]);
        conns.remove(id);
        conns.release(id);
        conns.insert(id, 'b');
        assert!(!conns.take_turn(id), "it was its predecessor's turn");
        conns.queue(id);
        conns.give_back_ready(turn);
        assert!(conns.has_work() && conns.take_turn(id) && !conns.take_turn(id));
    }
}
