//! The load generator: a [`LoadNode`] is one thread's share of it.

pub mod addresses;
pub mod config;
pub mod connector;
mod direct;
pub mod endpoint;
pub mod facts;
mod fan;
mod fill;
pub mod gaps;
mod generator;
pub mod histogram;
pub mod ledger;
pub mod link;
pub mod local;
pub mod mix;
mod oltp;
pub mod pacing;
pub mod queue;
mod stream;

mod read_back;
pub mod recorder;
mod run;
mod scan;
pub mod schedule;
pub(crate) mod settings;
pub mod signature;

mod trouble;
pub mod verdict;
pub mod verify;
mod worker;

pub use addresses::Cursor;
pub use config::{Allocate, LoadConfig, LocalUnit, RunConfig, TaskConfig};
pub(crate) use direct::Direct;
pub use endpoint::{Endpoint, Unit};
pub use facts::Facts;
pub use fan::{AfterLoss, Fan, PathCounts, PathPolicy};
pub use gaps::{Gap, Gaps};
pub use generator::{LoadNode, PathReport, TaskOutcome};
pub use histogram::Sparse;
pub use oltp::{OltpConfig, OltpCounts};
pub use pacing::{Arrivals, Arrived, Open, Pacing};
pub use recorder::{DirectionResult, Latency, Measured, Sample, StreamResult};
pub use stream::StreamConfig;
pub use verify::{Content, Tally};
