//! Modelled media, in real and in virtual time.

use std::time::Duration;

use iotax_node::{
    failure::Failure,
    pattern::Reduction,
    volume::{Collecting, MediaModel, Parity, Shape, Spindles},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// More than any array has; each disk that turns keeps a few bytes.
const SERVERS_MAX: u32 = 65_536;
const MILLION: u32 = 1_000_000;
/// No operation takes longer.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Of an empirical distribution: enough for its 99.9th percentile.
const TIMES_MAX: usize = 10_000;
/// What 99 of 100 standard normal values do not exceed.
const NORMAL_P99: f64 = 2.326_347_874;

/// Operations on a volume: a queue, and servers that work on them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MediaSpec {
    /// Operations that are worked on at once; the others wait in the order of their coming
    pub(crate) servers: u32,
    /// Mean time of an operation
    pub(crate) service_ns: u64,
    #[serde(default)]
    pub(crate) distribution: DistributionSpec,
    /// Of a lognormal one: what 99 % of operations do not exceed, at most 14 times the mean
    pub(crate) p99_ns: Option<u64>,
    /// Of an empirical one: each is as likely as the others, and `service_ns` is not asked; 10,000 at most
    #[serde(default)]
    pub(crate) times_ns: Vec<u64>,
    /// Its servers are parts of a flash drive, each with places and a queue of its own; not beside `spindles`
    pub(crate) collect: Option<CollectSpec>,
    /// Its servers are disks that turn; `service_ns` and `distribution` are not asked then
    pub(crate) spindles: Option<SpindlesSpec>,
}

/// Disks that turn, behind a controller with caches. An operation is of the disk where its place lies.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpindlesSpec {
    /// Mean seek between places that are equally likely
    pub(crate) seek_ns: u64,
    pub(crate) turn_ns: u64,
    /// Of a million reads, those that a cache answers at once
    pub(crate) read_hits_ppm: u32,
    /// A cache answers writes at once; of a disk's operation, what each costs later, in millionths. Absent: writes wait for disks
    pub(crate) destage_ppm: Option<u32>,
    /// RAID with parity; absent: none
    pub(crate) parity: Option<ParitySpec>,
}

/// A write reads and then writes the block of data and those of parity, each on a disk of its own in the group.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParitySpec {
    /// Disks of a group, parity included; the servers are whole groups
    pub(crate) group: u32,
    /// Of parity in each stripe: 1 or 2
    pub(crate) disks: u32,
}

/// A part of a flash drive that collects garbage; what lies there waits meanwhile.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectSpec {
    /// After so much was written to the part
    pub(crate) every_bytes: u64,
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

/// How far those who store data can reduce them; absent: not at all.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DataSpec {
    /// Bytes for each that is left once they are compressed, 1 to 8
    pub(crate) compress: f64,
    /// Blocks for each that is left where only one of equal ones is kept, 1 to 20
    pub(crate) dedupe: f64,
    /// Of the blocks that repeat in a fill; of writes, each repeats whole
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
    /// What it says as the node knows it; `place` is where it was said.
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
            (shares.is_none_or(|share| share <= MILLION), "shares are at most a million", "spindles"),
            (
                spindles.and_then(|disk| disk.parity).is_none_or(|parity| self.has_groups(parity)),
                "parity takes 1 or 2 disks of groups that have more, and servers are whole groups",
                "spindles.parity",
            ),
            (
                self.collect.is_none_or(|collect| collect.every_bytes > 0 && collect.pause_ns <= HOUR_NS),
                "must be after some bytes, for an hour at most",
                "collect",
            ),
            (self.collect.is_none() || spindles.is_none(), "disks that turn collect no garbage", "collect"),
            (
                self.times_ns.len() <= TIMES_MAX && self.times_ns.iter().all(|time_ns| *time_ns <= HOUR_NS),
                "must be at most 10,000 of an hour at most",
                "times_ns",
            ),
            (
                self.distribution != DistributionSpec::Empirical || !self.times_ns.is_empty(),
                "an empirical distribution has some",
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
                        "must be more than the mean, and 14 times as much at most",
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

    /// Of a lognormal distribution with this mean and 99th percentile: the logarithm of their ratio is zσ − σ²/2, with z of the normal
    /// distribution. None where there is none, which is beyond 14.97 times the mean.
    #[allow(clippy::cast_precision_loss)] // an hour's nanoseconds are below 2^53
    fn sigma(&self) -> Option<f64> {
        let ratio = self.p99_ns? as f64 / self.service_ns.max(1) as f64;
        let sigma = NORMAL_P99 - (NORMAL_P99 * NORMAL_P99 - 2.0 * ratio.ln()).sqrt();
        (ratio > 1.0 && ratio <= 14.0).then_some(sigma)
    }
}
