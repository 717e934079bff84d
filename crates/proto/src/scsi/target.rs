//! The commands in progress of one I_T nexus, over any transport: slots, data, task management, deferred responses.
//!
//! A transport parses what arrives and calls the [`TaskManager`]. The task manager uses it through [`ScsiTransport`] to
//! request data and send responses.

use alloc::vec::Vec;

use slab::Slab;

use super::{AfterMedium, Command, Next, Nexus, Response, Sense, TaskManagement, TaskManagementResponse, decode_lun};
use crate::{Backend, Ending, Endings, Instant, IoId, Payload, Started, Transmit, UnitError, Wait, WaitOutcome};

/// Maximum parameter data of a command. The longest list that a supported command has is much shorter.
const PARAMETERS_LEN_MAX: u32 = 64 * 1024;
/// Maximum task management functions of a nexus that wait at a time. Further ones fail.
const FUNCTIONS_MAX: usize = 16;

/// The functions of the server that a SCSI target needs, over any transport.
pub trait ScsiBackend: Backend {
    /// Notifies every connection of the server, on any thread, to check soon for actions of other connections
    /// (`handle_notification`).
    fn notify_others(&mut self);
}

/// The connection on which a nexus responds.
pub(crate) trait ScsiTransport: Sized {
    /// How an initiator identifies its commands.
    type Id: TaskId;
    /// The transport's state of a command's data.
    type Collect;
    /// Identifies a task management request until it is answered.
    type Request: Copy;

    fn transmit(&mut self) -> &mut Transmit;
    /// Requests the next data of a task if it is time to do so.
    fn ask(&mut self, slot: IoId, id: Self::Id, task: &mut Task<Self::Collect>) -> Progress;
    /// Responds to a task. It no longer occupies its slot.
    fn respond(&mut self, slot: IoId, id: Self::Id, task: &Task<Self::Collect>, response: &Response);
    /// Responds to a task with wrong data. It no longer occupies its slot.
    fn respond_to_wrong_data(&mut self, slot: IoId, id: Self::Id, task: &Task<Self::Collect>);
    /// Drops a task without a response. It no longer occupies its slot.
    fn drop_task(&mut self, id: Self::Id, task: &Task<Self::Collect>);
    /// Answers a task management request.
    fn respond_to_request(&mut self, request: Self::Request, response: TaskManagementResponse);
}

/// The state of a task's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More data are to come.
    Open,
    Complete,
    /// No more data are to come, and those that came are not what the task requires.
    Wrong,
}

/// One nexus and its commands in progress: the task manager of SAM-5 for all logical units.
pub(crate) struct TaskManager<T: ScsiTransport> {
    pub(crate) nexus: Nexus,
    pub(crate) tasks: Tasks<T::Id, Task<T::Collect>>,
    /// Task management requests that wait for aborted tasks to end.
    managed: Vec<Managed<T::Request>>,
    /// Whether a request or a command waits for aborted tasks to end.
    awaits: bool,
}

/// A request that has been carried out, except that tasks it aborted may not have ended.
struct Managed<R> {
    wait: Wait,
    request: R,
    /// Whether it fails if the tasks take too long to end. Otherwise it continues to wait.
    may_fail: bool,
}

impl<T: ScsiTransport> TaskManager<T> {
    pub(crate) fn new(nexus: Nexus, tasks: u16) -> Self {
        Self { nexus, tasks: Tasks::new(tasks), managed: Vec::new(), awaits: false }
    }

    /// Whether something waits for aborted tasks to end. If so, `answer_awaited` must be called again.
    #[inline]
    pub(crate) fn awaits(&self) -> bool {
        self.awaits
    }

    /// Number of task management requests that wait.
    pub(crate) fn requests(&self) -> usize {
        self.managed.len()
    }

    /// Starts a command that will occupy `slot`. Returns what it waits for, and how many bytes of data it takes.
    #[inline]
    pub(crate) fn begin<B: ScsiBackend>(
        &mut self,
        now: Instant,
        slot: IoId,
        issued: &Issued,
        transport: &mut T,
        backend: &mut B,
    ) -> (Work, u32) {
        let next = self.nexus.command(&issued.command(), &*backend);
        Work::begin(now, slot, next, &mut self.nexus, transport.transmit(), backend)
    }

    /// Requests more data of a task, or continues with it if they have all arrived.
    pub(crate) fn advance<B: ScsiBackend>(&mut self, now: Instant, slot: IoId, transport: &mut T, backend: &mut B) {
        let id = self.tasks.id_of_taken(slot);
        let task = self.tasks.get_taken(slot);
        if matches!(task.work, Work::Medium(_)) {
            return;
        }
        match transport.ask(slot, id, task) {
            Progress::Open => {}
            Progress::Complete => match task.collected(now, slot, &mut self.nexus, transport.transmit(), backend) {
                Some(response) => self.finish(slot, &response, transport),
                None => self.awaits |= task.work.is_awaiting(),
            },
            Progress::Wrong => {
                let task = self.tasks.remove(slot);
                if task.work.is_with_backend() {
                    backend.abort(slot, None);
                }
                transport.respond_to_wrong_data(slot, id, &task);
            }
        }
    }

    /// Completes an operation of the backend.
    pub(crate) fn complete(&mut self, slot: IoId, result: Result<Option<Payload>, UnitError>, transport: &mut T) {
        // Another nexus may have aborted the task in the meantime.
        let Some(task) = self.tasks.get(slot) else { return };
        let response = task.medium_done(&mut self.nexus, result);
        self.finish(slot, &response, transport);
    }

    fn finish(&mut self, slot: IoId, response: &Response, transport: &mut T) {
        let id = self.tasks.id_of_taken(slot);
        let task = self.tasks.remove(slot);
        transport.respond(slot, id, &task, response);
    }

    /// Aborts the tasks that another nexus asked to end: by CLEAR TASK SET, resets or PREEMPT AND ABORT.
    #[inline]
    pub(crate) fn end_purged<B: ScsiBackend>(&mut self, transport: &mut T, backend: &mut B) {
        if self.nexus.is_purged() {
            self.purge(transport, backend);
        }
    }

    #[cold]
    fn purge<B: ScsiBackend>(&mut self, transport: &mut T, backend: &mut B) {
        let tasks = &mut self.tasks;
        self.nexus.end_purged(|is_meant, ending| {
            let before = tasks.len();
            tasks.abort_where(|task| is_meant(task.issued.lun), ending, transport, backend);
            tasks.len() < before
        });
    }

    /// Ends the nexus and aborts its tasks. Operations that continue keep `ending`.
    pub(crate) fn end<B: ScsiBackend>(&mut self, ending: &Ending, transport: &mut T, backend: &mut B) {
        // First end the tasks that others wait for, so that they learn of the end.
        self.end_purged(transport, backend);
        self.tasks.abort_where(|_| true, ending, transport, backend);
        self.nexus.lost();
    }

    /// Executes a task management function (SAM-5 §7); `slot` is the task of ABORT TASK. `request` is answered when
    /// everything that it aborted has ended, here and in other nexuses.
    pub(crate) fn manage<B: ScsiBackend>(
        &mut self,
        now: Instant,
        (function, lun, slot): (TaskManagement, u64, Option<IoId>),
        request: T::Request,
        transport: &mut T,
        backend: &mut B,
    ) {
        if self.managed.iter().filter(|managed| managed.may_fail).count() >= FUNCTIONS_MAX {
            return transport.respond_to_request(request, TaskManagementResponse::Failed);
        }
        let unit = decode_lun(lun);
        if let Some(refused) = self.nexus.refusal(function, unit) {
            return transport.respond_to_request(request, refused);
        }
        let (own, mut endings) = (Ending::default(), Endings::default());
        endings.add(&own);
        match function {
            TaskManagement::AbortTask => {
                if let Some(slot) = slot {
                    self.tasks.abort(slot, &own, transport, backend);
                }
            }
            TaskManagement::AbortTaskSet | TaskManagement::ClearTaskSet | TaskManagement::LogicalUnitReset => {
                self.tasks.abort_where(|task| decode_lun(task.issued.lun) == unit, &own, transport, backend);
            }
            TaskManagement::NexusReset | TaskManagement::TargetReset => {
                self.tasks.abort_where(|_| true, &own, transport, backend);
            }
            TaskManagement::ClearAca => {}
        }
        drop(own);
        self.nexus.task_management(function, lun, &mut endings);
        let wait = Wait::begin(now, endings, || backend.notify_others());
        self.managed.push(Managed { wait, request, may_fail: true });
        self.answer_awaited(now, transport);
    }

    /// Forgets a request without an answer. Whether it waited.
    pub(crate) fn forget_request(&mut self, is_meant: impl Fn(T::Request) -> bool) -> bool {
        let before = self.managed.len();
        self.managed.retain(|managed| !is_meant(managed.request));
        self.managed.len() < before
    }

    /// Aborts the task in `slot`. `request` is answered when all of it has ended, however long that takes.
    pub(crate) fn abort<B: ScsiBackend>(
        &mut self,
        now: Instant,
        slot: IoId,
        request: T::Request,
        transport: &mut T,
        backend: &mut B,
    ) {
        let (own, mut endings) = (Ending::default(), Endings::default());
        endings.add(&own);
        self.tasks.abort(slot, &own, transport, backend);
        drop(own);
        self.managed.push(Managed { wait: Wait::begin(now, endings, || {}), request, may_fail: false });
        self.answer_awaited(now, transport);
    }

    /// Answers the requests and commands whose aborted tasks have ended or take too long.
    #[cold]
    pub(crate) fn answer_awaited(&mut self, now: Instant, transport: &mut T) {
        self.awaits = false;
        let mut from = 0;
        while let Some(slot) = self.tasks.next_where(from, |task| task.work.is_awaiting()) {
            match self.tasks.get_taken(slot).answer_awaited(now) {
                Some(response) => self.finish(slot, &response, transport),
                None => self.awaits = true,
            }
            from = slot + 1;
        }
        self.managed.retain_mut(|Managed { wait, request, may_fail }| {
            let response = match wait.outcome(now) {
                WaitOutcome::Ended => TaskManagementResponse::Complete,
                WaitOutcome::TooLong if *may_fail => TaskManagementResponse::Failed,
                WaitOutcome::TooLong | WaitOutcome::Waits => {
                    self.awaits = true;
                    return true;
                }
            };
            transport.respond_to_request(*request, response);
            false
        });
    }
}

/// A command in progress.
#[derive(Debug, Default)]
pub(crate) struct Task<C> {
    pub(crate) issued: Issued,
    pub(crate) work: Work,
    pub(crate) collect: C,
}

/// The command as the initiator issued it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Issued {
    pub(crate) lun: u64,
    pub(crate) cdb: [u8; 16],
    pub(crate) announced: Announced,
}

impl Issued {
    #[inline]
    fn command(&self) -> Command<'_> {
        let Announced { data_in, data_out } = self.announced;
        Command { lun: self.lun, cdb: &self.cdb, data_out_len: data_out, data_in_len: data_in }
    }
}

/// The event that a task waits for, and its next step.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    Idle,
    /// Waits for its data, which go to the backend; then calls the backend's `finish`.
    Place(AfterMedium),
    /// Waits for the backend's completion.
    Medium(AfterMedium),
    /// Waits for parameter data.
    Parameters(Vec<u8>),
    /// Waits for the end of data that are discarded; then sends this response.
    Answer(Response),
    /// Waits for the end of other nexuses' commands; then sends this response.
    Await(Wait, Response),
}

impl Work {
    /// Executes the device server's next step for a command. Returns what it waits for, and how many bytes of data it
    /// takes.
    #[inline]
    fn begin<B: ScsiBackend>(
        now: Instant,
        id: IoId,
        next: Next,
        nexus: &mut Nexus,
        transmit: &mut Transmit,
        backend: &mut B,
    ) -> (Self, u32) {
        match next {
            Next::Respond(response) => {
                transmit.charge(Transmit::REQUEST + response.data.len());
                (Self::Answer(response), 0)
            }
            Next::RespondAfter(endings, response) => {
                (Self::Await(Wait::begin(now, endings, || backend.notify_others()), response), 0)
            }
            Next::Parameters { len } if len > PARAMETERS_LEN_MAX => {
                (Self::Answer(Response::check(Sense::PARAMETER_LIST_LENGTH_ERROR)), 0)
            }
            Next::Parameters { len } => (Self::Parameters(Vec::with_capacity(len as usize)), len),
            Next::Medium { unit, op, after } => {
                let want = op.data_len();
                match backend.start(now, id, unit, op) {
                    Started::NeedData => (Self::Place(after), want),
                    Started::Queued => (Self::Medium(after), 0),
                    Started::Done(result) => (Self::Answer(nexus.medium_done(after, result)), 0),
                }
            }
        }
    }

    /// Whether the backend has an operation of this task.
    fn is_with_backend(&self) -> bool {
        matches!(self, Self::Place(_) | Self::Medium(_))
    }

    /// Whether the task waits for other commands to end, so that [`Task::answer_awaited`] must be called.
    fn is_awaiting(&self) -> bool {
        matches!(self, Self::Await(..))
    }
}

impl<C> Task<C> {
    /// Accepts a piece of the task's data.
    #[inline]
    pub(crate) fn data<B: Backend>(&mut self, id: IoId, offset: u32, bytes: &[u8], backend: &mut B) {
        match &mut self.work {
            Work::Place(_) => backend.place(id, offset, bytes),
            Work::Parameters(parameters) => parameters.extend_from_slice(bytes),
            _ => {}
        }
    }

    /// Memory for a piece of the task's data, if they need not be examined. Replaces `data`.
    pub(crate) fn memory<B: Backend>(&self, id: IoId, offset: u32, len: u32, backend: &B) -> Option<Payload> {
        matches!(self.work, Work::Place(_)).then(|| backend.memory(id, offset, len)).flatten()
    }

    /// Continues when all data of the task have arrived. Returns its response if that completes it.
    #[inline]
    fn collected<B: ScsiBackend>(
        &mut self,
        now: Instant,
        id: IoId,
        nexus: &mut Nexus,
        transmit: &mut Transmit,
        backend: &mut B,
    ) -> Option<Response> {
        if let Work::Parameters(parameters) = &self.work {
            let next = nexus.parameters(&self.issued.command(), parameters, &*backend);
            // The next step takes no more data.
            (self.work, _) = Work::begin(now, id, next, nexus, transmit, backend);
        }
        match core::mem::take(&mut self.work) {
            Work::Answer(response) => Some(response),
            Work::Place(after) => match backend.finish(now, id) {
                Started::Done(result) => Some(nexus.medium_done(after, result)),
                Started::Queued | Started::NeedData => {
                    self.work = Work::Medium(after);
                    None
                }
            },
            waiting => {
                self.work = waiting;
                if self.work.is_awaiting() { self.answer_awaited(now) } else { None }
            }
        }
    }

    /// Returns the response of a command that aborted others, if they have ended or take too long.
    fn answer_awaited(&mut self, now: Instant) -> Option<Response> {
        let Work::Await(mut wait, response) = core::mem::take(&mut self.work) else {
            unreachable!("asked of those that wait only")
        };
        match wait.outcome(now) {
            WaitOutcome::Waits => {
                self.work = Work::Await(wait, response);
                None
            }
            WaitOutcome::Ended => Some(response),
            WaitOutcome::TooLong => {
                let failed = Response::check(Sense::INTERNAL_TARGET_FAILURE);
                Some(Response { data_out_len: response.data_out_len, ..failed })
            }
        }
    }

    /// Completes the task's operation in the backend.
    #[inline]
    fn medium_done(&self, nexus: &mut Nexus, result: Result<Option<Payload>, UnitError>) -> Response {
        let Work::Medium(after) = self.work else { unreachable!("the backend has no such task") };
        nexus.medium_done(after, result)
    }
}

/// Bytes that the initiator announced in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) data_in: u32,
    pub(crate) data_out: u32,
}

impl Announced {
    /// Creates it from one length for both directions. For a bidirectional command it is the length of data-out.
    pub(crate) fn new(reads: bool, writes: bool, len: u32) -> Self {
        Self { data_in: if reads && !writes { len } else { 0 }, data_out: if writes { len } else { 0 } }
    }

    /// Compares what a command transferred with the announced length. `data_in_len` is the length of its data-in.
    pub(crate) fn residual(self, data_in_len: u32, data_out_len: u32) -> Residual {
        if self.data_out > 0 || data_out_len > 0 {
            Residual::new(self.data_out, data_out_len)
        } else {
            Residual::new(self.data_in, data_in_len)
        }
    }
}

/// The difference between what a command transferred and what was announced (RFC 7143 §11.4.5; FCP-4, `FCP_RESID`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Residual {
    pub(crate) overflow: bool,
    pub(crate) underflow: bool,
    pub(crate) count: u32,
}

impl Residual {
    pub(crate) fn new(announced: u32, moved: u32) -> Self {
        Self { overflow: moved > announced, underflow: moved < announced, count: moved.abs_diff(announced) }
    }
}

/// How an initiator identifies its tasks.
pub(crate) trait TaskId: Copy + Eq {
    /// The value that no task has.
    const NONE: Self;
}

/// Commands in progress in dense slots. The number of a slot is the [`IoId`].
#[derive(Debug)]
pub(crate) struct Tasks<Id, Task> {
    /// The identifier of each slot's task; `Id::NONE` if the slot is free. Kept apart from the tasks, so that a search
    /// reads little memory.
    ids: Vec<Id>,
    /// Grows as slots are first taken, because most connections use few of them.
    slots: Slab<Task>,
    /// All slots from this one on are free.
    high: usize,
}

impl<Id: TaskId, Task> Tasks<Id, Task> {
    pub(crate) fn new(count: u16) -> Self {
        Self { ids: alloc::vec![Id::NONE; count.into()], slots: Slab::new(), high: 0 }
    }

    /// Number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.ids.len()
    }

    /// The slot of the next task; `None` if all are in use.
    #[inline]
    pub(crate) fn next_free(&self) -> Option<IoId> {
        (self.slots.len() < self.ids.len()).then(|| self.slots.vacant_key() as IoId)
    }

    /// Takes the slot that `next_free` returned. No other task may have the same `id`.
    pub(crate) fn insert(&mut self, slot: IoId, id: Id, task: Task) {
        self.ids[slot as usize] = id;
        assert_eq!(self.slots.insert(task), slot as usize, "the slot is the next that is free");
        self.high = self.high.max(slot as usize + 1);
    }

    /// Frees a slot and returns its task.
    pub(crate) fn remove(&mut self, slot: IoId) -> Task {
        self.ids[slot as usize] = Id::NONE;
        while self.high > 0 && self.ids[self.high - 1] == Id::NONE {
            self.high -= 1;
        }
        self.slots.remove(slot as usize)
    }

    #[inline]
    pub(crate) fn find(&self, id: Id) -> Option<IoId> {
        let slot = self.ids[..self.high].iter().position(|other| *other == id)?;
        (id != Id::NONE).then_some(slot as IoId)
    }

    /// The identifier of a slot's task; `None` if the slot is free or does not exist.
    #[inline]
    pub(crate) fn id(&self, slot: IoId) -> Option<Id> {
        self.ids.get(slot as usize).copied().filter(|id| *id != Id::NONE)
    }

    /// The identifier of a slot that is in use.
    #[inline]
    fn id_of_taken(&self, slot: IoId) -> Id {
        self.id(slot).expect("the slot is taken")
    }

    #[inline]
    pub(crate) fn get(&self, slot: IoId) -> Option<&Task> {
        self.slots.get(slot as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: IoId) -> Option<&mut Task> {
        self.slots.get_mut(slot as usize)
    }

    /// The task of a slot that is in use.
    #[inline]
    fn get_taken(&mut self, slot: IoId) -> &mut Task {
        &mut self.slots[slot as usize]
    }

    /// The lowest slot from `from` on that is in use and whose task `wanted` accepts.
    pub(crate) fn next_where(&self, from: IoId, wanted: impl Fn(&Task) -> bool) -> Option<IoId> {
        (from as usize..self.high)
            .find(|slot| self.ids[*slot] != Id::NONE && wanted(&self.slots[*slot]))
            .map(|slot| slot as IoId)
    }
}

impl<Id: TaskId, C> Tasks<Id, Task<C>> {
    /// Aborts a task without a response. Operations that continue keep `ending`.
    fn abort<T, B>(&mut self, slot: IoId, ending: &Ending, transport: &mut T, backend: &mut B)
    where
        T: ScsiTransport<Id = Id, Collect = C>,
        B: ScsiBackend,
    {
        let id = self.id_of_taken(slot);
        let task = self.remove(slot);
        transport.drop_task(id, &task);
        if task.work.is_with_backend() {
            backend.abort(slot, Some(ending.clone()));
        }
    }

    fn abort_where<T, B>(
        &mut self,
        wanted: impl Fn(&Task<C>) -> bool,
        ending: &Ending,
        transport: &mut T,
        backend: &mut B,
    ) where
        T: ScsiTransport<Id = Id, Collect = C>,
        B: ScsiBackend,
    {
        let mut from = 0;
        while let Some(slot) = self.next_where(from, &wanted) {
            self.abort(slot, ending, transport, backend);
            from = slot + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TaskId for u8 {
        const NONE: Self = u8::MAX;
    }

    #[test]
    fn slots_are_dense_found_by_id_and_given_back() {
        let mut tasks = Tasks::<u8, char>::new(3);
        for (slot, id, task) in [(0, 7, 'a'), (1, 8, 'b'), (2, 9, 'c')] {
            assert_eq!(tasks.next_free(), Some(slot));
            tasks.insert(slot, id, task);
        }
        assert_eq!((tasks.next_free(), tasks.len(), tasks.capacity()), (None, 3, 3));
        assert_eq!((tasks.find(8), tasks.find(10)), (Some(1), None));
        assert_eq!(tasks.remove(1), 'b');
        assert_eq!((tasks.find(8), tasks.id(1), tasks.id(99)), (None, None, None));
        assert_eq!(tasks.find(u8::NONE), None);
        assert_eq!((tasks.next_where(1, |_| true), tasks.next_where(0, |task| *task == 'b')), (Some(2), None));
        assert_eq!(tasks.next_free(), Some(1));
        tasks.insert(1, 11, 'd');
        assert_eq!((tasks.find(11), tasks.id_of_taken(1), tasks.get(1)), (Some(1), 11, Some(&'d')));
    }
}
