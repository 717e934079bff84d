//! The host's side: the admin queue, which brings a controller up, a discovery client, and everything of I/O queues
//! except their data.
//!
//! `Capsules` and `Connection` are what a transport provides to a host.

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

/// How a host connects, over any transport.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    pub subnqn: String,
    pub hostnqn: String,
    pub host_id: [u8; 16],
    /// Maximum outstanding I/Os on an I/O queue.
    pub depth: u16,
    /// Number of I/O queues to request.
    pub io_queues: u16,
    /// `None` selects the first active namespace.
    pub nsid: Option<u32>,
    /// Zero means none. A controller that is silent for so long is lost: Keep Alive is sent after half of it, and must be
    /// answered within the other half.
    pub keep_alive: Duration,
    /// How long the controller may take to answer during set-up, during shutdown and on the admin queue.
    pub admin_timeout: Duration,
    /// How long an I/O queue with outstanding I/Os may be silent.
    pub io_timeout: Duration,
    /// How the host authenticates itself if a controller requires it.
    pub auth: Option<HostConfig>,
    /// Lets the controller complete reads without a response.
    pub disable_sq_flow_control: bool,
    /// Reads the ANA state of the namespace, and follows its changes, if the subsystem reports it.
    pub watches_access: bool,
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
            watches_access: false,
        }
    }
}

/// Parameters of a controller that the admin queue read. I/O queues need them.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    pub cntlid: ControllerId,
    /// How the host authenticated itself; `None` if the controller did not require it.
    pub authentication: Option<Agreed>,
    pub serial: String,
    pub model: String,
    pub firmware: String,
    /// I/O queues granted. Their IDs are 1 to this number.
    pub io_queues: u16,
    /// Maximum bytes of in-capsule data.
    pub in_capsule_bytes: u32,
    /// Maximum bytes of data of a command.
    pub max_transfer_bytes: u32,
    /// Largest submission queue, 0's based.
    pub max_sq_size: u16,
    /// Optional commands: the field ONCS.
    pub optional_commands: u16,
    /// Disconnect is supported.
    pub has_disconnect: bool,
    /// How long after a host has lost its connections the controller may still execute commands: until it notices by
    /// its keep-alive timer, two or three timeouts at most, and has ended them (NVMe base 2.1 §9.6).
    pub quiet_after: Duration,
    pub nsid: u32,
    pub block_shift: u8,
    pub nguid: [u8; 16],
    pub geometry: Geometry,
}

/// Sends commands other than I/O, one at a time.
pub trait Capsules {
    /// Sends a command with `data` in its capsule, to which the controller returns `reads` bytes. The last one must
    /// have been answered.
    fn send(&mut self, sqe: &Sqe, data: &[u8], reads: u32);
}

/// A connection of an admin queue.
pub trait Connection: Capsules {
    /// Takes bytes off the front until there is an event to report; `None` if more are needed.
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<ConnectionEvent>, Violation>;
    fn transmit(&mut self) -> &mut Transmit;
    /// Sends an Asynchronous Event Request, which stays outstanding beside other commands. The last one must have been
    /// answered. A connection that carries one command at a time sends nothing.
    fn request_event(&mut self, _cid: CommandId) {}
}

/// An event of a connection.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// Capsules may be sent from now on.
    Open,
    Answer(Answer),
    /// The answer to the Asynchronous Event Request.
    Notice(Cqe),
}

/// The answer to the outstanding command.
#[derive(Debug)]
pub struct Answer {
    pub cqe: Cqe,
    /// All data that the command requested, if it succeeded.
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
