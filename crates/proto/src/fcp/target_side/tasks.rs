//! The commands outstanding, in dense slots: a slot's number is the `IoId` and the RX_ID.

use alloc::vec::Vec;

use crate::{
    IoId,
    fc::{Header, OxId, RxId, frame::f_ctl},
    fcp::iu::{TransferReady, response_code},
    scsi::{AfterMedium, Response, Wait},
};

/// A command under way.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) lun: u64,
    pub(super) cdb: [u8; 16],
    pub(super) announced: Announced,
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
    /// The end of commands of other logins; then this answer.
    Await(Wait, Response),
}

impl Work {
    /// The backend holds an operation for it.
    pub(super) fn is_with_backend(&self) -> bool {
        matches!(self, Self::Place(_) | Self::Medium(_))
    }
}

/// The state of a command's data-out: bytes that it takes, that have come, and that were asked for. Bursts come one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Collect {
    want: u32,
    got: u32,
    burst_end: u32,
    /// Of the next frame of its sequence.
    seq_cnt: u16,
    /// The first fault, as `RSP_CODE`; the command ends with it at the end of the sequence.
    fault: Option<u8>,
}

impl Collect {
    pub(super) fn new(want: u32) -> Self {
        Self { want, ..Self::default() }
    }

    pub(super) fn fault(&self) -> Option<u8> {
        self.fault
    }

    /// What to ask for next, where something is.
    pub(super) fn next_burst(&mut self, burst_len: u32) -> Option<TransferReady> {
        if self.got >= self.want || self.fault.is_some() || self.got < self.burst_end {
            return None;
        }
        let len = (self.want - self.got).min(burst_len);
        self.burst_end = self.got + len;
        Some(TransferReady { offset: self.got, len })
    }

    /// All that will come has come.
    pub(super) fn is_over(&self) -> bool {
        self.got >= self.want || self.fault.is_some()
    }

    /// A frame begins. False where one before it is missing.
    #[inline]
    pub(super) fn begin(&mut self, header: &Header, len: u32) -> bool {
        let is_next = header.seq_cnt == self.seq_cnt;
        self.seq_cnt = if header.has(f_ctl::END_SEQUENCE) { 0 } else { header.seq_cnt.wrapping_add(1) };
        if header.parameter != self.got || !header.has(f_ctl::RELATIVE_OFFSET) {
            self.fault.get_or_insert(response_code::DATA_OFFSET);
        } else if self.got.checked_add(len).is_none_or(|end| end > self.burst_end) {
            self.fault.get_or_insert(response_code::DATA_LENGTH);
        }
        is_next
    }

    /// It is complete; `last` of its sequence.
    #[inline]
    pub(super) fn end(&mut self, len: u32, last: bool) {
        if self.fault.is_none() {
            // `begin` checked that this stays within the burst.
            self.got += len;
            if last && self.got != self.burst_end {
                self.fault = Some(response_code::DATA_LENGTH);
            }
        }
    }
}

/// The table of tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    /// OX_ID of each slot; apart from the tasks, so that looking for one reads little memory.
    ox_ids: Vec<Option<OxId>>,
    /// Grows as slots are first taken: most logins use few of them.
    slots: Vec<Task>,
    free: Vec<u16>,
    /// Slots from here on are free.
    high: usize,
}

impl Tasks {
    pub(super) fn new(count: u16) -> Self {
        let count = count.clamp(1, 1024);
        Self { ox_ids: alloc::vec![None; count.into()], slots: Vec::new(), free: (0..count).rev().collect(), high: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.ox_ids.len() - self.free.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.ox_ids.len()
    }

    /// The slot that the next task will have; `None` where all are taken.
    #[inline]
    pub(super) fn next_free(&self) -> Option<IoId> {
        self.free.last().map(|slot| (*slot).into())
    }

    /// Takes the slot that `next_free` gave.
    pub(super) fn insert(&mut self, id: IoId, ox_id: OxId, task: Task) {
        let slot = self.free.pop().map(usize::from);
        assert_eq!(slot, Some(id as usize), "the slot is the next that is free");
        self.ox_ids[id as usize] = Some(ox_id);
        if self.slots.len() == id as usize {
            self.slots.push(task);
        } else {
            self.slots[id as usize] = task;
        }
        self.high = self.high.max(id as usize + 1);
    }

    /// Gives a slot back.
    pub(super) fn remove(&mut self, id: IoId) -> Task {
        assert!(self.ox_ids[id as usize].take().is_some(), "the slot is taken");
        self.free.push(id as u16);
        while self.high > 0 && self.ox_ids[self.high - 1].is_none() {
            self.high -= 1;
        }
        core::mem::take(&mut self.slots[id as usize])
    }

    /// The slot of an exchange. Its originator may not know the RX_ID yet.
    #[inline]
    pub(super) fn find(&self, ox_id: OxId, rx_id: RxId) -> Option<IoId> {
        if rx_id != RxId::UNASSIGNED {
            return (self.ox_id(rx_id.0.into()) == Some(ox_id)).then(|| rx_id.0.into());
        }
        let slot = self.ox_ids[..self.high].iter().position(|other| *other == Some(ox_id))?;
        Some(slot as IoId)
    }

    #[inline]
    pub(super) fn ox_id(&self, id: IoId) -> Option<OxId> {
        self.ox_ids.get(id as usize).copied().flatten()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: IoId) -> &mut Task {
        &mut self.slots[id as usize]
    }

    /// The lowest slot at or above `from` that is taken and whose task `wanted` accepts.
    pub(super) fn next_where(&self, from: IoId, wanted: impl Fn(&Task) -> bool) -> Option<IoId> {
        (from as usize..self.high)
            .find(|slot| self.ox_ids[*slot].is_some() && wanted(&self.slots[*slot]))
            .map(|slot| slot as IoId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_found_by_either_id_and_given_back() {
        let mut tasks = Tasks::new(3);
        for ox_id in [7, 8, 9] {
            assert_eq!(tasks.next_free(), Some(u32::from(ox_id) - 7));
            tasks.insert(u32::from(ox_id) - 7, OxId(ox_id), Task::default());
        }
        assert_eq!((tasks.next_free(), tasks.len()), (None, 3));
        assert_eq!(tasks.find(OxId(8), RxId::UNASSIGNED), Some(1));
        assert_eq!((tasks.find(OxId(8), RxId(1)), tasks.find(OxId(8), RxId(2))), (Some(1), None));
        assert_eq!(tasks.find(OxId(8), RxId(700)), None);
        tasks.remove(1);
        assert_eq!((tasks.find(OxId(8), RxId::UNASSIGNED), tasks.ox_id(1), tasks.ox_id(99)), (None, None, None));
        assert_eq!((tasks.next_where(1, |_| true), tasks.next_free()), (Some(2), Some(1)));
    }

    fn frame(parameter: u32, seq_cnt: u16, last: bool) -> Header {
        let f_ctl = f_ctl::RELATIVE_OFFSET | if last { f_ctl::END_SEQUENCE } else { 0 };
        Header { f_ctl, seq_cnt, parameter, ..Header::default() }
    }

    #[test]
    fn bursts_are_asked_for_one_by_one() {
        let mut collect = Collect::new(2500);
        assert_eq!(collect.next_burst(2000), Some(TransferReady { offset: 0, len: 2000 }));
        assert_eq!(collect.next_burst(2000), None);
        assert!(collect.begin(&frame(0, 0, false), 1500));
        collect.end(1500, false);
        assert!(collect.begin(&frame(1500, 1, true), 500));
        collect.end(500, true);
        assert_eq!(collect.next_burst(2000), Some(TransferReady { offset: 2000, len: 500 }));
        assert!(collect.begin(&frame(2000, 0, true), 500));
        collect.end(500, true);
        assert!(collect.is_over() && collect.fault().is_none());
    }

    #[test]
    fn data_that_were_not_asked_for_are_faults() {
        let begun = |header: &Header, len: u32| {
            let mut collect = Collect::new(1000);
            collect.next_burst(1000);
            let is_next = collect.begin(header, len);
            collect.end(len, header.has(f_ctl::END_SEQUENCE));
            (is_next, collect.fault())
        };
        assert_eq!(begun(&frame(0, 0, true), 1000), (true, None));
        assert_eq!(begun(&frame(0, 0, true), 1001), (true, Some(response_code::DATA_LENGTH)));
        assert_eq!(begun(&frame(0, 0, true), 999), (true, Some(response_code::DATA_LENGTH)));
        assert_eq!(begun(&frame(4, 0, true), 100), (true, Some(response_code::DATA_OFFSET)));
        assert_eq!(begun(&frame(0, 1, true), 1000), (false, None));
    }
}
