//! The document of `iotax-engine serve`.

use std::{net::SocketAddr, path::PathBuf};

use iotax_node::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChapSpec, DataSpec, DhChapSpec, DriverChoice, Identity, MediaSpec, Polling, WireProtocol};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServeDocument {
    pub(crate) volumes: Vec<VolumeSpec>,
    pub(crate) exports: Vec<ExportSpec>,
    #[serde(default)]
    pub(crate) groups: Vec<GroupSpec>,
    #[serde(default)]
    pub(crate) driver: DriverChoice,
    #[serde(default = "one")]
    pub(crate) threads: usize,
    /// Processors to pin the threads to, in turn; empty: not pinned
    #[serde(default)]
    pub(crate) cpus: Vec<usize>,
    /// How a thread waits for work
    #[serde(default)]
    pub(crate) polling: Polling,
    /// The server exits if it receives no line for this long; absent: no time limit
    pub(crate) lease_ns: Option<u64>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) media: Media,
    pub(crate) size_bytes: u64,
    /// For a memory volume: modelled media, which determine how long its operations take
    pub(crate) model: Option<MediaSpec>,
    /// Path of a file volume
    pub(crate) path: Option<PathBuf>,
    /// Of a file volume, the path again: foreign data there may be overwritten
    pub(crate) destroy: Option<PathBuf>,
    /// Serve the data at the path, whatever they are. The file must exist, and is neither filled nor extended
    #[serde(default)]
    pub(crate) keep: bool,
    /// Identity of the file or device that an earlier server used; any other is rejected
    pub(crate) expect: Option<Identity>,
    /// Bypass the page cache of a file volume
    #[serde(default = "yes")]
    pub(crate) direct: bool,
    #[serde(default)]
    pub(crate) fill: Fill,
    /// How far the data of a fill can be reduced
    #[serde(default)]
    pub(crate) data: DataSpec,
    /// Seed of the data pattern
    #[serde(default)]
    pub(crate) seed: u64,
    /// Other programs can read and write a memory volume's file. Otherwise it may be in huge pages, which can only be
    /// mapped
    #[serde(default)]
    pub(crate) file_io: bool,
    /// Delay added to each operation
    #[serde(default)]
    pub(crate) delay_ns: u64,
    /// CPU time added to each operation
    #[serde(default)]
    pub(crate) burn_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Media {
    Memory,
    File,
    /// Reads return zeros, writes are discarded
    Null,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fill {
    /// Nothing is written: new volumes are zeros, and a file keeps what it holds
    #[default]
    Zeros,
    /// Every block contains the data pattern, as written by writer 0
    Pattern,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportSpec {
    pub(crate) protocol: WireProtocol,
    pub(crate) listen: SocketAddr,
    pub(crate) volume: String,
    /// Initiator groups that have access; absent: any initiator that reaches the listener
    pub(crate) groups: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Address for portmapper calls of an NFSv3 export
    pub(crate) portmap: Option<SocketAddr>,
    /// User that NFS callers act as
    #[serde(default)]
    pub(crate) squash: SquashSpec,
    /// Portal groups of an iSCSI target; one by default. Only with one for each portal do its portals report access states
    pub(crate) portal_groups: Option<PortalGroupsSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PortalGroupsSpec {
    /// All portals of a volume, so a lost session can be ended through another portal
    One,
    /// A group for each portal, all with `each`: a target port of its own (ALUA)
    Each,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SquashSpec {
    /// Their own user, including root
    #[default]
    None,
    /// Their own user, but nobody in place of root
    Root,
    /// Nobody
    All,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupSpec {
    pub(crate) name: String,
    /// IQNs, NQNs, IP addresses and networks (`127.0.0.0/8`)
    pub(crate) initiators: Vec<String>,
    /// CHAP credentials that its members must have at an iSCSI login
    pub(crate) chap: Option<ChapSpec>,
    /// DH-HMAC-CHAP secret that its members must have on every NVMe/TCP queue
    pub(crate) dhchap: Option<DhChapSpec>,
}

/// A command on a line after the document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ServeCommand {
    /// Stop the server
    Stop,
    /// Restore the data pattern of a volume; answered by `filled`
    Fill { volume: String },
    /// Print a `status`
    Status,
    /// Make a portal fall silent as if its cable were pulled, or answer again; answered by `silenced`
    Silence { portal: SocketAddr, silent: bool },
    /// Set how the volume can be accessed through a portal, for protocols that report it; answered by `access`
    Access { portal: SocketAddr, state: AccessSpec },
    /// End the target as if its process were killed: its connections end, connections to it are refused, and it forgets
    /// all but what the volumes hold; answered by `killed`
    Kill,
    /// Start a killed target again at the same portals; answered by `revived`
    Revive,
    /// Renew the lease, which any line does
    Renew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AccessSpec {
    Optimized,
    /// I/O works; initiators prefer optimized paths
    NonOptimized,
    /// I/O is refused
    Inaccessible,
}

impl From<AccessSpec> for Access {
    fn from(spec: AccessSpec) -> Self {
        match spec {
            AccessSpec::Optimized => Self::Optimized,
            AccessSpec::NonOptimized => Self::NonOptimized,
            AccessSpec::Inaccessible => Self::Inaccessible,
        }
    }
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}
