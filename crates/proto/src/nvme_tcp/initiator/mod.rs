//! The host's side: what `nvme::fabrics::host` does, on TCP connections.
//!
//! A session is an `AdminQueue`; when it tells `ready`, its `ControllerInfo` makes as many `IoQueue`s as were granted, each a
//! connection of its own.

mod admin;
mod exchange;
mod io_queue;
mod link;

use alloc::string::String;

pub use io_queue::IoQueue;
pub use link::Link;

use super::pdu::Digests;
use crate::nvme::fabrics::host;

pub type AdminQueue = host::AdminQueue<Link>;
pub type Discovery = host::Discovery<Link>;

/// How a host connects.
#[derive(Clone, Debug)]
pub struct ConnectConfig {
    /// Asked for; the controller may decline either.
    pub digests: Digests,
    pub session: host::SessionConfig,
}

impl ConnectConfig {
    pub fn new(subnqn: impl Into<String>, hostnqn: impl Into<String>, host_id: [u8; 16]) -> Self {
        Self { digests: Digests::default(), session: host::SessionConfig::new(subnqn, hostnqn, host_id) }
    }
}
