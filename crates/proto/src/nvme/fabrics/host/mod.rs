//! The host's side: the admin queue that brings a controller up, a discovery client, and of I/O queues all but the data.

mod admin_channel;
mod admin_queue;
mod authenticate;
mod connection;
mod discovery;
mod io_commands;
mod io_control;

pub use admin_queue::AdminQueue;
pub use connection::{Answer, Capsules, Connection, ConnectionEvent};
pub use discovery::Discovery;
pub use io_commands::{DataTransfer, IoCommands};
pub use io_control::{ControlOutcome, IoControl};

use alloc::string::String;
use core::time::Duration;

use crate::{
    Geometry,
    nvme::{
        ControllerId,
        auth::{Agreed, HostConfig},
    },
};

/// How a host connects, whatever the transport.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    pub subnqn: String,
    pub hostnqn: String,
    pub host_id: [u8; 16],
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
    /// Lets the controller complete reads without a response.
    pub disable_sq_flow_control: bool,
}

impl SessionConfig {
    pub fn new(subnqn: impl Into<String>, hostnqn: impl Into<String>, host_id: [u8; 16]) -> Self {
        Self {
            subnqn: subnqn.into(),
            hostnqn: hostnqn.into(),
            host_id,
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
    pub cntlid: ControllerId,
    /// How the host proved itself; `None` where nobody asked.
    pub authentication: Option<Agreed>,
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
