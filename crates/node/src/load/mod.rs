//! The load generator: what one thread of it does is a [`LoadNode`].

mod access;
pub mod addresses;
pub mod config;
pub mod connector;
pub mod endpoint;
pub mod facts;
mod fill;
mod generator;
pub mod histogram;
pub mod ledger;
pub mod link;
pub mod local;
pub mod mix;
pub mod pacing;

pub mod recorder;
mod run;
mod scan;
pub mod schedule;
pub mod signature;

mod trouble;
pub mod verdict;
pub mod verify;
mod worker;

pub use access::Access;
pub use config::{Allocate, LoadConfig, LocalUnit, RunConfig, TaskConfig};
pub use endpoint::{Endpoint, Unit};
pub use facts::Facts;
pub use generator::{LoadNode, Outcome};
pub use histogram::Sparse;
pub use pacing::{Arrivals, Arrived, Open, Pacing};
pub use recorder::{Latency, Measured, Sample, Side, StreamResult};
pub use verify::{Content, Tally};
