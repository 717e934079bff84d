//! What every PDU of a connection needs: the way out, the sequence numbers, what was agreed.

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

/// ITTs of everything but I/Os: their low halves lie above every tag.
pub(super) mod control_itt {
    use crate::iscsi::pdu::TaskTag;

    pub(in super::super) const LOGIN: TaskTag = TaskTag(0xfff0);
    pub(in super::super) const PROBE: TaskTag = TaskTag(0xfff1);
    pub(in super::super) const PING: TaskTag = TaskTag(0xfff2);
    pub(in super::super) const TEXT: TaskTag = TaskTag(0xfff3);
    pub(in super::super) const LOGOUT: TaskTag = TaskTag(0xfff4);
    /// With the tag in question, or `0xffff`, in the high half.
    pub(in super::super) const TASK_MANAGEMENT: TaskTag = TaskTag(0xfff5);
}

/// NOP-Ins answered while the target reads nothing of what is sent after the first of them.
const ANSWERS_MAX: usize = 16 << 10;

/// The connection's ID, of which each session has one.
pub(super) const CID: ConnectionId = ConnectionId(0);

/// The sending side of a connection with its counters.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) transmit: Transmit,
    pub(super) sender: Sender,
    pub(super) agreed: Agreed,
    /// Of the next command.
    pub(super) cmd_sn: u32,
    /// The last command that the target takes.
    max_cmd_sn: u32,
    /// The next status.
    pub(super) exp_stat_sn: u32,
    answers: Answers,
}

/// Answers to NOP-Ins that may still wait to be sent. Data waits in the same queue, so its length tells nothing about them.
#[derive(Debug, Default)]
struct Answers {
    count: usize,
    /// Where in all that is ever sent the count began. Once the target has read further, it begins anew; so never do twice as
    /// many wait.
    since: u64,
}

impl Answers {
    /// Takes one more, unless too many wait.
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
            cmd_sn: 1,
            max_cmd_sn: 1,
            exp_stat_sn: 0,
            answers: Answers::default(),
        }
    }
}

impl Link {
    /// Sends a question of the probe; there is one at a time.
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

    /// Commands that the target takes now.
    pub(super) fn window(&self) -> usize {
        // A closed window lies behind.
        if is_before(self.max_cmd_sn, self.cmd_sn) {
            return 0;
        }
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) as usize + 1
    }

    /// The number for a command that is sent now.
    pub(super) fn take_cmd_sn(&mut self) -> u32 {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.wrapping_add(1);
        cmd_sn
    }

    /// Learns the window from a PDU; one that came late does not narrow it (RFC 7143 §4.2.2.1).
    pub(super) fn learn_window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        let is_window = !is_before(max_cmd_sn, exp_cmd_sn.wrapping_sub(1));
        if is_window && is_before(self.max_cmd_sn, max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    /// Begins counting with the first status of a login.
    pub(super) fn begin(&mut self, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) {
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        self.max_cmd_sn = self.cmd_sn.wrapping_sub(1);
        self.learn_window(exp_cmd_sn, max_cmd_sn);
    }

    /// Takes a status; on one connection without recovery none may be missing (RFC 7143 §4.2.2.2).
    pub(super) fn take_stat_sn(&mut self, stat_sn: u32) -> Result<(), Violation> {
        if stat_sn != self.exp_stat_sn {
            return Err(misbehaved!("RFC 7143 §4.2.2.2: a StatSN is missing or came twice").at(24));
        }
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        Ok(())
    }

    pub(super) fn header(&mut self, bhs: &Bhs) {
        self.sender.header(&mut self.transmit, bhs);
    }

    pub(super) fn bytes(&mut self, bhs: Bhs, data: &[u8]) {
        self.sender.bytes(&mut self.transmit, bhs, data);
    }

    /// Asks the target for a NOP-In.
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

    /// A NOP-In: the answer to our ping, or a ping to answer (RFC 7143 §11.19).
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

    /// Ends the session (RFC 7143 §11.14). Immediate, as nothing may follow it.
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
