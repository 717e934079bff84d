//! The initiator's side of iSCSI: a `Session` for I/O, and a `Discovery` that lists targets.

mod commands;
mod discovery;
mod link;
mod login;
mod session;
mod watch;

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{Credentials, Wishes};

pub use discovery::Discovery;
pub use session::Session;

/// Which target and LUN to use, and how to log in.
#[derive(Clone, Debug)]
pub struct Config {
    pub initiator_name: String,
    /// Ignored by a discovery.
    pub target_name: String,
    pub lun: u16,
    /// Together with the initiator's name it identifies the initiator port. A second session with the same port ends
    /// the first (RFC 7143 §6.3.5).
    pub isid: [u8; 6],
    pub chap: Option<Chap>,
    pub wishes: Wishes,
    /// Maximum outstanding I/Os, 1 to 4096.
    pub queue_depth: u16,
    /// Maximum length of a read or write in bytes, if the target does not report a smaller limit.
    pub max_io_len: u32,
    /// Maximum time from the start of the connection to `ready`.
    pub login_timeout: Duration,
    /// If the target is silent for this time, it is pinged. If it is silent for the same time again, the session ends.
    pub ping_interval: Duration,
    /// A command that takes longer is aborted and resent, because another initiator may have ended it without notice
    /// (SAM-5 §5.6).
    pub command_timeout: Duration,
    /// Follow how the logical unit can be accessed through the target port, if the target reports it (SPC-4 §5.15). Then an
    /// I/O that it refuses for want of access was not executed.
    pub watches_access: bool,
}

impl Config {
    pub fn new(initiator_name: &str, target_name: &str, lun: u16) -> Self {
        Self {
            initiator_name: initiator_name.into(),
            target_name: target_name.into(),
            lun,
            // Qualifier of the random format (RFC 7143 §11.12.5).
            isid: [0x80, 0, 0, 0, 0, 1],
            chap: None,
            wishes: Wishes::default(),
            queue_depth: 128,
            max_io_len: 4 << 20,
            login_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(10),
            command_timeout: Duration::from_secs(60),
            watches_access: false,
        }
    }
}

/// How the initiator authenticates itself, and whether the target must too.
#[derive(Clone, Debug)]
pub struct Chap {
    pub initiator: Credentials,
    /// Mutual CHAP.
    pub target: Option<Mutual>,
}

/// The credentials that the target must have, and a challenge for it: unpredictable, at least 16 bytes.
#[derive(Clone, Debug)]
pub struct Mutual {
    pub credentials: Credentials,
    pub identifier: u8,
    pub challenge: Vec<u8>,
}
