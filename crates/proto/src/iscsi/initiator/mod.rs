//! The initiator's side of iSCSI: a `Session` that does I/O, and a `Discovery` that asks for targets.

mod commands;
mod discovery;
mod link;
mod login;
mod session;

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{Credentials, Wishes};

pub use discovery::Discovery;
pub use session::Session;

/// Which target to log in to, with which name, and how.
#[derive(Clone, Debug)]
pub struct Config {
    pub initiator_name: String,
    /// Of no use to a discovery.
    pub target_name: String,
    pub lun: u16,
    /// With the initiator's name it names the initiator port: a second session with the same ends the first
    /// (RFC 7143 §6.3.5).
    pub isid: [u8; 6],
    pub chap: Option<Chap>,
    pub wishes: Wishes,
    /// Most I/Os outstanding, 1 to 4096.
    pub queue_depth: u16,
    /// Largest read or write that is offered to the caller, in bytes, where the target tells no smaller limit.
    pub max_io_len: u32,
    /// Time from the connection's begin to `ready`.
    pub login_timeout: Duration,
    /// A target silent for so long is pinged, and given up after as long again.
    pub ping_interval: Duration,
    /// A command that takes longer is aborted and sent again: another initiator may have ended it, without notice (SAM-5 §5.6).
    pub command_timeout: Duration,
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
        }
    }
}

/// How we prove who we are, and whether the target must.
#[derive(Clone, Debug)]
pub struct Chap {
    pub initiator: Credentials,
    /// Mutual CHAP.
    pub target: Option<Mutual>,
}

/// What the target must know, and an unpredictable challenge of at least 16 bytes for it.
#[derive(Clone, Debug)]
pub struct Mutual {
    pub credentials: Credentials,
    pub identifier: u8,
    pub challenge: Vec<u8>,
}
