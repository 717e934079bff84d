//! The load's threads: each drives its own `LoadNode` and reports its state to the coordinator when woken.

use std::sync::{Arc, OnceLock, mpsc};

use iotax_node::{
    failure::{Failure, FailureKind},
    load::{Endpoint, Facts, LoadConfig, LoadNode, PathReport, Sample, TaskOutcome, connector::ConnectionConfig},
};
use iotax_proto::{Geometry, Instant};
use iotax_runtime::{
    Clock, Driver, DriverChoice, DriverConfig, DriverKind, Flow, driver::Polling, memory::SharedRegion,
};

use super::{begin, local, local::Local};
use crate::{document::LoadDocument, failure, threads::Threads};

/// How a load reaches its unit; shared by all its threads.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    /// How to reach the endpoint; `None` for a local unit.
    pub(super) connection: Option<ConnectionConfig>,
    pub(super) driver: DriverChoice,
    pub(super) polling: Polling,
    /// The unit itself, if it is local.
    pub(super) local: Option<Local>,
    pub(super) clock: Clock,
}

impl Plan {
    /// Opens a local unit, for writing only if that is permitted. `instance` distinguishes loads of one initiator.
    pub(super) fn new(document: &LoadDocument, writes: bool, clock: Clock, instance: u32) -> Result<Self, Failure> {
        let endpoint = begin::endpoint(document)?;
        let destroy = begin::may_destroy(document)?;
        Ok(Self {
            connection: begin::connection(document, &endpoint, instance)?,
            local: local::open(document, &endpoint.unit, destroy, writes)?,
            endpoint,
            driver: document.driver.into(),
            polling: document.polling.into(),
            clock,
        })
    }
}

/// A thread's repeated report to its coordinator.
pub(super) struct ThreadReport {
    pub(super) thread: usize,
    pub(super) driver: DriverKind,
    /// Whether every connection of the thread is open.
    pub(super) ready: bool,
    pub(super) unit: Option<Unit>,
    /// Intervals completed since the last report.
    pub(super) samples: Vec<Sample>,
    /// Bytes done, and in total.
    pub(super) progress_bytes: (u64, u64),
}

/// The loaded unit, known once a connection to it is open.
pub(crate) struct Unit {
    pub(crate) geometry: Geometry,
    pub(crate) facts: Facts,
}

/// The result of a thread.
pub(super) struct Finished {
    pub(super) outcome: TaskOutcome,
    pub(super) geometry: Geometry,
    /// When the first and when the last thread began.
    pub(super) began: (Instant, Instant),
    /// Only with several paths.
    pub(super) paths: Vec<PathReport>,
}

impl Finished {
    /// Adds the measurements of another thread of the same run.
    pub(super) fn merge(&mut self, other: &Self) {
        if let (TaskOutcome::Run(ours), TaskOutcome::Run(theirs)) = (&mut self.outcome, &other.outcome) {
            ours.merge(theirs);
        }
        merge(&mut self.paths, other.paths.clone());
        self.began = (self.began.0.min(other.began.0), self.began.1.max(other.began.1));
    }
}

/// Adds the work of each path in another thread.
pub(super) fn merge(ours: &mut Vec<PathReport>, theirs: Vec<PathReport>) {
    if ours.is_empty() {
        *ours = theirs;
    } else {
        ours.iter_mut().zip(&theirs).for_each(|(ours, theirs)| ours.merge(theirs));
    }
}

/// Starts a thread for each configuration. `drive` returns the function that the thread with that number calls with its
/// node.
pub(super) fn start<T, D>(
    name: &str,
    document: &LoadDocument,
    configs: Vec<LoadConfig>,
    plan: &Arc<Plan>,
    mut drive: impl FnMut(usize) -> D,
) -> Result<Threads<T>, Failure>
where
    T: Send + 'static,
    D: FnOnce(&mut LoadNode, DriverConfig) -> Result<T, Failure> + Send + 'static,
{
    let body = |(index, config)| {
        let mut driver = DriverConfig::new(plan.driver, plan.clock).map_err(failure::internal)?;
        driver.polling = plan.polling;
        let (waker, plan, drive) = (driver.waker.clone(), Arc::clone(plan), drive(index));
        let work = move || {
            let mut node = make_node(config, &plan, &mut driver)?;
            drive(&mut node, driver)
        };
        Ok((waker, work))
    };
    let bodies = configs.into_iter().enumerate().map(body).collect::<Result<_, Failure>>()?;
    Threads::start(name, &document.cpus, bodies)
}

fn make_node(config: LoadConfig, plan: &Plan, driver: &mut DriverConfig) -> Result<LoadNode, Failure> {
    let mut allocate = |len: usize| {
        let memory = SharedRegion::anonymous(len, true).map_err(failure::internal)?;
        Ok(memory.region())
    };
    match (&plan.local, &plan.connection) {
        (Some(local), _) => {
            driver.disks.extend(local.disk());
            LoadNode::local(config, &plan.endpoint, &local.unit(), &mut allocate)
        }
        (None, Some(connection)) => LoadNode::remote(config, &plan.endpoint, connection, &mut allocate),
        (None, None) => Err(failure::internal("an endpoint without an address")),
    }
}

/// Drives a load that runs once: it begins when `start` is set and ends by itself.
pub(super) fn drive_once(
    index: usize,
    node: &mut LoadNode,
    plan: &Plan,
    start: &OnceLock<Instant>,
    config: DriverConfig,
    reports: &mpsc::Sender<ThreadReport>,
) -> Result<Finished, Failure> {
    let driver = Driver::new(config).map_err(failure::internal)?;
    let kind = driver.kind();
    let mut samples_told = 0;
    let report = |node: &mut LoadNode, _now: Instant| {
        if let Some(at) = start.get() {
            node.begin(*at);
        }
        let samples = node.samples(samples_told).to_vec();
        samples_told += samples.len();
        let report = ThreadReport {
            thread: index,
            driver: kind,
            ready: node.is_ready(),
            unit: node.geometry().map(|geometry| Unit { geometry: geometry.clone(), facts: node.facts() }),
            samples,
            progress_bytes: node.progress_bytes(),
        };
        // If the coordinator is gone, it has also stopped this driver.
        let _ = reports.send(report);
        Flow::Continue
    };
    driver.run(node, report).map_err(failure::internal)?;
    let stopped = || Failure::new(FailureKind::Internal, "stopped before the end", plan.endpoint.text.clone());
    let outcome = node.outcome().ok_or_else(stopped)?.clone()?;
    let began_at = node.began_at().ok_or_else(stopped)?;
    let geometry = node.geometry().ok_or_else(stopped)?.clone();
    Ok(Finished { outcome, geometry, began: (began_at, began_at), paths: node.path_reports() })
}
