//! Names of SCSI ports (SPC-5 §7.6.4.2 for the TransportID).

use alloc::{format, vec::Vec};

use crate::{
    fc::PortName,
    scsi::{Ports, Transport},
};

/// Fibre Channel, and FCP-4 without a version.
const TRANSPORT: Transport = Transport { protocol_identifier: 0, version_descriptor: 0x0a40 };

pub(super) fn ports(initiator: PortName, target: PortName, node: PortName) -> Ports {
    let mut initiator_id: Vec<u8> = alloc::vec![0; 24];
    initiator_id[8..16].copy_from_slice(&initiator.0.to_be_bytes());
    Ports {
        initiator: format!("naa.{initiator}"),
        initiator_id,
        target: format!("naa.{target}"),
        target_device: format!("naa.{node}"),
        relative_target_port: 1,
        transport: TRANSPORT,
    }
}
