//! Starts the threads, lets them begin together, reads CPU clocks at the edges of the window, passes on samples, and
//! reports the result.

use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use iotax_node::{
    failure::Failure,
    load::{LoadConfig, LoadNode, TaskConfig, TaskOutcome},
};
use iotax_proto::Instant;
use iotax_runtime::Clock;

use super::{
    begin, local,
    report::{self, Samples},
    threads::{self, Finished, Plan, ThreadReport, Unit, drive_once},
    window::{Meters, Span, Window},
};
use crate::{
    caller,
    document::{CheckedEvent, Event, FilledEvent, LoadDocument, ProgressEvent, ResultEvent, StartedEvent, Task},
    failure,
    threads::Threads,
};

/// How often threads are checked for open connections, for their end, and for their progress.
const OPENING_PERIOD: Duration = Duration::from_millis(1);
const FINISH_PERIOD: Duration = Duration::from_millis(5);
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);
/// Delay between the decision to begin and the start, so that every thread receives it in time.
const BEGIN_AFTER: Duration = Duration::from_millis(5);

pub(super) fn run(document: &LoadDocument) -> Result<(), Failure> {
    let clock = Clock::start();
    if matches!(document.task, Task::Check | Task::Run) {
        begin::require_fine_clock(Clock::step())?;
    }
    // Different for every run on a unit, because it is the time of the start.
    let mut configs = begin::configs(document, clock.unix_ns(Instant(0)))?;
    let endpoint = begin::endpoint(document)?;
    if let (Task::Check, Some(path)) = (document.task, local::disk_path(&endpoint.unit)) {
        caller::emit(&Event::Checked(local::check(document, path)?));
        return Ok(());
    }
    let plan = Arc::new(Plan::new(document, configs.iter().any(writes), clock, std::process::id())?);
    if plan.local.as_ref().is_some_and(|local| local.disk().is_some()) {
        configs.iter_mut().for_each(skip_guard);
    }
    let load = Load::start(document, configs, &plan)?;
    match document.task {
        Task::Run => load.measure(document, &plan),
        Task::Check | Task::Fill | Task::Idle => load.follow_to_the_end(&plan),
    }
}

pub(super) fn writes(config: &LoadConfig) -> bool {
    match &config.task {
        TaskConfig::Run(run) => run.writes(),
        TaskConfig::Fill { .. } => true,
        TaskConfig::Check { .. } => false,
    }
}

/// The unit was already judged when it was opened.
fn skip_guard(config: &mut LoadConfig) {
    if let TaskConfig::Fill { destroy } = &mut config.task {
        *destroy = true;
    }
}

struct Load {
    threads: Threads<Finished>,
    /// Set once all threads are ready: the start of the warm-up.
    begin_at: Arc<OnceLock<Instant>>,
    reports: mpsc::Receiver<ThreadReport>,
    driver: &'static str,
    samples: Samples,
}

impl Load {
    fn start(document: &LoadDocument, configs: Vec<LoadConfig>, plan: &Arc<Plan>) -> Result<Self, Failure> {
        let (sender, reports) = mpsc::channel();
        let samples = Samples::of(configs.len());
        let begin_at = Arc::new(OnceLock::new());
        let threads = threads::start("load", document, configs, plan, |index| {
            let (shared, begin_at, sender) = (Arc::clone(plan), Arc::clone(&begin_at), sender.clone());
            move |node: &mut LoadNode, driver| drive_once(index, node, &shared, &begin_at, driver, &sender)
        })?;
        Ok(Self { threads, begin_at, reports, driver: "", samples })
    }

    /// Waits until every thread has all its connections open, or a thread has ended.
    fn wait_until_ready(&mut self) -> Option<Unit> {
        let mut ready = vec![false; self.threads.len()];
        let mut unit = None;
        while !ready.iter().all(|ready| *ready) {
            if self.threads.any_finished() {
                return None;
            }
            self.threads.wake();
            std::thread::sleep(OPENING_PERIOD);
            for report in self.reports.try_iter() {
                self.driver = report.driver.name();
                ready[report.thread] |= report.ready;
                unit = report.unit.or(unit);
            }
        }
        unit
    }

    fn measure(mut self, document: &LoadDocument, plan: &Plan) -> Result<(), Failure> {
        let Some(unit) = self.wait_until_ready() else { return self.failed() };
        caller::emit(&Event::Connected(report::connected(&plan.endpoint.text, self.driver, &unit)));
        let meters = Meters::of([&document.watch_pids])?;
        let begin_at = plan.clock.now() + BEGIN_AFTER;
        let start = begin_at + Duration::from_nanos(document.warmup_ns);
        let end = start + Duration::from_nanos(document.runtime_ns);
        // Set only here.
        let _ = self.begin_at.set(begin_at);
        self.threads.wake();
        caller::emit(&Event::Started(StartedEvent {
            at_unix_ns: plan.clock.unix_ns(begin_at),
            left_ns: begin_at.since(plan.clock.now()).as_nanos() as u64,
        }));

        self.pass_samples_until(plan, start, None)?;
        let mut window = meters.open(&document.watch_pids, plan.clock)?;
        self.pass_samples_until(plan, end, Some(&mut window))?;
        let usage = window.close()?;

        let finished = self.join()?;
        let TaskOutcome::Run(measured) = finished.outcome else {
            return Err(failure::internal("a run returned no results"));
        };
        let (first, last) = finished.began;
        let measured_for = Duration::from_nanos(document.runtime_ns);
        let span = Span { start, measured: measured_for, start_skew_ns: last.since(first).as_nanos() as u64 };
        let result = report::result(document, plan, self.driver, span, &measured, &usage);
        let result = ResultEvent { paths: report::paths(plan, &finished.paths), ..result };
        caller::emit(&Event::Result(Box::new(result)));
        Ok(())
    }

    /// Passes on each interval once every thread has completed it, and the CPU time used meanwhile.
    fn pass_samples_until(
        &mut self,
        plan: &Plan,
        until: Instant,
        mut window: Option<&mut Window<'_>>,
    ) -> Result<(), Failure> {
        loop {
            let left = until.since(plan.clock.now());
            // No thread is disturbed this close to an edge of the window.
            std::thread::sleep(left.min(report::SAMPLES_PERIOD));
            if left <= report::SAMPLES_PERIOD || self.threads.any_finished() {
                return Ok(());
            }
            if let Some(point) = window.as_mut().map(|window| window.look()).transpose()?.flatten() {
                caller::emit(&Event::Cpu(report::cpu_point(point, "initiator")));
            }
            self.threads.wake();
            for report in self.reports.try_iter() {
                self.samples.add(report.thread, report.samples);
            }
            while let Some(sample) = self.samples.next() {
                caller::emit(&Event::Sample(report::sample(&sample)));
            }
        }
    }

    /// Follows a check or a fill: reports its progress, then its result.
    fn follow_to_the_end(mut self, plan: &Plan) -> Result<(), Failure> {
        let mut told_at = plan.clock.now();
        while !self.threads.any_finished() {
            std::thread::sleep(FINISH_PERIOD);
            let now = plan.clock.now();
            if now.since(told_at) < PROGRESS_PERIOD {
                continue;
            }
            told_at = now;
            self.threads.wake();
            if let Some(ThreadReport { progress_bytes: (done_bytes, total_bytes), .. }) = self.reports.try_iter().last()
            {
                caller::emit(&Event::Progress(ProgressEvent { done_bytes, total_bytes }));
            }
        }
        let finished = self.join()?;
        match finished.outcome {
            TaskOutcome::Checked { content, scanned_bytes } => {
                let checked = local::checked(&finished.geometry, content, scanned_bytes);
                let max_io_bytes = checked.max_io_bytes.filter(|_| plan.local.is_none());
                caller::emit(&Event::Checked(CheckedEvent { max_io_bytes, ..checked }));
            }
            TaskOutcome::Filled { bytes } => {
                let seconds = plan.clock.now().since(Instant(0)).as_secs_f64();
                caller::emit(&Event::Filled(FilledEvent { volume: None, bytes, seconds }));
            }
            TaskOutcome::Run(_) => return Err(failure::internal("a check or a fill returned the results of a run")),
        }
        Ok(())
    }

    /// The failure of the first thread that has ended; the others are stopped.
    fn failed(&mut self) -> Result<(), Failure> {
        Err(self.threads.stop().unwrap_or_else(|| failure::internal("a load thread ended before its time")))
    }

    /// The merged results of all threads; the first failure stops the others.
    fn join(&mut self) -> Result<Finished, Failure> {
        let merge = |mut ours: Finished, theirs: Finished| {
            ours.merge(&theirs);
            ours
        };
        let together = self.threads.join()?.into_iter().reduce(merge);
        together.ok_or_else(|| failure::internal("no load thread ran"))
    }
}
