//! The initiator's side of FCP: a session that logs in, does I/O and logs out.

mod commands;
mod session;

use core::time::Duration;

pub use session::Session;

use crate::fc::{Port, PortName};

/// Which target and LUN to use, and how to log in.
#[derive(Clone, Debug)]
pub struct Config {
    pub port: Port,
    pub target: PortName,
    pub lun: u16,
    /// Number of tags, 1 to 4096; at most 1024 commands are outstanding.
    pub queue_depth: u16,
    /// Maximum length of a read or write in bytes, if the target does not report a smaller limit.
    pub max_io_len: u32,
    /// Maximum time from the start of the connection to `ready`.
    pub login_timeout: Duration,
    /// If the target is silent for this time, it is sent an ECHO. If it is silent for the same time again, the session
    /// ends.
    pub echo_interval: Duration,
    /// A command without response for this time is aborted. If the abort is not answered within the same time, the
    /// session ends.
    pub command_timeout: Duration,
    /// Whether frames carry a CRC, which is checked. A driver that never damages data does not need it.
    pub has_crc: bool,
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
            has_crc: true,
        }
    }
}
