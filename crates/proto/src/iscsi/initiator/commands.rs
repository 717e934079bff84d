//! I/Os as SCSI commands. Each tag has a slot; its number is the low half of the ITT.

use alloc::vec::Vec;

use super::{link::Link, watch::AccessNews};
use crate::{
    Geometry, InitiatorEvents, Instant, Io, IoError, Misuse, Payload, Refusal, Tag, Violation,
    iscsi::pdu::{
        DataIn, DataOut, R2t, ScsiCommand, TaskManagement, TaskTag, TransferTag,
        bhs::ATTRIBUTE_SIMPLE,
        control::{function, function_response},
        is_before,
    },
    scsi::{
        self,
        initiator::{self, CommandOutcome, Job},
    },
};

/// How often a command is sent in total, if a unit attention condition or a busy target makes a retry necessary.
const TRIES_MAX: u8 = 4;
/// INVALID COMMAND OPERATION CODE: the target does not support the command.
const INVALID_OPCODE: u32 = 0x05_2000;

/// The outstanding commands.
#[derive(Debug)]
pub(super) struct Commands {
    lun: u64,
    geometry: Geometry,
    slots: Vec<TaskSlot>,
    outstanding: usize,
    /// Tags whose commands will be resent when the command window allows it.
    resend: Vec<Tag>,
    /// The data of WRITE SAME.
    zero_block: Payload,
    /// The access to the logical unit is followed.
    watches_access: bool,
    /// Commands, with their generations, that wait until the access is known, because it changed before they were executed.
    held: Vec<(Tag, u16)>,
}

#[derive(Debug, Default)]
struct TaskSlot {
    /// The command, while it is outstanding.
    job: Option<Job>,
    /// High half of the ITT. It differs from that of earlier commands with this tag.
    generation: u16,
    cmd_sn: u32,
    begun: Instant,
    /// The command took too long. It is resent when its abort has completed.
    is_overdue: bool,
    tries: u8,
    /// Bytes received (read) or sent (write), in order.
    moved: u32,
    /// Sequence number of the next Data-In or R2T.
    next_sn: u32,
}

impl Commands {
    pub(super) fn new(lun: u64, geometry: Geometry, depth: u16, watches_access: bool) -> Self {
        let zero_block = Payload::from_vec(alloc::vec![0; geometry.block_size as usize]);
        Self {
            lun,
            geometry,
            slots: (0..depth.clamp(1, 4096)).map(|_| TaskSlot::default()).collect(),
            outstanding: 0,
            resend: Vec::new(),
            zero_block,
            watches_access,
            held: Vec::new(),
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(super) fn credits(&self, link: &Link) -> usize {
        let window = link.window().saturating_sub(self.resend.len());
        window.min(self.slots.len() - self.outstanding)
    }

    #[inline]
    pub(super) fn submit(&mut self, now: Instant, tag: Tag, io: Io, link: &mut Link) -> Result<(), Misuse> {
        if self.credits(link) == 0 {
            return Err(Misuse::NoCredit);
        }
        if self.slots.get(tag as usize).is_none_or(|slot| slot.job.is_some()) {
            return Err(Misuse::BadTag);
        }
        let job = Job::new(io, &self.geometry, &self.zero_block)?;
        let slot = &mut self.slots[tag as usize];
        (slot.job, slot.begun, slot.is_overdue, slot.tries) = (Some(job), now, false, 0);
        self.outstanding += 1;
        self.send(tag, link);
        Ok(())
    }

    /// Checks the start of a Data-In and returns the tag of its command.
    pub(super) fn data_in(&mut self, data: &DataIn, len: u32) -> Result<Tag, Violation> {
        let (tag, slot) = self.find(data.itt)?;
        let read_len = slot.job.as_ref().map_or(0, |job| job.read_len);
        if data.data_sn != slot.next_sn || data.buffer_offset != slot.moved {
            return Err(misbehaved!("RFC 7143 §7.9: Data-In out of order").at(36));
        }
        let end = data.buffer_offset.checked_add(len).filter(|end| *end <= read_len);
        slot.moved = end.ok_or(misbehaved!("RFC 7143 §11.7: data beyond what was expected").at(40))?;
        slot.next_sn += 1;
        Ok(tag)
    }

    /// Processes the status of a command. Returns what it says about the access.
    pub(super) fn status(
        &mut self,
        now: Instant,
        itt: TaskTag,
        status: u8,
        sense: &[u8],
        link: &mut Link,
        events: &mut dyn InitiatorEvents,
    ) -> Result<AccessNews, Violation> {
        let watches_access = self.watches_access;
        let (tag, slot) = self.find(itt)?;
        let read_len = slot.job.as_ref().map_or(0, |job| job.read_len);
        let result = match initiator::outcome(status, sense) {
            CommandOutcome::Good if slot.moved < read_len => {
                let what = "the target sent less than was asked for";
                Err(IoError::Failed { status: 0, refusal: Refusal::Other, what })
            }
            CommandOutcome::Good => Ok(()),
            CommandOutcome::AccessChanged(_) if watches_access => {
                slot.generation = slot.generation.wrapping_add(1);
                let generation = slot.generation;
                self.held.push((tag, generation));
                return Ok(AccessNews::Changed);
            }
            CommandOutcome::Retry(_) | CommandOutcome::AccessChanged(_) if slot.tries < TRIES_MAX => {
                self.again(tag, link);
                return Ok(AccessNews::None);
            }
            CommandOutcome::Failed(IoError::Failed { status: INVALID_OPCODE, .. }) => Err(IoError::Unsupported),
            CommandOutcome::Failed(error @ IoError::Failed { refusal: Refusal::Inaccessible, .. })
                if watches_access =>
            {
                self.complete(now, tag, Err(error), events);
                return Ok(AccessNews::Refused);
            }
            CommandOutcome::Retry(error) | CommandOutcome::AccessChanged(error) | CommandOutcome::Failed(error) => {
                Err(error)
            }
        };
        self.complete(now, tag, result, events);
        Ok(AccessNews::None)
    }

    /// The access is known: the commands that waited for it are sent again, or end as refused.
    pub(super) fn release(
        &mut self,
        now: Instant,
        is_accessible: bool,
        link: &mut Link,
        events: &mut dyn InitiatorEvents,
    ) {
        for (tag, generation) in core::mem::take(&mut self.held) {
            // It may have been aborted meanwhile, and its tag used again.
            let slot = &mut self.slots[tag as usize];
            if slot.job.is_none() || slot.generation != generation {
                continue;
            }
            slot.tries = 0;
            if is_accessible {
                self.resend.push(tag);
            } else {
                let sense = scsi::Sense::ACCESS_STATE_CHANGED;
                let error = initiator::failure(scsi::status::CHECK_CONDITION, Some(sense));
                self.complete(now, tag, Err(error), events);
            }
        }
        self.resend(link);
    }

    /// Resends waiting commands, as far as the command window allows.
    #[inline]
    pub(super) fn resend(&mut self, link: &mut Link) {
        while link.window() > 0
            && let Some(tag) = self.resend.pop()
        {
            self.send(tag, link);
        }
    }

    /// Sends the data that the target requests. The target requests each byte once and in order, because recovery R2Ts
    /// exist only at higher error recovery levels (RFC 7143 §11.8).
    pub(super) fn r2t(&mut self, r2t: &R2t, link: &mut Link) -> Result<(), Violation> {
        let lun = self.lun;
        let (_, slot) = self.find(r2t.itt)?;
        let Some(data) = slot.job.as_ref().and_then(|job| job.data.clone()) else {
            return Err(misbehaved!("RFC 7143 §11.8: R2T for a command without data").at(16));
        };
        if r2t.ttt == TransferTag::RESERVED || r2t.r2t_sn != slot.next_sn || r2t.buffer_offset != slot.moved {
            return Err(misbehaved!("RFC 7143 §11.8: R2T out of order").at(36));
        }
        let end = r2t.buffer_offset.checked_add(r2t.desired_len).filter(|end| *end as usize <= data.len());
        let end = end.ok_or(misbehaved!("RFC 7143 §11.8: R2T beyond the data of the command").at(44))?;
        if r2t.desired_len == 0 || r2t.desired_len > link.agreed.max_burst_len {
            return Err(misbehaved!("RFC 7143 §11.8: R2T of no data or more than MaxBurstLength").at(44));
        }
        slot.next_sn += 1;
        slot.moved = end;
        send_data(link, lun, r2t.itt, r2t.ttt, &data, r2t.buffer_offset, end);
        Ok(())
    }

    /// Fails the command with this ITT, which the target rejected. No status follows.
    pub(super) fn rejected(&mut self, now: Instant, itt: TaskTag, error: IoError, events: &mut dyn InitiatorEvents) {
        if let Ok((tag, _)) = self.find(itt) {
            self.complete(now, tag, Err(error), events);
        }
    }

    /// A request to abort the command of a tag; `None` if it is not outstanding.
    pub(super) fn abort_request(&self, tag: Tag) -> Option<TaskManagement> {
        let slot = self.slots.get(tag as usize).filter(|slot| slot.job.is_some())?;
        Some(TaskManagement {
            function: function::ABORT_TASK,
            lun: self.lun,
            referenced_itt: itt(tag, slot.generation),
            ref_cmd_sn: slot.cmd_sn,
            ..TaskManagement::default()
        })
    }

    /// The oldest outstanding command, and when it started.
    pub(super) fn oldest(&self) -> Option<(Tag, Instant)> {
        let outstanding = self.slots.iter().zip(0..).filter(|(slot, _)| slot.job.is_some());
        outstanding.map(|(slot, tag)| (tag, slot.begun)).min_by_key(|(_, begun)| *begun)
    }

    /// Marks a command as overdue, so that it is resent when its abort has completed.
    pub(super) fn is_overdue(&mut self, tag: Tag) {
        self.slots[tag as usize].is_overdue = true;
    }

    /// A task management request for all commands of the logical unit or of the target.
    pub(super) fn reset_request(&self, function: u8) -> TaskManagement {
        TaskManagement { function, lun: self.lun, referenced_itt: TaskTag::RESERVED, ..TaskManagement::default() }
    }

    /// Processes the response to a task management request: the commands that it aborted complete.
    pub(super) fn managed(
        &mut self,
        now: Instant,
        request: &TaskManagement,
        response: u8,
        link: &mut Link,
        events: &mut dyn InitiatorEvents,
    ) {
        // The task does not exist, so another initiator ended it: its own status would have come before this response.
        let is_gone = response == function_response::NO_TASK && request.function == function::ABORT_TASK;
        if response != function_response::COMPLETE && !is_gone {
            // Restart its timeout, so that the request is not repeated at once.
            if let Ok((_, slot)) = self.find(request.referenced_itt) {
                slot.begun = now;
            }
            return;
        }
        match request.function {
            function::ABORT_TASK => self.aborted(now, request.referenced_itt, link, events),
            function::ABORT_TASK_SET
            | function::CLEAR_TASK_SET
            | function::LOGICAL_UNIT_RESET
            | function::TARGET_WARM_RESET => {
                for tag in 0..self.slots.len() {
                    // Commands sent after the request were not aborted by it.
                    let earlier = is_before(self.slots[tag].cmd_sn, request.cmd_sn);
                    if self.slots[tag].job.is_some() && earlier {
                        self.complete(now, tag as Tag, Err(IoError::Aborted), events);
                    }
                }
            }
            _ => {}
        }
    }

    fn aborted(&mut self, now: Instant, itt: TaskTag, link: &mut Link, events: &mut dyn InitiatorEvents) {
        let found = self.find(itt).map(|(tag, _)| tag).ok();
        let Some(tag) = found.or_else(|| self.waiting_since(itt)) else { return };
        let slot = &mut self.slots[tag as usize];
        if !slot.is_overdue || slot.tries >= TRIES_MAX {
            return self.complete(now, tag, Err(IoError::Aborted), events);
        }
        (slot.begun, slot.is_overdue) = (now, false);
        self.resend.retain(|waiting| *waiting != tag);
        self.again(tag, link);
    }

    /// The command that waits to be sent again since its task with this ITT ended.
    fn waiting_since(&self, itt: TaskTag) -> Option<Tag> {
        let tag = itt.0 & 0xffff;
        let slot = self.slots.get(tag as usize).filter(|slot| slot.job.is_some())?;
        let is_next = u32::from(slot.generation.wrapping_sub(1)) == itt.0 >> 16;
        let waits = self.resend.contains(&tag) || self.held.contains(&(tag, slot.generation));
        (is_next && waits).then_some(tag)
    }

    /// Sends a command again, now or when the command window allows it. The former task has ended, so another answer to
    /// it is a violation.
    fn again(&mut self, tag: Tag, link: &mut Link) {
        if link.window() > 0 {
            return self.send(tag, link);
        }
        let slot = &mut self.slots[tag as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.resend.push(tag);
    }

    /// Fails all outstanding commands because the connection is lost.
    pub(super) fn lost(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        for tag in 0..self.slots.len() {
            if self.slots[tag].job.is_some() {
                self.complete(now, tag as Tag, Err(IoError::ConnectionLost), events);
            }
        }
    }

    #[inline]
    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, events: &mut dyn InitiatorEvents) {
        self.slots[tag as usize].job = None;
        self.outstanding -= 1;
        self.resend.retain(|waiting| *waiting != tag);
        events.complete(now, tag, result);
    }

    /// The outstanding command with this ITT.
    fn find(&mut self, itt: TaskTag) -> Result<(Tag, &mut TaskSlot), Violation> {
        let tag = itt.0 & 0xffff;
        let slot = self.slots.get_mut(tag as usize);
        let slot = slot.filter(|slot| slot.job.is_some() && u32::from(slot.generation) == itt.0 >> 16);
        Ok((tag, slot.ok_or(misbehaved!("RFC 7143 §11.2.1.8: no task has this ITT").at(16))?))
    }

    /// Sends the command of a tag with its immediate and unsolicited data (RFC 7143 §4.2.5.2).
    fn send(&mut self, tag: Tag, link: &mut Link) {
        let slot = &mut self.slots[tag as usize];
        let job = slot.job.as_ref().expect("what is sent is outstanding");
        slot.generation = slot.generation.wrapping_add(1);
        slot.tries += 1;
        slot.next_sn = 0;
        slot.cmd_sn = link.take_cmd_sn();
        let data_len = job.data.as_ref().map_or(0, |data| data.len() as u32);
        let agreed = &link.agreed;
        let first_burst = data_len.min(agreed.first_burst_len);
        let immediate = if agreed.immediate_data { first_burst.min(agreed.max_send_segment_len) } else { 0 };
        let unsolicited = if agreed.initial_r2t { immediate } else { first_burst };
        slot.moved = unsolicited;
        let command = ScsiCommand {
            last: unsolicited == immediate,
            read: job.read_len > 0,
            write: data_len > 0,
            attribute: ATTRIBUTE_SIMPLE,
            lun: self.lun,
            itt: itt(tag, slot.generation),
            expected_data_len: job.read_len.max(data_len),
            cmd_sn: slot.cmd_sn,
            exp_stat_sn: link.exp_stat_sn,
            cdb: job.cdb,
            ..ScsiCommand::default()
        };
        match &job.data {
            Some(data) if immediate > 0 => {
                let immediate = data.slice(0, immediate as usize);
                link.sender.payload(&mut link.transmit, command.encode(), immediate);
            }
            _ => link.header(&command.encode()),
        }
        if let (Some(data), true) = (&job.data, unsolicited > immediate) {
            send_data(link, self.lun, command.itt, TransferTag::RESERVED, data, immediate, unsolicited);
        }
    }
}

/// Sends bytes `from..to` of a command's data as one sequence of Data-Out PDUs.
fn send_data(link: &mut Link, lun: u64, itt: TaskTag, ttt: TransferTag, data: &Payload, from: u32, to: u32) {
    let (mut at, mut data_sn) = (from, 0);
    while at < to {
        let len = (to - at).min(link.agreed.max_send_segment_len);
        let pdu =
            DataOut { last: at + len == to, lun, itt, ttt, exp_stat_sn: link.exp_stat_sn, data_sn, buffer_offset: at };
        let piece = data.slice(at as usize, len as usize);
        link.sender.payload(&mut link.transmit, pdu.encode(), piece);
        at += len;
        data_sn += 1;
    }
}

fn itt(tag: Tag, generation: u16) -> TaskTag {
    TaskTag(u32::from(generation) << 16 | tag)
}
