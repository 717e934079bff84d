//! Data-out of one command: what may arrive, what has arrived, what to request (RFC 7143 §4.2.5.2, §11.7, §11.8).

use crate::{iscsi::Agreed, scsi::Sense};

/// Conditions that iSCSI itself reports, all with sense key ABORTED COMMAND (RFC 7143 §11.4.7.2).
pub(super) const UNEXPECTED_UNSOLICITED_DATA: Sense = Sense::new(0x0b, 0x0c, 0x0c);
pub(super) const INCORRECT_AMOUNT_OF_DATA: Sense = Sense::new(0x0b, 0x0c, 0x0d);
pub(super) const PROTOCOL_SERVICE_CRC_ERROR: Sense = Sense::new(0x0b, 0x47, 0x05);

/// The state of a command's data-out. Data arrive in order (DataPDUInOrder and DataSequenceInOrder are Yes).
#[derive(Clone, Debug, Default)]
pub(super) struct Collect {
    /// Whether the command counts against the window. Immediate commands do not.
    pub(super) counted: bool,
    /// Bytes that the operation takes. Further bytes are dropped.
    want: u32,
    /// Bytes received.
    got: u32,
    /// End of the data that may arrive unsolicited.
    unsolicited_end: u32,
    /// More unsolicited data may follow.
    unsolicited_open: bool,
    /// DataSN of the next Data-Out in its sequence.
    data_sn: u32,
    /// End of the data that R2Ts have requested.
    asked: u32,
    /// Number of R2Ts sent.
    r2t_sn: u32,
    /// Number of R2Ts answered.
    answered: u32,
    /// End of the data that the R2T being answered requested.
    burst_end: u32,
    fault: Option<Sense>,
}

/// An R2T to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) r2t_sn: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

impl Collect {
    /// Creates the state for a command that announces `announced` bytes and contains `immediate` of them. `last` is its
    /// F bit.
    pub(super) fn new(agreed: &Agreed, announced: u32, immediate: u32, last: bool) -> Self {
        let unsolicited_end = announced.min(agreed.first_burst_len);
        let mut collect = Self { unsolicited_end, unsolicited_open: !last && announced > 0, ..Self::default() };
        if immediate > 0 && !agreed.immediate_data || collect.unsolicited_open && agreed.initial_r2t {
            collect.fault = Some(UNEXPECTED_UNSOLICITED_DATA);
        }
        if immediate > unsolicited_end {
            collect.fault = Some(INCORRECT_AMOUNT_OF_DATA);
        }
        collect
    }

    /// Sets how many bytes the operation takes.
    pub(super) fn set_want(&mut self, want: u32) {
        self.want = want;
    }

    pub(super) fn is_unsolicited_open(&self) -> bool {
        self.unsolicited_open
    }

    /// The R2TSN that is being answered, if any.
    pub(super) fn answering(&self) -> Option<u32> {
        (self.answered < self.r2t_sn).then_some(self.answered)
    }

    pub(super) fn r2ts_sent(&self) -> u32 {
        self.r2t_sn
    }

    pub(super) fn fault(&self) -> Option<Sense> {
        self.fault
    }

    /// Records a fault, unless there is an earlier one. The command fails with it when all its data have arrived (RFC
    /// 7143 §7.8).
    pub(super) fn set_fault(&mut self, fault: Sense) {
        self.fault.get_or_insert(fault);
    }

    /// How many of `len` bytes at `offset` the operation takes.
    pub(super) fn takes(&self, offset: u32, len: usize) -> usize {
        if self.fault.is_some() {
            return 0;
        }
        len.min(self.want.saturating_sub(offset) as usize)
    }

    /// Checks the header of a Data-Out: it must be the next one, and within the expected range.
    pub(super) fn begin(&mut self, solicited: bool, data_sn: u32, offset: u32, len: u32) {
        // RFC 7143 §7.9: out-of-order data mean that a PDU in between had a digest error.
        if data_sn != self.data_sn || offset != self.got {
            self.set_fault(PROTOCOL_SERVICE_CRC_ERROR);
        }
        let end = if solicited { self.burst_end } else { self.unsolicited_end };
        if offset.checked_add(len).is_none_or(|reached| reached > end) {
            self.set_fault(INCORRECT_AMOUNT_OF_DATA);
        }
    }

    /// Notes that all immediate data have arrived.
    pub(super) fn end_immediate(&mut self, len: u32) {
        self.got = len;
    }

    /// Notes that all data of a Data-Out have arrived; `last` is its F bit.
    pub(super) fn end(&mut self, solicited: bool, offset: u32, len: u32, last: bool, agreed: &Agreed) {
        if self.fault.is_none() {
            // `begin` has checked that this is within the burst.
            self.got = offset + len;
        }
        self.data_sn = self.data_sn.wrapping_add(1);
        if !last {
            return;
        }
        self.data_sn = 0;
        if solicited {
            if self.got != self.burst_end {
                self.set_fault(INCORRECT_AMOUNT_OF_DATA);
            }
            self.answered += 1;
            self.burst_end = self.burst_end_after(self.burst_end, agreed);
        } else {
            self.unsolicited_open = false;
        }
    }

    /// The next R2T to send, if one is due.
    pub(super) fn next_ask(&mut self, agreed: &Agreed) -> Option<Ask> {
        if self.unsolicited_open || self.fault.is_some() {
            return None;
        }
        if self.r2t_sn == 0 {
            self.asked = self.got;
            self.burst_end = self.burst_end_after(self.got, agreed);
        }
        let open = self.r2t_sn - self.answered;
        if self.asked >= self.want || open >= agreed.max_outstanding_r2t.into() {
            return None;
        }
        let end = self.burst_end_after(self.asked, agreed);
        let ask = Ask { r2t_sn: self.r2t_sn, offset: self.asked, len: end - self.asked };
        self.asked = end;
        self.r2t_sn += 1;
        Some(ask)
    }

    /// Whether no more data will come: they are complete, or the rest will not come because the command is faulty.
    pub(super) fn is_over(&self) -> bool {
        !self.unsolicited_open && self.answering().is_none() && (self.got >= self.want || self.fault.is_some())
    }

    fn burst_end_after(&self, offset: u32, agreed: &Agreed) -> u32 {
        offset.saturating_add(agreed.max_burst_len).min(self.want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed() -> Agreed {
        Agreed {
            initial_r2t: false,
            max_burst_len: 1000,
            first_burst_len: 600,
            max_outstanding_r2t: 2,
            ..Agreed::default()
        }
    }

    #[test]
    fn immediate_unsolicited_and_solicited_data_make_a_command_whole() {
        let agreed = agreed();
        let mut collect = Collect::new(&agreed, 3000, 100, false);
        collect.set_want(3000);
        collect.end_immediate(100);
        assert_eq!(collect.next_ask(&agreed), None);
        collect.begin(false, 0, 100, 500);
        collect.end(false, 100, 500, true, &agreed);
        assert_eq!(collect.next_ask(&agreed), Some(Ask { r2t_sn: 0, offset: 600, len: 1000 }));
        assert_eq!(collect.next_ask(&agreed), Some(Ask { r2t_sn: 1, offset: 1600, len: 1000 }));
        assert_eq!(collect.next_ask(&agreed), None);
        collect.begin(true, 0, 600, 400);
        collect.end(true, 600, 400, false, &agreed);
        collect.begin(true, 1, 1000, 600);
        collect.end(true, 1000, 600, true, &agreed);
        assert_eq!(collect.answering(), Some(1));
        assert_eq!(collect.next_ask(&agreed), Some(Ask { r2t_sn: 2, offset: 2600, len: 400 }));
        collect.begin(true, 0, 1600, 1000);
        collect.end(true, 1600, 1000, true, &agreed);
        assert!(!collect.is_over());
        collect.begin(true, 0, 2600, 400);
        collect.end(true, 2600, 400, true, &agreed);
        assert!(collect.is_over());
        assert_eq!(collect.fault(), None);
    }

    #[test]
    fn faulty_data_are_waited_for_and_then_reported() {
        let agreed = agreed();
        let mut collect = Collect::new(&agreed, 2000, 0, true);
        collect.set_want(2000);
        assert!(collect.next_ask(&agreed).is_some());
        assert!(collect.next_ask(&agreed).is_some());
        collect.begin(true, 27, 0, 500);
        assert_eq!(collect.takes(0, 500), 0);
        collect.end(true, 0, 500, true, &agreed);
        assert!(!collect.is_over());
        collect.end(true, 1000, 500, true, &agreed);
        assert!(collect.is_over());
        assert_eq!(collect.fault(), Some(PROTOCOL_SERVICE_CRC_ERROR));
    }

    #[test]
    fn data_that_were_not_agreed_are_faults() {
        let strict = Agreed { immediate_data: false, initial_r2t: true, ..agreed() };
        assert_eq!(Collect::new(&strict, 100, 10, true).fault(), Some(UNEXPECTED_UNSOLICITED_DATA));
        assert_eq!(Collect::new(&strict, 100, 0, false).fault(), Some(UNEXPECTED_UNSOLICITED_DATA));
        assert_eq!(Collect::new(&agreed(), 5, 10, true).fault(), Some(INCORRECT_AMOUNT_OF_DATA));
        let mut collect = Collect::new(&agreed(), 3000, 0, false);
        collect.begin(false, 0, 0, 601);
        assert_eq!(collect.fault(), Some(INCORRECT_AMOUNT_OF_DATA));
    }
}
