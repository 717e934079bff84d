//! What `iotax-engine session` is told.

use schemars::JsonSchema;
use serde::Deserialize;

use super::LoadDocument;

/// Loads that are connected once and measured in turns, a slice of time each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionDocument {
    pub(crate) loads: Vec<SessionLoad>,
    /// Each round names loads by their place in `loads`, in the order in which they are measured
    pub(crate) rounds: Vec<Vec<usize>>,
    /// Load before each slice that is not measured
    pub(crate) settle_ns: u64,
    pub(crate) slice_ns: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionLoad {
    /// Names the load in what is said of it
    pub(crate) id: String,
    /// A `run`; the session's slices stand in place of its warm-up, its window and its samples
    pub(crate) load: LoadDocument,
}
