//! The commands outstanding on a connection, in dense slots: a slot's number is the `IoId`, and stands in the TTTs of its R2Ts.

use alloc::vec::Vec;

use super::collect::Collect;
use crate::{
    IoId,
    iscsi::pdu::TaskTag,
    scsi::{AfterMedium, Response, Wait},
};

/// A command under way.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) lun: u64,
    pub(super) cdb: [u8; 16],
    pub(super) announced: Announced,
    /// Counts against the window, unlike an immediate command.
    pub(super) counted: bool,
    pub(super) collect: Collect,
    pub(super) work: Work,
}

/// Bytes that the initiator announced, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) data_in: u32,
    pub(super) data_out: u32,
}

/// What a task waits for, and what it does then.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Idle,
    /// Data for the backend, then its `finish`.
    Place(AfterMedium),
    /// The backend's completion.
    Medium(AfterMedium),
    /// Parameters for the command itself.
    Parameters(Vec<u8>),
    /// The end of data that nobody wants; then this answer.
    Answer(Response),
    /// The end of commands of other sessions; then this answer.
    Await(Wait, Response),
}

impl Work {
    /// The backend holds an operation for it.
    pub(super) fn is_with_backend(&self) -> bool {
        matches!(self, Self::Place(_) | Self::Medium(_))
    }
}

/// The table of tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    /// ITT of each slot, `TaskTag::RESERVED` where it is free; apart from the tasks, so that looking for one reads little memory.
    itts: Vec<TaskTag>,
    /// Grows as slots are first taken: most sessions use few of those that the window allows.
    slots: Vec<Task>,
    free: Vec<u16>,
    /// Slots from here on are free.
    high: usize,
}

impl Tasks {
    pub(super) fn new(count: u16) -> Self {
        Self {
            itts: alloc::vec![TaskTag::RESERVED; count.into()],
            slots: Vec::new(),
            free: (0..count).rev().collect(),
            high: 0,
        }
    }

    /// Slots taken.
    pub(super) fn len(&self) -> usize {
        self.itts.len() - self.free.len()
    }

    /// The slot that the next task will have; `None` where all are taken.
    pub(super) fn next_free(&self) -> Option<IoId> {
        self.free.last().map(|slot| (*slot).into())
    }

    /// Takes the slot that `next_free` gave.
    pub(super) fn insert(&mut self, id: IoId, itt: TaskTag, task: Task) {
        let slot = self.free.pop().map(usize::from);
        assert_eq!(slot, Some(id as usize), "the slot is the next that is free");
        self.itts[id as usize] = itt;
        if self.slots.len() == id as usize {
            self.slots.push(task);
        } else {
            self.slots[id as usize] = task;
        }
        self.high = self.high.max(id as usize + 1);
    }

    /// Gives a slot back.
    pub(super) fn remove(&mut self, id: IoId) -> Task {
        assert_ne!(self.itts[id as usize], TaskTag::RESERVED, "the slot is taken");
        self.itts[id as usize] = TaskTag::RESERVED;
        self.free.push(id as u16);
        while self.high > 0 && self.itts[self.high - 1] == TaskTag::RESERVED {
            self.high -= 1;
        }
        core::mem::take(&mut self.slots[id as usize])
    }

    pub(super) fn find(&self, itt: TaskTag) -> Option<IoId> {
        let slot = self.itts[..self.high].iter().position(|other| *other == itt)?;
        (itt != TaskTag::RESERVED).then_some(slot as IoId)
    }

    pub(super) fn itt(&self, id: IoId) -> Option<TaskTag> {
        self.itts.get(id as usize).copied().filter(|itt| *itt != TaskTag::RESERVED)
    }

    /// Of a task that is there.
    pub(super) fn itt_of_taken(&self, id: IoId) -> TaskTag {
        self.itt(id).expect("the slot is taken")
    }

    pub(super) fn get_mut(&mut self, id: IoId) -> &mut Task {
        &mut self.slots[id as usize]
    }

    /// The lowest slot at or above `from` that is taken and whose task `wanted` accepts.
    pub(super) fn next_where(&self, from: IoId, wanted: impl Fn(&Task) -> bool) -> Option<IoId> {
        (from as usize..self.high)
            .find(|slot| self.itts[*slot] != TaskTag::RESERVED && wanted(&self.slots[*slot]))
            .map(|slot| slot as IoId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_found_by_itt_and_given_back() {
        let mut tasks = Tasks::new(3);
        for itt in [7, 8, 9] {
            assert_eq!(tasks.next_free(), Some(itt - 7));
            tasks.insert(itt - 7, TaskTag(itt), Task::default());
        }
        assert_eq!(tasks.next_free(), None);
        assert_eq!((tasks.find(TaskTag(8)), tasks.find(TaskTag(10))), (Some(1), None));
        tasks.remove(1);
        assert_eq!((tasks.find(TaskTag(8)), tasks.itt(1), tasks.itt(99)), (None, None, None));
        assert_eq!(tasks.find(TaskTag::RESERVED), None);
        assert_eq!(tasks.next_where(1, |_| true), Some(2));
        assert_eq!(tasks.next_free(), Some(1));
        tasks.insert(1, TaskTag(11), Task::default());
        assert_eq!(tasks.find(TaskTag(11)), Some(1));
    }
}
