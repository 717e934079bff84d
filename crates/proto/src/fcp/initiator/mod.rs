//! The initiator's side of FCP: a session that logs in, does I/O and leaves.

mod commands;
mod session;

use core::time::Duration;

pub use session::Session;

use crate::fc::{Port, PortName};

/// Which target to log in to, with which name, and how.
#[derive(Clone, Debug)]
pub struct Config {
    pub port: Port,
    pub target: PortName,
    pub lun: u16,
    /// Tags, 1 to 4096; of these at most 1024 are outstanding.
    pub queue_depth: u16,
    /// Largest read or write that is offered to the caller, in bytes, where the target tells no smaller limit.
    pub max_io_len: u32,
    /// Time from the connection's begin to `ready`.
    pub login_timeout: Duration,
    /// A target silent for so long is asked for an ECHO, and given up after as long again.
    pub echo_interval: Duration,
    /// A command unanswered for so long is aborted, and the target given up where that is not answered in as long again.
    pub command_timeout: Duration,
}

impl Config {
    pub fn new(port: Port, target: PortName, lun: u16) -> Self {
        Self {
            port,
            target,
            lun,
            queue_depth: 128,
            max_io_len: 4 << 20,
            login_timeout: Duration::from_secs(15),
            echo_interval: Duration::from_secs(10),
            command_timeout: Duration::from_secs(60),
        }
    }
}
