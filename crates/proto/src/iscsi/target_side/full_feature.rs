//! The full feature phase: commands and their data (RFC 7143 §4.2.5, §11.3, §11.7).

use alloc::{string::String, vec::Vec};

use super::{
    IMMEDIATE_TASKS, IscsiBackend, LoginGrant,
    collect::{Collect, PROTOCOL_SERVICE_CRC_ERROR},
    link::{Admission, Link},
    respond::{Answered, Managed, Task, Tasks, TextExchange, respond},
};
use crate::{
    Ending, Instant, IoId, LiveSession, Payload, UnitError, Violation,
    iscsi::pdu::{Bhs, ConnectionId, DataOut, R2t, ScsiCommand, TaskTag, TransferTag, control::reject_reason},
    scsi::{
        self, Nexus, Response,
        task::{Announced, Work},
    },
    wire::Transmit,
};

/// A session in its full feature phase.
pub(super) struct FullFeature {
    pub(super) initiator: String,
    pub(super) cid: ConnectionId,
    /// None in a discovery session.
    pub(super) session: Option<Session>,
    pub(super) tasks: Tasks,
    pub(super) text: TextExchange,
    /// Task management functions that wait.
    pub(super) managed: Vec<Managed>,
    /// Some of those, or a command, may be answered later: `answer_ended` is to be called again.
    pub(super) awaits: bool,
    current: Current,
}

/// What a normal session has and a discovery session has not.
pub(super) struct Session {
    pub(super) target: String,
    pub(super) nexus: Nexus,
    pub(super) grant: LoginGrant,
    pub(super) live: LiveSession,
}

/// What the PDU being received is, beyond its header.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Its data are of no interest.
    Drop,
    /// Data of a command.
    Data { id: IoId, offset: u32, len: u32, kind: DataKind },
    /// Neither: kept whole until its end.
    Control(Bhs),
}

#[derive(Clone, Copy, Debug)]
enum DataKind {
    Immediate { bhs: Bhs },
    Out { solicited: bool, last: bool, bhs: Bhs },
}

impl FullFeature {
    pub(super) fn new(initiator: String, cid: ConnectionId, session: Option<Session>, window: u16) -> Self {
        let tasks = if session.is_some() { window.clamp(1, 1024) + IMMEDIATE_TASKS } else { 0 };
        Self {
            initiator,
            cid,
            session,
            tasks: Tasks::new(tasks),
            text: TextExchange::default(),
            managed: Vec::new(),
            awaits: false,
            current: Current::Drop,
        }
    }

    /// The session was reinstated elsewhere, or its target is gone.
    pub(super) fn is_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.live.is_ended())
    }

    /// Aborts the tasks that another session wanted aborted: CLEAR TASK SET, resets, PREEMPT AND ABORT (RFC 7143 §4.2.3.3).
    #[inline]
    pub(super) fn end_purged<B: IscsiBackend>(&mut self, link: &mut Link, backend: &mut B) {
        if self.session.as_ref().is_some_and(|session| session.nexus.is_purged()) {
            self.purge(link, backend);
        }
    }

    #[cold]
    fn purge<B: IscsiBackend>(&mut self, link: &mut Link, backend: &mut B) {
        let mut session = self.session.take().expect("a session that was purged");
        session.nexus.end_purged(|is_meant, ending| {
            let before = self.tasks.len();
            self.abort_where(|task| is_meant(task.scsi.lun), Some(ending), link, backend);
            self.tasks.len() < before
        });
        self.session = Some(session);
        // The rest of the PDU under way has no task any more.
        if let Current::Data { id, .. } = self.current
            && self.tasks.id(id).is_none()
        {
            self.current = Current::Drop;
        }
    }

    /// A header came; its data follow.
    #[inline]
    pub(super) fn header<B: IscsiBackend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        match bhs.opcode() {
            ScsiCommand::OPCODE => self.command(now, bhs, link, backend),
            DataOut::OPCODE => {
                self.data_out(bhs, link);
                Ok(())
            }
            _ => {
                self.current = Current::Control(*bhs);
                Ok(())
            }
        }
    }

    /// A piece of data came. Control data go to `control`.
    pub(super) fn data<B: IscsiBackend>(&mut self, at: u32, bytes: &[u8], control: &mut Vec<u8>, backend: &mut B) {
        match self.current {
            Current::Drop => {}
            Current::Control(_) => control.extend_from_slice(bytes),
            Current::Data { id, offset, .. } => {
                let task = self.tasks.get_mut(id);
                let offset = offset.saturating_add(at);
                let bytes = &bytes[..task.collect.takes(offset, bytes.len())];
                if !bytes.is_empty() {
                    task.scsi.data(id, offset, bytes, backend);
                }
            }
        }
    }

    /// Memory for the data that come next, `at` bytes into their PDU, where nobody need see them. Fewer than `len` bytes of it
    /// where the operation takes no more.
    pub(super) fn place<B: IscsiBackend>(&self, at: u32, len: u32, backend: &B) -> Option<Payload> {
        let Current::Data { id, offset, .. } = self.current else { return None };
        // What another session ended gets no more data, as soon as that is known.
        if self.is_ended() || self.session.as_ref().is_some_and(|session| session.nexus.is_purged()) {
            return None;
        }
        let task = self.tasks.get(id);
        let offset = offset.saturating_add(at);
        let len = task.collect.takes(offset, len as usize) as u32;
        if len == 0 { None } else { task.scsi.memory(id, offset, len, backend) }
    }

    /// The PDU is complete. A control PDU is given back to be dealt with.
    #[inline]
    pub(super) fn end<B: IscsiBackend>(
        &mut self,
        now: Instant,
        intact: bool,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<Option<Bhs>, Violation> {
        match core::mem::replace(&mut self.current, Current::Drop) {
            Current::Drop => Ok(None),
            Current::Control(bhs) if intact => {
                link.transmit.charge(Transmit::REQUEST);
                Ok(Some(bhs))
            }
            Current::Control(bhs) => {
                // RFC 7143 §7.8: a PDU with wrong data is answered with a Reject and dropped.
                link.reject(reject_reason::DATA_DIGEST_ERROR, &bhs);
                Ok(None)
            }
            Current::Data { id, offset, len, kind } => {
                self.data_end(id, offset, len, kind, intact, link)?;
                self.advance(now, id, link, backend);
                Ok(None)
            }
        }
    }

    /// The backend is done with an operation.
    pub(super) fn complete(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>, link: &mut Link) {
        // Another session may have aborted the task, which was heard of just now.
        if self.tasks.id(id).is_none() {
            return;
        }
        let session = self.session.as_mut().expect("a discovery session has no tasks");
        let response = self.tasks.get_mut(id).scsi.medium_done(&mut session.nexus, result);
        self.finish(id, &response, link);
    }

    /// Aborts a task: nothing more is said about it. What goes on of it keeps `ending`.
    pub(super) fn abort<B: IscsiBackend>(
        &mut self,
        id: IoId,
        ending: Option<&Ending>,
        link: &mut Link,
        backend: &mut B,
    ) {
        if self.release(id, link).scsi.work.is_with_backend() {
            backend.abort(id, ending.cloned());
        }
    }

    #[inline]
    fn command<B: IscsiBackend>(
        &mut self,
        now: Instant,
        bhs: &Bhs,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let command = ScsiCommand::parse(bhs);
        self.current = Current::Drop;
        if link.admit(command.immediate, command.cmd_sn)? == Admission::Ignore {
            return Ok(());
        }
        if command.itt == TaskTag::RESERVED || self.tasks.find(command.itt).is_some() {
            let reserved = command.itt == TaskTag::RESERVED;
            let reason = if reserved { reject_reason::INVALID_PDU_FIELD } else { reject_reason::TASK_IN_PROGRESS };
            link.reject(reason, bhs);
            return Ok(());
        }
        let Some(session) = &mut self.session else {
            // RFC 7143 §4.3: a discovery session carries text and logout alone.
            link.reject(reject_reason::COMMAND_NOT_SUPPORTED, bhs);
            return Ok(());
        };
        let announced = Announced {
            data_in: if command.read && !command.write { command.expected_data_len } else { 0 },
            data_out: if command.write { command.expected_data_len } else { 0 },
        };
        let next = session.nexus.command(
            &scsi::Command {
                lun: command.lun,
                cdb: &command.cdb,
                data_out_len: announced.data_out,
                data_in_len: announced.data_in,
            },
            &*backend,
        );
        let immediate_len = bhs.data_len();
        let immediates = self.tasks.len() - link.outstanding as usize;
        let room = !command.immediate || immediates < IMMEDIATE_TASKS.into();
        let Some(id) = self.tasks.next_free().filter(|_| room) else {
            link.reject(reject_reason::TOO_MANY_IMMEDIATE_COMMANDS, bhs);
            return Ok(());
        };
        let (work, want) = Work::begin(now, id, next, &mut session.nexus, &mut link.transmit, backend);
        let is_quiet = immediate_len == 0 && (command.last || !command.write);
        if let (Work::Answer(response), true) = (&work, is_quiet) {
            // Done already, as reads of memory are: no task comes of it.
            respond(link, Answered { itt: command.itt, announced, r2ts_sent: 0 }, response);
            return Ok(());
        }
        let mut collect = Collect::new(&link.agreed, announced.data_out, immediate_len, command.last);
        collect.set_want(want);
        let counted = !command.immediate;
        link.outstanding += u32::from(counted);
        let scsi = scsi::task::Task { lun: command.lun, cdb: command.cdb, announced, work };
        self.tasks.insert(id, command.itt, Task { scsi, counted, collect });
        if immediate_len > 0 {
            let kind = DataKind::Immediate { bhs: *bhs };
            self.current = Current::Data { id, offset: 0, len: immediate_len, kind };
        } else {
            self.advance(now, id, link, backend);
        }
        Ok(())
    }

    fn data_out(&mut self, bhs: &Bhs, link: &mut Link) {
        let data = DataOut::parse(bhs);
        self.current = Current::Drop;
        let solicited = data.ttt != TransferTag::RESERVED;
        let id = if solicited {
            let (slot, r2t_sn) = split_ttt(data.ttt);
            // Data of a task aborted meanwhile may still come, and are dropped like those of an ignored command.
            let Some(_) = self.tasks.id(slot).filter(|itt| *itt == data.itt) else { return };
            let answering = self.tasks.get_mut(slot).collect.answering();
            if answering.is_none_or(|answering| make_ttt(slot, answering) != make_ttt(slot, r2t_sn)) {
                link.reject(reject_reason::INVALID_PDU_FIELD, bhs);
                return;
            }
            slot
        } else {
            // As above.
            let Some(id) = self.tasks.find(data.itt) else { return };
            if !self.tasks.get_mut(id).collect.is_unsolicited_open() {
                link.reject(reject_reason::PROTOCOL_ERROR, bhs);
                return;
            }
            id
        };
        let (offset, len) = (data.buffer_offset, bhs.data_len());
        self.tasks.get_mut(id).collect.begin(solicited, data.data_sn, offset, len);
        let kind = DataKind::Out { solicited, last: data.last, bhs: *bhs };
        self.current = Current::Data { id, offset, len, kind };
    }

    fn data_end(
        &mut self,
        id: IoId,
        offset: u32,
        len: u32,
        kind: DataKind,
        intact: bool,
        link: &mut Link,
    ) -> Result<(), Violation> {
        let collect = &mut self.tasks.get_mut(id).collect;
        match kind {
            DataKind::Immediate { .. } if intact => collect.end_immediate(len),
            DataKind::Immediate { bhs } => {
                // RFC 7143 §7.8 would have the command sent again, which error recovery level 0 does not know: the
                // session is the only thing left to recover (§7.1.5).
                link.reject(reject_reason::DATA_DIGEST_ERROR, &bhs);
                return Err(Violation::malformed("RFC 7143 §7.8: data digest error on a command"));
            }
            DataKind::Out { solicited, last, bhs } => {
                if !intact {
                    link.reject(reject_reason::DATA_DIGEST_ERROR, &bhs);
                    collect.set_fault(PROTOCOL_SERVICE_CRC_ERROR);
                }
                collect.end(solicited, offset, len, last, &link.agreed);
            }
        }
        Ok(())
    }

    /// Asks for more data of a task, or ends the collecting of them.
    fn advance<B: IscsiBackend>(&mut self, now: Instant, id: IoId, link: &mut Link, backend: &mut B) {
        let itt = self.tasks.id_of_taken(id);
        let task = self.tasks.get_mut(id);
        if matches!(task.scsi.work, Work::Medium(_)) {
            return;
        }
        while let Some(ask) = task.collect.next_ask(&link.agreed) {
            let r2t = R2t {
                last: true,
                lun: task.scsi.lun,
                itt,
                ttt: make_ttt(id, ask.r2t_sn),
                stat_sn: link.stat_sn,
                exp_cmd_sn: link.exp_cmd_sn,
                max_cmd_sn: link.max_cmd_sn(),
                r2t_sn: ask.r2t_sn,
                buffer_offset: ask.offset,
                desired_len: ask.len,
            };
            link.header(&r2t.encode());
        }
        if task.collect.is_over() {
            self.collected(now, id, link, backend);
        }
    }

    /// All data of a task have come.
    fn collected<B: IscsiBackend>(&mut self, now: Instant, id: IoId, link: &mut Link, backend: &mut B) {
        let session = self.session.as_mut().expect("a discovery session has no tasks");
        let task = self.tasks.get_mut(id);
        if let Some(fault) = task.collect.fault() {
            if task.scsi.work.is_with_backend() {
                backend.abort(id, None);
            }
            return self.finish(id, &Response::check(fault), link);
        }
        match task.scsi.collected(now, id, &mut session.nexus, &mut link.transmit, backend) {
            Some(response) => self.finish(id, &response, link),
            None => self.awaits |= task.scsi.work.is_awaiting(),
        }
    }

    /// Answers a command that aborted others, where these have ended or take too long.
    pub(super) fn answer_awaited(&mut self, now: Instant, id: IoId, link: &mut Link) {
        match self.tasks.get_mut(id).scsi.answer_awaited(now) {
            Some(response) => self.finish(id, &response, link),
            None => self.awaits = true,
        }
    }

    /// Answers a task and gives its slot back.
    fn finish(&mut self, id: IoId, response: &Response, link: &mut Link) {
        let itt = self.tasks.id_of_taken(id);
        let task = self.release(id, link);
        let r2ts_sent = task.collect.r2ts_sent();
        respond(link, Answered { itt, announced: task.scsi.announced, r2ts_sent }, response);
    }

    fn release(&mut self, id: IoId, link: &mut Link) -> Task {
        let task = self.tasks.remove(id);
        link.outstanding -= u32::from(task.counted);
        if matches!(self.current, Current::Data { id: current, .. } if current == id) {
            self.current = Current::Drop;
        }
        task
    }
}

/// A TTT names the slot and, to tell R2Ts of one task and of its predecessors apart, the R2TSN. It is never the reserved one.
fn make_ttt(id: IoId, r2t_sn: u32) -> TransferTag {
    TransferTag((r2t_sn & 0x7fff) << 16 | id)
}

fn split_ttt(ttt: TransferTag) -> (IoId, u32) {
    (ttt.0 & 0xffff, ttt.0 >> 16)
}
