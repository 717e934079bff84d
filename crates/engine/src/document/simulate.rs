//! The document of `iotax-engine simulate`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{AccessSpec, LoadDocument, MediaSpec, VolumeSpec, WireProtocol};

/// A load in virtual time, on machines that are connected only by links to the target. The events are those of a `run`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateDocument {
    pub(crate) protocol: WireProtocol,
    /// A `run`. Each load of each machine runs all of it on `threads` threads of its own; its endpoint is only a name
    pub(crate) load: LoadDocument,
    /// A memory volume
    pub(crate) volume: VolumeSpec,
    /// Absent: the volume is memory, which takes no time
    pub(crate) media: Option<MediaSpec>,
    /// Link of every machine's port
    pub(crate) link: LinkSpec,
    pub(crate) initiators: SiteSpec,
    pub(crate) target: SiteSpec,
    /// Number of machines with a load
    #[serde(default = "one")]
    pub(crate) machines: u32,
    /// How machines reach their volumes; absent: each by one port, to one controller with one port
    #[serde(default)]
    pub(crate) paths: PathsSpec,
    /// What happens to the targets and their paths
    #[serde(default)]
    pub(crate) happenings: Vec<HappeningSpec>,
    /// Queues of each machine; absent: unlimited
    #[serde(default)]
    pub(crate) queues: QueuesSpec,
    /// Number of loads on each machine, such as virtual machines
    #[serde(default = "one")]
    pub(crate) loads: u32,
    /// Number of threads of each controller
    #[serde(default = "one")]
    pub(crate) threads: u32,
    /// Seed of service times; `load` has its own
    pub(crate) seed: u64,
}

/// Machines are distributed over the controllers in order, and the machines of a controller over its ports. Each
/// controller is a server with its own processors, ports, media and volume. The first and the second controller are
/// partners, the third and the fourth, and so on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PathsSpec {
    pub(crate) controllers: u32,
    /// Ports of each controller
    pub(crate) target_ports: u32,
    /// Ports of each machine with a load; each is a path
    pub(crate) ports: u32,
    pub(crate) policy: PolicySpec,
    /// true: each path leads to a portal of its own, with connections of its own, and `load.options` says how the
    /// initiators choose the path of each I/O. false: each connection uses all paths, by `policy`
    pub(crate) portals: bool,
    pub(crate) failures: Vec<FailureSpec>,
    /// Time from a failure until machines notice it, and from its end until they use the path again
    pub(crate) noticed_ns: u64,
    /// Number of switches between the ports: 0, 1, or 2 with a trunk between them. With switches, each path has its own
    /// fabric, and the ports of each controller use the fabrics in turn
    pub(crate) switches: u32,
    /// Rate of the trunk in each direction; absent: that of the links
    pub(crate) trunk_rate_bits_per_s: Option<u64>,
    /// Buffer-to-buffer credits of each end of the trunk; absent: those of the links
    pub(crate) trunk_credits: Option<u32>,
    /// Which machines can reach which ports; empty: all machines reach all ports. With zones, Ethernet frames have a
    /// VLAN tag
    pub(crate) zones: Vec<ZoneSpec>,
    /// To which controllers the paths to a volume lead. If given, the result reports each controller
    pub(crate) to: Option<TowardsSpec>,
    /// Link between the two controllers of each pair; required if paths lead to partners
    pub(crate) interconnect: Option<InterconnectSpec>,
    /// Number of a lost controller, from 1. Its partner serves its volume, too, from the lost controller's media and at
    /// its address
    pub(crate) takeover: Option<u32>,
}

/// To which controllers the paths to a volume lead
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TowardsSpec {
    /// To the controller that owns the volume
    #[default]
    Owner,
    /// To the owner's partner, which forwards over the interconnect at its costs of receiving and sending
    Partner,
    /// Equally many to both, used in turn for 1,000 sends each; after a takeover, only those to the surviving one
    Both,
}

/// Link between two controllers, in each direction
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterconnectSpec {
    pub(crate) rate_bits_per_s: u64,
    /// Propagation delay from one end to the other
    pub(crate) delay_ns: u64,
    /// CPU time of each of the two controllers per message, which is one send of at most 32 KiB
    pub(crate) message_ns: u64,
}

/// Machines that can reach ports; both are numbered from 1
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZoneSpec {
    pub(crate) machines: Vec<u32>,
    /// The ports of the first controller come first
    pub(crate) ports: Vec<u32>,
}

/// How sends are distributed over several paths
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PolicySpec {
    /// Only the first path; the others are standby
    #[default]
    Fixed,
    /// All paths in turn
    RoundRobin,
    /// The path with the least data queued
    QueueDepth,
    /// One path per thread
    Numa,
}

/// Failure of a path, on every machine with a load.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailureSpec {
    /// Number of the path, from 1
    pub(crate) path: u32,
    /// When it fails, from the start of the window
    pub(crate) at_ns: u64,
    /// When it works again, from the start of the window; absent: never
    pub(crate) back_ns: Option<u64>,
}

/// Something that happens in the window and is undone
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HappeningSpec {
    /// When it begins, from the start of the window
    pub(crate) at_ns: u64,
    pub(crate) lasts_ns: u64,
    pub(crate) what: WhatSpec,
}

/// What happens. Paths are numbered from 1; each is that path of all machines
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum WhatSpec {
    /// No target answers; connections stay open
    Freeze,
    /// All targets end as if their processes were killed, refuse connections, and start again with the same volumes
    Kill,
    /// The path's portals do not answer; connections stay open
    Fail { path: u32 },
    /// The same, each `every_ns`, for half of it
    Flap { path: u32, every_ns: u64 },
    /// The targets report this access over the path
    Access { path: u32, access: AccessSpec },
}

impl WhatSpec {
    pub(crate) fn path(self) -> Option<u32> {
        match self {
            Self::Freeze | Self::Kill => None,
            Self::Fail { path } | Self::Flap { path, .. } | Self::Access { path, .. } => Some(path),
        }
    }
}

/// Maximum number of outstanding commands of a machine; the others wait in order of arrival. Absent: unlimited.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueuesSpec {
    /// Number of LUNs over which the machine's workers are distributed; all are on the same volume
    pub(crate) luns: u32,
    /// Queue depth of each LUN
    pub(crate) lun_depth: Option<u32>,
    /// Queue depth of the adapter, for all LUNs together
    pub(crate) adapter_depth: Option<u32>,
}

impl Default for QueuesSpec {
    fn default() -> Self {
        Self { luns: 1, lun_depth: None, adapter_depth: None }
    }
}

impl Default for PathsSpec {
    fn default() -> Self {
        Self {
            controllers: 1,
            target_ports: 1,
            ports: 1,
            policy: PolicySpec::Fixed,
            portals: false,
            failures: Vec::new(),
            noticed_ns: 0,
            switches: 0,
            trunk_rate_bits_per_s: None,
            trunk_credits: None,
            zones: Vec::new(),
            to: None,
            interconnect: None,
            takeover: None,
        }
    }
}

/// A port and its link.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkSpec {
    pub(crate) rate_bits_per_s: u64,
    /// Propagation delay from one end to the other
    pub(crate) delay_ns: u64,
    /// MTU of Ethernet; absent: Fibre Channel frames
    pub(crate) mtu_bytes: Option<u32>,
    /// Buffer-to-buffer credits of a Fibre Channel port; absent: unlimited
    pub(crate) credits: Option<u32>,
    /// Interrupt coalescing: all arrivals within this time from the first one cause one interrupt; at most 10 ms
    #[serde(default)]
    pub(crate) coalesce_ns: u64,
    /// Ethernet segments lost at random, per million
    pub(crate) lost_per_million: Option<u32>,
    /// Buffer in front of an Ethernet port; segments beyond it are lost. Absent: unlimited
    pub(crate) buffer_bytes: Option<u64>,
}

/// The machines of one side.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SiteSpec {
    /// Cores of each machine
    pub(crate) cores: u32,
    pub(crate) costs: CostsSpec,
}

/// CPU time of a thread's work.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names)] // units are part of names
pub(crate) struct CostsSpec {
    /// Waking a thread that slept for 30 µs or longer
    pub(crate) wake_ns: u64,
    /// Waking a thread that has just fallen asleep; in between, the cost rises linearly
    pub(crate) wake_short_ns: u64,
    /// Additional delay, without CPU time, until a thread that slept for 30 µs or longer runs; proportionally less
    /// after shorter sleeps
    pub(crate) wake_delay_ns: u64,
    /// A turn of a thread, in which it handles everything that has arrived
    pub(crate) turn_ns: u64,
    /// Sending what one connection has, whatever its size
    pub(crate) send_ns: u64,
    /// Each I/O, in addition
    pub(crate) io_ns: u64,
    /// Each KiB received
    pub(crate) kib_ns: u64,
    /// Each KiB sent
    pub(crate) kib_sent_ns: u64,
    /// Each segment or frame sent or received
    pub(crate) segment_ns: u64,
    /// Variation of turns: standard deviation of their time, in percent of their cost; at most 100
    #[serde(default)]
    pub(crate) turn_cv_percent: u32,
}

fn one() -> u32 {
    1
}
