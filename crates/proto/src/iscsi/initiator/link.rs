//! Common state of a connection's PDUs: send queue, sequence numbers, negotiated parameters.

use crate::{
    Transmit, Violation,
    iscsi::{
        Agreed,
        pdu::{
            Bhs, ConnectionId, LogoutRequest, NopIn, NopOut, ScsiCommand, Sender, TaskTag, TransferTag,
            bhs::ATTRIBUTE_SIMPLE, control::logout_reason, is_before,
        },
    },
    scsi::initiator::ProbeCommand,
};

/// ITTs of everything except I/Os. Their low halves are above every tag.
pub(super) mod control_itt {
    use crate::iscsi::pdu::TaskTag;

    pub(in super::super) const LOGIN: TaskTag = TaskTag(0xfff0);
    pub(in super::super) const PROBE: TaskTag = TaskTag(0xfff1);
    pub(in super::super) const PING: TaskTag = TaskTag(0xfff2);
    pub(in super::super) const TEXT: TaskTag = TaskTag(0xfff3);
    pub(in super::super) const LOGOUT: TaskTag = TaskTag(0xfff4);
    /// The high half contains the tag in question, or `0xffff`.
    pub(in super::super) const TASK_MANAGEMENT: TaskTag = TaskTag(0xfff5);
}

/// Maximum answers to NOP-Ins that are sent while the target does not read what was queued after the first of them.
const ANSWERS_MAX: usize = 16 << 10;

/// The connection ID. Each session has one connection.
pub(super) const CID: ConnectionId = ConnectionId(0);

/// The sending side of a connection and its counters.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) transmit: Transmit,
    pub(super) sender: Sender,
    pub(super) agreed: Agreed,
    /// Tag of the portal group to which the connection leads (RFC 7143 §13.9).
    pub(super) portal_group: Option<u16>,
    /// CmdSN of the next command.
    pub(super) cmd_sn: u32,
    /// CmdSN of the last command that the target accepts.
    max_cmd_sn: u32,
    /// StatSN of the next status.
    pub(super) exp_stat_sn: u32,
    answers: Answers,
}

/// Counts answers to NOP-Ins that may still be queued. The length of the send queue does not show this, because it also
/// contains data.
#[derive(Debug, Default)]
struct Answers {
    count: usize,
    /// Position in the stream of all bytes sent at which the count started. When the target has read beyond it, the
    /// count starts again, so at most twice the limit is queued.
    since: u64,
}

impl Answers {
    /// Counts one more answer; false if too many are queued.
    fn take(&mut self, transmit: &Transmit) -> bool {
        if transmit.sent() > self.since || self.count == 0 {
            *self = Self { count: 0, since: transmit.sent() + transmit.len() as u64 };
        }
        self.count += 1;
        self.count <= ANSWERS_MAX
    }
}

impl Default for Link {
    fn default() -> Self {
        Self {
            transmit: Transmit::default(),
            sender: Sender::default(),
            agreed: Agreed::default(),
            portal_group: None,
            cmd_sn: 1,
            max_cmd_sn: 1,
            exp_stat_sn: 0,
            answers: Answers::default(),
        }
    }
}

impl Link {
    /// Sends a query of the probe. There is one at a time.
    pub(super) fn ask(&mut self, lun: u64, probe: &ProbeCommand) {
        let command = ScsiCommand {
            last: true,
            read: probe.len > 0,
            attribute: ATTRIBUTE_SIMPLE,
            lun,
            itt: control_itt::PROBE,
            expected_data_len: probe.len.into(),
            cmd_sn: self.take_cmd_sn(),
            exp_stat_sn: self.exp_stat_sn,
            cdb: probe.cdb,
            ..ScsiCommand::default()
        };
        self.header(&command.encode());
    }

    /// Number of commands that the target currently accepts.
    pub(super) fn window(&self) -> usize {
        // A closed window ends before the next CmdSN.
        if is_before(self.max_cmd_sn, self.cmd_sn) {
            return 0;
        }
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) as usize + 1
    }

    /// Returns the CmdSN of a command that is sent now.
    pub(super) fn take_cmd_sn(&mut self) -> u32 {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.wrapping_add(1);
        cmd_sn
    }

    /// Updates the command window from a PDU. An older value does not narrow it (RFC 7143 §4.2.2.1).
    pub(super) fn learn_window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        let is_window = !is_before(max_cmd_sn, exp_cmd_sn.wrapping_sub(1));
        if is_window && is_before(self.max_cmd_sn, max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    /// Starts the counters with the first status of a login.
    pub(super) fn begin(&mut self, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) {
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        self.max_cmd_sn = self.cmd_sn.wrapping_sub(1);
        self.learn_window(exp_cmd_sn, max_cmd_sn);
    }

    /// Checks the StatSN of a status. With one connection and no recovery, none may be missing (RFC 7143 §4.2.2.2).
    pub(super) fn take_stat_sn(&mut self, stat_sn: u32) -> Result<(), Violation> {
        if stat_sn != self.exp_stat_sn {
            return Err(misbehaved!("RFC 7143 §4.2.2.2: a StatSN is missing or came twice").at(24));
        }
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        Ok(())
    }

    #[inline]
    pub(super) fn header(&mut self, bhs: &Bhs) {
        self.sender.header(&mut self.transmit, bhs);
    }

    pub(super) fn bytes(&mut self, bhs: Bhs, data: &[u8]) {
        self.sender.bytes(&mut self.transmit, bhs, data);
    }

    /// Sends a NOP-Out that the target must answer with a NOP-In.
    pub(super) fn ping(&mut self) {
        let ping = NopOut {
            immediate: true,
            last: true,
            itt: control_itt::PING,
            ttt: TransferTag::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..NopOut::default()
        };
        self.header(&ping.encode());
    }

    /// Processes a NOP-In: the answer to our ping, or a ping to answer (RFC 7143 §11.19).
    pub(super) fn nop_in(&mut self, bhs: &Bhs) -> Result<(), Violation> {
        let nop = NopIn::parse(bhs);
        self.learn_window(nop.exp_cmd_sn, nop.max_cmd_sn);
        if nop.itt != TaskTag::RESERVED {
            return self.take_stat_sn(nop.stat_sn);
        }
        if nop.ttt != TransferTag::RESERVED {
            if !self.answers.take(&self.transmit) {
                return Err(misbehaved!("RFC 7143 §11.19: NOP-Ins without end, and their answers are not read"));
            }
            let answer = NopOut {
                immediate: true,
                last: true,
                lun: nop.lun,
                itt: TaskTag::RESERVED,
                ttt: nop.ttt,
                cmd_sn: self.cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
            };
            self.header(&answer.encode());
        }
        Ok(())
    }

    /// Sends a Logout Request for the session (RFC 7143 §11.14). It is immediate, because no other command may follow
    /// it.
    pub(super) fn logout(&mut self) {
        let request = LogoutRequest {
            immediate: true,
            last: true,
            reason: logout_reason::CLOSE_SESSION,
            itt: control_itt::LOGOUT,
            cid: CID,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.header(&request.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping() -> Bhs {
        NopIn {
            last: true,
            itt: TaskTag::RESERVED,
            ttt: TransferTag(7),
            lun: 0,
            stat_sn: 0,
            exp_cmd_sn: 1,
            max_cmd_sn: 1,
        }
        .encode()
    }

    #[test]
    fn a_target_that_reads_is_answered_however_much_data_waits() {
        let mut link = Link::default();
        let waiting = 8 << 20;
        link.transmit.zeros(waiting);
        for _ in 0..4 * ANSWERS_MAX {
            link.transmit.zeros(1000);
            link.nop_in(&ping()).expect("an answer");
            link.transmit.advance(link.transmit.len() - waiting);
        }
    }

    #[test]
    fn a_target_that_reads_nothing_is_not_answered_without_end() {
        for read in [0, 1000] {
            let mut link = Link::default();
            link.transmit.put(&[0; 1000]);
            link.nop_in(&ping()).expect("an answer");
            link.transmit.advance(read);
            let answered = (0..2 * ANSWERS_MAX).take_while(|_| link.nop_in(&ping()).is_ok()).count();
            assert_eq!(answered, ANSWERS_MAX - 1, "{read} bytes of those before the answers were read");
        }
    }

    #[test]
    fn the_window_follows_serial_arithmetic() {
        let mut link = Link { cmd_sn: u32::MAX, ..Link::default() };
        link.begin(7, u32::MAX, 1);
        assert_eq!(link.window(), 3);
        link.learn_window(u32::MAX, 0);
        assert_eq!(link.window(), 3);
        link.learn_window(9, 7);
        assert_eq!(link.window(), 3);
        assert_eq!([link.take_cmd_sn(), link.take_cmd_sn(), link.take_cmd_sn()], [u32::MAX, 0, 1]);
        assert_eq!(link.window(), 0);
        assert_eq!(link.take_stat_sn(8), Ok(()));
        assert!(link.take_stat_sn(8).is_err());
    }
}
