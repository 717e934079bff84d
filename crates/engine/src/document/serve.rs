//! The document of `iotax-engine serve`.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

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
    /// The server ends when it receives no line for so long; absent: only where its input ends
    pub(crate) lease_ns: Option<u64>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) media: Media,
    pub(crate) size_bytes: u64,
    /// A memory volume's operations take as long as on media like these
    pub(crate) model: Option<MediaSpec>,
    /// Of a file volume
    pub(crate) path: Option<PathBuf>,
    /// The path, once more: foreign data there may be overwritten
    pub(crate) destroy: Option<PathBuf>,
    /// Serve what the path holds, whatever it is: it must exist, and is neither filled nor made larger
    #[serde(default)]
    pub(crate) keep: bool,
    /// What an earlier server had there: another is refused
    pub(crate) expect: Option<Identity>,
    /// Bypass the page cache of a file volume
    #[serde(default = "yes")]
    pub(crate) direct: bool,
    #[serde(default)]
    pub(crate) fill: Fill,
    /// What it is filled with
    #[serde(default)]
    pub(crate) data: DataSpec,
    /// Seed of the data pattern
    #[serde(default)]
    pub(crate) seed: u64,
    /// Other programs read and write a memory volume's file; without, it may lie in huge pages, where that fails
    #[serde(default)]
    pub(crate) file_io: bool,
    /// Time that each operation is made to wait
    #[serde(default)]
    pub(crate) delay_ns: u64,
    /// CPU time that each operation is made to cost
    #[serde(default)]
    pub(crate) burn_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Media {
    Memory,
    File,
    /// Reads give zeros, writes vanish
    Null,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fill {
    #[default]
    Zeros,
    /// Every block holds the data pattern, written by writer 0
    Pattern,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportSpec {
    pub(crate) protocol: WireProtocol,
    pub(crate) listen: SocketAddr,
    pub(crate) volume: String,
    /// Initiator groups that may come in; absent: whoever reaches the listener
    pub(crate) groups: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Where to answer portmapper calls for an NFS export
    pub(crate) portmap: Option<SocketAddr>,
    /// Whose rights NFS callers have
    #[serde(default)]
    pub(crate) squash: SquashSpec,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SquashSpec {
    /// Their own, root's too
    #[default]
    None,
    /// Their own, but root becomes nobody
    Root,
    /// Nobody's
    All,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupSpec {
    pub(crate) name: String,
    /// IQNs, NQNs, addresses and networks (`127.0.0.0/8`)
    pub(crate) initiators: Vec<String>,
    /// What its members must prove at an iSCSI login
    pub(crate) chap: Option<ChapSpec>,
    /// What its members must prove on every NVMe/TCP queue
    pub(crate) dhchap: Option<DhChapSpec>,
}

/// A line after the document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ServeCommand {
    Stop,
    Fill {
        volume: String,
    },
    Status,
    /// The master is still there
    Renew,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}
