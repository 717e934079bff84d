//! Whom a device knows its sessions by.

use alloc::{string::String, vec::Vec};

/// The two ends of a nexus, as its transport names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Name of the SCSI initiator port.
    pub initiator: String,
    /// The TransportID of the initiator port (SPC-5 §7.6.4).
    pub initiator_id: Vec<u8>,
    /// Name of the SCSI target port.
    pub target: String,
    /// Name of the SCSI device that the target port belongs to.
    pub target_device: String,
    pub relative_target_port: u16,
    pub transport: Transport,
}

/// A SCSI transport protocol by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The PROTOCOL IDENTIFIER (SPC-5 §7.6.1).
    pub protocol_identifier: u8,
    /// The VERSION DESCRIPTOR (SPC-5 §6.6.2).
    pub version_descriptor: u16,
}

/// Names a nexus within its device, for as long as the session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NexusId(pub(super) u64);
