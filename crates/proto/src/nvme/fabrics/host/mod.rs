//! The host's side: the admin queue that brings a controller up, a discovery client, and of I/O queues all but the data.
//!
//! What a transport gives a host: its connection carries capsules.

mod admin_channel;
mod admin_queue;
mod discovery;
mod io_commands;

pub use self::io_commands::{ControlOutcome, IoControl};
pub use admin_queue::AdminQueue;
pub use discovery::Discovery;
pub use io_commands::{DataTransfer, IoCommands};

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use crate::{
    Geometry, Transmit, Violation,
    nvme::{
        CommandId, ControllerId, Cqe, QueueId, Sqe,
        auth::{Agreed, HostConfig},
        command::{Connect, ConnectData, Sgl},
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

/// Sends commands other than I/O, one at a time.
pub trait Capsules {
    /// Sends a command with `data` in its capsule; the controller gives `reads` bytes. The last one was answered.
    fn send(&mut self, sqe: &Sqe, data: &[u8], reads: u32);
}

/// A connection of an admin queue.
pub trait Connection: Capsules {
    /// Takes bytes off the front until there is something to tell; `None` when more are needed.
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<ConnectionEvent>, Violation>;
    fn transmit(&mut self) -> &mut Transmit;
}

/// What a connection tells.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// Capsules may be sent from now on.
    Open,
    Answer(Answer),
}

/// The answer to the command outstanding.
#[derive(Debug)]
pub struct Answer {
    pub cqe: Cqe,
    /// All that was asked for, where the command succeeded.
    pub data: Vec<u8>,
}

/// Sends Connect for queue `qid` with the command identifier `cid`.
fn connect(
    capsules: &mut impl Capsules,
    config: &SessionConfig,
    cntlid: Option<ControllerId>,
    qid: QueueId,
    sq_size: u16,
    cid: CommandId,
) {
    let connect = Connect {
        record_format: 0,
        qid,
        sq_size,
        disable_sq_flow_control: config.disable_sq_flow_control,
        keep_alive_ms: if qid == QueueId::ADMIN {
            u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX)
        } else {
            0
        },
    };
    let data = ConnectData {
        host_id: config.host_id,
        cntlid: cntlid.unwrap_or(ControllerId::ANY),
        subnqn: config.subnqn.clone(),
        hostnqn: config.hostnqn.clone(),
    };
    let mut sqe: Sqe = connect.sqe(cid);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: ConnectData::LEN as u32 });
    capsules.send(&sqe, &data.encode(), 0);
}

/// The controller did not answer in time.
fn timed_out(rule: &'static str) -> Violation {
    Violation::timed_out(rule)
}
