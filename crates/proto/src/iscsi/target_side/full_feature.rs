//! The full feature phase: commands and their data (RFC 7143 §4.2.5, §11.3, §11.7).

use alloc::{string::String, vec::Vec};

use super::{
    IMMEDIATE_TASKS, IscsiBackend, LoginGrant,
    collect::{Collect, PROTOCOL_SERVICE_CRC_ERROR},
    link::{Admission, Link},
    respond::{Answered, Task, TextExchange, make_ttt, respond, split_ttt},
};
use crate::{
    Instant, IoId, LiveSession, Payload, UnitError, Violation,
    iscsi::pdu::{Bhs, ConnectionId, DataOut, ScsiCommand, TaskTag, TransferTag, control::reject_reason},
    scsi::target::{Announced, Issued, TaskManager, Work},
    wire::Transmit,
};

/// A session in its full feature phase.
pub(super) struct FullFeature {
    pub(super) initiator: String,
    pub(super) cid: ConnectionId,
    /// `None` in a discovery session.
    pub(super) session: Option<Session>,
    pub(super) text: TextExchange,
    current: Current,
}

/// The additional state of a normal session, which a discovery session lacks.
pub(super) struct Session {
    pub(super) target: String,
    pub(super) manager: TaskManager<Link>,
    pub(super) grant: LoginGrant,
    pub(super) live: LiveSession,
}

/// The destination of the data of the PDU that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Nothing: they are dropped.
    Drop,
    /// A command, which may have ended meanwhile. No other command takes its slot before the end of the PDU.
    Data { id: IoId, offset: u32, len: u32, kind: DataKind },
    /// A control PDU, whose data are collected.
    Control(Bhs),
}

#[derive(Clone, Copy, Debug)]
enum DataKind {
    Immediate { bhs: Bhs },
    Out { solicited: bool, last: bool, bhs: Bhs },
}

impl FullFeature {
    pub(super) fn new(initiator: String, cid: ConnectionId, session: Option<Session>) -> Self {
        Self { initiator, cid, session, text: TextExchange::default(), current: Current::Drop }
    }

    /// Whether the session was reinstated elsewhere, or its target is gone.
    pub(super) fn is_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.live.is_ended())
    }

    /// Whether something waits for other commands to end, so that `answer_awaited` must be called again.
    #[inline]
    pub(super) fn awaits(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.manager.awaits())
    }

    /// Processes a header. Its data follow.
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

    /// Processes a piece of data. Data of control PDUs go to `control`.
    pub(super) fn data<B: IscsiBackend>(&mut self, at: u32, bytes: &[u8], control: &mut Vec<u8>, backend: &mut B) {
        match self.current {
            Current::Drop => {}
            Current::Control(_) => control.extend_from_slice(bytes),
            Current::Data { id, offset, .. } => {
                let Some(task) = self.task(id) else { return };
                let offset = offset.saturating_add(at);
                let bytes = &bytes[..task.collect.takes(offset, bytes.len())];
                if !bytes.is_empty() {
                    task.data(id, offset, bytes, backend);
                }
            }
        }
    }

    /// Memory for the next data, which are `at` bytes into their PDU, if they need not be examined. Shorter than `len`
    /// bytes if the operation takes fewer.
    pub(super) fn place<B: IscsiBackend>(&self, at: u32, len: u32, backend: &B) -> Option<Payload> {
        let Current::Data { id, offset, .. } = self.current else { return None };
        // A command that another session ended gets no more data as soon as that is known.
        let session = self.session.as_ref().filter(|session| !session.live.is_ended())?;
        let task = session.manager.tasks.get(id).filter(|_| !session.manager.nexus.is_purged())?;
        let offset = offset.saturating_add(at);
        let len = task.collect.takes(offset, len as usize) as u32;
        if len == 0 { None } else { task.memory(id, offset, len, backend) }
    }

    /// Processes the end of a PDU. Returns the header of a control PDU to the caller.
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
                // RFC 7143 §7.8: a PDU with a wrong data digest is rejected and dropped.
                link.reject(reject_reason::DATA_DIGEST_ERROR, &bhs);
                Ok(None)
            }
            Current::Data { id, offset, len, kind } => {
                let Some(session) = &mut self.session else { return Ok(None) };
                let Some(task) = session.manager.tasks.get_mut(id) else { return Ok(None) };
                data_end(&mut task.collect, (offset, len), kind, intact, link)?;
                session.manager.advance(now, id, link, backend);
                Ok(None)
            }
        }
    }

    #[inline]
    fn task(&mut self, id: IoId) -> Option<&mut Task> {
        self.session.as_mut()?.manager.tasks.get_mut(id)
    }

    /// Completes an operation of the backend.
    pub(super) fn complete(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>, link: &mut Link) {
        if let Some(session) = &mut self.session {
            session.manager.complete(id, result, link);
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
        let Some(Session { manager, .. }) = &mut self.session else {
            // RFC 7143 §4.3: a discovery session only carries text and logout.
            link.reject(reject_reason::COMMAND_NOT_SUPPORTED, bhs);
            return Ok(());
        };
        if command.itt == TaskTag::RESERVED || manager.tasks.find(command.itt).is_some() {
            let reserved = command.itt == TaskTag::RESERVED;
            let reason = if reserved { reject_reason::INVALID_PDU_FIELD } else { reject_reason::TASK_IN_PROGRESS };
            link.reject(reason, bhs);
            return Ok(());
        }
        let immediates = manager.tasks.len() - link.outstanding as usize;
        let room = !command.immediate || immediates < IMMEDIATE_TASKS.into();
        let Some(id) = manager.tasks.next_free().filter(|_| room) else {
            link.reject(reject_reason::TOO_MANY_IMMEDIATE_COMMANDS, bhs);
            return Ok(());
        };
        let announced = Announced::new(command.read, command.write, command.expected_data_len);
        let issued = Issued { lun: command.lun, cdb: command.cdb, announced };
        let (work, want) = manager.begin(now, id, &issued, link, backend);
        let immediate_len = bhs.data_len();
        let is_quiet = immediate_len == 0 && (command.last || !command.write);
        if let (Work::Answer(response), true) = (&work, is_quiet) {
            // Already complete, e.g. a read of a memory volume, so it needs no task.
            respond(link, Answered { itt: command.itt, announced, r2ts_sent: 0 }, response);
            return Ok(());
        }
        let mut collect = Collect::new(&link.agreed, announced.data_out, immediate_len, command.last);
        collect.set_want(want);
        collect.counted = !command.immediate;
        link.outstanding += u32::from(collect.counted);
        manager.tasks.insert(id, command.itt, Task { issued, work, collect });
        if immediate_len > 0 {
            let kind = DataKind::Immediate { bhs: *bhs };
            self.current = Current::Data { id, offset: 0, len: immediate_len, kind };
        } else {
            manager.advance(now, id, link, backend);
        }
        Ok(())
    }

    fn data_out(&mut self, bhs: &Bhs, link: &mut Link) {
        let data = DataOut::parse(bhs);
        self.current = Current::Drop;
        let solicited = data.ttt != TransferTag::RESERVED;
        let Some(Session { manager, .. }) = &mut self.session else { return };
        // Data of a task that was aborted meanwhile may still arrive. They are dropped, like data of an ignored
        // command.
        let (slot, r2t_sn) = split_ttt(data.ttt);
        let id = if solicited {
            Some(slot).filter(|slot| manager.tasks.id(*slot) == Some(data.itt))
        } else {
            manager.tasks.find(data.itt)
        };
        let Some((id, task)) = id.and_then(|id| Some((id, manager.tasks.get_mut(id)?))) else { return };
        if !solicited && !task.collect.is_unsolicited_open() {
            return link.reject(reject_reason::PROTOCOL_ERROR, bhs);
        }
        let is_answer = |answering| make_ttt(id, answering) == make_ttt(id, r2t_sn);
        if solicited && !task.collect.answering().is_some_and(is_answer) {
            return link.reject(reject_reason::INVALID_PDU_FIELD, bhs);
        }
        let (offset, len) = (data.buffer_offset, bhs.data_len());
        task.collect.begin(solicited, data.data_sn, offset, len);
        let kind = DataKind::Out { solicited, last: data.last, bhs: *bhs };
        self.current = Current::Data { id, offset, len, kind };
    }
}

/// Processes the end of a PDU with data of a command.
fn data_end(
    collect: &mut Collect,
    (offset, len): (u32, u32),
    kind: DataKind,
    intact: bool,
    link: &mut Link,
) -> Result<(), Violation> {
    match kind {
        DataKind::Immediate { .. } if intact => collect.end_immediate(len),
        DataKind::Immediate { bhs } => {
            // RFC 7143 §7.8 requires that the command be sent again, which is not possible at error recovery level 0.
            // Only session recovery is left (§7.1.5).
            link.reject(reject_reason::DATA_DIGEST_ERROR, &bhs);
            return Err(malformed!("RFC 7143 §7.8: data digest error on a command"));
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
