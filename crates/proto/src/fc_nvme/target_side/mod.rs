//! The target's side of FC-NVMe: login, an association with its admin queue and an I/O queue, until logout or loss.

mod association;
mod connection;
mod lane;

use core::time::Duration;

use super::{Port, PortName};
use crate::{
    fc,
    nvme::{NvmeBackend, fabrics::controller::QueueConfig, identify::ControllerLimits},
};

pub use connection::Connection;

pub use crate::fc::{LoginRefusal, Logins};

/// What an FC-NVMe target asks of the server behind it, beyond what every NVMe target does.
pub trait FcNvmeBackend: NvmeBackend {
    /// Whether `initiator` may log in to `target`. Which host may use which subsystem, [`NvmeBackend::subsystem`] says.
    fn port_login(&mut self, initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal>;
}

/// What a login is to: a port, and what its subsystem is, Connect says.
pub type LoginGrant = fc::LoginGrant<()>;

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// How much we take; its names are those of the port that is logged in to.
    pub port: Port,
    /// Most bytes that one `NVMe_XFER_RDY` asks for.
    pub burst_len: u32,
    /// MDTS: most bytes of a command; a power of two, at least 8192, as an MDTS of 0 (4096 bytes) means no limit.
    pub max_transfer_bytes: u32,
    /// Entries of an I/O queue at most.
    pub max_queue_entries: u16,
    /// Time from the connection's begin to the end of its login.
    pub login_timeout: Duration,
    /// From a connection's creation to its Connect command, and as long again to the end of an authentication.
    pub connect_timeout: Duration,
    /// An initiator silent for so long is given up.
    pub silence: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: Port::new(PortName(0), PortName(0)),
            burst_len: 1 << 20,
            max_transfer_bytes: 1 << 20,
            max_queue_entries: 1024,
            login_timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(10),
            silence: Duration::from_secs(60),
        }
    }
}

impl Config {
    fn queue(&self) -> QueueConfig {
        QueueConfig {
            limits: ControllerLimits {
                in_capsule_bytes: 0,
                max_transfer_bytes: self.max_transfer_bytes,
                max_queue_entries: self.max_queue_entries,
            },
            admin_in_capsule_bytes: 0,
            connect_timeout: self.connect_timeout,
        }
    }
}
