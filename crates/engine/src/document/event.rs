//! Events: the engine prints them as one JSON object per line.

#![allow(clippy::struct_field_names)] // units are part of names

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{ArrivalsSpec, Identity, WireProtocol};

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    Ready(ReadyEvent),
    Filled(FilledEvent),
    Status(StatusEvent),
    Connected(ConnectedEvent),
    Armed(ArmedEvent),
    Clock(ClockEvent),
    Started(StartedEvent),
    Observed(Box<ObservedEvent>),
    Sample(SampleEvent),
    Cpu(CpuPoint),
    Progress(ProgressEvent),
    Simulating(SimulatingEvent),
    Checked(CheckedEvent),
    Result(Box<ResultEvent>),
    Idle(IdleEvent),
    Error(ErrorEvent),
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorEvent {
    /// One of the kinds that docs/reference/engine.md lists
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    #[serde(rename = "where")]
    pub(crate) place: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReadyEvent {
    pub(crate) pid: u32,
    pub(crate) driver: &'static str,
    pub(crate) threads: usize,
    pub(crate) cpus: Vec<usize>,
    pub(crate) engine_version: &'static str,
    pub(crate) volumes: Vec<ReadyVolume>,
    pub(crate) portals: Vec<Portal>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReadyVolume {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    /// A file that reaches the same bytes without a protocol; null for `null` media
    pub(crate) path: Option<String>,
    /// Of the file or device behind it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Identity>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Portal {
    pub(crate) protocol: WireProtocol,
    pub(crate) address: String,
    pub(crate) endpoint: String,
}

/// Answers the `fill` command of a server (`volume`) and ends the `fill` task of a load (`bytes`, `seconds`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FilledEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volume: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatusEvent {
    pub(crate) connections: usize,
    /// CPU time of the server since it started
    pub(crate) cpu_ns: u64,
    pub(crate) max_rss_bytes: u64,
    /// By volume, of those whose media are a model
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) modelled: BTreeMap<String, ModelledReport>,
}

/// What modelled media did since the server started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelledReport {
    /// All but those that a cache answered without a disk
    pub(crate) operations: u64,
    /// Of all servers together, with what they were given and have not done yet
    pub(crate) busy_ns: u64,
    /// Operations that waited for their time; how much after it the server told them, in all and at most since the last `status`
    pub(crate) told: u64,
    pub(crate) late_sum_ns: u64,
    pub(crate) late_max_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConnectedEvent {
    /// Of a session: which load
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) driver: &'static str,
    pub(crate) endpoint: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_size_bytes: u32,
    pub(crate) max_io_bytes: u32,
    /// Vendor, product, serial number, as far as the protocol tells
    pub(crate) identity: BTreeMap<&'static str, String>,
    /// What login, connect or mount agreed on
    pub(crate) negotiated: BTreeMap<&'static str, String>,
}

/// A session whose connections all stand, and that waits to be told when to start.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ArmedEvent {
    pub(crate) engine_version: &'static str,
    pub(crate) pid: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClockEvent {
    pub(crate) unix_ns: u64,
    /// How wrong the kernel takes the wall clock to be at most; null where nothing keeps it in step
    pub(crate) error_ns: Option<u64>,
}

/// A load knows when it starts: when its warm-up begins. Of a session that is told, it has heard so in time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StartedEvent {
    pub(crate) at_unix_ns: u64,
    /// From this line to the start
    pub(crate) left_ns: u64,
}

/// The machine over one slice.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ObservedEvent {
    pub(crate) engine_version: &'static str,
    pub(crate) window: Window,
    /// This process, which observed
    pub(crate) observer: ProcessCpu,
    /// By role
    pub(crate) watched: BTreeMap<String, ProcessCpu>,
    pub(crate) machine: MachineCpu,
    /// CPU within the window, of one that is long enough to be looked at
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cpu_series: Vec<CpuPoint>,
    /// Those that moved something
    pub(crate) interfaces: Vec<InterfaceReport>,
    /// Those that did something, partitions and devices built from others beside those below them
    pub(crate) disks: Vec<DiskReport>,
    /// Every slice that the schedule left time for, of whatever load, where there are several
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slices: Vec<ObservedSlice>,
}

/// The machine over one slice of several.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ObservedSlice {
    /// Place among all slices of the session, from 1
    pub(crate) place: usize,
    /// Since the session process began
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    /// Between the readings of the CPU clocks, to which the busy time is scaled where that is exact
    pub(crate) cpu_window_ns: u64,
    pub(crate) machine_busy_ns: u64,
    /// Of the processes that are watched, by role
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) watched_ns: BTreeMap<String, u64>,
    /// As a machine's `resolution_ns`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resolution_ns: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InterfaceReport {
    pub(crate) name: String,
    pub(crate) received_bytes: u64,
    pub(crate) received_packets: u64,
    pub(crate) received_dropped: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) sent_dropped: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DiskReport {
    pub(crate) name: String,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) busy_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SampleEvent {
    /// Of a session: which load, and in which round, from 1
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round: Option<usize>,
    pub(crate) at_ns: u64,
    pub(crate) phase: &'static str,
    pub(crate) iops: f64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) latency_p50_ns: u64,
    pub(crate) latency_p99_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProgressEvent {
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// How far a simulation is, every half second of real time: in virtual time, its warm-up included.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SimulatingEvent {
    pub(crate) at_ns: u64,
    pub(crate) until_ns: u64,
}

/// What simulated machines did in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SimulatedReport {
    /// All of them together
    pub(crate) initiators: SiteReport,
    pub(crate) target: SiteReport,
    /// Time of the media's servers, added up; null where the volume is memory
    pub(crate) media_busy_ns: Option<u64>,
    /// Time of places in the machines' queues, added up: one of n places that is full for a second has n seconds. Of all LUNs
    /// together, and of adapters; absent where queues have no end
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) luns_busy_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adapters_busy_ns: Option<u64>,
    /// All trunks between switches together; absent where there is none
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trunks: Option<TrunksReport>,
    /// Each controller that is there; absent where the document does not say where paths lead to
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controllers: Option<Vec<ControllerReport>>,
}

/// What a simulated controller did in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ControllerReport {
    /// From 1
    pub(crate) controller: u32,
    /// CPU time
    pub(crate) busy_ns: u64,
    /// For its partner and back
    pub(crate) forwarded_bytes: u64,
    /// How long it sent over the interconnect
    pub(crate) interconnect_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TrunksReport {
    pub(crate) to_targets: LaneReport,
    pub(crate) to_initiators: LaneReport,
}

/// One direction of a link.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LaneReport {
    pub(crate) busy_ns: u64,
    /// Idle with frames to send, because no credits are left
    pub(crate) credits_ns: u64,
    /// Segments that found no room in front of it
    pub(crate) lost: u64,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct SiteReport {
    /// Threads that slept and were woken; turns in which they did what had come; sends of what a connection had
    pub(crate) wakes: u64,
    /// How deep those threads slept, added up: 1000 each where it was for 30 µs or longer
    pub(crate) wakes_deep_permille: u64,
    pub(crate) turns: u64,
    pub(crate) sends: u64,
    /// Received and sent
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    /// Of the bytes, those sent
    pub(crate) sent_bytes: u64,
    /// How long the machines' ports were busy, added up
    pub(crate) sent_ns: u64,
    pub(crate) received_ns: u64,
    /// How long the busiest of them was, in the direction that was busier; absent where no zones load them unequally
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busiest_port_ns: Option<u64>,
    /// And how long they were idle with frames to send, because no credits are left
    pub(crate) credits_ns: u64,
    /// Segments that they sent and that were lost, and how often a connection waited for its timeout to send one again; none
    /// where the link loses nothing
    #[serde(skip_serializing_if = "is_none_at_all")]
    pub(crate) lost: u64,
    #[serde(skip_serializing_if = "is_none_at_all")]
    pub(crate) timeouts: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_none_at_all(count: &u64) -> bool {
    *count == 0
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckedEvent {
    pub(crate) size_bytes: u64,
    pub(crate) block_size_bytes: u32,
    /// Bytes of an I/O at most; null where nothing limits them
    pub(crate) max_io_bytes: Option<u32>,
    pub(crate) read_only: bool,
    /// `zeros`, `pattern`, `foreign`, or `nothing` where a volume can be made
    pub(crate) holds: &'static str,
    /// What the foreign data look like, such as `ext4 file system`
    pub(crate) what: Option<String>,
    pub(crate) at_bytes: Option<u64>,
    pub(crate) scanned_bytes: u64,
    /// Who else uses a local file or device: it cannot be written then
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<String>,
    /// Of a local file or device
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Identity>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResultEvent {
    /// Of a session: which load. The figures are those of its slices together
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) engine_version: &'static str,
    pub(crate) driver: &'static str,
    pub(crate) endpoint: String,
    pub(crate) window: Window,
    pub(crate) read: DirectionReport,
    pub(crate) write: DirectionReport,
    /// Flushes of a load with `fsync`, apart from its reads and writes
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<DirectionReport>,
    /// Of each stream, where the load has several
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<StreamReport>,
    /// Of an open loop
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<OpenReport>,
    /// Of a load of transactions: what its database did
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) database: Option<DatabaseReport>,
    pub(crate) cpu: CpuReport,
    pub(crate) series: Vec<SeriesPoint>,
    /// CPU within the window, of one that is long enough to be looked at
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cpu_series: Vec<CpuPoint>,
    pub(crate) outstanding: Outstanding,
    pub(crate) gaps: GapsReport,
    /// With `count_ns`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counted: Option<CountsReport>,
    pub(crate) verify: VerifyReport,
    pub(crate) checks: Checks,
    /// Of a simulation
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) simulated: Option<SimulatedReport>,
    /// Of a session
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slices: Vec<SliceReport>,
}

/// Times without a completed I/O, from the window's start to its end.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GapsReport {
    pub(crate) longest_ns: u64,
    /// `longest_ns` is an upper bound: of several threads, none of whose common gaps is listed
    pub(crate) is_bound: bool,
    /// `listed` has every gap of this length or longer
    pub(crate) listed_from_ns: u64,
    /// (start from the window's start, duration) by start; of a session, from its first slice's start
    pub(crate) listed: Vec<(u64, u64)>,
}

/// I/Os completed in intervals of the window, one after another.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CountsReport {
    pub(crate) interval_ns: u64,
    pub(crate) ios: Vec<u64>,
}

/// What a database did on the unit in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DatabaseReport {
    /// Without the log
    pub(crate) size_bytes: u64,
    /// Of its buffers
    pub(crate) memory_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    /// Of pages and of the log
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) log_writes: u64,
    pub(crate) log_write_bytes: u64,
    pub(crate) flushes: u64,
    /// That ended in the window
    pub(crate) checkpoints: u64,
}

/// One slice of a session's load.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SliceReport {
    /// From 1
    pub(crate) round: usize,
    /// Place among all slices of the session, from 1
    pub(crate) place: usize,
    /// Since the session process began
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) latency_sum_ns: u64,
    pub(crate) latency_p50_ns: u64,
    pub(crate) latency_p99_ns: u64,
    /// I/Os outstanding, over the slice's time: with the mean latency it tells the rate with parts of I/Os at the slice's edges
    pub(crate) mean_outstanding: f64,
    /// Between the readings of the CPU clocks, of which the CPU times are
    pub(crate) cpu_window_ns: u64,
    pub(crate) initiator_cpu_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_cpu_ns: Option<u64>,
    pub(crate) machine_busy_ns: u64,
    pub(crate) run_queue_wait_ns: u64,
}

/// The machine with no load, over a window like a run's.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct IdleEvent {
    pub(crate) engine_version: &'static str,
    pub(crate) window: Window,
    pub(crate) cpu: CpuReport,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Window {
    pub(crate) start_unix_ns: u64,
    /// Since the load process began
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DirectionReport {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) latency_sum_ns: u64,
    pub(crate) latency_min_ns: u64,
    pub(crate) latency_max_ns: u64,
    pub(crate) histogram: Histogram,
    /// From submission to completion; of an open loop, where the latency above runs from the intended start
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<Latency>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Latency {
    pub(crate) latency_sum_ns: u64,
    pub(crate) latency_min_ns: u64,
    pub(crate) latency_max_ns: u64,
    pub(crate) histogram: Histogram,
}

/// One of a load's streams.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StreamReport {
    pub(crate) name: String,
    pub(crate) workers: u32,
    pub(crate) block_size_bytes: u32,
    pub(crate) read_percent: f64,
    pub(crate) random_percent: f64,
    /// Of the stream alone
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate_iops: Option<f64>,
    pub(crate) read: DirectionReport,
    pub(crate) write: DirectionReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arrived: Option<ArrivedReport>,
}

/// What an open loop was to do, and what came of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OpenReport {
    /// Asked for, of all workers together
    pub(crate) rate_iops: f64,
    pub(crate) arrivals: ArrivalsSpec,
    pub(crate) backlog_max: u32,
    #[serde(flatten)]
    pub(crate) arrived: ArrivedReport,
    /// I/Os completed in the window over I/Os offered in it; 1 where none were offered
    pub(crate) achieved: f64,
    /// From when the generator could have submitted an I/O to when it did: its own, not the target's
    pub(crate) lateness: Latency,
}

/// What came due inside the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ArrivedReport {
    pub(crate) offered: u64,
    /// Offered, but the backlog was full: never submitted
    pub(crate) dropped: u64,
    /// Most that waited at once, summed over workers
    pub(crate) backlog_peak: u64,
    /// Waiting still at the window's end
    pub(crate) backlog_end: u64,
}

/// Sparse pairs (highest value equivalent of the bin, count).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Histogram {
    pub(crate) unit: &'static str,
    pub(crate) significant_digits: u8,
    pub(crate) counts: Vec<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { unit: "ns", significant_digits: 3, counts: Vec::new() }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CpuReport {
    pub(crate) initiator: ProcessCpu,
    pub(crate) target: Option<ProcessCpu>,
    pub(crate) machine: MachineCpu,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ProcessCpu {
    pub(crate) pid: u32,
    pub(crate) total_ns: u64,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    /// Of it, what guests ran on its threads
    pub(crate) guest_ns: u64,
    pub(crate) run_queue_wait_ns: u64,
    pub(crate) max_rss_bytes: u64,
    /// Of a virtual machine's process whose threads are named
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<Box<VmThreadsCpu>>,
    /// By the processor's counters
    pub(crate) events: Option<CpuEvents>,
    /// Why nothing was counted
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_events: Option<String>,
}

/// What a virtual machine's threads used, by the scheduler's account
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct VmThreadsCpu {
    /// That stand for the guest's processors, its own time included
    pub(crate) processors_ns: u64,
    /// I/O threads
    pub(crate) io_ns: u64,
    /// vhost's workers that are threads of the process, as since Linux 6.4
    pub(crate) vhost_ns: u64,
    /// vhost's workers that are the kernel's own, beside the process
    pub(crate) vhost_apart_ns: u64,
}

/// What a process's threads did, in user space and in the kernel
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CpuEvents {
    pub(crate) user_instructions: u64,
    pub(crate) kernel_instructions: u64,
    pub(crate) user_cycles: u64,
    pub(crate) kernel_cycles: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MachineCpu {
    pub(crate) cores: Vec<CoreCpu>,
    pub(crate) busy_ns: u64,
    /// 0 where idle time was read to the nanosecond, waiting for I/O included; absent: ticks of 10 ms
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resolution_ns: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CoreCpu {
    pub(crate) cpu: u32,
    pub(crate) user_ns: u64,
    pub(crate) nice_ns: u64,
    pub(crate) system_ns: u64,
    pub(crate) irq_ns: u64,
    pub(crate) softirq_ns: u64,
    pub(crate) steal_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) iowait_ns: u64,
    /// Of user and nice time, what guests of this machine ran
    pub(crate) guest_ns: u64,
}

/// What was used between two looks at the clocks
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CpuPoint {
    /// Start of the interval, from the start of the window
    pub(crate) at_ns: u64,
    pub(crate) duration_ns: u64,
    /// By role: of processes by their own clocks, of the machine by /proc/stat
    pub(crate) busy_ns: BTreeMap<String, u64>,
    /// Of the machine's, what its guests ran
    pub(crate) guest_ns: u64,
    /// Of a simulation: what the initiators did, and how many I/Os completed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initiators: Option<SiteReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ios: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SeriesPoint {
    /// Start of the interval, from the start of the window
    pub(crate) at_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) latency_p50_ns: u64,
    pub(crate) latency_p99_ns: u64,
    pub(crate) latency_max_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Outstanding {
    pub(crate) workers: u32,
    pub(crate) per_worker: u32,
    /// Mean over the window, from the time integral
    pub(crate) mean: f64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct VerifyReport {
    pub(crate) checked_blocks: u64,
    pub(crate) never_written_blocks: u64,
    pub(crate) wrong_blocks: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checks {
    pub(crate) errors: u64,
    /// Between the first and the last thread's first I/Os
    pub(crate) start_skew_ns: u64,
    /// Between the readings of the CPU clocks: the window, but for lateness in scheduling
    pub(crate) cpu_window_ns: u64,
    /// Run-queue wait of initiator and target over the window's length
    pub(crate) run_queue_wait: f64,
    pub(crate) clock: &'static str,
}
