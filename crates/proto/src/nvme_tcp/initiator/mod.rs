//! The host's side: an admin queue that brings a controller up, I/O queues, a discovery client.
//!
//! A session is an `AdminQueue`; when it tells `ready`, its `ControllerInfo` makes as many `IoQueue`s as were granted, each a
//! connection of its own.

mod admin_channel;
mod admin_queue;
mod authenticate;
mod discovery;
mod io_queue;
mod link;

use alloc::string::String;
use core::time::Duration;

pub use admin_queue::AdminQueue;
pub use discovery::Discovery;
pub use io_queue::IoQueue;

use super::pdu::Digests;
use crate::{
    Geometry,
    nvme::auth::{Agreed, HostConfig},
};

/// How a host connects.
#[derive(Clone, Debug)]
pub struct ConnectConfig {
    pub subnqn: String,
    pub hostnqn: String,
    pub host_id: [u8; 16],
    /// Asked for; the controller may decline either.
    pub digests: Digests,
    /// I/Os outstanding on an I/O queue.
    pub depth: u16,
    /// I/O queues asked for.
    pub io_queues: u16,
    /// `None` takes the first active one.
    pub nsid: Option<u32>,
    /// Zero for none.
    pub keep_alive: Duration,
    /// How long the controller may take to answer at set-up, at the end, and on the admin queue.
    pub admin_timeout: Duration,
    /// How long an I/O queue with I/Os outstanding may be silent.
    pub io_timeout: Duration,
    /// How the host proves itself where a controller asks for it.
    pub auth: Option<HostConfig>,
    /// Lets the controller complete reads without a response PDU.
    pub disable_sq_flow_control: bool,
}

impl ConnectConfig {
    pub fn new(subnqn: impl Into<String>, hostnqn: impl Into<String>, host_id: [u8; 16]) -> Self {
        Self {
            subnqn: subnqn.into(),
            hostnqn: hostnqn.into(),
            host_id,
            digests: Digests::default(),
            depth: 128,
            io_queues: 1,
            nsid: None,
            keep_alive: Duration::from_secs(30),
            admin_timeout: Duration::from_secs(10),
            io_timeout: Duration::from_secs(30),
            auth: None,
            disable_sq_flow_control: true,
        }
    }
}

/// What the admin queue learned; an I/O queue is made from it.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    pub cntlid: u16,
    /// How the host proved itself; `None` where nobody asked.
    pub authentication: Option<Agreed>,
    /// Of the admin queue's connection; those of I/O queues ask for the same.
    pub digests: Digests,
    /// Most bytes in an H2CData PDU, MAXH2CDATA.
    pub max_h2c_data_bytes: u32,
    pub serial: String,
    pub model: String,
    pub firmware: String,
    /// I/O queues granted: queue IDs 1 to this.
    pub io_queues: u16,
    /// Most bytes of in-capsule data.
    pub in_capsule_bytes: u32,
    /// Most bytes of a command.
    pub max_transfer_bytes: u32,
    /// Largest submission queue, 0's based.
    pub max_sq_size: u16,
    /// Optional commands, the field ONCS.
    pub optional_commands: u16,
    /// The command Disconnect is supported.
    pub has_disconnect: bool,
    pub nsid: u32,
    pub block_shift: u8,
    pub nguid: [u8; 16],
    pub geometry: Geometry,
}
