//! CPU time over the measured window: clocks read at its two ends, all in one go.

use std::{collections::BTreeMap, io, time::Duration};

use iotax_node::failure::Failure;
use iotax_proto::Instant;
use iotax_runtime::{
    Clock,
    cpu::{MachineTimes, ProcessClock, ProcessTimes},
};

use crate::failure;

/// The window as the load keeps it: I/Os that complete in it count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: Instant,
    /// How much of the time since is measured: all of a run's, the slices of a session.
    pub(super) measured: Duration,
    /// From the first thread's beginning to the last one's.
    pub(super) start_skew_ns: u64,
}

/// A window whose first readings are taken.
pub(super) struct Window {
    clock: Clock,
    initiator: ProcessClock,
    watched: BTreeMap<String, ProcessClock>,
    before: Readings,
}

struct Readings {
    at: Instant,
    initiator: ProcessTimes,
    watched: BTreeMap<String, ProcessTimes>,
    machine: MachineTimes,
}

/// What was used in the window.
#[derive(Clone)]
pub(super) struct Usage {
    /// Between the readings: longer or shorter than the window by as much as this process was scheduled late.
    pub(super) duration_ns: u64,
    pub(super) initiator: (u32, ProcessTimes),
    pub(super) watched: BTreeMap<String, (u32, ProcessTimes)>,
    pub(super) machine: MachineTimes,
}

impl Usage {
    /// The processes' times as they would have been read at the edges of a window of `duration`: the readings come a little late,
    /// which counts in a short one. The machine's are ticks of 10 ms, coarser than that.
    pub(super) fn scaled_to(mut self, duration: Duration) -> Self {
        let (wanted, read) = (duration.as_nanos(), u128::from(self.duration_ns.max(1)));
        let watched = self.watched.values_mut();
        for (_, times) in watched.chain(std::iter::once(&mut self.initiator)) {
            for ns in [&mut times.total_ns, &mut times.user_ns, &mut times.system_ns] {
                *ns = (u128::from(*ns) * wanted / read) as u64;
            }
        }
        self.duration_ns = wanted as u64;
        self
    }

    /// Adds what was used in another window of the same processes.
    pub(super) fn add(&mut self, other: &Self) {
        self.duration_ns += other.duration_ns;
        self.initiator.1.add(&other.initiator.1);
        for (role, (_, times)) in &mut self.watched {
            if let Some((_, theirs)) = other.watched.get(role) {
                times.add(theirs);
            }
        }
        self.machine.add(&other.machine);
    }
}

impl Window {
    /// `watch_pids`: other processes by role.
    pub(super) fn open(watch_pids: &BTreeMap<String, u32>, clock: Clock) -> Result<Self, Failure> {
        let initiator = ProcessClock::of(std::process::id()).map_err(failure::internal)?;
        let mut watched = BTreeMap::new();
        for (role, pid) in watch_pids {
            let process =
                ProcessClock::of(*pid).map_err(|error| failure::io(&error, format!("{role}, process {pid}")))?;
            watched.insert(role.clone(), process);
        }
        let before = Readings::take(clock, initiator, &watched).map_err(failure::internal)?;
        Ok(Self { clock, initiator, watched, before })
    }

    pub(super) fn close(self) -> Result<Usage, Failure> {
        let after = Readings::take(self.clock, self.initiator, &self.watched).map_err(failure::internal)?;
        let watched = self.watched.iter().map(|(role, process)| {
            let used = after.watched[role].since(&self.before.watched[role]);
            (role.clone(), (process.pid(), used))
        });
        Ok(Usage {
            duration_ns: after.at.since(self.before.at).as_nanos() as u64,
            initiator: (self.initiator.pid(), after.initiator.since(&self.before.initiator)),
            watched: watched.collect(),
            machine: after.machine.since(&self.before.machine),
        })
    }
}

impl Readings {
    fn take(clock: Clock, initiator: ProcessClock, watched: &BTreeMap<String, ProcessClock>) -> io::Result<Self> {
        let at = clock.now();
        let mut readings = BTreeMap::new();
        for (role, process) in watched {
            readings.insert(role.clone(), process.read()?);
        }
        Ok(Self { at, initiator: initiator.read()?, watched: readings, machine: MachineTimes::read()? })
    }
}
