//! The commands outstanding: a slot's number is the `IoId` and the RX_ID.

use crate::{
    IoId,
    fc::{Header, OxId, RxId, frame::f_ctl},
    fcp::iu::{TransferReady, response_code},
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
