//! The target's side of an iSCSI connection: login, then commands until logout or loss of the connection.

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

/// The functions of the server that an iSCSI target needs in addition to those of SCSI.
pub trait IscsiBackend: ScsiBackend {
    /// The targets that `initiator` may log in to, for SendTargets.
    fn targets(&mut self, initiator: &str) -> Vec<DiscoveredTarget>;
    /// How `initiator` must authenticate itself for discovery.
    fn discovery_auth(&mut self, initiator: &str) -> AuthPolicy;
    /// Whether `initiator` may log in to `target`, and what it may use.
    fn login(&mut self, initiator: &str, target: &str) -> Result<LoginGrant, LoginRefusal>;
    /// Fills `bytes` for a challenge. A peer must not be able to guess them.
    fn random(&mut self, bytes: &mut [u8]);
}

/// The objects that a session may use.
#[derive(Clone)]
pub struct LoginGrant {
    pub device: Rc<dyn Shared<Device>>,
    pub sessions: Rc<dyn Shared<Sessions>>,
    pub portal_group_tag: u16,
    pub auth: AuthPolicy,
    /// The initiator's address.
    pub address: IpAddr,
}

impl fmt::Debug for LoginGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginGrant").field("portal_group_tag", &self.portal_group_tag).finish_non_exhaustive()
    }
}

/// How an initiator authenticates itself.
#[derive(Clone, Debug, Default)]
pub enum AuthPolicy {
    #[default]
    None,
    Chap {
        initiator: Credentials,
        /// The target's own credentials, for initiators that require mutual CHAP.
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
    /// Maximum outstanding commands of an initiator, 1 to 1024. Together with `IMMEDIATE_TASKS` it limits the `IoId`s.
    pub command_window: u16,
    /// Maximum time from the start of the connection to the end of its login.
    pub login_timeout: Duration,
    /// If the initiator is silent for this time, it is pinged. If it is silent for the same time again, the connection
    /// ends.
    pub ping_interval: Duration,
}

/// Maximum outstanding immediate commands, in addition to the window (RFC 7143 §4.2.2.1 requires at least one).
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
