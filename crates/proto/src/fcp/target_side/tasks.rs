//! The commands outstanding: a slot's number is the `IoId` and the RX_ID.

use crate::{
    IoId,
    fc::{OxId, RxId, sequence::Collect},
    scsi,
    tasks::TaskId,
};

/// A command under way.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) scsi: scsi::task::Task,
    pub(super) collect: Collect,
}

impl TaskId for OxId {
    /// No command has it.
    const NONE: Self = Self(0xffff);
}

/// By OX_ID.
pub(super) type Tasks = crate::tasks::Tasks<OxId, Task>;

impl Tasks {
    /// The slot of an exchange. Its originator may not know the RX_ID yet.
    #[inline]
    pub(super) fn find_exchange(&self, ox_id: OxId, rx_id: RxId) -> Option<IoId> {
        if rx_id == RxId::UNASSIGNED {
            return self.find(ox_id);
        }
        (self.id(rx_id.0.into()) == Some(ox_id)).then(|| rx_id.0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_found_by_either_id() {
        let mut tasks = Tasks::new(3);
        for (slot, ox_id) in [(0, 7), (1, 8)] {
            tasks.insert(slot, OxId(ox_id), Task::default());
        }
        let find = |rx_id| tasks.find_exchange(OxId(8), rx_id);
        assert_eq!((find(RxId::UNASSIGNED), find(RxId(1))), (Some(1), Some(1)));
        assert_eq!((find(RxId(0)), find(RxId(2)), find(RxId(700))), (None, None, None));
    }
}
