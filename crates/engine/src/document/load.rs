//! The document of `iotax-engine load`.

use std::collections::BTreeMap;

use iotax_node::load::PathPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChapSpec, DataSpec, DhChapSpec, DriverChoice, Identity, Polling};

#[allow(clippy::struct_excessive_bools)] // switches of the user
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadDocument {
    pub(crate) task: Task,
    /// `nfs://…`, `nfs41://…`, `iscsi://…`, `nvme-tcp://…` or `local:PATH`; not needed for `idle`
    pub(crate) endpoint: Option<String>,
    #[serde(default)]
    pub(crate) options: Options,
    /// Number of workers, each with its own connection and `outstanding` I/Os
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
    /// All workers share one sequential stream, and each takes its next block; `random_percent` must be 0
    #[serde(default)]
    pub(crate) shared: bool,
    /// Size of the working set; absent: from the offset to the end of the unit
    pub(crate) working_set_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) working_set_offset_bytes: u64,
    /// How far the written data can be reduced
    #[serde(default)]
    pub(crate) data: DataSpec,
    /// Several patterns side by side; a pattern uses the load's value for each field that it leaves out
    #[serde(default)]
    pub(crate) streams: Vec<StreamSpec>,
    /// Database transactions in place of I/Os: workers are clients, blocks are pages, and the result counts
    /// transactions as reads
    pub(crate) oltp: Option<OltpSpec>,
    #[serde(default)]
    pub(crate) pacing: PacingSpec,
    #[serde(default)]
    pub(crate) warmup_ns: u64,
    #[serde(default)]
    pub(crate) runtime_ns: u64,
    #[serde(default = "second")]
    pub(crate) sample_ns: u64,
    /// Also count completed I/Os in intervals of this length, at least 1 ms; the counts are only in the result
    pub(crate) count_ns: Option<u64>,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) verify: bool,
    /// A write is complete when its data are on stable storage: FUA over SCSI and NVMe, `FILE_SYNC` over NFS, `O_DSYNC`
    /// for a file
    #[serde(default)]
    pub(crate) durable: bool,
    /// Each worker flushes after this many of its writes have completed; 0: never
    #[serde(default)]
    pub(crate) fsync: u32,
    /// The working set was filled with the pattern before, so zeros are wrong data and not never-written blocks
    #[serde(default)]
    pub(crate) filled: bool,
    /// After the run, read every block of which a write was acknowledged, and check it. Needs `verify`, and at most
    /// 268,435,456 blocks for each worker
    #[serde(default)]
    pub(crate) read_back: bool,
    /// Endpoint whose foreign data may be overwritten, spelled as in `endpoint`
    pub(crate) destroy: Option<String>,
    /// Identity of a local file or device that the caller has checked and holds open, locked and claimed. Its contents
    /// are not checked again; any other file or device at the path is rejected
    pub(crate) judged: Option<Identity>,
    /// For a `check`: number of bytes to read, from the start of the unit; absent: all
    pub(crate) look_bytes: Option<u64>,
    /// For a `check`: size of a file volume; the path is also checked for whether a server can create or extend it
    pub(crate) volume_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) driver: DriverChoice,
    #[serde(default)]
    pub(crate) cpus: Vec<usize>,
    /// How a thread waits for completions
    #[serde(default)]
    pub(crate) polling: Polling,
    /// Other processes whose CPU time is read at the window's start and end, by role
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
    /// I/Os start at a rate, whatever the target does. Rate and backlog are those of all workers together
    Open {
        /// 0: connections are open but idle
        rate_iops: f64,
        #[serde(default)]
        arrivals: ArrivalsSpec,
        /// Maximum number of I/Os that wait for a free slot; more are dropped and counted
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

/// The I/O of a database without its contents: transactions read pages one after another and commit durably.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OltpSpec {
    /// Size of the page buffers
    pub(crate) memory_bytes: u64,
    /// Time from the start of a checkpoint to the start of the next
    pub(crate) checkpoint_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PathPolicySpec {
    /// The first path that is up
    Fixed,
    /// Each path that is up in turn
    RoundRobin,
    /// The path with the fewest outstanding I/Os
    QueueDepth,
}

impl From<PathPolicy> for PathPolicySpec {
    fn from(policy: PathPolicy) -> Self {
        match policy {
            PathPolicy::Fixed => Self::Fixed,
            PathPolicy::RoundRobin => Self::RoundRobin,
            PathPolicy::QueueDepth => Self::QueueDepth,
        }
    }
}

impl From<PathPolicySpec> for PathPolicy {
    fn from(spec: PathPolicySpec) -> Self {
        match spec {
            PathPolicySpec::Fixed => Self::Fixed,
            PathPolicySpec::RoundRobin => Self::RoundRobin,
            PathPolicySpec::QueueDepth => Self::QueueDepth,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PathRetry {
    /// When the target certainly executes nothing more of the lost connection: after a new login (RFC 7143 §6.3.5), or
    /// after two or three keep-alive timeouts (NVMe base 2.1 §9.6)
    WhenSafe,
    /// At once, as Linux's NVMe initiator does. A target that executes the first copy later can undo a newer write
    AtOnce,
}

/// One of several patterns in a load.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamSpec {
    pub(crate) name: String,
    /// Weight among the streams, for their share of the workers and of an open loop's arrivals
    #[serde(default = "even")]
    pub(crate) share: f64,
    pub(crate) block_size_bytes: Option<u32>,
    pub(crate) read_percent: Option<f64>,
    pub(crate) random_percent: Option<f64>,
    pub(crate) shared: Option<bool>,
}

/// Options of a connection. An option that the protocol does not have is rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    /// IQN or NQN of the load
    pub(crate) initiator: Option<String>,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// How long the other side of an iSCSI or NVMe/TCP connection may be silent before the path counts as lost. Default:
    /// 5 s with several portals
    pub(crate) keep_alive_ns: Option<u64>,
    /// How a path is chosen for each I/O, if the endpoint names several portals
    pub(crate) path_policy: Option<PathPolicySpec>,
    /// When writes of a lost path are sent again
    pub(crate) path_retry: Option<PathRetry>,
    /// iSCSI `ImmediateData`
    pub(crate) immediate_data: Option<bool>,
    /// iSCSI `InitialR2T`
    pub(crate) initial_r2t: Option<bool>,
    pub(crate) first_burst_bytes: Option<u32>,
    pub(crate) max_burst_bytes: Option<u32>,
    pub(crate) max_recv_data_segment_bytes: Option<u32>,
    /// Bypass the page cache of a local file
    pub(crate) direct: Option<bool>,
    /// iSCSI: the load's credentials
    pub(crate) chap: Option<ChapSpec>,
    /// NVMe/TCP: the load's secret, used if the controller requires authentication
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
