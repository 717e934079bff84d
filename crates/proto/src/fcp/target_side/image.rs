//! An image pair: commands and their data (FCP-4).

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};

use super::{
    FcpBackend, LoginGrant,
    respond::{Answered, respond, respond_code},
    tasks::{Announced, Collect, Task, Tasks, Work},
    wait::Managed,
};
use crate::{
    Ending, Instant, IoId, Payload, Started, Transmit, UnitError, Violation,
    fc::{
        Header, Link, OxId, RxId,
        frame::{f_ctl, kind, r_ctl},
        login::is_command,
    },
    fcp::iu::{Command, TransferReady, response_code},
    scsi::{self, DataIn, Next, Nexus, Response, Sense, Wait, WaitOutcome, status},
};

/// Parameter data that a command may bring. The longest list that a command of ours has fits many times.
const PARAMETERS_LEN_MAX: u32 = 64 * 1024;
/// Sequences that wait for credit beyond two of each command: answers to link services.
const WAITING_MAX: usize = 64;

pub(super) struct Image {
    pub(super) nexus: Nexus,
    pub(super) grant: LoginGrant,
    /// Set when the initiator port logs in elsewhere.
    pub(super) ended: Arc<AtomicBool>,
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
    pub(super) fn new(nexus: Nexus, grant: LoginGrant, ended: Arc<AtomicBool>, tasks: u16, burst_len: u32) -> Self {
        Self {
            nexus,
            grant,
            ended,
            tasks: Tasks::new(tasks),
            managed: Vec::new(),
            awaits: false,
            burst_len: burst_len.max(4),
            current: Current::Drop,
        }
    }

    /// The initiator port logged in elsewhere.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
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
            while let Some(id) = tasks.next_where(from, |task| is_meant(task.lun)) {
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
        if let Some(id) = self.tasks.find(header.ox_id, header.rx_id) {
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
                if task.collect.fault().is_some() {
                    return;
                }
                match &mut task.work {
                    Work::Place(_) => backend.place(id, offset + at, bytes),
                    Work::Parameters(parameters) => parameters.extend_from_slice(bytes),
                    _ => {}
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
        if !is_command(ox_id) && ox_id != crate::fc::login::ox_id::PROBE
            || self.tasks.find(ox_id, RxId::UNASSIGNED).is_some()
        {
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
            let full = Response { status: status::TASK_SET_FULL, sense: None, data: DataIn::None, data_out_len: 0 };
            respond(link, answered, &full);
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
        match self.begin(now, id, next, link, backend) {
            // Done already, as reads of memory are: no task comes of it.
            Begun::Done(response) => respond(link, answered, &response),
            Begun::Work(work, want) => {
                let collect = Collect::new(want);
                self.tasks.insert(id, ox_id, Task { lun: command.lun, cdb: command.cdb, announced, collect, work });
                self.advance(now, id, link, backend);
            }
        }
        Ok(())
    }

    /// Does what the device server says is next for a command.
    fn begin<B: FcpBackend>(&mut self, now: Instant, id: IoId, next: Next, link: &mut Link, backend: &mut B) -> Begun {
        match next {
            Next::Respond(response) => {
                link.transmit.charge(Transmit::REQUEST + response.data.len());
                Begun::Done(response)
            }
            Next::RespondAfter(endings, response) => {
                Begun::Work(Work::Await(Wait::begin(now, endings, || backend.notify_others()), response), 0)
            }
            Next::Parameters { len } if len > PARAMETERS_LEN_MAX => {
                Begun::Done(check_condition(Sense::PARAMETER_LIST_LENGTH_ERROR))
            }
            Next::Parameters { len } => Begun::Work(Work::Parameters(Vec::with_capacity(len as usize)), len),
            Next::Medium { unit, op, after } => {
                let want = op.data_len();
                match backend.start(now, id, unit, op) {
                    Started::NeedData => Begun::Work(Work::Place(after), want),
                    Started::Queued => Begun::Work(Work::Medium(after), 0),
                    Started::Done(result) => Begun::Done(self.nexus.medium_done(after, result)),
                }
            }
        }
    }

    /// Asks for more data of a task, or ends the collecting of them.
    fn advance<B: FcpBackend>(&mut self, now: Instant, id: IoId, link: &mut Link, backend: &mut B) {
        let ox_id = self.tasks.ox_id(id).expect("the slot is taken");
        let task = self.tasks.get_mut(id);
        if matches!(task.work, Work::Medium(_)) {
            return;
        }
        if let Some(ready) = task.collect.next_burst(self.burst_len) {
            let header = Header { ox_id, rx_id: RxId(id as u16), ..TransferReady::header() };
            link.send(header, &ready.encode());
        } else if task.collect.is_over() {
            self.collected(now, id, link, backend);
        }
    }

    /// All data of a task have come.
    fn collected<B: FcpBackend>(&mut self, now: Instant, id: IoId, link: &mut Link, backend: &mut B) {
        let task = self.tasks.get_mut(id);
        if let Some(code) = task.collect.fault() {
            return self.fail(id, code, link, backend);
        }
        match core::mem::take(&mut task.work) {
            Work::Place(after) => match backend.finish(now, id) {
                Started::Done(result) => {
                    let response = self.nexus.medium_done(after, result);
                    self.finish(id, &response, link);
                }
                Started::Queued | Started::NeedData => task.work = Work::Medium(after),
            },
            Work::Parameters(parameters) => {
                let command = scsi::Command {
                    lun: task.lun,
                    cdb: &task.cdb,
                    data_out_len: task.announced.data_out,
                    data_in_len: task.announced.data_in,
                };
                let next = self.nexus.parameters(&command, &parameters, &*backend);
                match self.begin(now, id, next, link, backend) {
                    Begun::Done(response) => self.finish(id, &response, link),
                    // What follows takes no data: they have been taken.
                    Begun::Work(work, _) => {
                        self.tasks.get_mut(id).work = work;
                        self.collected(now, id, link, backend);
                    }
                }
            }
            Work::Await(wait, response) => {
                task.work = Work::Await(wait, response);
                self.answer_awaited(now, id, link);
            }
            waiting @ (Work::Idle | Work::Medium(_)) => task.work = waiting,
        }
    }

    /// Answers a command that aborted others, where these have ended or take too long.
    pub(super) fn answer_awaited(&mut self, now: Instant, id: IoId, link: &mut Link) {
        let task = self.tasks.get_mut(id);
        let Work::Await(mut wait, response) = core::mem::take(&mut task.work) else {
            unreachable!("asked of those that wait only")
        };
        match wait.outcome(now) {
            WaitOutcome::Waits => {
                task.work = Work::Await(wait, response);
                self.awaits = true;
            }
            WaitOutcome::Ended => self.finish(id, &response, link),
            WaitOutcome::TooLong => {
                let failed = check_condition(Sense::INTERNAL_TARGET_FAILURE);
                self.finish(id, &Response { data_out_len: response.data_out_len, ..failed }, link);
            }
        }
    }

    /// The backend is done with an operation.
    pub(super) fn complete(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>, link: &mut Link) {
        if self.tasks.ox_id(id).is_none() {
            return;
        }
        if let Work::Medium(after) = self.tasks.get_mut(id).work {
            let response = self.nexus.medium_done(after, result);
            self.finish(id, &response, link);
        }
    }

    /// Aborts a task: nothing more is said about it. What goes on of it keeps `ending`.
    pub(super) fn abort<B: FcpBackend>(&mut self, id: IoId, ending: Option<&Ending>, link: &mut Link, backend: &mut B) {
        abort(&mut self.tasks, &mut self.current, id, ending, link, backend);
    }

    /// Answers a task and gives its slot back.
    fn finish(&mut self, id: IoId, response: &Response, link: &mut Link) {
        let ox_id = self.tasks.ox_id(id).expect("the slot is taken");
        let task = release(&mut self.tasks, &mut self.current, id);
        respond(link, Answered { ox_id, rx_id: RxId(id as u16), announced: task.announced }, response);
    }

    /// Ends a task whose data were not those asked for.
    fn fail<B: FcpBackend>(&mut self, id: IoId, code: u8, link: &mut Link, backend: &mut B) {
        let ox_id: Option<OxId> = self.tasks.ox_id(id);
        self.abort(id, None, link, backend);
        if let Some(ox_id) = ox_id {
            respond_code(link, ox_id, RxId(id as u16), code);
        }
    }
}

/// How a command stands after the device server was asked.
enum Begun {
    Done(Response),
    /// What is awaited, and how many bytes of data it takes.
    Work(Work, u32),
}

fn abort<B: FcpBackend>(
    tasks: &mut Tasks,
    current: &mut Current,
    id: IoId,
    ending: Option<&Ending>,
    link: &mut Link,
    backend: &mut B,
) {
    if let Some(ox_id) = tasks.ox_id(id) {
        link.forget(ox_id);
    }
    if release(tasks, current, id).work.is_with_backend() {
        backend.abort(id, ending.cloned());
    }
}

fn release(tasks: &mut Tasks, current: &mut Current, id: IoId) -> Task {
    if matches!(*current, Current::Data { id: of, .. } if of == id) {
        *current = Current::Drop;
    }
    tasks.remove(id)
}

fn check_condition(sense: Sense) -> Response {
    Response { status: status::CHECK_CONDITION, sense: Some(sense), data: DataIn::None, data_out_len: 0 }
}
