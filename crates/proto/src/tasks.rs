//! The tasks that a target works on for one connection, in dense slots: a slot's number is the [`IoId`].

use alloc::vec::Vec;

use slab::Slab;

use crate::backend::IoId;

/// What an initiator names its tasks by.
pub(crate) trait TaskId: Copy + Eq {
    /// Names no task.
    const NONE: Self;
}

/// The table of tasks.
#[derive(Debug)]
pub(crate) struct Tasks<Id, Task> {
    /// Of each slot, `Id::NONE` where it is free; apart from the tasks, so that looking for one reads little memory.
    ids: Vec<Id>,
    /// Grows as slots are first taken: most connections use few of them.
    slots: Slab<Task>,
    /// Slots from here on are free.
    high: usize,
}

impl<Id: TaskId, Task> Tasks<Id, Task> {
    pub(crate) fn new(count: u16) -> Self {
        Self { ids: alloc::vec![Id::NONE; count.into()], slots: Slab::new(), high: 0 }
    }

    /// Slots taken.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.ids.len()
    }

    /// The slot that the next task will have; `None` where all are taken.
    #[inline]
    pub(crate) fn next_free(&self) -> Option<IoId> {
        (self.slots.len() < self.ids.len()).then(|| self.slots.vacant_key() as IoId)
    }

    /// Takes the slot that `next_free` gave, for a task that no other has the `id` of.
    pub(crate) fn insert(&mut self, slot: IoId, id: Id, task: Task) {
        self.ids[slot as usize] = id;
        assert_eq!(self.slots.insert(task), slot as usize, "the slot is the next that is free");
        self.high = self.high.max(slot as usize + 1);
    }

    /// Gives a slot back.
    pub(crate) fn remove(&mut self, slot: IoId) -> Task {
        self.ids[slot as usize] = Id::NONE;
        while self.high > 0 && self.ids[self.high - 1] == Id::NONE {
            self.high -= 1;
        }
        self.slots.remove(slot as usize)
    }

    #[inline]
    pub(crate) fn find(&self, id: Id) -> Option<IoId> {
        let slot = self.ids[..self.high].iter().position(|other| *other == id)?;
        (id != Id::NONE).then_some(slot as IoId)
    }

    /// Whose slot it is; `None` where it is free or there is no such slot.
    #[inline]
    pub(crate) fn id(&self, slot: IoId) -> Option<Id> {
        self.ids.get(slot as usize).copied().filter(|id| *id != Id::NONE)
    }

    /// Of a task that is there.
    #[inline]
    pub(crate) fn id_of_taken(&self, slot: IoId) -> Id {
        self.id(slot).expect("the slot is taken")
    }

    #[inline]
    pub(crate) fn get(&self, slot: IoId) -> &Task {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: IoId) -> &mut Task {
        &mut self.slots[slot as usize]
    }

    /// The lowest slot at or above `from` that is taken and whose task `wanted` accepts.
    pub(crate) fn next_where(&self, from: IoId, wanted: impl Fn(&Task) -> bool) -> Option<IoId> {
        (from as usize..self.high)
            .find(|slot| self.ids[*slot] != Id::NONE && wanted(&self.slots[*slot]))
            .map(|slot| slot as IoId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TaskId for u8 {
        const NONE: Self = u8::MAX;
    }

    #[test]
    fn slots_are_dense_found_by_id_and_given_back() {
        let mut tasks = Tasks::<u8, char>::new(3);
        for (slot, id, task) in [(0, 7, 'a'), (1, 8, 'b'), (2, 9, 'c')] {
            assert_eq!(tasks.next_free(), Some(slot));
            tasks.insert(slot, id, task);
        }
        assert_eq!((tasks.next_free(), tasks.len(), tasks.capacity()), (None, 3, 3));
        assert_eq!((tasks.find(8), tasks.find(10)), (Some(1), None));
        assert_eq!(tasks.remove(1), 'b');
        assert_eq!((tasks.find(8), tasks.id(1), tasks.id(99)), (None, None, None));
        assert_eq!(tasks.find(u8::NONE), None);
        assert_eq!((tasks.next_where(1, |_| true), tasks.next_where(0, |task| *task == 'b')), (Some(2), None));
        assert_eq!(tasks.next_free(), Some(1));
        tasks.insert(1, 11, 'd');
        assert_eq!((tasks.find(11), tasks.id_of_taken(1), *tasks.get_mut(1)), (Some(1), 11, 'd'));
    }
}
