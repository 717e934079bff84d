//! The load's threads: each drives a `LoadNode` of its own and tells the coordinator how it stands when it is woken.

use std::{
    sync::{Arc, OnceLock, mpsc},
    thread::JoinHandle,
};

use iotax_node::{
    failure::{Failure, FailureKind},
    load::{
        Endpoint, Facts, LoadConfig, LoadNode, Sample, TaskOutcome,
        connector::{self, ConnectionConfig},
    },
};
use iotax_proto::{Geometry, Instant};
use iotax_runtime::{
    Clock, Driver, DriverChoice, DriverConfig, DriverKind, Flow, Waker, driver::Polling, memory::SharedRegion,
};

use super::{begin, local, local::Local};
use crate::{document::LoadDocument, failure};

/// How a load reaches its unit; all its threads share it.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    /// How to reach the endpoint; none for one of this machine.
    pub(super) connection: Option<ConnectionConfig>,
    pub(super) driver: DriverChoice,
    pub(super) polling: Polling,
    /// What it is, where it is of this machine.
    pub(super) local: Option<Local>,
    pub(super) clock: Clock,
}

impl Plan {
    /// Opens a unit of this machine, for writing only where that may be. `instance` tells loads of one initiator apart.
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

/// What a thread tells its coordinator, again and again.
pub(super) struct ThreadReport {
    pub(super) thread: usize,
    pub(super) driver: DriverKind,
    /// Every connection of the thread stands.
    pub(super) ready: bool,
    pub(super) unit: Option<Unit>,
    /// Intervals completed since the last report.
    pub(super) samples: Vec<Sample>,
    /// Done, and of how many.
    pub(super) progress_bytes: (u64, u64),
}

/// What is loaded, once a connection to it stands.
pub(crate) struct Unit {
    pub(crate) geometry: Geometry,
    pub(crate) facts: Facts,
}

/// What a thread ends with.
pub(super) struct Finished {
    pub(super) outcome: TaskOutcome,
    pub(super) geometry: Geometry,
    /// The first and the last of the threads' beginnings.
    pub(super) began: (Instant, Instant),
}

impl Finished {
    /// Adds what another thread of the same run measured.
    pub(super) fn merge(&mut self, other: &Self) {
        if let (TaskOutcome::Run(ours), TaskOutcome::Run(theirs)) = (&mut self.outcome, &other.outcome) {
            ours.merge(theirs);
        }
        self.began = (self.began.0.min(other.began.0), self.began.1.max(other.began.1));
    }
}

/// A thread that drives a node of its own, and ends with a `T`.
struct Thread<T> {
    waker: Waker,
    handle: JoinHandle<Result<T, Failure>>,
}

impl<T: Send + 'static> Thread<T> {
    /// `drive` runs the node on the thread, pinned to `cpu` where one is named.
    fn start(
        name: String,
        cpu: Option<usize>,
        config: LoadConfig,
        plan: &Arc<Plan>,
        drive: impl FnOnce(&mut LoadNode, DriverConfig) -> Result<T, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut driver = DriverConfig::new(plan.driver, plan.clock).map_err(failure::internal)?;
        driver.polling = plan.polling;
        let waker = driver.waker.clone();
        let plan = Arc::clone(plan);
        let handle = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                if let Some(cpu) = cpu {
                    iotax_runtime::cpu::pin_thread(&[cpu])
                        .map_err(|error| failure::io(&error, format!("cpus: {cpu}")))?;
                }
                let mut node = make_node(config, &plan, &mut driver)?;
                drive(&mut node, driver)
            })
            .map_err(failure::internal)?;
        Ok(Self { waker, handle })
    }

    fn join(self) -> Result<T, Failure> {
        self.handle
            .join()
            .unwrap_or_else(|_| Err(Failure::new(FailureKind::Internal, "a load thread panicked", "load")))
    }
}

/// The threads of a load.
pub(super) struct Threads<T>(Vec<Thread<T>>);

impl<T: Send + 'static> Threads<T> {
    /// One for each configuration, on the processors that the document names in turn. `drive` gives what the thread of
    /// that number does with its node.
    pub(super) fn start<D>(
        name: &str,
        document: &LoadDocument,
        configs: Vec<LoadConfig>,
        plan: &Arc<Plan>,
        mut drive: impl FnMut(usize) -> D,
    ) -> Result<Self, Failure>
    where
        D: FnOnce(&mut LoadNode, DriverConfig) -> Result<T, Failure> + Send + 'static,
    {
        let start = |(index, config)| {
            let cpu = (!document.cpus.is_empty()).then(|| document.cpus[index % document.cpus.len()]);
            Thread::start(format!("{name}-{index}"), cpu, config, plan, drive(index))
        };
        configs.into_iter().enumerate().map(start).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn wake(&self) {
        self.0.iter().for_each(|thread| thread.waker.wake());
    }

    pub(super) fn any_finished(&self) -> bool {
        self.0.iter().any(|thread| thread.handle.is_finished())
    }

    /// What came of each, in order; the first failure stops those that follow.
    pub(super) fn join(&mut self) -> Result<Vec<T>, Failure> {
        let mut results = Vec::new();
        let mut failed = None;
        for thread in std::mem::take(&mut self.0) {
            if failed.is_some() {
                thread.waker.stop();
            }
            match thread.join() {
                Ok(result) => results.push(result),
                Err(failure) => {
                    failed.get_or_insert(failure);
                }
            }
        }
        failed.map_or(Ok(results), Err)
    }

    /// Stops all; why one had failed.
    pub(super) fn stop(&mut self) -> Option<Failure> {
        self.0.iter().for_each(|thread| thread.waker.stop());
        std::mem::take(&mut self.0).into_iter().fold(None, |why, thread| why.or(thread.join().err()))
    }
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
        (None, Some(connection)) => {
            let control = connector::control(&plan.endpoint, connection, &config)?;
            LoadNode::remote(config, &plan.endpoint, control, &mut allocate)
        }
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
        // A coordinator that is gone has stopped this driver too.
        let _ = reports.send(report);
        Flow::Continue
    };
    driver.run(node, report).map_err(failure::internal)?;
    let stopped = || Failure::new(FailureKind::Internal, "stopped before the end", plan.endpoint.text.clone());
    let outcome = node.outcome().ok_or_else(stopped)?.clone()?;
    let began_at = node.began_at().ok_or_else(stopped)?;
    Ok(Finished { outcome, geometry: node.geometry().ok_or_else(stopped)?.clone(), began: (began_at, began_at) })
}
