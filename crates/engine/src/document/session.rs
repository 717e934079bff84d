//! The documents of `iotax-engine session` and `iotax-engine perform`.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::LoadDocument;

/// Loads that are connected once and measured in turns, one slice of time each. Without loads, the session only
/// observes the machine.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionDocument {
    #[serde(default)]
    pub(crate) loads: Vec<SessionLoad>,
    /// For each round, positions in `loads` from 0, in measuring order; null: a slice of a load on another machine that
    /// follows the same schedule
    #[serde(default)]
    pub(crate) rounds: Vec<Vec<Option<usize>>>,
    /// Unmeasured time of the first load before the first slice, so that starting the session disturbs no slice
    #[serde(default)]
    pub(crate) lead_in_ns: u64,
    /// Time from the end of a slice to the start of the next load, by the clock, so that several machines follow one
    /// schedule without messages. If a load starts late because earlier I/Os took longer, it settles for less time; a
    /// slice that would be measured late is left out. Absent: the next load starts when all I/Os have completed
    pub(crate) gap_ns: Option<u64>,
    /// Base of the run numbers in written blocks; each slice adds its position. It must be higher than all run numbers
    /// in the units, and the same on every machine of a session, whose clocks may differ. Absent: a slice's run number
    /// is its start time
    pub(crate) run: Option<u64>,
    /// Unmeasured load before each slice
    pub(crate) settle_ns: u64,
    pub(crate) slice_ns: u64,
    /// Interval of a slice's series; absent: the whole slice
    pub(crate) sample_ns: Option<u64>,
    #[serde(default)]
    pub(crate) start: StartSpec,
    /// Read the machine's CPU time and counters over the slices. Several slices need `gap_ns`; CPU time is then read
    /// for each slice as exactly as the kernel allows
    pub(crate) observe: Option<ObserveSpec>,
    /// The session exits if it receives no line for this long; absent: no time limit
    pub(crate) lease_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StartSpec {
    /// As soon as all connections are open
    #[default]
    Now,
    /// At the time in a `start` command
    Told,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObserveSpec {
    /// Processes whose CPU time is read, by role
    #[serde(default)]
    pub(crate) watch_pids: BTreeMap<String, u32>,
    /// A FIFO at which a program of this machine waits. The engine writes a line into it when the settling time begins,
    /// so that the program starts with the loads of other machines
    pub(crate) release: Option<PathBuf>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionLoad {
    /// Name of the load in events
    pub(crate) id: String,
    /// A `run`; the session's slices replace its warm-up, its window and its samples
    pub(crate) load: LoadDocument,
}

/// A command on a line after the document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SessionCommand {
    /// Start when this machine's wall clock shows this time
    Start { at_unix_ns: u64 },
    /// Print a `clock` with this machine's wall clock
    Clock,
    /// Renew the lease, which any line does
    Renew,
}

/// An event of this machine: commands for `sh`, run as the user who runs the engine. It begins at the time in a `start`
/// command, and is undone even if the engine is killed or its caller is gone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PerformDocument {
    pub(crate) begin: String,
    pub(crate) undo: String,
    /// Time from the begin to the undo
    pub(crate) lasts_ns: u64,
    /// Without a line for this long before the event begins, the engine exits; absent: no time limit
    pub(crate) lease_ns: Option<u64>,
}
