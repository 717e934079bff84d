//! The initiator's side of FC-NVMe: a session that logs in, makes an association, does I/O on one queue and leaves.

mod commands;
mod session;

use core::time::Duration;

use crate::{
    fc::{Port, PortName},
    nvme::fabrics::host::SessionConfig,
};

pub use session::Session;

/// Which target to log in to, with which name, and how.
#[derive(Clone, Debug)]
pub struct Config {
    pub port: Port,
    pub target: PortName,
    /// Of the host and its controller; `io_queues` is not asked for: there is one.
    pub session: SessionConfig,
    /// At least one of so many responses is to be an extended one, 1 and up.
    pub ersp_ratio: u16,
    /// Time from the connection's begin to `ready`.
    pub login_timeout: Duration,
    /// A target silent for so long is asked for an ECHO, and given up after as long again.
    pub echo_interval: Duration,
    /// An I/O unanswered for so long ends its association, and the target is given up where that is not answered in as long again.
    pub command_timeout: Duration,
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
        }
    }
}
