//! The document of `iotax-engine session`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::LoadDocument;

/// Loads that are connected once and measured in turns, a slice of time each; or a machine that is only observed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionDocument {
    #[serde(default)]
    pub(crate) loads: Vec<SessionLoad>,
    /// Each round names loads by their place in `loads`, in the order in which they are measured; null: a load of another
    /// machine that keeps the same schedule
    #[serde(default)]
    pub(crate) rounds: Vec<Vec<Option<usize>>>,
    /// Of the first load before the first slice, not measured: what a start disturbs meets no slice
    #[serde(default)]
    pub(crate) lead_in_ns: u64,
    /// From one slice's end to the next one's load, by the clock: a schedule that several machines keep, sending nothing between
    /// them. A load that is late, since the last one's I/Os took longer, settles for less time; a slice that should be measured by
    /// then is left out. Absent: as soon as they are answered
    pub(crate) gap_ns: Option<u64>,
    /// Names what slices write, each by this and its place: later than all that the units hold, and the same on every machine of a
    /// session, whose clocks may differ. Absent: by the time
    pub(crate) run: Option<u64>,
    /// Load before each slice that is not measured
    pub(crate) settle_ns: u64,
    pub(crate) slice_ns: u64,
    /// Intervals of a slice's series; absent: a slice is one
    pub(crate) sample_ns: Option<u64>,
    #[serde(default)]
    pub(crate) start: StartSpec,
    /// Read the machine's CPU time and counters over the slices; of several, which need `gap_ns`, over each as exactly as the
    /// kernel tells
    pub(crate) observe: Option<ObserveSpec>,
    /// The session ends when it receives no line for so long; absent: only where its input ends
    pub(crate) lease_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StartSpec {
    /// As soon as all connections stand
    #[default]
    Now,
    /// When a `start` line says
    Told,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObserveSpec {
    /// Processes whose CPU time is read, by role
    #[serde(default)]
    pub(crate) watch_pids: BTreeMap<String, u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionLoad {
    /// Names the load in what is said of it
    pub(crate) id: String,
    /// A `run`; the session's slices stand in place of its warm-up, its window and its samples
    pub(crate) load: LoadDocument,
}

/// A line after the document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SessionCommand {
    /// Begin when this machine's wall clock shows the time
    Start { at_unix_ns: u64 },
    /// What this machine's wall clock shows
    Clock,
    /// The master is still there
    Renew,
}
