//! One load of a session: its threads, and its slices, one at a time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use iotax_node::{
    failure::Failure,
    load::{LoadNode, Measured, PathReport, Sample},
};
use iotax_proto::Instant;
use iotax_runtime::{Clock, Driver, DriverConfig, Flow};

use super::{
    super::{
        begin,
        coordinator::writes,
        report::{self, Samples},
        slice::Slice,
        threads::{self, Plan, Unit},
        window::{Meters, Usage},
    },
    LOADS_MAX,
};
use crate::{
    caller,
    document::{ConnectedEvent, Event, LoadDocument, SampleEvent},
    failure,
    threads::Threads,
};

/// How often threads are checked for open connections, and for the replies to their last I/Os.
const OPENING_PERIOD: Duration = Duration::from_millis(1);
const DRAINING_PERIOD: Duration = Duration::from_micros(200);

/// Bits of an instance number that identify the load within the session.
const LOAD_BITS: u32 = 10;

pub(super) struct Member {
    pub(super) id: String,
    pub(super) document: LoadDocument,
    pub(super) plan: Arc<Plan>,
    pub(super) driver: &'static str,
    /// Work of each path until the end of the last slice; empty if there is one.
    pub(super) paths: Vec<PathReport>,
    threads: Threads<()>,
    orders: Arc<Orders>,
    news: mpsc::Receiver<News>,
}

/// Orders for the threads, which read them when they are woken.
#[derive(Default)]
struct Orders {
    /// The next or the current slice.
    slice: Mutex<Option<Slice>>,
    released: AtomicBool,
}

enum News {
    Ready {
        driver: &'static str,
        unit: Option<Unit>,
    },
    /// Intervals completed since the thread's last report.
    Sampled {
        thread: usize,
        samples: Vec<Sample>,
    },
    /// A slice, and the work of each path so far.
    Measured(Box<Measured>, Vec<PathReport>),
}

impl Member {
    pub(super) fn start(index: usize, id: String, document: LoadDocument, clock: Clock) -> Result<Self, Failure> {
        let configs = begin::configs(&document, clock.unix_ns(Instant(0)))?;
        let plan = Arc::new(Plan::new(&document, configs.iter().any(writes), clock, instance(index))?);
        let orders = Arc::new(Orders::default());
        let (sender, news) = mpsc::channel();
        let threads = threads::start(&format!("load-{index}"), &document, configs, &plan, |thread| {
            let (orders, sender) = (Arc::clone(&orders), sender.clone());
            let teller = tells_intervals(&document).then_some(thread);
            move |node: &mut LoadNode, driver| drive(node, driver, &orders, &sender, teller)
        })?;
        Ok(Self { id, document, plan, driver: "", paths: Vec::new(), threads, orders, news })
    }

    /// Waits until every connection is open.
    pub(super) fn wait_until_ready(&mut self) -> Result<ConnectedEvent, Failure> {
        let mut found = None;
        for _ in 0..self.threads.len() {
            let News::Ready { driver, unit } = self.next(OPENING_PERIOD)? else {
                return Err(failure::internal("a load reported a measurement before it was ready"));
            };
            self.driver = driver;
            found = unit.or(found);
        }
        let unit = found.ok_or_else(|| failure::internal("a load is ready, but reported no unit"))?;
        Ok(ConnectedEvent {
            id: Some(self.id.clone()),
            ..report::connected(&self.plan.endpoint.text, self.driver, &unit)
        })
    }

    /// Runs one slice. Returns its measurements, and the CPU time between its edges.
    pub(super) fn measure(&mut self, slice: &Slice, meters: &Meters) -> Result<(Measured, Usage), Failure> {
        *self.orders.slice.lock().unwrap_or_else(PoisonError::into_inner) = Some(*slice);
        self.threads.wake();
        let clock = self.plan.clock;
        let mut samples = Samples::of(self.threads.len());
        self.pass_samples_until(slice.start(), slice.round, &mut samples);
        let window = meters.open(&self.document.watch_pids, clock)?;
        self.pass_samples_until(slice.end(), slice.round, &mut samples);
        let usage = window.close()?;
        let mut together: Option<Measured> = None;
        self.paths.clear();
        for _ in 0..self.threads.len() {
            let measured = loop {
                match self.next(DRAINING_PERIOD)? {
                    News::Measured(measured, paths) => {
                        threads::merge(&mut self.paths, paths);
                        break measured;
                    }
                    News::Sampled { .. } => {}
                    News::Ready { .. } => return Err(failure::internal("a load reported twice that it is ready")),
                }
            };
            match &mut together {
                Some(together) => together.merge(&measured),
                None => together = Some(*measured),
            }
        }
        let measured = together.ok_or_else(|| failure::internal("a slice returned no results"))?;
        Ok((measured, usage))
    }

    /// No thread is disturbed if a slice is one interval, or close to the end.
    fn pass_samples_until(&mut self, end: Instant, round: usize, samples: &mut Samples) {
        let tells = tells_intervals(&self.document);
        loop {
            let left = end.since(self.plan.clock.now());
            if !tells || left <= report::SAMPLES_PERIOD || self.threads.any_finished() {
                std::thread::sleep(left);
                return;
            }
            std::thread::sleep(left.saturating_sub(report::SAMPLES_PERIOD).min(report::SAMPLES_PERIOD));
            self.threads.wake();
            for news in self.news.try_iter() {
                if let News::Sampled { thread, samples: more } = news {
                    samples.add(thread, more);
                }
            }
            while let Some(sample) = samples.next() {
                let (id, round) = (Some(self.id.clone()), Some(round));
                caller::emit(&Event::Sample(SampleEvent { id, round, ..report::sample(&sample) }));
            }
        }
    }

    /// Closes the connections in order.
    pub(super) fn release(mut self) -> Result<(), Failure> {
        self.orders.released.store(true, Ordering::Release);
        self.threads.wake();
        self.threads.join().map(drop)
    }

    /// The next report of a thread. If a thread has ended instead, returns its failure.
    fn next(&mut self, period: Duration) -> Result<News, Failure> {
        loop {
            self.threads.wake();
            match self.news.recv_timeout(period) {
                Ok(news) => return Ok(news),
                Err(_) if self.threads.any_finished() => return Err(self.failed()),
                Err(_) => {}
            }
        }
    }

    fn failed(&mut self) -> Failure {
        self.threads.stop().unwrap_or_else(|| failure::internal("a load ended before its session"))
    }
}

/// Sessions of an iSCSI initiator differ in 24 bits, which the numbers of the process and of the load share.
fn instance(index: usize) -> u32 {
    const { assert!(LOADS_MAX == 1 << LOAD_BITS) };
    std::process::id() << LOAD_BITS | index as u32
}

/// Whether a slice has several intervals, so that there is something to report before its end.
fn tells_intervals(document: &LoadDocument) -> bool {
    document.sample_ns < document.runtime_ns
}

/// Executes the orders until the session releases the load. `teller` is the thread's number if it reports its intervals
/// as they end.
fn drive(
    node: &mut LoadNode,
    config: DriverConfig,
    orders: &Orders,
    news: &mpsc::Sender<News>,
    teller: Option<usize>,
) -> Result<(), Failure> {
    node.stay();
    let driver = Driver::new(config).map_err(failure::internal)?;
    let kind = driver.kind().name();
    let mut ready = false;
    let mut begun = None;
    let mut told = 0;
    // If the session is gone, it has also stopped this driver: every thread notices it.
    let follow = |node: &mut LoadNode, now| {
        if let Some(thread) = teller {
            let samples = node.samples(told).to_vec();
            if !samples.is_empty() {
                told += samples.len();
                let _ = news.send(News::Sampled { thread, samples });
            }
        }
        if let Some(measured) = node.take_slice() {
            let _ = news.send(News::Measured(Box::new(measured), node.path_reports()));
        }
        if !ready && node.is_ready() {
            ready = true;
            let unit = node.geometry().map(|geometry| Unit { geometry: geometry.clone(), facts: node.facts() });
            let _ = news.send(News::Ready { driver: kind, unit });
        }
        if orders.released.load(Ordering::Acquire) {
            node.release(now);
            return Flow::Continue;
        }
        let next = *orders.slice.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slice) = next.filter(|slice| begun.is_none_or(|place| slice.place > place) && node.is_ready()) {
            (begun, told) = (Some(slice.place), 0);
            node.begin_slice(slice.begin_at, slice.settle, slice.runtime, slice.run);
        }
        Flow::Continue
    };
    driver.run(node, follow).map_err(failure::internal)?;
    match node.outcome() {
        Some(Err(failure)) => Err(failure.clone()),
        _ => Ok(()),
    }
}
