//! The configuration of a load generator.

use std::{rc::Rc, time::Duration};

use iotax_proto::{Geometry, Region};

use super::{
    addresses::Cursor,
    oltp::{self, OltpConfig},
    pacing::Pacing,
    stream::{self, StreamConfig},
};
use crate::{failure::Failure, node::DiskId, pattern::Reduction};

/// Size and number of the I/Os of a check or a fill.
pub(super) const TRANSFER_BYTES: u32 = 1 << 20;
pub(super) const TRANSFERS: u32 = 4;

/// A task of one thread of a load generator.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    pub task: TaskConfig,
    /// Number of workers of all threads.
    pub workers: u32,
    /// The workers of this thread: `first_worker..first_worker + own_workers`.
    pub first_worker: u32,
    pub own_workers: u32,
    /// `None`: from the offset to the unit's end.
    pub working_set_bytes: Option<u64>,
    pub working_set_offset_bytes: u64,
    /// Reduction of the data that it writes.
    pub reduction: Reduction,
    /// Identifies this run (or fill) in the data that it writes. No earlier run on the same unit may have had the same
    /// value.
    pub run: u64,
}

#[derive(Clone, Debug)]
pub enum TaskConfig {
    Run(RunConfig),
    Check {
        /// How much of the unit is read, from its start; `None`: all of it.
        look_bytes: Option<u64>,
    },
    Fill {
        /// Overwrite data that iotax did not write.
        destroy: bool,
    },
}

impl TaskConfig {
    /// Maximum number of I/Os that a worker has under way.
    pub(super) fn outstanding(&self) -> u32 {
        match self {
            Self::Run(RunConfig { oltp: Some(_), .. }) => oltp::WRITER_DEPTH,
            Self::Run(run) => run.outstanding,
            Self::Check { .. } | Self::Fill { .. } => TRANSFERS,
        }
    }

    /// Size of the largest I/O.
    pub(super) fn io_bytes_max(&self) -> u32 {
        match self {
            Self::Run(run) => run.io_bytes_max(),
            Self::Check { .. } | Self::Fill { .. } => TRANSFER_BYTES,
        }
    }
}

#[allow(clippy::struct_excessive_bools)] // each is a setting of the user's
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// I/Os that each worker keeps under way.
    pub outstanding: u32,
    pub block_size_bytes: u32,
    pub read_percent: f64,
    pub random_percent: f64,
    /// The position of a sequential load that all workers share.
    pub shared: Option<Cursor>,
    /// Several patterns side by side, in place of the one above; empty: only that one.
    pub streams: Vec<StreamConfig>,
    /// Transactions in place of I/Os; the load counts each transaction as a read. Pages have the block size, and the
    /// last worker writes pages back.
    pub oltp: Option<OltpConfig>,
    pub pacing: Pacing,
    pub warmup: Duration,
    pub runtime: Duration,
    pub sample: Duration,
    /// I/Os are also counted in intervals of this length.
    pub count: Option<Duration>,
    pub seed: u64,
    pub verify: bool,
    /// A write is complete when its data are on stable storage.
    pub durable: bool,
    /// A worker flushes after this many of its own writes have completed; 0: never.
    pub flush_after: u32,
    /// The working set was filled with the pattern before, so zeros in it are wrong.
    pub filled: bool,
    /// After the run, every block is read whose write was acknowledged.
    pub read_back: bool,
}

/// Allocates zeroed memory of a size in bytes, aligned for direct I/O, at an address that does not change.
pub type Allocate<'a> = dyn FnMut(usize) -> Result<Rc<dyn Region>, Failure> + 'a;

/// A unit on this machine, accessed without a protocol.
#[derive(Clone)]
pub enum LocalUnit {
    /// Memory, accessed by copying.
    Memory(Rc<dyn Region>),
    /// A file or a block device, accessed through the driver.
    Disk { disk: DiskId, geometry: Geometry },
}

impl RunConfig {
    /// Whether it compares or interprets what it reads.
    #[must_use]
    pub fn looks_at_data(&self) -> bool {
        self.verify || self.read_back || self.oltp.is_some()
    }

    pub fn check(&self) -> Result<(), Failure> {
        for (holds, message, field) in [
            (self.outstanding > 0, "must be at least 1", "outstanding"),
            (self.outstanding <= OUTSTANDING_MAX, "must be at most 4096", "outstanding"),
            (!self.runtime.is_zero(), "must be more than 0", "runtime_ns"),
            (!self.sample.is_zero(), "must be more than 0", "sample_ns"),
            (self.count.is_none_or(|count| count >= COUNT_MIN), "must be at least 1 ms", "count_ns"),
        ] {
            if !holds {
                return Err(Failure::usage(message, field));
            }
        }
        if let Pacing::Open(open) = &self.pacing {
            open.check()?;
        }
        if self.durable || self.flush_after > 0 {
            if self.oltp.is_some() {
                return Err(Failure::usage("transactions flush their log themselves", "oltp"));
            }
            if !self.writes() {
                return Err(Failure::usage("a load that only reads makes nothing durable", "read_percent"));
            }
        }
        if self.read_back {
            if !self.verify {
                return Err(Failure::usage("blocks that are read back are checked: verify must be true", "read_back"));
            }
            if self.oltp.is_some() || self.all_streams().iter().any(|stream| stream.shared.is_some()) {
                return Err(Failure::usage("no worker knows which block another one wrote last", "read_back"));
            }
        }
        if let Some(oltp) = &self.oltp {
            if !self.streams.is_empty() {
                return Err(Failure::usage("transactions have no streams beside them", "streams"));
            }
            oltp.check(self.block_size_bytes)?;
        }
        stream::check(&self.all_streams(), !self.streams.is_empty())
    }

    /// The load's streams, at least one.
    pub fn all_streams(&self) -> Vec<StreamConfig> {
        if !self.streams.is_empty() {
            return self.streams.clone();
        }
        vec![StreamConfig {
            name: String::new(),
            share: 1.0,
            block_size_bytes: self.block_size_bytes,
            read_percent: self.read_percent,
            random_percent: self.random_percent,
            shared: self.shared.clone(),
        }]
    }

    pub fn writes(&self) -> bool {
        self.oltp.is_some() || self.all_streams().iter().any(|stream| stream.read_percent < 100.0)
    }

    /// Size of the largest I/O.
    pub(super) fn io_bytes_max(&self) -> u32 {
        if self.oltp.is_some() {
            return oltp::io_bytes_max(self.block_size_bytes);
        }
        self.all_streams().iter().map(|stream| stream.block_size_bytes).max().unwrap_or_default()
    }
}

/// More I/Os than any protocol here allows on one connection.
const OUTSTANDING_MAX: u32 = 4096;
/// Shorter intervals rarely contain an I/O.
const COUNT_MIN: Duration = Duration::from_millis(1);

impl std::fmt::Debug for LocalUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(region) => write!(f, "Memory({} bytes)", region.len()),
            Self::Disk { disk, geometry } => write!(f, "Disk({disk:?}, {} bytes)", geometry.size_bytes),
        }
    }
}

/// Names and values for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub identity: Vec<(&'static str, String)>,
    pub negotiated: Vec<(&'static str, String)>,
}
