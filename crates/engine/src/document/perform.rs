//! The document of `iotax-engine perform`.

use schemars::JsonSchema;
use serde::Deserialize;

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
