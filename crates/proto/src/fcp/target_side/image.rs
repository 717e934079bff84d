//! An image pair: commands and their data (FCP-4).
//!
//! The end of a command on the wire: its data as one sequence, then its response.
//!
//! The commands outstanding: a slot's number is the `IoId` and the RX_ID.
//!
//! Aborts and task management functions whose answer waits for what they aborted.

use alloc::{rc::Rc, vec::Vec};

use super::FcpBackend;
use crate::{
    Ending, Instant, IoId, Payload, Shared, UnitError, Violation, Wait,
    fc::{
        Header, Link, OxId, ProcessLogin, RxId,
        frame::{f_ctl, kind, r_ctl},
        login::is_command,
        sequence::{Collect, DataFault, TransferReady, data_header},
    },
    fcp::iu::{Command, encode_response, encode_sense, response_code, response_header},
    scsi::{
        self, DataIn, Device, Nexus, Response, status,
        task::{Announced, Residual, Work},
    },
    tasks::TaskId,
};

/// Sequences that wait for credit beyond two of each command: answers to link services.
const WAITING_MAX: usize = 64;

type Login = ProcessLogin<Rc<dyn Shared<Device>>>;

pub(super) struct Image {
    pub(super) nexus: Nexus,
    pub(super) login: Login,
    pub(super) tasks: Tasks,
    /// Aborts and task management functions that wait.
    pub(super) managed: Vec<Managed>,
    /// Some of those, or a command, may be answered later: `answer_ended` is to be called again.
    pub(super) awaits: bool,
    burst_len: u32,
    current: Current,
}

/// What the frame being received is, beyond its header.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// Its data are of no interest.
    Drop,
    /// Data of a command.
    Data { id: IoId, offset: u32, len: u32, last: bool },
    /// Neither: kept whole until its end.
    Unit(Header),
}

impl Image {
    pub(super) fn new(nexus: Nexus, login: Login, tasks: u16, burst_len: u32) -> Self {
        Self {
            nexus,
            login,
            tasks: Tasks::new(tasks.clamp(1, 1024)),
            managed: Vec::new(),
            awaits: false,
            burst_len: burst_len.max(4),
            current: Current::Drop,
        }
    }

    /// Aborts the tasks that another login wanted aborted: CLEAR TASK SET, resets, PREEMPT AND ABORT.
    #[inline]
    pub(super) fn end_purged<B: FcpBackend>(&mut self, link: &mut Link, backend: &mut B) {
        if self.nexus.is_purged() {
            self.purge(link, backend);
        }
    }

    #[cold]
    fn purge<B: FcpBackend>(&mut self, link: &mut Link, backend: &mut B) {
        let (tasks, current) = (&mut self.tasks, &mut self.current);
        self.nexus.end_purged(|is_meant, ending| {
            let before = tasks.len();
            let mut from = 0;
            while let Some(id) = tasks.next_where(from, |task| is_meant(task.scsi.lun)) {
                abort(tasks, current, id, Some(ending), link, backend);
                from = id + 1;
            }
            tasks.len() < before
        });
    }

    /// A header came; its data follow.
    #[inline]
    pub(super) fn header(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        self.current = Current::Drop;
        if (header.kind, header.r_ctl) != (kind::FCP, r_ctl::SOLICITED_DATA) {
            if !header.is_whole_sequence() {
                return Err(Violation::misbehaved("FC-FS-5: a unit in more frames than one").at(46));
            }
            self.current = Current::Unit(*header);
            return Ok(());
        }
        // Data of a task aborted meanwhile may still come, and are dropped.
        if let Some(id) = self.tasks.find_exchange(header.ox_id, header.rx_id) {
            let collect = &mut self.tasks.get_mut(id).collect;
            if !collect.begin(header, len) {
                return Err(Violation::misbehaved("FC-FS-5: a frame of a sequence is missing").at(46));
            }
            let last = header.has(f_ctl::END_SEQUENCE);
            self.current = Current::Data { id, offset: header.parameter, len, last };
        }
        Ok(())
    }

    /// A piece of data came. Units are collected in `unit`.
    #[inline]
    pub(super) fn data<B: FcpBackend>(&mut self, at: u32, bytes: &[u8], unit: &mut Vec<u8>, backend: &mut B) {
        match self.current {
            Current::Drop => {}
            Current::Unit(_) => unit.extend_from_slice(bytes),
            Current::Data { id, offset, .. } => {
                let task = self.tasks.get_mut(id);
                if task.collect.fault().is_none() {
                    task.scsi.data(id, offset + at, bytes, backend);
                }
            }
        }
    }

    /// The frame is complete. What is no data is given back to be dealt with.
    #[inline]
    pub(super) fn end<B: FcpBackend>(&mut self, now: Instant, link: &mut Link, backend: &mut B) -> Option<Header> {
        match core::mem::replace(&mut self.current, Current::Drop) {
            Current::Drop => None,
            Current::Unit(header) => Some(header),
            Current::Data { id, len, last, .. } => {
                self.tasks.get_mut(id).collect.end(len, last);
                if last {
                    self.advance(now, id, link, backend);
                }
                None
            }
        }
    }

    pub(super) fn command<B: FcpBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let command = Command::parse(unit)?;
        let ox_id = header.ox_id;
        if link.waiting() > 2 * self.tasks.capacity() + WAITING_MAX {
            return Err(Violation::misbehaved("FC-FS-5: commands without end, and no credit for their answers"));
        }
        if command.function != 0 {
            self.task_management(now, ox_id, &command, link, backend);
            return Ok(());
        }
        if !is_command(ox_id) && ox_id != crate::fc::login::ox_id::PROBE || self.tasks.find(ox_id).is_some() {
            return Err(Violation::misbehaved("FC-FS-5: an OX_ID of an open exchange").at(48));
        }
        if command.additional_cdb_words > 0 || command.reads && command.writes {
            respond_code(link, ox_id, RxId::UNASSIGNED, response_code::COMMAND_FIELDS);
            return Ok(());
        }
        let announced = Announced {
            data_in: if command.reads { command.data_len } else { 0 },
            data_out: if command.writes { command.data_len } else { 0 },
        };
        let answered = Answered { ox_id, rx_id: RxId::UNASSIGNED, announced };
        let Some(id) = self.tasks.next_free() else {
            respond(link, answered, &Response::status(status::TASK_SET_FULL));
            return Ok(());
        };
        let next = self.nexus.command(
            &scsi::Command {
                lun: command.lun,
                cdb: &command.cdb,
                data_out_len: announced.data_out,
                data_in_len: announced.data_in,
            },
            &*backend,
        );
        match Work::begin(now, id, next, &mut self.nexus, &mut link.transmit, backend) {
            // Done already, as reads of memory are: no task comes of it.
            (Work::Answer(response), _) => respond(link, answered, &response),
            (work, want) => {
                let scsi = scsi::task::Task { lun: command.lun, cdb: command.cdb, announced, work };
                self.tasks.insert(id, ox_id, Task { scsi, collect: Collect::new(want) });
                self.advance(now, id, link, backend);
            }
        }
        Ok(())
    }

    /// Asks for more data of a task, or ends the collecting of them.
    fn advance<B: FcpBackend>(&mut self, now: Instant, id: IoId, link: &mut Link, backend: &mut B) {
        let ox_id = self.tasks.id_of_taken(id);
        let task = self.tasks.get_mut(id);
        if matches!(task.scsi.work, Work::Medium(_)) {
            return;
        }
        if let Some(ready) = task.collect.next_burst(self.burst_len) {
            let header = Header { ox_id, rx_id: RxId(id as u16), ..TransferReady::header(kind::FCP) };
            link.send(header, &ready.encode());
        } else if task.collect.is_over() {
            self.collected(now, id, link, backend);
        }
    }

    /// All data of a task have come.
    fn collected<B: FcpBackend>(&mut self, now: Instant, id: IoId, link: &mut Link, backend: &mut B) {
        let task = self.tasks.get_mut(id);
        if let Some(fault) = task.collect.fault() {
            let code = match fault {
                DataFault::Offset => response_code::DATA_OFFSET,
                DataFault::Length => response_code::DATA_LENGTH,
            };
            return self.fail(id, code, link, backend);
        }
        match task.scsi.collected(now, id, &mut self.nexus, &mut link.transmit, backend) {
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

    /// The backend is done with an operation.
    pub(super) fn complete(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>, link: &mut Link) {
        // Another login may have aborted the task, which was heard of just now.
        if self.tasks.id(id).is_none() {
            return;
        }
        let response = self.tasks.get_mut(id).scsi.medium_done(&mut self.nexus, result);
        self.finish(id, &response, link);
    }

    /// Aborts a task: nothing more is said about it. What goes on of it keeps `ending`.
    pub(super) fn abort<B: FcpBackend>(&mut self, id: IoId, ending: Option<&Ending>, link: &mut Link, backend: &mut B) {
        abort(&mut self.tasks, &mut self.current, id, ending, link, backend);
    }

    /// Answers a task and gives its slot back.
    fn finish(&mut self, id: IoId, response: &Response, link: &mut Link) {
        let ox_id = self.tasks.id_of_taken(id);
        let task = release(&mut self.tasks, &mut self.current, id);
        respond(link, Answered { ox_id, rx_id: RxId(id as u16), announced: task.scsi.announced }, response);
    }

    /// Ends a task whose data were not those asked for.
    fn fail<B: FcpBackend>(&mut self, id: IoId, code: u8, link: &mut Link, backend: &mut B) {
        let ox_id = self.tasks.id_of_taken(id);
        self.abort(id, None, link, backend);
        respond_code(link, ox_id, RxId(id as u16), code);
    }
}

fn abort<B: FcpBackend>(
    tasks: &mut Tasks,
    current: &mut Current,
    id: IoId,
    ending: Option<&Ending>,
    link: &mut Link,
    backend: &mut B,
) {
    link.forget(tasks.id_of_taken(id));
    if release(tasks, current, id).scsi.work.is_with_backend() {
        backend.abort(id, ending.cloned());
    }
}

fn release(tasks: &mut Tasks, current: &mut Current, id: IoId) -> Task {
    if matches!(*current, Current::Data { id: of, .. } if of == id) {
        *current = Current::Drop;
    }
    tasks.remove(id)
}

/// What a response answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) ox_id: OxId,
    pub(super) rx_id: RxId,
    pub(super) announced: Announced,
}

pub(super) fn respond(link: &mut Link, answered: Answered, response: &Response) {
    let data_len = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
    let residual = answered.announced.residual(data_len, response.data_out_len);
    let send_len = data_len.min(answered.announced.data_in) as usize;
    if send_len > 0 {
        let header = ids(data_header(kind::FCP, true), answered);
        match &response.data {
            DataIn::Payload(payload) => link.send_payload(header, payload.slice(0, send_len)),
            DataIn::Inline(bytes) => link.send_payload(header, Payload::from_vec(bytes[..send_len].to_vec())),
            DataIn::None => {}
        }
    }
    let header = ids(response_header(), answered);
    match &response.sense {
        None => {
            let (bytes, len) = encode_response(response.status, residual, None);
            link.send(header, &bytes[..len]);
        }
        Some(sense) => link.send(header, &encode_sense(response.status, residual, sense)),
    }
}

/// Ends a command or a task management function by `RSP_CODE` alone.
pub(super) fn respond_code(link: &mut Link, ox_id: OxId, rx_id: RxId, code: u8) {
    let (bytes, len) = encode_response(0, Residual::default(), Some(code));
    link.send(Header { ox_id, rx_id, ..response_header() }, &bytes[..len]);
}

fn ids(header: Header, answered: Answered) -> Header {
    debug_assert!(header.has(f_ctl::EXCHANGE_CONTEXT));
    Header { ox_id: answered.ox_id, rx_id: answered.rx_id, ..header }
}

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

#[derive(Debug)]
pub(super) struct Managed {
    pub(super) wait: Wait,
    pub(super) ox_id: OxId,
    pub(super) of: ManagedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedBy {
    Abts(RxId),
    Function,
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
