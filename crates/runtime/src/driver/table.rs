//! Connections by id, with generations so that a late event of a connection gone is not taken for its successor's.

use iotax_node::ConnId;

/// A dense table. An id is in use from `insert` or `reserve` until `release`, even after its item was removed.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Items present.
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    item: Option<T>,
    in_use: bool,
    generation: u32,
}

/// Generations are kept in what an event carries: 24 bits beside the id and a kind.
const GENERATION_MASK: u32 = 0x00FF_FFFF;

/// More connections than one thread can serve with sense; keeps a wrong id from growing the table without end.
const MAX_IDS: u32 = 1 << 20;

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lowest id not in use.
    pub(super) fn free_id(&self) -> ConnId {
        let free = self.slots.iter().position(|slot| !slot.in_use).unwrap_or(self.slots.len());
        ConnId(u32::try_from(free).unwrap_or(u32::MAX))
    }

    pub(super) fn insert(&mut self, id: ConnId, item: T) {
        self.reserve(id);
        self.slots[id.0 as usize].item = Some(item);
        self.len += 1;
    }

    /// Takes an id into use without an item.
    pub(super) fn reserve(&mut self, id: ConnId) {
        assert!(id.0 < MAX_IDS, "connection ids are dense and small: {id:?}");
        let index = id.0 as usize;
        while self.slots.len() <= index {
            self.slots.push(Slot { item: None, in_use: false, generation: 0 });
        }
        let slot = &mut self.slots[index];
        assert!(!slot.in_use, "{id:?} is in use");
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.in_use = true;
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        self.slots.get_mut(id.0 as usize)?.item.as_mut()
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&T> {
        self.slots.get(id.0 as usize)?.item.as_ref()
    }

    /// The ids of all items present.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> {
        let present = self.slots.iter().zip(0..).filter(|(slot, _)| slot.item.is_some());
        present.map(|(_, id)| ConnId(id))
    }

    /// Takes the item; the id stays in use.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<T> {
        let item = self.slots.get_mut(id.0 as usize)?.item.take()?;
        self.len -= 1;
        Some(item)
    }

    /// Makes the id of a removed item free.
    pub(super) fn release(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.0 as usize];
        assert!(slot.item.is_none() && slot.in_use, "{id:?} is released once, after its removal");
        slot.in_use = false;
    }

    /// What an event of this connection carries: generation above, id below.
    pub(super) fn key(&self, id: ConnId) -> u64 {
        (u64::from(self.slots[id.0 as usize].generation) << 32) | u64::from(id.0)
    }

    /// The id that a key names, unless its connection is gone. Bits above the generation are ignored.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<ConnId> {
        let id = (key & 0xFFFF_FFFF) as u32;
        let generation = (key >> 32) as u32 & GENERATION_MASK;
        let slot = self.slots.get(id as usize)?;
        (slot.generation == generation && slot.item.is_some()).then_some(ConnId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_free_only_after_release_and_old_keys_find_nothing() {
        let mut table = Table::new();
        table.insert(ConnId(0), 'a');
        table.insert(ConnId(1), 'b');
        let old = table.key(ConnId(0));
        assert_eq!(table.find(old), Some(ConnId(0)));
        assert_eq!(table.remove(ConnId(0)), Some('a'));
        assert_eq!(table.find(old), None);
        assert_eq!(table.free_id(), ConnId(2));
        table.release(ConnId(0));
        assert_eq!(table.free_id(), ConnId(0));
        table.insert(ConnId(0), 'c');
        assert_eq!(table.find(old), None);
        assert_eq!(table.find(table.key(ConnId(0)) | 7 << 56), Some(ConnId(0)));
        assert_eq!((table.len(), table.is_empty()), (2, false));
    }
}
