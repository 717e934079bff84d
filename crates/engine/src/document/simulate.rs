//! The document of `iotax-engine simulate`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{LoadDocument, MediaSpec, VolumeSpec, WireProtocol};

/// A load in virtual time: machines that share nothing but links to one server. The answer is that of a `run`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateDocument {
    pub(crate) protocol: WireProtocol,
    /// A `run`, which every load of every machine runs, all of it; its endpoint is only a name, and `threads` are each load's
    pub(crate) load: LoadDocument,
    /// Of memory
    pub(crate) volume: VolumeSpec,
    /// Absent: the volume's memory takes no time
    pub(crate) media: Option<MediaSpec>,
    /// Of every machine's port
    pub(crate) link: LinkSpec,
    pub(crate) initiators: SiteSpec,
    pub(crate) target: SiteSpec,
    /// Machines with a load
    #[serde(default = "one")]
    pub(crate) machines: u32,
    /// How they reach their volumes; absent: each over one port, to one server with one port
    #[serde(default)]
    pub(crate) paths: PathsSpec,
    /// Of each machine; absent: all commands go at once
    #[serde(default)]
    pub(crate) queues: QueuesSpec,
    /// Loads on each of them, such as virtual machines
    #[serde(default = "one")]
    pub(crate) loads: u32,
    /// Of the server
    #[serde(default = "one")]
    pub(crate) threads: u32,
    /// Draws service times; the load's draws the load
    pub(crate) seed: u64,
}

/// Machines are shared out among controllers in order, and those of a controller among its ports. Each controller is a server with
/// processors, ports, media and a volume of its own. The first and the second are a pair of partners, the third and the fourth, and so
/// on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PathsSpec {
    pub(crate) controllers: u32,
    /// Of each controller
    pub(crate) target_ports: u32,
    /// Of each machine with a load
    pub(crate) ports: u32,
    pub(crate) policy: PolicySpec,
    pub(crate) failures: Vec<FailureSpec>,
    /// From a failure until machines know of it, and from its end until they use the path again
    pub(crate) noticed_ns: u64,
    /// Between the ports: 0, 1, or 2 with a trunk between them. Each path then has a fabric of its own, and so have the ports of each
    /// controller, one after the other
    pub(crate) switches: u32,
    /// Of the trunk, in each direction; absent: the links'
    pub(crate) trunk_rate_bits_per_s: Option<u64>,
    /// Buffer-to-buffer credits of each end of the trunk; absent: the links'
    pub(crate) trunk_credits: Option<u32>,
    /// Which machines reach which ports; none: each all. Ethernet's frames then carry the tag of a VLAN
    pub(crate) zones: Vec<ZoneSpec>,
    /// To which controllers the paths to a volume lead; where it is given, the answer tells of each controller
    pub(crate) to: Option<TowardsSpec>,
    /// Between the two controllers of each pair; needed where paths lead to partners
    pub(crate) interconnect: Option<InterconnectSpec>,
    /// A controller that is gone, from 1: its partner serves its volume too, from that one's media and at that one's address
    pub(crate) takeover: Option<u32>,
}

/// To which controllers the paths to a volume lead
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TowardsSpec {
    /// To the volume's own
    #[default]
    Owner,
    /// To its partner, which forwards what comes over the interconnect, at what receiving and sending costs it
    Partner,
    /// As many to each, used in turn, a thousand sends at a time; after a takeover those to the survivor
    Both,
}

/// Between two controllers, in each direction
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterconnectSpec {
    pub(crate) rate_bits_per_s: u64,
    /// From one end to the other
    pub(crate) delay_ns: u64,
    /// CPU time of each of the two controllers for each message: what is sent at once, 32 KiB at most
    pub(crate) message_ns: u64,
}

/// Machines that reach ports, by their numbers from 1 on
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZoneSpec {
    pub(crate) machines: Vec<u32>,
    /// Those of the first controller come first
    pub(crate) ports: Vec<u32>,
}

/// How sends go by several paths
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PolicySpec {
    /// By the first; the others stand by
    #[default]
    Fixed,
    /// By each in turn
    RoundRobin,
    /// By the one with the least to do
    QueueDepth,
    /// By one of each thread's own
    Numa,
}

/// A path fails, on every machine with a load.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailureSpec {
    /// From 1
    pub(crate) path: u32,
    /// After the begin of what is measured
    pub(crate) at_ns: u64,
    /// Absent: it does not come back
    pub(crate) back_ns: Option<u64>,
}

/// Commands that a machine has outstanding at most; the others wait in the order of their coming. Absent: all.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueuesSpec {
    /// Among which its workers are shared out; all stand on the one volume
    pub(crate) luns: u32,
    /// At each LUN
    pub(crate) lun_depth: Option<u32>,
    /// Of its adapter, for all LUNs together
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

/// A port and the way behind it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkSpec {
    pub(crate) rate_bits_per_s: u64,
    /// From one end to the other
    pub(crate) delay_ns: u64,
    /// Of Ethernet; absent: Fibre Channel's frames
    pub(crate) mtu_bytes: Option<u32>,
    /// Buffer-to-buffer credits of a Fibre Channel port; absent: as many as it wants
    pub(crate) credits: Option<u32>,
    /// Interrupt coalescing: from the first that arrives until a thread hears of it, and of all that has come by then
    #[serde(default)]
    pub(crate) coalesce_ns: u64,
    /// What Ethernet loses: of a million segments so many, as drawn
    pub(crate) lost_per_million: Option<u32>,
    /// And what finds more than so many bytes waiting for a port; absent: nothing
    pub(crate) buffer_bytes: Option<u64>,
}

/// The machines of one side.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SiteSpec {
    /// Of each machine
    pub(crate) cores: u32,
    pub(crate) costs: CostsSpec,
}

/// CPU time that the work of a thread takes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names)] // units are part of names
pub(crate) struct CostsSpec {
    /// To wake a thread that slept for 30 µs or longer
    pub(crate) wake_ns: u64,
    /// And one that has just fallen asleep; in between, in proportion
    pub(crate) wake_short_ns: u64,
    /// How long it takes until one that slept for 30 µs or longer is at work, besides; in proportion, from nothing
    pub(crate) wake_delay_ns: u64,
    /// A turn of a thread, in which it does all that has come
    pub(crate) turn_ns: u64,
    /// To send what a connection has
    pub(crate) send_ns: u64,
    pub(crate) io_ns: u64,
    /// Each KiB received
    pub(crate) kib_ns: u64,
    /// Each KiB sent
    pub(crate) kib_sent_ns: u64,
    /// Each segment sent or received
    pub(crate) segment_ns: u64,
    /// How much turns vary: the standard deviation of what each takes, of what it costs; at most 100
    #[serde(default)]
    pub(crate) turn_cv_percent: u32,
}

fn one() -> u32 {
    1
}
