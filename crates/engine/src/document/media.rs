//! Modelled media, in real and in virtual time.

use std::time::Duration;

use iotax_node::{
    failure::Failure,
    pattern::Reduction,
    volume::{Collecting, MediaModel, Parity, Shape, Spindles},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// More than any array has; each rotating disk needs a few bytes.
const SERVERS_MAX: u32 = 65_536;
const MILLION: u32 = 1_000_000;
/// Maximum time of an operation.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Maximum number of empirical times: enough for their 99.9th percentile.
const TIMES_MAX: usize = 10_000;
/// 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874;

/// Modelled media: a queue of operations, and servers that execute them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MediaSpec {
    /// Number of operations executed at once; the others wait in order of arrival
    pub(crate) servers: u32,
    /// Mean service time of an operation
    pub(crate) service_ns: u64,
    #[serde(default)]
    pub(crate) distribution: DistributionSpec,
    /// For a lognormal distribution: its 99th percentile, more than the mean and at most 14 times the mean
    pub(crate) p99_ns: Option<u64>,
    /// For an empirical distribution: at most 10,000 service times, all equally likely. `service_ns` has no effect
    #[serde(default)]
    pub(crate) times_ns: Vec<u64>,
    /// The servers are parts of a flash drive, each with its own stripes and queue; not with `spindles`
    pub(crate) collect: Option<CollectSpec>,
    /// The servers are rotating disks; `service_ns` and `distribution` have no effect
    pub(crate) spindles: Option<SpindlesSpec>,
}

/// Rotating disks behind a controller with caches. An operation goes to the disk that stores its offset.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpindlesSpec {
    /// Mean seek time between random places
    pub(crate) seek_ns: u64,
    /// Time of one revolution
    pub(crate) turn_ns: u64,
    /// Number of reads per million that a cache answers at once
    pub(crate) read_hits_ppm: u32,
    /// A cache completes writes at once. The value is what each later costs its disk, in millionths of an operation.
    /// Absent: writes wait for their disk
    pub(crate) destage_ppm: Option<u32>,
    /// RAID with parity; absent: no parity
    pub(crate) parity: Option<ParitySpec>,
}

/// RAID with parity: a write reads the data block and the parity blocks, each on a different disk of the group, and
/// then writes them.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParitySpec {
    /// Disks per group, including parity; `servers` must be a multiple of it
    pub(crate) group: u32,
    /// Parity disks per stripe, 1 or 2
    pub(crate) disks: u32,
}

/// Garbage collection in each part of a flash drive; operations on that part wait meanwhile.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectSpec {
    /// Bytes written to the part between two collections
    pub(crate) every_bytes: u64,
    /// Duration of a collection
    pub(crate) pause_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DistributionSpec {
    #[default]
    Constant,
    /// From 0 to twice the mean
    Uniform,
    Exponential,
    Lognormal,
    /// One of `times_ns`
    Empirical,
}

/// How far storage can reduce the data; by default not at all.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DataSpec {
    /// Compression ratio, 1 to 8
    pub(crate) compress: f64,
    /// Deduplication ratio, 1 to 20
    pub(crate) dedupe: f64,
    /// Size of the blocks that repeat in a fill; in a run, whole writes repeat
    pub(crate) block_size_bytes: u32,
}

impl Default for DataSpec {
    fn default() -> Self {
        Self { compress: 1.0, dedupe: 1.0, block_size_bytes: 4096 }
    }
}

impl DataSpec {
    pub(crate) fn reduction(self) -> Result<Reduction, Failure> {
        Reduction::new(self.compress, self.dedupe, self.block_size_bytes)
    }
}

impl MediaSpec {
    /// The model in the node's terms. `place` is the document's field, for error messages.
    pub(crate) fn model(&self, place: &str) -> Result<MediaModel, Failure> {
        let spindles = self.spindles.as_ref();
        let shares = spindles.map(|disk| disk.read_hits_ppm.max(disk.destage_ppm.unwrap_or_default()));
        for (holds, message, field) in [
            ((1..=SERVERS_MAX).contains(&self.servers), "must be 1 to 65,536", "servers"),
            (self.service_ns <= HOUR_NS, "must be at most an hour", "service_ns"),
            (
                spindles.is_none_or(|disk| disk.seek_ns.max(disk.turn_ns) <= HOUR_NS),
                "must be at most an hour",
                "spindles",
            ),
            (
                shares.is_none_or(|share| share <= MILLION),
                "read_hits_ppm and destage_ppm must be at most 1,000,000",
                "spindles",
            ),
            (
                spindles.and_then(|disk| disk.parity).is_none_or(|parity| self.has_groups(parity)),
                "must have 1 or 2 parity disks in a larger group, and servers must be a multiple of the group",
                "spindles.parity",
            ),
            (
                self.collect.is_none_or(|collect| collect.every_bytes > 0 && collect.pause_ns <= HOUR_NS),
                "every_bytes must be more than 0, and pause_ns at most an hour",
                "collect",
            ),
            (
                self.collect.is_none() || spindles.is_none(),
                "must be absent with spindles: rotating disks collect no garbage",
                "collect",
            ),
            (
                self.times_ns.len() <= TIMES_MAX && self.times_ns.iter().all(|time_ns| *time_ns <= HOUR_NS),
                "must have at most 10,000 values, each at most an hour",
                "times_ns",
            ),
            (
                self.distribution != DistributionSpec::Empirical || !self.times_ns.is_empty(),
                "must not be empty for an empirical distribution",
                "times_ns",
            ),
        ] {
            if !holds {
                return Err(Failure::usage(message, format!("{place}.{field}")));
            }
        }
        let mean = Duration::from_nanos(self.service_ns);
        let (service, spread, shape) = match self.distribution {
            DistributionSpec::Constant => (mean, Duration::ZERO, Shape::Even),
            DistributionSpec::Uniform => (Duration::ZERO, mean.saturating_mul(2), Shape::Even),
            DistributionSpec::Exponential => (mean, Duration::ZERO, Shape::Exponential),
            DistributionSpec::Lognormal => {
                let sigma = self.sigma().ok_or_else(|| {
                    Failure::usage(
                        "must be more than the mean, and at most 14 times the mean",
                        format!("{place}.p99_ns"),
                    )
                })?;
                (mean, Duration::ZERO, Shape::Lognormal(sigma))
            }
            DistributionSpec::Empirical => {
                (Duration::ZERO, Duration::ZERO, Shape::Drawn(self.times_ns.as_slice().into()))
            }
        };
        Ok(MediaModel {
            service,
            spread,
            shape,
            slow_chance: 0,
            slow: Duration::ZERO,
            servers: self.servers as usize,
            spindles: spindles.map(|disk| Spindles {
                seek: Duration::from_nanos(disk.seek_ns),
                turn: Duration::from_nanos(disk.turn_ns),
                read_hits: u64::from(disk.read_hits_ppm),
                destage: disk.destage_ppm.map(u64::from),
                parity: disk.parity.map(|parity| Parity { group: parity.group as usize, disks: parity.disks as usize }),
            }),
            collecting: self.collect.map(|collect| Collecting {
                every_bytes: collect.every_bytes,
                pause: Duration::from_nanos(collect.pause_ns),
            }),
        })
    }

    fn has_groups(&self, parity: ParitySpec) -> bool {
        (1..=2).contains(&parity.disks) && parity.group > parity.disks && self.servers.is_multiple_of(parity.group)
    }

    /// σ of the lognormal distribution with this mean and 99th percentile: the logarithm of their ratio is zσ − σ²/2,
    /// with z of the normal distribution. `None` if the ratio is out of range; beyond 14.97, no σ exists.
    #[allow(clippy::cast_precision_loss)] // an hour's nanoseconds are below 2^53
    fn sigma(&self) -> Option<f64> {
        let ratio = self.p99_ns? as f64 / self.service_ns.max(1) as f64;
        let sigma = NORMAL_P99 - (NORMAL_P99 * NORMAL_P99 - 2.0 * ratio.ln()).sqrt();
        (ratio > 1.0 && ratio <= 14.0).then_some(sigma)
    }
}
