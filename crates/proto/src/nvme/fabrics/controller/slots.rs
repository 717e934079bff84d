//! Outstanding commands of one queue, in a dense table. The index is the backend's `IoId` and also identifies data
//! requested from the host.

use alloc::{boxed::Box, vec, vec::Vec};

use crate::nvme::{CommandId, Sqe, Status};

/// State of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    /// Its data are arriving, in the capsule or as requested.
    Receiving,
    /// The backend executes it.
    Queued,
    /// Waiting until the commands of other hosts that it aborted have ended.
    Waiting,
}

/// A command whose data go to this layer and not to the backend: Connect, Dataset Management, reservations.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) sqe: Sqe,
    pub(super) data: Vec<u8>,
}

/// An outstanding command.
#[derive(Debug, Default)]
pub struct CommandSlot {
    pub(super) cid: CommandId,
    pub(super) state: State,
    /// Its data were requested, and do not come in its capsule.
    pub(super) is_solicited: bool,
    /// The status with which the command will end, because a data digest was wrong or another host aborted it. The rest
    /// of its data is received and discarded.
    pub(super) spoilt: Option<Status>,
    pub(super) nsid: u32,
    /// Bytes that the host sends.
    pub(super) data_len: u32,
    /// Bytes that have arrived.
    pub(super) received: u32,
    /// Bytes that a read returns; 0 for every other command.
    pub(super) read_len: u32,
    pub(super) control: Option<Box<Control>>,
}

#[derive(Debug)]
pub(super) struct Slots {
    /// Grows as slots are first taken, because most queues use few of their entries.
    table: Vec<CommandSlot>,
    free: Vec<u16>,
    /// A bit for each of the 65,536 command identifiers: set while it is in use. Hosts may use any value.
    cids: Box<[u64]>,
}

impl CommandSlot {
    pub fn cid(&self) -> CommandId {
        self.cid
    }

    /// Bytes that have arrived, and bytes still to come.
    pub fn progress(&self) -> (u32, u32) {
        (self.received, self.data_len - self.received)
    }
}

impl Slots {
    pub(super) fn new(count: u16) -> Self {
        let mut slots = Self { table: Vec::new(), free: Vec::new(), cids: vec![0; 1024].into_boxed_slice() };
        slots.resize(count);
        slots
    }

    /// Frees all slots and sets their number.
    pub(super) fn resize(&mut self, count: u16) {
        self.table.clear();
        self.free = (0..count).rev().collect();
        self.cids.fill(0);
    }

    pub(super) fn is_cid_used(&self, cid: CommandId) -> bool {
        self.cids[usize::from(cid.0 >> 6)] >> (cid.0 & 63) & 1 != 0
    }

    pub(super) fn mark_cid(&mut self, cid: CommandId) {
        self.cids[usize::from(cid.0 >> 6)] |= 1 << (cid.0 & 63);
    }

    pub(super) fn clear_cid(&mut self, cid: CommandId) {
        self.cids[usize::from(cid.0 >> 6)] &= !(1 << (cid.0 & 63));
    }

    /// The slot that `take` would take next.
    pub(super) fn peek(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes the slot that `peek` returned.
    pub(super) fn take(&mut self, (cid, nsid): (CommandId, u32), state: State) -> &mut CommandSlot {
        let index = self.free.pop().expect("a slot was peeked");
        self.mark_cid(cid);
        if self.table.len() == usize::from(index) {
            self.table.push(CommandSlot::default());
        }
        let slot = &mut self.table[usize::from(index)];
        slot.cid = cid;
        slot.state = state;
        slot.is_solicited = false;
        slot.spoilt = None;
        slot.nsid = nsid;
        slot.data_len = 0;
        slot.received = 0;
        slot.read_len = 0;
        slot
    }

    pub(super) fn release(&mut self, index: u16) {
        let slot = &mut self.table[usize::from(index)];
        debug_assert_ne!(slot.state, State::Free);
        slot.state = State::Free;
        slot.control = None;
        let cid = slot.cid;
        self.clear_cid(cid);
        self.free.push(index);
    }

    /// The slot at `index`; `None` if the index, which may come from the peer, is outside the table.
    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut CommandSlot> {
        self.table.get_mut(usize::from(index))
    }

    /// The slot at an index that does not come from the peer.
    pub(super) fn slot(&mut self, index: u16) -> &mut CommandSlot {
        &mut self.table[usize::from(index)]
    }

    /// Frees every slot, and calls `with_backend` for those that the backend has.
    pub(super) fn drain(&mut self, mut with_backend: impl FnMut(u16)) {
        for index in 0..self.table.len() as u16 {
            let slot = self.slot(index);
            if slot.state == State::Free {
                continue;
            }
            if self.is_with_backend(index) {
                with_backend(index);
            }
            self.release(index);
        }
    }

    /// Whether the backend has the command of a slot in use. A spoilt command was aborted when it was spoilt.
    pub(super) fn is_with_backend(&mut self, index: u16) -> bool {
        let slot = self.slot(index);
        slot.control.is_none() && slot.spoilt.is_none() && slot.state != State::Waiting
    }

    /// Ends the commands of a namespace: queued ones at once, others when all their data have arrived. Calls `abort`
    /// for those that the backend has, and `end` for those that are over.
    pub(super) fn purge(&mut self, nsid: u32, mut abort: impl FnMut(u16), mut end: impl FnMut(CommandId)) {
        for index in 0..self.table.len() as u16 {
            let slot = self.slot(index);
            if slot.nsid != nsid || !matches!(slot.state, State::Receiving | State::Queued) {
                continue;
            }
            let (state, cid) = (slot.state, slot.cid);
            if self.is_with_backend(index) {
                abort(index);
            }
            if state == State::Queued {
                self.release(index);
                end(cid);
            } else {
                self.slot(index).spoilt.get_or_insert(Status::PREEMPTED);
            }
        }
    }

    /// The slot of an outstanding command. It is searched for, so use this rarely.
    pub(super) fn find(&self, cid: CommandId) -> Option<u16> {
        let is_meant = |slot: &CommandSlot| slot.state != State::Free && slot.cid == cid;
        self.table.iter().position(is_meant).map(|index| index as u16)
    }
}
