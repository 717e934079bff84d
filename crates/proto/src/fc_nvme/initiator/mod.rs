//! The initiator's side of FC-NVMe: a session that logs in, creates an association, does I/O on one queue and logs out.

mod commands;
mod session;

use core::time::Duration;

use crate::{
    fc::{Port, PortName},
    nvme::fabrics::host::SessionConfig,
};

pub use session::Session;

/// Which target to use, and how to log in.
#[derive(Clone, Debug)]
pub struct Config {
    pub port: Port,
    pub target: PortName,
    /// Settings of the host and its controller. `io_queues` is ignored, because there is one I/O queue.
    pub session: SessionConfig,
    /// At least one of this many responses must be an extended one; 1 or more.
    pub ersp_ratio: u16,
    /// Maximum time from the start of the connection to `ready`.
    pub login_timeout: Duration,
    /// If the target is silent for this time, it is sent an ECHO. If it is silent for the same time again, the session
    /// ends.
    pub echo_interval: Duration,
    /// An I/O without response for this time ends its association. If that is not answered within the same time, the
    /// session ends.
    pub command_timeout: Duration,
    /// Whether frames carry a CRC, which is checked. A driver that never damages data does not need it.
    pub has_crc: bool,
}

impl Config {
    pub fn new(port: Port, target: PortName, session: SessionConfig) -> Self {
        Self {
            port,
            target,
            session,
            ersp_ratio: 8,
            login_timeout: Duration::from_secs(15),
            echo_interval: Duration::from_secs(10),
            command_timeout: Duration::from_secs(60),
            has_crc: true,
        }
    }
}
