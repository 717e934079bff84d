//! One independent worker: a link to the unit, a task, and the I/Os under way.

use std::collections::VecDeque;

use iotax_proto::{Geometry, InitiatorEvents, Instant, Io, IoError, Misuse, Tag, Transmit, Violation};

use super::{
    fan::{self, Fan},
    ledger::Wrong,
    link::Link,
    oltp::{Fault, OltpTask},
    passes::{self, FillTask, ReadBackTask, ScanTask},
    queue::QueuePlace,
    recorder::Recorder,
    run::RunTask,
};
use crate::{access::Access, protocols::AnyInitiator};

/// Number of a worker's I/Os that may fail before a run is given up.
const ERRORS_MAX: u64 = 100;

#[derive(Debug)]
pub(super) enum Task {
    Run(Box<RunTask>),
    Oltp(OltpTask),
    ReadBack(ReadBackTask),
    Scan(ScanTask),
    Fill(FillTask),
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) link: Link<AnyInitiator>,
    pub(super) state: State,
}

/// The state of a worker, apart from its link.
#[derive(Debug)]
pub(super) struct State {
    pub(super) task: Option<Task>,
    /// Tags without an I/O.
    free: Vec<Tag>,
    pub(super) outstanding: u32,
    /// Its place at the queues of its host, if they are limited, and its number there.
    pub(super) queue: Option<(QueuePlace, u32)>,
    /// Outstanding I/Os that wait for their turn at these queues.
    waiting: VecDeque<(Tag, Io)>,
    /// How many more I/Os it could have submitted after its last turn, and since when it can submit any.
    slots: usize,
    able_since: Instant,
    pub(super) geometry: Option<Geometry>,
    /// The session ended in order.
    pub(super) closed: bool,
    pub(super) trouble: Option<Trouble>,
    errors: u64,
}

/// Why a worker cannot continue.
#[derive(Debug)]
pub(super) enum Trouble {
    Violation(Violation),
    Io(IoError, Option<u64>),
    Wrong(Wrong),
    Misuse(Misuse),
}

impl Worker {
    pub(super) fn new(link: Link<AnyInitiator>, outstanding: u32) -> Self {
        let state = State {
            task: None,
            free: (0..outstanding).rev().collect(),
            outstanding: 0,
            queue: None,
            waiting: VecDeque::new(),
            slots: 0,
            able_since: Instant(0),
            geometry: None,
            closed: false,
            trouble: None,
            errors: 0,
        };
        Self { link, state }
    }

    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8], recorder: Option<&mut Recorder>) {
        let mut events = Events { state: &mut self.state, recorder };
        if let Err(violation) = self.link.initiator.get().receive(now, bytes, &mut events) {
            self.state.trouble.get_or_insert(Trouble::Violation(violation));
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, recorder: Option<&mut Recorder>) {
        let mut events = Events { state: &mut self.state, recorder };
        if let Err(violation) = self.link.initiator.get().handle_timeout(now, &mut events) {
            self.state.trouble.get_or_insert(Trouble::Violation(violation));
        }
    }

    pub(super) fn disk_done(
        &mut self,
        now: Instant,
        tag: Tag,
        result: Result<u32, i32>,
        recorder: Option<&mut Recorder>,
    ) {
        self.link.initiator.disk_done(now, tag, result, &mut Events { state: &mut self.state, recorder });
    }

    pub(super) fn disconnected(&mut self, now: Instant, recorder: Option<&mut Recorder>) {
        let mut events = Events { state: &mut self.state, recorder };
        self.link.initiator.get().disconnected(now, &mut events);
    }

    // ----------------------------------------------------------------------------------------------- over several paths

    pub(super) fn receive_over(
        &mut self,
        path: usize,
        now: Instant,
        bytes: &[u8],
        recorder: Option<&mut Recorder>,
    ) -> Result<(), Violation> {
        let AnyInitiator::Fan(fan) = &mut self.link.initiator else { return Ok(()) };
        let received = fan.receive(now, path, bytes, &mut Events { state: &mut self.state, recorder });
        fan.take_begun().into_iter().for_each(|tag| self.state.begin_again(tag));
        received?;
        let sent = fan.send_again(now);
        self.state.check(sent);
        Ok(())
    }

    /// A path is up again.
    pub(super) fn attach(&mut self, path: usize, now: Instant, initiator: AnyInitiator, access: Option<Access>) {
        if let AnyInitiator::Fan(fan) = &mut self.link.initiator {
            self.state.check(fan.attach(now, path, initiator, access));
        }
    }

    /// The access over a path changed.
    pub(super) fn set_access(&mut self, path: usize, now: Instant, access: Access) {
        if let AnyInitiator::Fan(fan) = &mut self.link.initiator {
            self.state.check(fan.set_access(now, path, access));
        }
    }

    /// What happened on the path since the last call.
    pub(super) fn take_news(&mut self, path: usize) -> fan::News {
        match &mut self.link.initiator {
            AnyInitiator::Fan(fan) => fan.take_news(path),
            _ => fan::News::default(),
        }
    }

    /// A path is lost: its I/Os go over another one, some at once.
    pub(super) fn lose(&mut self, path: usize, now: Instant) {
        let AnyInitiator::Fan(fan) = &mut self.link.initiator else { return };
        match fan.lose(now, path) {
            Ok(begun) => begun.into_iter().for_each(|tag| self.state.begin_again(tag)),
            Err(misuse) => self.state.check(Err(misuse)),
        }
    }

    /// The lost writes of a path may be sent again.
    pub(super) fn release(&mut self, path: usize, now: Instant) {
        if let AnyInitiator::Fan(fan) = &mut self.link.initiator {
            self.state.check(fan.release(now, path));
        }
    }

    pub(super) fn path_ended(&mut self, path: usize) {
        if let AnyInitiator::Fan(fan) = &mut self.link.initiator {
            fan.ended(path);
        }
    }

    /// A path that failed when its time came.
    pub(super) fn take_failed_path(&mut self) -> Option<(usize, Violation)> {
        match &mut self.link.initiator {
            AnyInitiator::Fan(fan) => fan.take_failed(),
            _ => None,
        }
    }

    pub(super) fn each_path_to_send(&mut self, to_send: impl FnMut(usize)) {
        if let AnyInitiator::Fan(fan) = &mut self.link.initiator {
            fan.ready_to_send().for_each(to_send);
        }
    }

    pub(super) fn transmit_over(&mut self, path: usize) -> Option<&mut Transmit> {
        match &mut self.link.initiator {
            AnyInitiator::Fan(fan) => fan.transmit_of(path),
            _ => None,
        }
    }

    pub(super) fn fan(&self) -> Option<&Fan> {
        match &self.link.initiator {
            AnyInitiator::Fan(fan) => Some(fan),
            _ => None,
        }
    }

    /// Prepares for the next slice of a session; `run` identifies its writes.
    pub(super) fn renew(&mut self, run: u64) {
        self.state.errors = 0;
        if let Some(Task::Run(task)) = &mut self.state.task {
            task.renew(run);
        }
    }

    /// Prepares the first turn.
    pub(super) fn begin(&mut self) {
        self.state.slots = self.state.free.len().min(self.link.initiator.get().credits());
    }

    /// Submits the task's I/Os as far as tags and credit allow: all that became possible at `now` leave in one batch.
    pub(super) fn refill(&mut self, now: Instant) {
        let Some(task) = &mut self.state.task else { return };
        let initiator = self.link.initiator.get();
        let before = self.state.slots;
        let slots = self.state.free.len().min(initiator.credits().saturating_sub(self.state.waiting.len()));
        if before == 0 && slots > 0 {
            self.state.able_since = now;
        }
        task.collect(now, before);
        self.state.slots = slots;
        for _ in 0..slots {
            let tag = self.state.free.pop().expect("no more slots than tags");
            let Some(io) = task.next(now, tag, self.state.able_since) else {
                self.state.free.push(tag);
                break;
            };
            if let Some((queue, worker)) = &self.state.queue
                && !queue.ask(now, *worker)
            {
                self.state.waiting.push_back((tag, io));
            } else if let Err(misuse) = initiator.submit(now, tag, io) {
                self.state.trouble.get_or_insert(Trouble::Misuse(misuse));
                break;
            }
            self.state.outstanding += 1;
            self.state.slots -= 1;
        }
    }

    /// Submits the next I/O that waits at the host's queues: its turn has come.
    pub(super) fn go_on(&mut self, now: Instant) {
        let Some((tag, io)) = self.state.waiting.pop_front() else { return };
        if let Err(misuse) = self.link.initiator.get().submit(now, tag, io) {
            self.state.trouble.get_or_insert(Trouble::Misuse(misuse));
        }
    }

    /// When the task needs its next turn; `None` if only a completion can cause one.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.state.slots == 0 {
            return None;
        }
        match &self.state.task {
            Some(Task::Run(task)) => task.next_due(),
            Some(Task::Oltp(task)) => task.next_due(),
            _ => None,
        }
    }

    /// Whether a check or a fill has ended. A worker without credit may have no I/O under way before that.
    pub(super) fn has_passed(&self) -> bool {
        let is_over = match &self.state.task {
            Some(Task::Scan(task)) => task.is_over(),
            Some(Task::Fill(task)) => task.is_over(),
            Some(Task::Run(_) | Task::Oltp(_) | Task::ReadBack(_)) | None => true,
        };
        is_over && self.state.outstanding == 0
    }

    /// The run is over and what it has written is to be read back.
    pub(super) fn begin_read_back(&mut self) {
        self.finish();
        if let Some(Task::Run(run)) = self.state.task.take_if(|task| matches!(task, Task::Run(_))) {
            self.state.task = Some(Task::ReadBack(ReadBackTask::new(run)));
        }
    }

    /// Blocks that were read back so far; whether there are no more.
    pub(super) fn read_back(&self) -> (u64, bool) {
        match &self.state.task {
            Some(Task::ReadBack(task)) => (task.done, task.is_over() && self.state.outstanding == 0),
            _ => (0, true),
        }
    }

    pub(super) fn end_read_back(&mut self) {
        if let Some(Task::ReadBack(task)) = self.state.task.take_if(|task| matches!(task, Task::ReadBack(_))) {
            self.state.task = Some(Task::Run(task.into_run()));
        }
    }

    /// Completes the count of an open loop's arrivals.
    pub(super) fn finish(&mut self) {
        if let Some(Task::Run(task)) = &mut self.state.task {
            task.finish(self.state.slots);
        }
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.link.initiator.get().close(now);
    }
}

impl State {
    fn check(&mut self, done: Result<(), Misuse>) {
        if let Err(misuse) = done {
            self.trouble.get_or_insert(Trouble::Misuse(misuse));
        }
    }

    /// The data that arrived of a read are void: it is sent again.
    fn begin_again(&mut self, tag: Tag) {
        match &mut self.task {
            Some(Task::Run(task)) => task.begin_again(tag),
            Some(Task::Oltp(task)) => task.begin_again(),
            Some(Task::ReadBack(task)) => task.begin_again(tag),
            // A scan and a fill overwrite what arrived.
            Some(Task::Scan(_) | Task::Fill(_)) | None => {}
        }
    }
}

impl Task {
    fn collect(&mut self, now: Instant, slots: usize) {
        match self {
            Self::Run(task) => task.collect(now, slots),
            Self::Oltp(task) => task.collect(now),
            Self::ReadBack(_) | Self::Scan(_) | Self::Fill(_) => {}
        }
    }

    fn next(&mut self, now: Instant, tag: Tag, able_since: Instant) -> Option<Io> {
        match self {
            Self::Run(task) => task.next(now, tag, able_since),
            Self::Oltp(task) => task.next(now, tag),
            Self::ReadBack(task) => task.next(tag),
            Self::Scan(task) => task.next(tag),
            Self::Fill(task) => task.next(tag),
        }
    }
}

struct Events<'a> {
    state: &'a mut State,
    recorder: Option<&'a mut Recorder>,
}

impl InitiatorEvents for Events<'_> {
    fn ready(&mut self, _: Instant, geometry: &Geometry) {
        self.state.geometry = Some(geometry.clone());
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        match &mut self.state.task {
            Some(Task::Run(task)) => task.data(tag, offset, bytes),
            _ => self.other_data(tag, offset, bytes),
        }
    }

    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) {
        let state = &mut *self.state;
        state.outstanding -= 1;
        state.free.push(tag);
        if let Some((queue, worker)) = &state.queue {
            queue.release(now, *worker);
        }
        match &mut state.task {
            Some(Task::Run(task)) => {
                let failed = result.is_err();
                let lost = result == Err(IoError::ConnectionLost);
                if let Some(recorder) = &mut self.recorder {
                    task.complete(now, tag, result, recorder);
                }
                if failed {
                    state.errors += 1;
                    if lost {
                        state.trouble.get_or_insert(Trouble::Io(IoError::ConnectionLost, None));
                    } else if state.errors > ERRORS_MAX
                        && let Some((error, offset)) = task.first_error.clone()
                    {
                        state.trouble.get_or_insert(Trouble::Io(error, Some(offset)));
                    }
                } else if let Some(wrong) = &task.wrong {
                    state.trouble.get_or_insert_with(|| Trouble::Wrong(wrong.clone()));
                }
            }
            _ => self.other_complete(now, tag, result),
        }
    }

    fn closed(&mut self, _: Instant) {
        self.state.closed = true;
    }
}

/// Events of tasks that do not measure single I/Os, kept apart from the code of the task that does.
impl Events<'_> {
    #[cold]
    fn other_data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        match &mut self.state.task {
            Some(Task::ReadBack(task)) => task.data(tag, offset, bytes),
            Some(Task::Scan(task)) => task.data(tag, offset, bytes),
            Some(Task::Oltp(task)) => {
                if let Err(wrong) = task.data(offset, bytes) {
                    self.state.trouble.get_or_insert(Trouble::Wrong(wrong));
                }
            }
            Some(Task::Run(_) | Task::Fill(_)) | None => {}
        }
    }

    #[cold]
    fn other_complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) {
        let state = &mut *self.state;
        match &mut state.task {
            // A database does not continue after a failed I/O.
            Some(Task::Oltp(task)) => match task.complete(now, tag, result, self.recorder.as_deref_mut()) {
                Ok(()) => {}
                Err(Fault::Failed(error, offset)) => _ = state.trouble.get_or_insert(Trouble::Io(error, offset)),
                Err(Fault::Wrong(wrong)) => _ = state.trouble.get_or_insert(Trouble::Wrong(wrong)),
            },
            Some(Task::ReadBack(task)) => match task.complete(tag, result) {
                Ok(()) => {}
                Err(passes::Fault::Failed(error, at)) => {
                    _ = state.trouble.get_or_insert(Trouble::Io(error, Some(at)));
                }
                Err(passes::Fault::Wrong(wrong)) => _ = state.trouble.get_or_insert(Trouble::Wrong(wrong)),
            },
            Some(Task::Scan(task)) => match result {
                Ok(()) => task.complete(tag),
                Err(error) => _ = state.trouble.get_or_insert(Trouble::Io(error, None)),
            },
            Some(Task::Fill(task)) => match result {
                // A target without a write cache may not have a flush command.
                Ok(()) | Err(IoError::Unsupported) => task.complete(tag),
                Err(error) => _ = state.trouble.get_or_insert(Trouble::Io(error, None)),
            },
            Some(Task::Run(_)) | None => {}
        }
    }
}
