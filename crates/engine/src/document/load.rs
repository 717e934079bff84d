//! The document of `iotax-engine load`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChapSpec, DataSpec, DhChapSpec, DriverChoice, Identity, Polling};

#[allow(clippy::struct_excessive_bools)] // What a user switches on and off.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadDocument {
    pub(crate) task: Task,
    /// `nfs://…`, `nfs41://…`, `iscsi://…`, `nvme-tcp://…` or `local:PATH`; not needed by `idle`
    pub(crate) endpoint: Option<String>,
    #[serde(default)]
    pub(crate) options: Options,
    /// Streams of I/O, each with a connection and `outstanding` I/Os of its own
    #[serde(default = "one_u32")]
    pub(crate) workers: u32,
    #[serde(default = "one_u32")]
    pub(crate) outstanding: u32,
    #[serde(default = "one")]
    pub(crate) threads: usize,
    #[serde(default = "block_4k")]
    pub(crate) block_size_bytes: u32,
    #[serde(default = "hundred")]
    pub(crate) read_percent: f64,
    #[serde(default = "hundred")]
    pub(crate) random_percent: f64,
    /// All workers share one sequential stream: each takes its next block. `random_percent` is 0 then
    #[serde(default)]
    pub(crate) shared: bool,
    /// Absent: from the offset to the end of the unit
    pub(crate) working_set_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) working_set_offset_bytes: u64,
    /// What is written
    #[serde(default)]
    pub(crate) data: DataSpec,
    /// Several patterns side by side; each takes from the load what it does not say itself
    #[serde(default)]
    pub(crate) streams: Vec<StreamSpec>,
    /// Transactions of a database in place of I/Os: workers are its clients, blocks its pages, the result's reads its transactions
    pub(crate) oltp: Option<OltpSpec>,
    #[serde(default)]
    pub(crate) pacing: PacingSpec,
    #[serde(default)]
    pub(crate) warmup_ns: u64,
    #[serde(default)]
    pub(crate) runtime_ns: u64,
    #[serde(default = "second")]
    pub(crate) sample_ns: u64,
    /// I/Os of the window are counted in intervals of this length, too, of which no line tells while it goes on
    pub(crate) count_ns: Option<u64>,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) verify: bool,
    /// A write is complete when its data are on stable storage: FUA over SCSI and NVMe, `FILE_SYNC` over NFS, `O_DSYNC` of a file
    #[serde(default)]
    pub(crate) durable: bool,
    /// After so many writes of a worker that completed, it flushes; 0: never
    #[serde(default)]
    pub(crate) fsync: u32,
    /// The working set was filled with the pattern before: zeros are wrong data, not blocks that were never written
    #[serde(default)]
    pub(crate) filled: bool,
    /// The endpoint whose foreign data may be overwritten, spelled as in `endpoint`
    pub(crate) destroy: Option<String>,
    /// Of a local file or device: the caller has judged this very one, holds it open, locked and claimed; it is not judged again, and
    /// another that stands in its place is refused
    pub(crate) judged: Option<Identity>,
    /// Of a `check`: how much is looked at, from the start of the unit; absent: all of it
    pub(crate) look_bytes: Option<u64>,
    /// Of a `check`: the path is to hold a file volume of this size, which a server makes
    pub(crate) volume_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) driver: DriverChoice,
    #[serde(default)]
    pub(crate) cpus: Vec<usize>,
    /// How a thread waits for completions
    #[serde(default)]
    pub(crate) polling: Polling,
    /// Other processes whose CPU time is read at the window's ends, by role
    #[serde(default)]
    pub(crate) watch_pids: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    Run,
    Check,
    Fill,
    Idle,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum PacingSpec {
    /// Each completion starts the next I/O
    #[default]
    Closed,
    /// I/Os start at a rate, whatever the target does; rate and backlog are those of all workers together
    Open {
        /// 0: connections stand and nothing is asked of them
        rate_iops: f64,
        #[serde(default)]
        arrivals: ArrivalsSpec,
        /// I/Os that may wait for a slot; what finds it full is dropped and counted
        #[serde(default = "backlog")]
        backlog_max: u32,
    },
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArrivalsSpec {
    #[default]
    Constant,
    Poisson,
}

/// A database without its bytes, whose transactions read pages one after another and commit durably.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OltpSpec {
    /// Of its buffers
    pub(crate) memory_bytes: u64,
    /// From the beginning of a checkpoint to that of the next
    pub(crate) checkpoint_ns: u64,
}

/// One pattern of several in a load.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamSpec {
    pub(crate) name: String,
    /// Weight among the streams: of the workers, and of an open loop's arrivals
    #[serde(default = "even")]
    pub(crate) share: f64,
    pub(crate) block_size_bytes: Option<u32>,
    pub(crate) read_percent: Option<f64>,
    pub(crate) random_percent: Option<f64>,
    pub(crate) shared: Option<bool>,
}

/// What a connection asks for; what a protocol does not know is refused.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    /// The IQN or NQN that the load goes by
    pub(crate) initiator: Option<String>,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// iSCSI `ImmediateData`
    pub(crate) immediate_data: Option<bool>,
    /// iSCSI `InitialR2T`
    pub(crate) initial_r2t: Option<bool>,
    pub(crate) first_burst_bytes: Option<u32>,
    pub(crate) max_burst_bytes: Option<u32>,
    pub(crate) max_recv_data_segment_bytes: Option<u32>,
    /// Bypass the page cache of a local file
    pub(crate) direct: Option<bool>,
    /// iSCSI: who the load proves to be
    pub(crate) chap: Option<ChapSpec>,
    /// NVMe/TCP: how the load proves who it is where a controller asks for it
    pub(crate) dhchap: Option<DhChapSpec>,
    /// NFS credentials
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

fn one() -> usize {
    1
}

fn one_u32() -> u32 {
    1
}

fn hundred() -> f64 {
    100.0
}

fn even() -> f64 {
    1.0
}

fn backlog() -> u32 {
    65536
}

fn block_4k() -> u32 {
    4096
}

fn second() -> u64 {
    1_000_000_000
}
