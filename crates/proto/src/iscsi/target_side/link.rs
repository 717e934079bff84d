//! Common state of a connection's PDUs: send queue, sequence numbers, negotiated parameters.

use crate::{
    Transmit, Violation,
    iscsi::{
        Agreed,
        pdu::{Bhs, NopIn, Reject, Sender, TaskTag, TransferTag},
    },
};

/// Whether the connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    GoOn,
    Close,
}

/// The sending side of a connection and its counters.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) transmit: Transmit,
    pub(super) sender: Sender,
    pub(super) agreed: Agreed,
    /// StatSN of the next status.
    pub(super) stat_sn: u32,
    /// CmdSN of the next command.
    pub(super) exp_cmd_sn: u32,
    /// Maximum outstanding commands.
    window: u32,
    /// Outstanding commands that count against the window.
    pub(super) outstanding: u32,
    /// TARGET COLD RESET has been answered.
    pub(super) is_reset: bool,
}

/// Whether a request is processed, according to its CmdSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Take,
    Ignore,
}

impl Link {
    pub(super) fn new(window: u16) -> Self {
        Self {
            transmit: Transmit::default(),
            sender: Sender::default(),
            agreed: Agreed::default(),
            stat_sn: 1,
            exp_cmd_sn: 0,
            window: window.clamp(1, 1024).into(),
            outstanding: 0,
            is_reset: false,
        }
    }

    /// Returns the StatSN of a status that is sent now.
    pub(super) fn take_stat_sn(&mut self) -> u32 {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        stat_sn
    }

    /// The last CmdSN that is accepted. It never decreases, because a new command raises both `exp_cmd_sn` and
    /// `outstanding`.
    pub(super) fn max_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn.wrapping_add(self.window - self.outstanding).wrapping_sub(1)
    }

    /// Checks and counts the CmdSN of a request that is not immediate (RFC 7143 §4.2.2.1).
    pub(super) fn admit(&mut self, immediate: bool, cmd_sn: u32) -> Result<Admission, Violation> {
        if immediate {
            return Ok(Admission::Take);
        }
        let ahead = cmd_sn.wrapping_sub(self.exp_cmd_sn);
        if ahead >= self.window - self.outstanding {
            // Outside the window, or a duplicate: silently ignored.
            return Ok(Admission::Ignore);
        }
        if ahead > 0 {
            // With one connection per session and no recovery, the missing commands can never arrive.
            return Err(misbehaved!(
                "RFC 7143 §4.2.2.1: commands are sent in increasing order of CmdSN on a connection"
            ));
        }
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        Ok(Admission::Take)
    }

    pub(super) fn header(&mut self, bhs: &Bhs) {
        self.sender.header(&mut self.transmit, bhs);
    }

    pub(super) fn bytes(&mut self, bhs: Bhs, data: &[u8]) {
        self.sender.bytes(&mut self.transmit, bhs, data);
    }

    /// Rejects a PDU and returns its header (RFC 7143 §11.17).
    pub(super) fn reject(&mut self, reason: u8, at_fault: &Bhs) {
        let reject = Reject {
            last: true,
            reason,
            itt: TaskTag::RESERVED,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            ..Reject::default()
        };
        self.bytes(reject.encode(), &at_fault.0);
    }

    /// Sends a NOP-In that the initiator must answer with a NOP-Out. It does not use up a StatSN (RFC 7143 §11.19.4).
    pub(super) fn ping(&mut self, ttt: TransferTag) {
        let ping = NopIn {
            last: true,
            itt: TaskTag::RESERVED,
            ttt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn(),
            ..NopIn::default()
        };
        self.header(&ping.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_takes_the_next_ignores_what_is_outside_and_refuses_a_gap() {
        let mut link = Link::new(4);
        link.exp_cmd_sn = u32::MAX;
        assert_eq!(link.max_cmd_sn(), 2);
        assert_eq!(link.admit(false, 3), Ok(Admission::Ignore));
        assert_eq!(link.admit(false, u32::MAX - 1), Ok(Admission::Ignore));
        assert!(link.admit(false, 1).is_err());
        assert_eq!(link.admit(false, u32::MAX), Ok(Admission::Take));
        link.outstanding = 1;
        assert_eq!((link.exp_cmd_sn, link.max_cmd_sn()), (0, 2));
        assert_eq!(link.admit(true, 77), Ok(Admission::Take));
        assert_eq!(link.exp_cmd_sn, 0);
    }
}
