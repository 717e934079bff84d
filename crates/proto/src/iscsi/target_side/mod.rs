//! The target's side of an iSCSI connection: login, then commands until logout or loss.

mod collect;
mod connection;
mod control;
mod full_feature;
mod link;
mod login;
mod respond;
mod sessions;

use alloc::{rc::Rc, vec::Vec};
use core::{fmt, net::IpAddr, time::Duration};

use super::{Credentials, DiscoveredTarget, Wishes, pdu::control::LoginStatus};
use crate::{
    Shared,
    scsi::{Device, ScsiBackend},
};

pub use connection::Connection;
pub use sessions::Sessions;

/// What an iSCSI target asks of the server behind it, beyond its volumes.
pub trait IscsiBackend: ScsiBackend {
    /// The targets that `initiator` may log in to, for SendTargets.
    fn targets(&mut self, initiator: &str) -> Vec<DiscoveredTarget>;
    /// Who must prove what before it may discover.
    fn discovery_auth(&mut self, initiator: &str) -> AuthPolicy;
    /// Whether `initiator` may log in to `target`, and to what.
    fn login(&mut self, initiator: &str, target: &str) -> Result<LoginGrant, LoginRefusal>;
    /// Fills `bytes` for a challenge; a peer must not be able to guess them.
    fn random(&mut self, bytes: &mut [u8]);
}

/// What a session works on.
#[derive(Clone)]
pub struct LoginGrant {
    pub device: Rc<dyn Shared<Device>>,
    pub sessions: Rc<dyn Shared<Sessions>>,
    pub portal_group_tag: u16,
    pub auth: AuthPolicy,
    /// Where the initiator comes from.
    pub address: IpAddr,
}

impl fmt::Debug for LoginGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginGrant").field("portal_group_tag", &self.portal_group_tag).finish_non_exhaustive()
    }
}

/// How an initiator authenticates.
#[derive(Clone, Debug, Default)]
pub enum AuthPolicy {
    #[default]
    None,
    Chap {
        initiator: Credentials,
        /// Ours, where an initiator asks for them (mutual CHAP).
        target: Option<Credentials>,
    },
}

/// Why an initiator may not log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    NoSuchTarget,
    NotAuthorized,
    Unavailable,
}

impl LoginRefusal {
    fn status(self) -> LoginStatus {
        match self {
            Self::NoSuchTarget => LoginStatus::NOT_FOUND,
            Self::NotAuthorized => LoginStatus::AUTHORIZATION_FAILURE,
            Self::Unavailable => LoginStatus::SERVICE_UNAVAILABLE,
        }
    }
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    pub wishes: Wishes,
    /// Commands that an initiator may have outstanding, 1 to 1024. With `IMMEDIATE_TASKS` it bounds the `IoId`s.
    pub command_window: u16,
    /// Time from the connection's begin to the end of its login.
    pub login_timeout: Duration,
    /// An initiator silent for so long is pinged, and given up after as long again.
    pub ping_interval: Duration,
}

/// Immediate commands that may be outstanding beside the window (RFC 7143 §4.2.2.1 wants at least one).
pub const IMMEDIATE_TASKS: u16 = 16;

impl Default for Config {
    fn default() -> Self {
        Self {
            wishes: Wishes::default(),
            command_window: 256,
            login_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(30),
        }
    }
}
