//! CPU time over the measured window: all clocks are read together at its two edges.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    time::Duration,
};

use iotax_node::failure::Failure;
use iotax_proto::Instant;
use iotax_runtime::{
    Clock,
    cpu::{EventCounters, EventCounts, MachineTimes, NoEvents, ProcessClock, ProcessTimes, VmProcess, VmThreads},
};

use crate::failure;

/// The measured window: I/Os that complete in it count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: Instant,
    /// The measured part of the time since then: the whole of a run, or the slices of a session.
    pub(super) measured: Duration,
    /// Time between the starts of the first and the last thread.
    pub(super) start_skew_ns: u64,
}

/// Meters of the processes, created once all threads exist and used for all following windows.
pub(super) struct Meters {
    own: Meter,
    watched: BTreeMap<u32, Meter>,
    exact: bool,
}

struct Meter {
    clock: ProcessClock,
    /// Or the reason why there are none.
    events: Result<EventCounters, NoEvents>,
    /// For a process that runs a virtual machine.
    vm: Option<VmProcess>,
}

/// A window that has been opened: its first readings are taken.
pub(super) struct Window<'a> {
    clock: Clock,
    exact: bool,
    initiator: &'a Meter,
    watched: BTreeMap<String, &'a Meter>,
    before: Readings,
    looked: Look,
    points: Vec<CpuPoint>,
}

/// Minimum time between two readings within a window, so that a long run is followed and a short one is not disturbed.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// A reading within a window: only clocks and the machine's CPU times.
struct Look {
    at: Instant,
    initiator_ns: u64,
    watched_ns: BTreeMap<String, u64>,
    machine: MachineTimes,
}

/// Between two readings.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "units come last in names")]
pub(super) struct CpuPoint {
    /// From the window's start to the start of the interval.
    pub(super) at_ns: u64,
    pub(super) duration_ns: u64,
    pub(super) initiator_ns: u64,
    pub(super) watched_ns: BTreeMap<String, u64>,
    pub(super) machine_ns: u64,
    pub(super) guest_ns: u64,
}

struct Readings {
    at: Instant,
    initiator: Reading,
    watched: BTreeMap<String, Reading>,
    machine: MachineTimes,
}

struct Reading {
    times: ProcessTimes,
    events: Result<EventCounts, NoEvents>,
    threads: Option<VmThreads>,
}

/// What a process used in the window.
#[derive(Clone)]
pub(super) struct ProcessUsage {
    pub(super) pid: u32,
    pub(super) times: ProcessTimes,
    /// Or the reason why they were not counted.
    pub(super) events: Result<EventCounts, NoEvents>,
    /// For a process that runs a virtual machine, by the function of its threads.
    pub(super) threads: Option<VmThreads>,
}

/// What was used in the window.
#[derive(Clone)]
pub(super) struct Usage {
    /// Time between the readings: differs from the window by the scheduling delays of this process.
    pub(super) duration_ns: u64,
    pub(super) initiator: ProcessUsage,
    pub(super) watched: BTreeMap<String, ProcessUsage>,
    pub(super) machine: MachineTimes,
    /// By interval, if the window was long enough; empty for several windows together.
    pub(super) series: Vec<CpuPoint>,
}

impl Usage {
    /// Scales the times to a window of `duration`. The readings are a little late, which matters in a short window. The
    /// machine's ticks of 10 ms are too coarse to be scaled.
    pub(super) fn scaled_to(mut self, duration: Duration) -> Self {
        let (wanted, read) = (duration.as_nanos(), u128::from(self.duration_ns.max(1)));
        let scaled = |used: &mut u64| *used = (u128::from(*used) * wanted / read) as u64;
        for process in self.watched.values_mut().chain(std::iter::once(&mut self.initiator)) {
            let ProcessTimes { total_ns, user_ns, system_ns, guest_ns, run_queue_wait_ns, .. } = &mut process.times;
            [total_ns, user_ns, system_ns, guest_ns, run_queue_wait_ns].into_iter().for_each(scaled);
            if let Some(threads) = &mut process.threads {
                [&mut threads.processors_ns, &mut threads.io_ns, &mut threads.vhost_ns, &mut threads.vhost_apart_ns]
                    .into_iter()
                    .for_each(scaled);
            }
            if let Ok(counts) = &mut process.events {
                counts.each_mut().into_iter().for_each(scaled);
            }
        }
        self.duration_ns = wanted as u64;
        self.machine = self.machine.scaled_to(self.duration_ns);
        self
    }

    /// Adds what the same processes used in another window.
    pub(super) fn add(&mut self, other: &Self) {
        self.duration_ns += other.duration_ns;
        self.initiator.add(&other.initiator);
        for (role, process) in &mut self.watched {
            if let Some(theirs) = other.watched.get(role) {
                process.add(theirs);
            }
        }
        self.machine.add(&other.machine);
        self.series.clear();
    }
}

impl ProcessUsage {
    /// Events are known only if both windows have them.
    fn add(&mut self, other: &Self) {
        self.times.add(&other.times);
        self.threads = self.threads.zip(other.threads).map(|(ours, theirs)| ours.and(&theirs));
        match (&mut self.events, &other.events) {
            (Ok(counts), Ok(theirs)) => counts.add(theirs),
            (Ok(_), Err(why)) => self.events = Err(why.clone()),
            (Err(_), _) => {}
        }
    }
}

impl Meters {
    /// Meters of this process, and of all processes that any load watches, by role.
    pub(super) fn of<'a>(watch_pids: impl IntoIterator<Item = &'a BTreeMap<String, u32>>) -> Result<Self, Failure> {
        let own = Meter::of(std::process::id()).map_err(failure::internal)?;
        let mut watched = BTreeMap::new();
        for (role, &pid) in watch_pids.into_iter().flatten() {
            if let Entry::Vacant(place) = watched.entry(pid) {
                place.insert(Meter::of(pid).map_err(|error| no_process(&error, role, pid))?);
            }
        }
        Ok(Self { own, watched, exact: false })
    }

    /// Reads the machine's idle time in nanoseconds, if possible.
    pub(super) fn exact(self, exact: bool) -> Self {
        Self { exact, ..self }
    }

    /// `watch_pids` must be among the processes of these meters.
    pub(super) fn open(&self, watch_pids: &BTreeMap<String, u32>, clock: Clock) -> Result<Window<'_>, Failure> {
        let watched = watch_pids.iter().map(|(role, pid)| (role.clone(), &self.watched[pid])).collect();
        let before = Readings::take(clock, self.exact, &self.own, &watched)?;
        let looked = before.look();
        Ok(Window { clock, exact: self.exact, initiator: &self.own, watched, before, looked, points: Vec::new() })
    }
}

impl Meter {
    fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { clock: ProcessClock::of(pid)?, events: EventCounters::of(pid), vm: VmProcess::of(pid)? })
    }

    fn read(&self) -> io::Result<Reading> {
        let events = match &self.events {
            Ok(counters) => counters.read(),
            Err(why) => Err(why.clone()),
        };
        let threads = self.vm.as_ref().map(VmProcess::read).transpose()?;
        Ok(Reading { times: self.clock.read()?, events, threads })
    }

    fn used(&self, before: &Reading, after: Reading) -> ProcessUsage {
        let events = match (&before.events, after.events) {
            (Ok(before), Ok(after)) => after.since(before),
            (Err(why), _) => Err(why.clone()),
            (_, Err(why)) => Err(why),
        };
        let threads = after.threads.zip(before.threads).map(|(after, before)| after.since(&before));
        ProcessUsage { pid: self.clock.pid(), times: after.times.since(&before.times), events, threads }
    }
}

fn no_process(error: &io::Error, role: &str, pid: u32) -> Failure {
    failure::io(error, format!("{role}, process {pid}"))
}

impl Window<'_> {
    /// What was used since the last reading, if that is long enough ago.
    pub(super) fn look(&mut self) -> Result<Option<&CpuPoint>, Failure> {
        if self.clock.now().since(self.looked.at) < LOOK_PERIOD {
            return Ok(None);
        }
        let now = Look::take(self.clock, self.initiator, &self.watched)?;
        self.points.push(now.since(&self.looked, self.before.at));
        self.looked = now;
        Ok(self.points.last())
    }

    pub(super) fn close(mut self) -> Result<Usage, Failure> {
        let after = Readings::take(self.clock, self.exact, self.initiator, &self.watched)?;
        let last = after.look().since(&self.looked, self.before.at);
        if !self.points.is_empty() && last.duration_ns > 0 {
            self.points.push(last);
        }
        let mut watched = BTreeMap::new();
        for ((role, reading), (_, before)) in after.watched.into_iter().zip(&self.before.watched) {
            watched.insert(role.clone(), self.watched[&role].used(before, reading));
        }
        Ok(Usage {
            duration_ns: after.at.since(self.before.at).as_nanos() as u64,
            initiator: self.initiator.used(&self.before.initiator, after.initiator),
            watched,
            machine: after.machine.since(&self.before.machine),
            series: self.points,
        })
    }
}

impl Look {
    fn take(clock: Clock, initiator: &Meter, watched: &BTreeMap<String, &Meter>) -> Result<Self, Failure> {
        let at = clock.now();
        let mut watched_ns = BTreeMap::new();
        for (role, meter) in watched {
            let total_ns = meter.clock.total_ns().map_err(|error| no_process(&error, role, meter.clock.pid()))?;
            watched_ns.insert(role.clone(), total_ns);
        }
        let initiator_ns = initiator.clock.total_ns().map_err(failure::internal)?;
        Ok(Self { at, initiator_ns, watched_ns, machine: MachineTimes::read().map_err(failure::internal)? })
    }

    fn since(&self, earlier: &Self, start: Instant) -> CpuPoint {
        let used = self.machine.since(&earlier.machine);
        let since = |role: &String, &now_ns: &u64| {
            let before_ns = earlier.watched_ns.get(role).copied().unwrap_or(now_ns);
            (role.clone(), now_ns.saturating_sub(before_ns))
        };
        CpuPoint {
            at_ns: earlier.at.since(start).as_nanos() as u64,
            duration_ns: self.at.since(earlier.at).as_nanos() as u64,
            initiator_ns: self.initiator_ns.saturating_sub(earlier.initiator_ns),
            watched_ns: self.watched_ns.iter().map(|(role, now_ns)| since(role, now_ns)).collect(),
            machine_ns: used.busy_ns(),
            guest_ns: used.guest_ns(),
        }
    }
}

impl Readings {
    fn look(&self) -> Look {
        let watched_ns = self.watched.iter().map(|(role, reading)| (role.clone(), reading.times.total_ns)).collect();
        Look { at: self.at, initiator_ns: self.initiator.times.total_ns, watched_ns, machine: self.machine.clone() }
    }

    fn take(clock: Clock, exact: bool, initiator: &Meter, watched: &BTreeMap<String, &Meter>) -> Result<Self, Failure> {
        let at = clock.now();
        let mut readings = BTreeMap::new();
        for (role, meter) in watched {
            let reading = meter.read().map_err(|error| no_process(&error, role, meter.clock.pid()))?;
            readings.insert(role.clone(), reading);
        }
        let initiator = initiator.read().map_err(failure::internal)?;
        let machine = if exact { MachineTimes::read_exact() } else { MachineTimes::read() };
        Ok(Self { at, initiator, watched: readings, machine: machine.map_err(failure::internal)? })
    }
}
