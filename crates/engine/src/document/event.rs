//! Events: the engine prints them as one JSON object per line.

#![allow(clippy::struct_field_names)] // units are part of names

use std::{collections::BTreeMap, net::SocketAddr};

use iotax_node::failure::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use super::{AccessSpec, ArrivalsSpec, Identity, PathPolicySpec, WireProtocol};

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    Ready(ReadyEvent),
    Filled(FilledEvent),
    Status(StatusEvent),
    Silenced(SilencedEvent),
    Access(AccessEvent),
    /// The target was killed
    Killed,
    /// The target serves again
    Revived,
    Connected(ConnectedEvent),
    Armed(ArmedEvent),
    Clock(ClockEvent),
    Started(StartedEvent),
    Observed(Box<ObservedEvent>),
    Began(HappenedEvent),
    Undone(HappenedEvent),
    Sample(SampleEvent),
    Kept(KeptEvent),
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
    /// One of the kinds listed in docs/reference/engine.md
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    #[serde(rename = "where")]
    pub(crate) place: String,
}

impl ErrorEvent {
    pub(crate) fn of(failure: &Failure) -> Self {
        Self { kind: failure.kind.name(), message: failure.message.clone(), place: failure.place.clone() }
    }
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
    /// Path of a file with the volume's bytes, for access without a protocol; null for `null` media
    pub(crate) path: Option<String>,
    /// The file or device that stores the volume; absent for `memory` and `null` media
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Identity>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Portal {
    pub(crate) protocol: WireProtocol,
    pub(crate) address: String,
    pub(crate) endpoint: String,
}

/// Printed when a fill is complete: that of a server's volume, or the `fill` task of a load.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FilledEvent {
    /// The server's volume; absent for a load
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volume: Option<String>,
    pub(crate) bytes: u64,
    /// Duration of the fill; for a load, since its process started
    pub(crate) seconds: f64,
}

/// A portal has fallen silent, or answers again.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SilencedEvent {
    pub(crate) portal: SocketAddr,
    pub(crate) silent: bool,
}

/// A portal reports another access state.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AccessEvent {
    pub(crate) portal: SocketAddr,
    pub(crate) state: AccessSpec,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatusEvent {
    pub(crate) connections: usize,
    /// CPU time of the server process since it started
    pub(crate) cpu_ns: u64,
    pub(crate) max_rss_bytes: u64,
    /// Work of modelled media, by volume name; absent if no volume has a `model`
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) modelled: BTreeMap<String, ModelledReport>,
}

/// Work of modelled media since the server started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelledReport {
    /// Operations that needed a server or a disk: all except those answered from a cache alone
    pub(crate) operations: u64,
    /// Busy time of all servers together, including accepted work that is not done yet
    pub(crate) busy_ns: u64,
    /// Operations whose completion was delayed until the modelled time
    pub(crate) told: u64,
    /// How much later than modelled they completed, in total
    pub(crate) late_sum_ns: u64,
    /// Lateness of the latest of them since the last `status`
    pub(crate) late_max_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConnectedEvent {
    /// The load's `id` in a session; absent for a single load
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) driver: &'static str,
    pub(crate) endpoint: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_size_bytes: u32,
    pub(crate) max_io_bytes: u32,
    /// Vendor, product and serial number, as far as the protocol reports them
    pub(crate) identity: BTreeMap<&'static str, String>,
    /// Parameters negotiated at login, connect or mount
    pub(crate) negotiated: BTreeMap<&'static str, String>,
}

/// All connections of a session are open, and it waits for the `start` command.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ArmedEvent {
    pub(crate) engine_version: &'static str,
    pub(crate) pid: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClockEvent {
    /// The machine's wall clock
    pub(crate) unix_ns: u64,
    /// The kernel's estimate of the clock's maximum error; null if the clock is not synchronized
    pub(crate) error_ns: Option<u64>,
}

/// The start time is set: that of a load's warm-up, or that of a session whose `start` command arrived in time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StartedEvent {
    pub(crate) at_unix_ns: u64,
    /// Time from this line to the start
    pub(crate) left_ns: u64,
}

/// An event of `perform`: it begins now, and its command has succeeded; or its undo has ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HappenedEvent {
    /// By the machine's wall clock
    pub(crate) at_unix_ns: u64,
}

/// CPU time and traffic of the machine, from the start of a session's first slice to the end of its last.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ObservedEvent {
    pub(crate) engine_version: &'static str,
    pub(crate) window: Window,
    /// The observing process itself
    pub(crate) observer: ProcessCpu,
    /// The watched processes, by role
    pub(crate) watched: BTreeMap<String, ProcessCpu>,
    pub(crate) machine: MachineCpu,
    /// CPU time in intervals of the window; absent if the window is too short for several
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cpu_series: Vec<CpuPoint>,
    /// Network interfaces with traffic
    pub(crate) interfaces: Vec<InterfaceReport>,
    /// Disks with I/O; partitions and stacked devices are listed along with the devices below them
    pub(crate) disks: Vec<DiskReport>,
    /// Each slice that was measured on schedule, whichever load it had; only with `gap_ns`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slices: Vec<ObservedSlice>,
}

/// The machine's CPU time over one slice of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ObservedSlice {
    /// Position among all slices of the session, from 1
    pub(crate) place: usize,
    /// Since the session process started
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    /// Time between the readings of the CPU clocks. CPU times of processes are scaled from it to `duration_ns`;
    /// `machine_busy_ns` is scaled only if `resolution_ns` is 0
    pub(crate) cpu_window_ns: u64,
    pub(crate) machine_busy_ns: u64,
    /// CPU time of the watched processes, by role
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) watched_ns: BTreeMap<String, u64>,
    /// As `resolution_ns` of `machine`
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
    /// The load's `id` in a session; absent for a single load
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// Round of the session, from 1; absent for a single load
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round: Option<usize>,
    /// End of the interval
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

/// Progress of a simulation in virtual time, including its warm-up; printed every half second of real time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SimulatingEvent {
    pub(crate) at_ns: u64,
    pub(crate) until_ns: u64,
}

/// Work of the simulated machines in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SimulatedReport {
    /// All machines with a load together
    pub(crate) initiators: SiteReport,
    /// All controllers together
    pub(crate) target: SiteReport,
    /// Busy time of the media's servers, summed; null without `media`
    pub(crate) media_busy_ns: Option<u64>,
    /// Occupied places × time of all LUN queues: a queue of depth n that is full for a second adds n seconds. Absent
    /// without `lun_depth`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) luns_busy_ns: Option<u64>,
    /// The same for adapter queues; absent without `adapter_depth`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adapters_busy_ns: Option<u64>,
    /// All trunks between switches together; absent without a trunk
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trunks: Option<TrunksReport>,
    /// Each controller that was not taken over; absent if the document has no `paths.to`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controllers: Option<Vec<ControllerReport>>,
}

/// Work of a simulated controller in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ControllerReport {
    /// Number of the controller, from 1
    pub(crate) controller: u32,
    /// CPU time
    pub(crate) busy_ns: u64,
    /// Bytes forwarded for its partner, in both directions
    pub(crate) forwarded_bytes: u64,
    /// Time that it spent sending over the interconnect
    pub(crate) interconnect_ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TrunksReport {
    pub(crate) to_targets: LaneReport,
    pub(crate) to_initiators: LaneReport,
}

/// Use of one direction of a link.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LaneReport {
    pub(crate) busy_ns: u64,
    /// Idle time with frames to send but without credits
    pub(crate) credits_ns: u64,
    /// Segments lost because the buffer in front of it was full
    pub(crate) lost: u64,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct SiteReport {
    /// How often a sleeping thread was woken
    pub(crate) wakes: u64,
    /// Sum of how deep those threads slept: 1000 for a sleep of 30 µs or longer, less for a shorter one
    pub(crate) wakes_deep_permille: u64,
    /// Turns: in each, a thread handles everything that has arrived
    pub(crate) turns: u64,
    /// Sends: each sends all that one connection has to send
    pub(crate) sends: u64,
    /// Bytes received and sent
    pub(crate) bytes: u64,
    /// Segments or frames received and sent
    pub(crate) segments: u64,
    /// The part of `bytes` that was sent
    pub(crate) sent_bytes: u64,
    /// Busy time of the machines' ports for sending, summed
    pub(crate) sent_ns: u64,
    /// Busy time of the machines' ports for receiving, summed
    pub(crate) received_ns: u64,
    /// Busy time of the busiest port, in its busier direction; absent without zones
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busiest_port_ns: Option<u64>,
    /// Idle time of the ports with frames to send but without credits, summed
    pub(crate) credits_ns: u64,
    /// Lost segments that these machines had sent; absent if none was lost
    #[serde(skip_serializing_if = "is_none_at_all")]
    pub(crate) lost: u64,
    /// How often a connection retransmitted only after its timeout; absent if never
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
    /// Maximum size of an I/O; null if unlimited
    pub(crate) max_io_bytes: Option<u32>,
    pub(crate) read_only: bool,
    /// `zeros`, `pattern` or `foreign`; `nothing` if the path does not exist and a volume can be created there
    pub(crate) holds: &'static str,
    /// Kind of the foreign data, such as `ext4 file system`
    pub(crate) what: Option<String>,
    /// Offset of the foreign data
    pub(crate) at_bytes: Option<u64>,
    pub(crate) scanned_bytes: u64,
    /// Who else uses the local file or device, which therefore cannot be written
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<String>,
    /// Identity of a local file or device
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Identity>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResultEvent {
    /// The load's `id` in a session, whose slices are reported together; absent for a single load
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) engine_version: &'static str,
    pub(crate) driver: &'static str,
    pub(crate) endpoint: String,
    pub(crate) window: Window,
    pub(crate) read: DirectionReport,
    pub(crate) write: DirectionReport,
    /// Flushes, which `read` and `write` do not include; absent without `fsync`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<DirectionReport>,
    /// Results of each stream; absent if the load has no `streams`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<StreamReport>,
    /// Rate and lateness of an open loop; absent for a closed loop
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<OpenReport>,
    /// I/Os of the database on the unit; absent without `oltp`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) database: Option<DatabaseReport>,
    pub(crate) cpu: CpuReport,
    pub(crate) series: Vec<SeriesPoint>,
    /// CPU time in intervals of the window; absent if the window is too short for several
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cpu_series: Vec<CpuPoint>,
    pub(crate) outstanding: Outstanding,
    pub(crate) gaps: GapsReport,
    /// Completed I/Os by interval; absent without `count_ns`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counted: Option<CountsReport>,
    pub(crate) verify: VerifyReport,
    pub(crate) checks: Checks,
    /// Work of each path, from the opening of the connections to their end; absent if the endpoint has one portal
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paths: Option<PathsReport>,
    /// Work of the simulated machines; absent outside simulations
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) simulated: Option<SimulatedReport>,
    /// Slices of the load in a session; absent for a single load
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slices: Vec<SliceReport>,
}

/// Work of several paths to the unit.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PathsReport {
    pub(crate) policy: PathPolicySpec,
    /// The policy promises every path an equal share
    pub(crate) even: bool,
    pub(crate) used: Vec<PathWork>,
}

/// Work of a path, of all threads together.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PathWork {
    /// Its portal
    pub(crate) name: String,
    /// I/Os that completed over it, and their bytes
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    /// How often it was lost, counted by the thread that lost it most often
    pub(crate) losses: u64,
    /// I/Os that were outstanding on it when it was lost
    pub(crate) lost: u64,
    /// How long it was down, in the thread that missed it longest
    pub(crate) down_ns: u64,
    /// I/Os that the target refused on it, because of its access state. They were sent again over another path
    pub(crate) refused: u64,
}

/// Periods in which no thread completed an I/O, between the window's start and end.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GapsReport {
    pub(crate) longest_ns: u64,
    /// true: `longest_ns` is only an upper bound, because none of the common gaps of several threads is listed
    pub(crate) is_bound: bool,
    /// `listed` contains every gap of this length or longer
    pub(crate) listed_from_ns: u64,
    /// Pairs (start, duration) in order of time. Starts count from the window's start, in a session from that of the
    /// load's first slice
    pub(crate) listed: Vec<(u64, u64)>,
}

/// Number of completed I/Os in consecutive intervals of the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CountsReport {
    pub(crate) interval_ns: u64,
    pub(crate) ios: Vec<u64>,
}

/// I/Os of a database on the unit in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DatabaseReport {
    /// Size of the database without its log
    pub(crate) size_bytes: u64,
    /// Size of its page buffers
    pub(crate) memory_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    /// Writes of pages and of the log
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) log_writes: u64,
    pub(crate) log_write_bytes: u64,
    pub(crate) flushes: u64,
    /// Checkpoints that ended in the window
    pub(crate) checkpoints: u64,
}

/// Slices that ended since the load's last event of this kind. The `result` has them too; of a session that fails they
/// are what is left.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeptEvent {
    /// The load's `id`
    pub(crate) id: String,
    pub(crate) slices: Vec<SliceReport>,
}

/// One slice of a load in a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SliceReport {
    /// Round of the session, from 1
    pub(crate) round: usize,
    /// Position among all slices of the session, from 1
    pub(crate) place: usize,
    /// Since the session process started
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) latency_sum_ns: u64,
    pub(crate) latency_p50_ns: u64,
    pub(crate) latency_p99_ns: u64,
    /// Mean number of outstanding I/Os. Divided by the mean latency, it gives a rate that counts I/Os across the
    /// slice's edges in part
    pub(crate) mean_outstanding: f64,
    /// Time between the readings of the CPU clocks. CPU times of processes are scaled from it to `duration_ns`
    pub(crate) cpu_window_ns: u64,
    pub(crate) initiator_cpu_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target_cpu_ns: Option<u64>,
    pub(crate) machine_busy_ns: u64,
    pub(crate) run_queue_wait_ns: u64,
}

/// Background of the machine: its CPU time while there is no load, over `runtime_ns`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct IdleEvent {
    pub(crate) engine_version: &'static str,
    pub(crate) window: Window,
    pub(crate) cpu: CpuReport,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Window {
    pub(crate) start_unix_ns: u64,
    /// Since the load process started
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
    /// Latency from submission to completion; only in an open loop, whose latency above is from the intended start
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

/// Results of one stream.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StreamReport {
    pub(crate) name: String,
    pub(crate) workers: u32,
    pub(crate) block_size_bytes: u32,
    pub(crate) read_percent: f64,
    pub(crate) random_percent: f64,
    /// Rate of this stream alone, in an open loop
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate_iops: Option<f64>,
    pub(crate) read: DirectionReport,
    pub(crate) write: DirectionReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arrived: Option<ArrivedReport>,
}

/// Requested rate of an open loop, and the rate achieved.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OpenReport {
    /// Requested rate of all workers together
    pub(crate) rate_iops: f64,
    pub(crate) arrivals: ArrivalsSpec,
    pub(crate) backlog_max: u32,
    #[serde(flatten)]
    pub(crate) arrived: ArrivedReport,
    /// Completed I/Os divided by offered I/Os, both in the window; 1 if none was offered
    pub(crate) achieved: f64,
    /// From when the generator could have submitted an I/O to when it did: a delay of the generator, not of the target
    pub(crate) lateness: Latency,
}

/// I/Os that came due inside the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ArrivedReport {
    pub(crate) offered: u64,
    /// Offered I/Os that were never submitted, because the backlog was full
    pub(crate) dropped: u64,
    /// Maximum number of waiting I/Os, summed over workers
    pub(crate) backlog_peak: u64,
    /// I/Os still waiting at the window's end
    pub(crate) backlog_end: u64,
}

/// A histogram without its empty bins: pairs of a bin's highest equivalent value and its count.
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
    /// The part of it that its threads spent running guests
    pub(crate) guest_ns: u64,
    pub(crate) run_queue_wait_ns: u64,
    pub(crate) max_rss_bytes: u64,
    /// Only for a process of a virtual machine whose threads have names
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<Box<VmThreadsCpu>>,
    /// Counts of the processor's performance counters; null if they were not available
    pub(crate) events: Option<CpuEvents>,
    /// Why `events` is null
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_events: Option<String>,
}

/// CPU time of a virtual machine's threads, by the scheduler's accounting
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct VmThreadsCpu {
    /// vCPU threads, including the guest's own time
    pub(crate) processors_ns: u64,
    /// I/O threads
    pub(crate) io_ns: u64,
    /// vhost workers that are threads of the process, as since Linux 6.4
    pub(crate) vhost_ns: u64,
    /// vhost workers that are kernel threads outside the process
    pub(crate) vhost_apart_ns: u64,
}

/// Instructions and cycles of a process's threads, in user space and in the kernel
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
    /// 0: idle time was read in nanoseconds, and includes waiting for I/O. Absent: it was counted in ticks of 10 ms
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
    /// The part of user and nice time that guests of this machine used
    pub(crate) guest_ns: u64,
}

/// CPU time between two readings of the clocks
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CpuPoint {
    /// Start of the interval, from the start of the window
    pub(crate) at_ns: u64,
    pub(crate) duration_ns: u64,
    /// CPU time by role: from the processes' own clocks, and for the machine from /proc/stat
    pub(crate) busy_ns: BTreeMap<String, u64>,
    /// The part of the machine's CPU time that its guests used
    pub(crate) guest_ns: u64,
    /// Only in a simulation: work of the initiators
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initiators: Option<SiteReport>,
    /// Only in a simulation: completed I/Os
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
    /// Mean over the window, computed from the time integral
    pub(crate) mean: f64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct VerifyReport {
    pub(crate) checked_blocks: u64,
    pub(crate) never_written_blocks: u64,
    pub(crate) wrong_blocks: u64,
    /// Of the checked blocks, those that were read after the run
    pub(crate) read_back_blocks: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checks {
    pub(crate) errors: u64,
    /// Time between the starts of the first and the last thread
    pub(crate) start_skew_ns: u64,
    /// Time between the readings of the CPU clocks; differs from the window only by scheduling delays
    pub(crate) cpu_window_ns: u64,
    /// Run-queue wait of initiator and target, divided by `cpu_window_ns`
    pub(crate) run_queue_wait: f64,
    pub(crate) clock: &'static str,
}
