//! Whom a device knows its sessions by.

use alloc::string::{String, ToString};

/// The two ends of a nexus, as its transport names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Name of the SCSI initiator port; of iSCSI's, `iqn…,i,0x<ISID>` (RFC 7143 §4.4.2).
    pub initiator: String,
    /// Name of the SCSI target port; of iSCSI's, `iqn…,t,0x<portal group tag>`.
    pub target: String,
    pub relative_target_port: u16,
    /// The VERSION DESCRIPTOR of the transport (SPC-5 §6.6.2).
    pub version_descriptor: u16,
}

impl Ports {
    pub fn new(initiator: &str, target: &str, relative_target_port: u16, version_descriptor: u16) -> Self {
        Self { initiator: initiator.to_string(), target: target.to_string(), relative_target_port, version_descriptor }
    }
}

/// Names a nexus within its device, for as long as the session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NexusId(pub(super) u64);
