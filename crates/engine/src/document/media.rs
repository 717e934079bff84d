//! Media as a model, in real time and in virtual.

use std::time::Duration;

use iotax_node::{
    failure::Failure,
    volume::{MediaModel, Spindles},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// More than any array has; each disk that turns keeps a few bytes.
const SERVERS_MAX: u32 = 65_536;
const MILLION: u32 = 1_000_000;
/// No operation takes longer.
const HOUR_NS: u64 = 3_600_000_000_000;

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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DistributionSpec {
    #[default]
    Constant,
    /// From 0 to twice the mean
    Uniform,
    Exponential,
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
        ] {
            if !holds {
                return Err(Failure::usage(message, format!("{place}.{field}")));
            }
        }
        let mean = Duration::from_nanos(self.service_ns);
        let (service, spread) = match self.distribution {
            DistributionSpec::Constant | DistributionSpec::Exponential => (mean, Duration::ZERO),
            DistributionSpec::Uniform => (Duration::ZERO, mean.saturating_mul(2)),
        };
        Ok(MediaModel {
            service,
            spread,
            exponential: self.distribution == DistributionSpec::Exponential,
            slow_chance: 0,
            slow: Duration::ZERO,
            servers: self.servers as usize,
            spindles: spindles.map(|disk| Spindles {
                seek: Duration::from_nanos(disk.seek_ns),
                turn: Duration::from_nanos(disk.turn_ns),
                read_hits: u64::from(disk.read_hits_ppm),
                destage: disk.destage_ppm.map(u64::from),
            }),
        })
    }
}
