//! One thread's share of a load generator as a node: it opens links, waits to begin, runs, drains, and closes in order.

mod connections;
mod paths;
mod tasks;

pub use paths::PathReport;

use std::{cell::RefCell, rc::Rc, time::Duration};

use connections::{Connections, ControlLink};
use iotax_proto::{Geometry, Instant, Payload, Transmit};
use paths::Paths;

use super::{
    config::{Allocate, Facts, LoadConfig, LocalUnit, TaskConfig},
    connector::{self, ConnectionConfig},
    endpoint::Endpoint,
    link::{ControlStep, Link},
    local::{DiskInitiator, MemoryInitiator},
    oltp::Database,
    pacing::{Pacing, Schedule},
    queue::QueuePlace,
    recorder::{Measured, Recorder, Sample},
    run::buffers_of,
    stream::{self, StreamConfig},
    trouble,
    verify::Content,
    worker::{Task, Worker},
};
use crate::{
    failure::{Failure, FailureKind},
    node::{CloseReason, ConnId, DiskToken, Input, Node, Output},
    pattern::{COPIES, Pool},
    protocols::AnyInitiator,
};

/// Maximum times for links to open, for I/Os to drain after the run, and for links to close in order.
const OPEN_TIME: Duration = Duration::from_secs(15);
const DRAIN_TIME: Duration = Duration::from_secs(30);
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// The control connection; worker `i` of this thread has `ConnId(i + 1)`.
const CONTROL: ConnId = ConnId(0);

/// The result of a finished task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    Run(Box<Measured>),
    Checked { content: Content, scanned_bytes: u64 },
    Filled { bytes: u64 },
}

pub struct LoadNode {
    config: LoadConfig,
    place: String,
    pool: Rc<Pool>,
    phase: Phase,
    control: Option<ControlLink>,
    /// In place of `control`, if the endpoint has several portals.
    paths: Option<Box<Paths>>,
    workers: Vec<Worker>,
    /// Timeout of each worker's link, as of its last turn. The last one is that of `paths`, if there are any.
    timeouts: Vec<Option<Instant>>,
    /// Data of writes: for each worker, at least one payload for each tag.
    buffers: Vec<Vec<Payload>>,
    /// Data of the copies, for all workers.
    copies: Vec<Payload>,
    connections: Connections,
    recorder: Option<Recorder>,
    /// Only for a run of transactions.
    database: Option<Rc<RefCell<Database>>>,
    /// Only for a run: its streams, and the stream of each worker over all threads.
    all_streams: Vec<StreamConfig>,
    assigned: Vec<usize>,
    begin_at: Option<Instant>,
    began_at: Option<Instant>,
    deadline: Option<Instant>,
    /// Blocks that were read back after the run.
    read_back: u64,
    outcome: Option<Result<TaskOutcome, Failure>>,
    /// The links stay open after a run, for the next slice, until `release`.
    stays: bool,
    queue: Option<QueuePlace>,
    /// Other loads, workers or paths may give workers turns.
    together: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    /// Every worker of this thread may submit; waits for `begin`.
    Ready,
    Running,
    /// After a run, with `read_back`.
    ReadingBack,
    Draining,
    Closing,
    Finished,
}

impl LoadNode {
    /// A load on a unit of this machine.
    pub fn local(
        config: LoadConfig,
        endpoint: &Endpoint,
        unit: &LocalUnit,
        allocate: &mut Allocate<'_>,
    ) -> Result<Self, Failure> {
        let mut node = Self::new(config, endpoint, allocate)?;
        let (depth, io_bytes) = node.transfer();
        let looks = !matches!(&node.config.task, TaskConfig::Run(run) if !run.verify);
        let mut links = Vec::new();
        for _ in 0..node.config.own_workers {
            let initiator = match unit {
                LocalUnit::Memory(region) => {
                    AnyInitiator::Memory(MemoryInitiator::new(Rc::clone(region), depth, io_bytes))
                }
                LocalUnit::Disk { disk, geometry } => {
                    let buffers = payloads(allocate, depth, io_bytes)?;
                    AnyInitiator::Disk(DiskInitiator::new(*disk, geometry.clone(), buffers, looks))
                }
            };
            links.push(Link { initiator, to: None });
        }
        node.open(links);
        Ok(node)
    }

    /// A load on a unit that is reached by a protocol.
    pub fn remote(
        config: LoadConfig,
        endpoint: &Endpoint,
        connection: &ConnectionConfig,
        allocate: &mut Allocate<'_>,
    ) -> Result<Self, Failure> {
        if !connection.further.is_empty() {
            let mut node = Self::new(config.clone(), endpoint, allocate)?;
            node.add_paths(&config, endpoint, connection)?;
            return Ok(node);
        }
        let control = connector::control(endpoint, connection, &config)?;
        let mut node = Self::new(config, endpoint, allocate)?;
        node.control = Some(ControlLink::new(control));
        Ok(node)
    }

    fn new(config: LoadConfig, endpoint: &Endpoint, allocate: &mut Allocate<'_>) -> Result<Self, Failure> {
        let (mut all_streams, mut assigned) = (Vec::new(), Vec::new());
        if let TaskConfig::Run(run) = &config.task {
            run.check()?;
            if run.oltp.is_some() && config.reduction.repeats() {
                return Err(Failure::usage("pages of a database do not repeat", "data.dedupe"));
            }
            all_streams = run.all_streams();
            assigned = stream::assign(&all_streams, config.workers)?;
        }
        let mut node = Self {
            place: endpoint.text.clone(),
            pool: Rc::new(Pool::new(config.reduction)),
            phase: Phase::Opening,
            control: None,
            paths: None,
            workers: Vec::new(),
            timeouts: Vec::new(),
            buffers: Vec::new(),
            copies: Vec::new(),
            connections: Connections::new(config.own_workers as usize + 1),
            recorder: None,
            database: None,
            all_streams,
            assigned,
            begin_at: None,
            began_at: None,
            deadline: None,
            read_back: 0,
            outcome: None,
            stays: false,
            queue: None,
            together: false,
            config,
        };
        let (depth, io_bytes) = node.transfer();
        let (writes, buffers) = match &node.config.task {
            TaskConfig::Run(run) if run.oltp.is_none() => {
                (run.writes(), buffers_of(node.config.own_workers, depth, io_bytes))
            }
            TaskConfig::Run(run) => (run.writes(), depth),
            TaskConfig::Check { .. } => (false, 0),
            TaskConfig::Fill { .. } => (true, depth),
        };
        for _ in 0..node.config.own_workers {
            node.buffers.push(if writes { payloads(allocate, buffers, io_bytes)? } else { Vec::new() });
        }
        if writes && node.config.reduction.repeats() && matches!(node.config.task, TaskConfig::Run(_)) {
            node.copies = copies(allocate, io_bytes, &node.pool)?;
        }
        Ok(node)
    }

    /// Shares the queues of a host with other loads. To be called before any link is opened.
    pub fn queue_at(&mut self, place: QueuePlace) {
        debug_assert!(self.workers.is_empty(), "no worker has begun");
        self.queue = Some(place);
        self.together = true;
    }

    /// Whether every link is open, so that `begin` may be called.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Keeps the links open after each run, for a session of many slices: `begin_slice` starts each, `release` ends the
    /// session.
    pub fn stay(&mut self) {
        self.stays = true;
    }

    /// Starts the next slice of a session: load from `at` on, measured for `runtime` after `warmup`. `run` identifies
    /// its writes.
    pub fn begin_slice(&mut self, at: Instant, warmup: Duration, runtime: Duration, run: u64) {
        debug_assert!(self.stays, "a slice belongs to a session");
        if self.phase != Phase::Ready || self.begin_at.is_some() {
            return;
        }
        if let TaskConfig::Run(config) = &mut self.config.task {
            (config.warmup, config.runtime) = (warmup, runtime);
        }
        self.workers.iter_mut().for_each(|worker| worker.renew(run));
        if let Some(database) = &self.database {
            database.borrow_mut().renew(run);
        }
        self.begin(at);
    }

    /// The measurements of the slice that has ended; returned once.
    pub fn take_slice(&mut self) -> Option<Measured> {
        let is_run = |outcome: &mut Result<TaskOutcome, Failure>| matches!(outcome, Ok(TaskOutcome::Run(_)));
        match self.outcome.take_if(|outcome| self.phase == Phase::Ready && is_run(outcome))? {
            Ok(TaskOutcome::Run(measured)) => Some(*measured),
            _ => unreachable!("a run's outcome was taken"),
        }
    }

    /// Ends a session in order, as soon as no slice is under way.
    pub fn release(&mut self, now: Instant) {
        self.stays = false;
        if self.phase == Phase::Ready {
            self.start_closing(now);
            self.advance(now);
        }
    }

    /// Starts a run: warm-up from `at` on. A check or a fill starts by itself.
    pub fn begin(&mut self, at: Instant) {
        let TaskConfig::Run(run) = &self.config.task else { return };
        if self.phase == Phase::Ready && self.begin_at.is_none() {
            self.begin_at = Some(at);
            if let Some(paths) = &mut self.paths {
                paths.of_run.clear();
            }
            let schedule = Schedule { count: run.count, ..Schedule::new(at, run.warmup, run.runtime, run.sample) };
            let open = matches!(run.pacing, Pacing::Open(_));
            let workers = |stream| self.assigned.iter().filter(|each| **each == stream).count() as u32;
            let streams = self.all_streams.iter().cloned().enumerate().map(|(index, access)| (access, workers(index)));
            self.recorder = Some(Recorder::new(schedule, streams, open));
            for worker in &mut self.workers {
                if let Some(Task::Run(task)) = &mut worker.state.task {
                    task.begin(schedule);
                }
            }
            if let Some(database) = &self.database {
                database.borrow_mut().begin(schedule);
            }
        }
    }

    /// When this thread's workers submitted their first I/Os: as soon as it ran after `begin`'s instant.
    pub fn began_at(&self) -> Option<Instant> {
        self.began_at
    }

    /// Geometry of the unit, once ready.
    pub fn geometry(&self) -> Option<&Geometry> {
        self.workers.first()?.state.geometry.as_ref()
    }

    /// What set-up found and negotiated, once ready.
    pub fn facts(&self) -> Facts {
        if self.paths.is_some() {
            return self.path_facts();
        }
        let mut facts = self.control.as_ref().map(|link| link.control.facts()).unwrap_or_default();
        if let Some(own) = self.workers.first().map(|worker| worker.link.initiator.facts()) {
            facts.identity.extend(own.identity);
            facts.negotiated.extend(own.negotiated);
        }
        facts
    }

    /// Complete intervals, from number `from` on.
    pub fn samples(&self, from: usize) -> &[Sample] {
        self.recorder.as_ref().map_or(&[], |recorder| recorder.samples(from))
    }

    /// I/Os of a run so far, including those outside its window: each takes time of a virtual processor.
    pub fn completed(&self) -> u64 {
        self.recorder.as_ref().map_or(0, Recorder::completed)
    }

    /// Bytes checked or filled so far, and in total.
    pub fn progress_bytes(&self) -> (u64, u64) {
        match self.workers.first().and_then(|worker| worker.state.task.as_ref()) {
            Some(Task::Scan(task)) => (task.scanned_bytes, task.total_bytes),
            Some(Task::Fill(task)) => (task.done_bytes, task.total_bytes),
            Some(Task::Run(_) | Task::Oltp(_) | Task::ReadBack(_)) | None => (0, 0),
        }
    }

    /// The result of the task, once finished.
    pub fn outcome(&self) -> Option<&Result<TaskOutcome, Failure>> {
        self.outcome.as_ref().filter(|_| self.phase == Phase::Finished)
    }

    /// Maximum number of I/Os that a worker has under way, and their maximum size.
    fn transfer(&self) -> (u32, u32) {
        let task = &self.config.task;
        (task.outstanding(), task.io_bytes_max())
    }

    fn open(&mut self, links: Vec<Link<AnyInitiator>>) {
        let (depth, _) = self.transfer();
        for link in links {
            if let Some(to) = link.to {
                self.connections.connect(ConnId(self.workers.len() as u32 + 1), to);
            }
            self.timeouts.push(link.initiator.poll_timeout());
            let mut worker = Worker::new(link, depth);
            worker.state.queue = self.queue.clone().map(|queue| (queue, self.workers.len() as u32));
            self.workers.push(worker);
        }
    }

    // ---------------------------------------------------------------------------------------------------------- a turn

    fn received(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        let Some(index) = (conn.0 as usize).checked_sub(1) else {
            if let Some(Err(violation)) = self.control.as_mut().map(|link| link.receive(now, bytes)) {
                self.fail(trouble::violation(&violation, &self.place));
            }
            return;
        };
        if let Some(worker) = self.workers.get_mut(index) {
            worker.receive(now, bytes, self.recorder.as_mut());
            self.turn(now, index);
        } else {
            self.path_received(now, conn, bytes);
        }
    }

    /// After any event of a worker: submits I/Os, and updates what it has to send and when it is due.
    fn turn(&mut self, now: Instant, index: usize) {
        let worker = &mut self.workers[index];
        if matches!(self.phase, Phase::Running | Phase::ReadingBack) {
            worker.refill(now);
        }
        if !worker.link.initiator.get().transmit().is_empty() {
            match &self.paths {
                Some(paths) => paths.send(index, worker, &mut self.connections.to_send),
                None => self.connections.to_send.push(ConnId(index as u32 + 1)),
            }
        }
        while let Some((tag, disk, op)) = worker.link.initiator.poll_disk() {
            let token = DiskToken((index as u64) << 32 | u64::from(tag));
            self.connections.outputs.push_back(Output::Disk { token, disk, op });
        }
        let due = if self.phase == Phase::Running { worker.next_due() } else { None };
        self.timeouts[index] = earlier(worker.link.initiator.poll_timeout(), due);
        if let Some(trouble) = self.workers[index].state.trouble.take() {
            let failure = trouble::failure(trouble, &self.place);
            self.fail(failure);
        }
    }

    /// Gives a turn to workers that other workers woke, and to those whose turn has come at the queues of their host.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, now: Instant) {
        while let Some(index) = self.database.as_ref().and_then(|database| database.borrow_mut().take_wake()) {
            self.turn(now, index);
        }
        while let Some(worker) = self.queue.as_ref().and_then(QueuePlace::take_granted) {
            self.workers[worker as usize].go_on(now);
            self.turn(now, worker as usize);
        }
    }

    fn closed(&mut self, now: Instant, conn: ConnId, reason: &CloseReason) {
        if let Some(open) = self.connections.open.get_mut(conn.0 as usize) {
            *open = false;
        }
        if self.phase == Phase::Finished {
            return;
        }
        if self.paths.is_some() {
            return self.path_closed(now, conn, reason);
        }
        let Some(index) = (conn.0 as usize).checked_sub(1) else {
            return self.control_closed(reason);
        };
        let worker = &mut self.workers[index];
        if self.phase == Phase::Closing || worker.state.closed {
            worker.state.closed = true;
            self.timeouts[index] = None;
            return;
        }
        let failure = trouble::closed(reason, self.phase == Phase::Opening, &self.place);
        worker.disconnected(now, self.recorder.as_mut());
        self.fail(failure);
    }

    fn control_closed(&mut self, reason: &CloseReason) {
        let Some(link) = &mut self.control else { return };
        if let Some(to) = link.next.take() {
            self.connections.connect(CONTROL, to);
        } else if self.phase == Phase::Closing {
            self.control = None;
        } else if link.control.needs_connection() {
            self.fail(trouble::closed(reason, self.phase == Phase::Opening, &self.place));
        }
    }

    fn timer(&mut self, now: Instant) {
        for index in 0..self.workers.len() {
            if self.timeouts[index].is_some_and(|at| at <= now) {
                let worker = &mut self.workers[index];
                // Perhaps only an arrival is due.
                if worker.link.initiator.poll_timeout().is_some_and(|at| at <= now) {
                    worker.handle_timeout(now, self.recorder.as_mut());
                }
                self.turn(now, index);
            }
        }
        if let Some(link) = &mut self.control
            && link.control.poll_timeout().is_some_and(|at| at <= now)
            && let Err(violation) = link.handle_timeout(now)
        {
            self.fail(trouble::violation(&violation, &self.place));
        }
        if self.paths.is_some() {
            self.paths_timer(now);
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.overdue();
        }
    }

    /// Moves through the phases as far as possible.
    #[allow(clippy::inline_always)] // As NVMe/TCP's `Link::step`: saves 120 instructions of a 128 KiB read.
    #[inline(always)]
    fn advance(&mut self, now: Instant) {
        self.step_control(now);
        loop {
            let before = self.phase;
            match self.phase {
                Phase::Opening => self.advance_opening(now),
                Phase::Ready => {
                    if self.begin_at.is_some_and(|at| at <= now) || !matches!(self.config.task, TaskConfig::Run(_)) {
                        self.phase = Phase::Running;
                        self.began_at = Some(now);
                        self.deadline = None;
                        self.workers.iter_mut().for_each(Worker::begin);
                        (0..self.workers.len()).for_each(|index| self.turn(now, index));
                    }
                }
                Phase::Running => self.advance_running(now),
                Phase::Draining => {
                    if self.outstanding() == 0 {
                        if matches!(&self.config.task, TaskConfig::Run(run) if run.read_back) {
                            self.begin_read_back(now);
                        } else if self.end_run(now) {
                            return;
                        }
                    }
                }
                Phase::ReadingBack => {
                    if self.has_read_back(now) && self.end_run(now) {
                        return;
                    }
                }
                Phase::Closing => self.advance_closing(now),
                Phase::Finished => {}
            }
            if self.phase == before {
                return;
            }
        }
    }

    fn step_control(&mut self, now: Instant) {
        let Some(link) = self.control.as_mut().filter(|link| link.to_ask) else { return };
        match link.step(now, CONTROL, &mut self.connections) {
            ControlStep::Wait | ControlStep::Connect(_) => {}
            ControlStep::Open(links) => self.open(links),
            ControlStep::Failed(failure) => self.fail(failure),
            ControlStep::Closed => self.control = None,
        }
    }

    fn advance_opening(&mut self, now: Instant) {
        let _ = self.deadline.get_or_insert(now + OPEN_TIME);
        let all = self.workers.len() == self.config.own_workers as usize;
        if !all || self.workers.iter().any(|worker| worker.state.geometry.is_none()) {
            return;
        }
        for index in 0..self.workers.len() {
            match self.task(index) {
                Ok(task) => self.workers[index].state.task = Some(task),
                Err(failure) => return self.fail(failure),
            }
        }
        self.deadline = None;
        self.phase = Phase::Ready;
    }

    fn advance_running(&mut self, now: Instant) {
        if let TaskConfig::Run(run) = &self.config.task {
            let end = self.begin_at.map(|at| at + run.warmup + run.runtime);
            if end.is_some_and(|end| end <= now) {
                self.phase = Phase::Draining;
                self.deadline = Some(now + DRAIN_TIME);
            }
        } else if self.workers.iter().all(Worker::has_passed) {
            // A fill scans before it writes; then the same worker continues.
            match self.after_scan() {
                Some(Ok(fill)) => {
                    self.workers[0].state.task = Some(fill);
                    self.turn(now, 0);
                }
                Some(Err(failure)) => self.fail(failure),
                None => self.start_closing(now),
            }
        }
    }

    /// Returns whether it was a slice of a session, which goes on with the next.
    fn end_run(&mut self, now: Instant) -> bool {
        if self.stays {
            self.end_slice();
        } else {
            self.start_closing(now);
        }
        self.stays
    }

    #[cold]
    #[inline(never)]
    fn begin_read_back(&mut self, now: Instant) {
        self.keep_path_counts();
        self.phase = Phase::ReadingBack;
        self.read_back = 0;
        self.deadline = Some(now + DRAIN_TIME);
        self.workers.iter_mut().for_each(Worker::begin_read_back);
        (0..self.workers.len()).for_each(|index| self.turn(now, index));
    }

    /// Whether every written block was read back. The deadline is for each block that is.
    #[cold]
    #[inline(never)]
    fn has_read_back(&mut self, now: Instant) -> bool {
        let (mut blocks, mut over) = (0, true);
        for worker in &self.workers {
            let (done, is_over) = worker.read_back();
            (blocks, over) = (blocks + done, over && is_over);
        }
        if blocks > self.read_back {
            self.read_back = blocks;
            self.deadline = Some(now + DRAIN_TIME);
        }
        if over {
            self.workers.iter_mut().for_each(Worker::end_read_back);
        }
        over
    }

    fn end_slice(&mut self) {
        self.outcome = Some(Ok(self.take_outcome()));
        self.recorder = None;
        self.begin_at = None;
        self.deadline = None;
        self.phase = Phase::Ready;
    }

    fn start_closing(&mut self, now: Instant) {
        self.outcome = Some(Ok(self.take_outcome()));
        self.phase = Phase::Closing;
        self.deadline = Some(now + CLOSE_TIME);
        for index in 0..self.workers.len() {
            self.workers[index].close(now);
            self.turn(now, index);
        }
    }

    #[cold]
    fn advance_closing(&mut self, now: Instant) {
        let paths_closed = self.paths.is_none() || self.close_paths(now);
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let conn = ConnId(index as u32 + 1);
            if worker.state.closed && worker.link.to.take().is_some() {
                self.connections.outputs.push_back(Output::Close { conn });
            }
        }
        let links_closed = self.workers.iter().all(|worker| worker.state.closed);
        if let Some(link) = self.control.as_mut().filter(|link| links_closed && !link.closing) {
            link.close(now);
            self.step_control(now);
        }
        if links_closed && paths_closed && self.control.is_none() && !self.connections.open.contains(&true) {
            self.phase = Phase::Finished;
        }
    }

    fn overdue(&mut self) {
        match self.phase {
            Phase::Opening => {
                let down = self.paths_down();
                let message = format!("nothing that lets I/O begin came within {} s{down}", OPEN_TIME.as_secs());
                self.fail(Failure::new(FailureKind::Unreachable, message, self.place.clone()));
            }
            Phase::Draining => {
                let count = self.outstanding();
                let after = DRAIN_TIME.as_secs();
                let down = self.paths_down();
                let message = format!("{count} I/Os were not answered within {after} s after the run{down}");
                self.fail(Failure::new(FailureKind::Lost, message, self.place.clone()));
            }
            Phase::ReadingBack => {
                let after = DRAIN_TIME.as_secs();
                let down = self.paths_down();
                let message = format!("no written block was read back for {after} s after the run{down}");
                self.fail(Failure::new(FailureKind::Lost, message, self.place.clone()));
            }
            // The task is done, so a close that is not in order does no harm.
            Phase::Closing => self.finish(),
            Phase::Ready | Phase::Running | Phase::Finished => {}
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.phase == Phase::Closing {
            return self.finish();
        }
        if self.phase != Phase::Finished {
            self.outcome = Some(Err(failure));
            self.finish();
        }
    }

    fn finish(&mut self) {
        (0..self.connections.open.len()).for_each(|conn| self.connections.close(ConnId(conn as u32)));
        self.phase = Phase::Finished;
    }

    fn outstanding(&self) -> u32 {
        self.workers.iter().map(|worker| worker.state.outstanding).sum()
    }
}

impl Node for LoadNode {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.advance(now);
        }
        match input {
            Input::Received { conn, bytes } => self.received(now, conn, bytes),
            Input::Timer => self.timer(now),
            Input::DiskDone { token, result } => {
                let index = (token.0 >> 32) as usize;
                if let Some(worker) = self.workers.get_mut(index) {
                    worker.disk_done(now, token.0 as u32, result, self.recorder.as_mut());
                    self.turn(now, index);
                }
            }
            Input::Closed { conn, reason } => self.closed(now, conn, &reason),
            Input::Connected { conn } => {
                if let Some(index) = (conn.0 as usize).checked_sub(1).filter(|index| *index < self.workers.len()) {
                    self.turn(now, index);
                } else {
                    self.step_paths(now);
                }
            }
            Input::Accepted { .. } | Input::Placed { .. } | Input::Woken => {}
        }
        if self.together {
            self.go_on(now);
        }
        self.advance(now);
        if self.together {
            self.go_on(now);
        }
        if self.recorder.is_some() {
            let outstanding =
                self.database.as_ref().map_or_else(|| self.outstanding(), |database| database.borrow().active());
            if let Some(recorder) = &mut self.recorder {
                recorder.outstanding(now, outstanding);
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.connections.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.connections.to_send.pop()
    }

    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        match (conn.0 as usize).checked_sub(1) {
            Some(index) if index >= self.workers.len() => self.path_transmit(conn),
            Some(index) => Some(self.workers[index].link.initiator.get().transmit()),
            None => self.control.as_mut()?.transmit(),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let workers = self.timeouts.iter().copied().fold(None, earlier);
        let control = self.control.as_ref().and_then(|link| link.control.poll_timeout());
        let phase = match self.phase {
            Phase::Opening => Some(self.deadline.unwrap_or(Instant(0))),
            Phase::Ready if !matches!(self.config.task, TaskConfig::Run(_)) => Some(Instant(0)),
            Phase::Ready => self.begin_at,
            Phase::Running => self.recorder.as_ref().and_then(Recorder::next_edge),
            Phase::ReadingBack | Phase::Draining | Phase::Closing => self.deadline,
            Phase::Finished => return None,
        };
        earlier(earlier(workers, control), phase)
    }

    fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// Payloads of `len` bytes that share one region.
fn payloads(allocate: &mut Allocate<'_>, count: u32, len: u32) -> Result<Vec<Payload>, Failure> {
    let (count, len) = (count as usize, len as usize);
    let region = allocate(count * len)?;
    Ok((0..count).map(|at| Payload::new(Rc::clone(&region), at * len, len)).collect())
}

/// The data of all copies.
fn copies(allocate: &mut Allocate<'_>, len: u32, pool: &Pool) -> Result<Vec<Payload>, Failure> {
    let copies = payloads(allocate, COPIES, len)?;
    let mut bytes = vec![0; len as usize];
    for (number, copy) in (0..).zip(&copies) {
        pool.copy(number, &mut bytes);
        copy.copy_in(0, &bytes);
    }
    Ok(copies)
}

impl std::fmt::Debug for LoadNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoadNode({}, {:?}, {} workers)", self.place, self.phase, self.workers.len())
    }
}
