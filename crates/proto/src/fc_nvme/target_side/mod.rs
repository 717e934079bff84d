//! The target's side of FC-NVMe: login, an association with its admin queue and an I/O queue, until logout or loss of
//! the connection.

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

/// The functions of the server that an FC-NVMe target needs in addition to those of NVMe.
pub trait FcNvmeBackend: NvmeBackend {
    /// Whether `initiator` may log in to `target`. [`NvmeBackend::subsystem`] decides which host may use which
    /// subsystem.
    fn port_login(&mut self, initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal>;
}

/// The objects that a login may use. They belong to a port; Connect names the subsystem.
pub type LoginGrant = fc::LoginGrant<()>;

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limits of our port. Its names are those of the port that the initiator logs in to.
    pub port: Port,
    /// Maximum bytes that one `NVMe_XFER_RDY` requests.
    pub burst_len: u32,
    /// MDTS: maximum bytes of a command. A power of two, at least 8192, because 4096 would give an MDTS of 0, which
    /// means no limit.
    pub max_transfer_bytes: u32,
    /// Maximum entries of an I/O queue.
    pub max_queue_entries: u16,
    /// Maximum time from the start of the connection to the end of its login.
    pub login_timeout: Duration,
    /// Maximum time from a connection's creation to its Connect command, and from there to the end of authentication.
    pub connect_timeout: Duration,
    /// The connection ends if the initiator is silent for this time.
    pub silence: Duration,
    /// Whether frames carry a CRC, which is checked. A driver that never damages data does not need it.
    pub has_crc: bool,
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
            has_crc: true,
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
