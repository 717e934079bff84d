//! Names of SCSI ports (RFC 7143 §4.4).

use alloc::{format, string::ToString, vec::Vec};

use crate::scsi::{Ports, Transport};

const TRANSPORT: Transport = Transport { protocol_identifier: 5, version_descriptor: 0x0960 };

pub(super) fn ports(initiator: &str, isid: [u8; 6], target: &str, portal_group_tag: u16) -> Ports {
    let mut number = [0; 8];
    number[2..].copy_from_slice(&isid);
    let initiator = format!("{initiator},i,0x{:012x}", u64::from_be_bytes(number));
    Ports {
        initiator_id: transport_id(&initiator),
        initiator,
        target: format!("{target},t,0x{portal_group_tag:04x}"),
        target_device: target.to_string(),
        relative_target_port: portal_group_tag,
        transport: TRANSPORT,
    }
}

/// SPC-5 §7.6.4.6: format 01b, with the ISID in the name.
fn transport_id(initiator: &str) -> Vec<u8> {
    let name_len = (initiator.len() + 1).next_multiple_of(4).clamp(20, 244);
    let mut id = alloc::vec![0x40 | TRANSPORT.protocol_identifier, 0];
    id.extend_from_slice(&(name_len as u16).to_be_bytes());
    id.extend(initiator.bytes().take(name_len - 1));
    id.resize(4 + name_len, 0);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_by_the_session_and_the_portal_group() {
        let ports = ports("iqn.x:host", [0x80, 0, 0, 1, 0, 2], "iqn.x:disk", 1);
        assert_eq!(
            (ports.initiator.as_str(), ports.target.as_str()),
            ("iqn.x:host,i,0x800000010002", "iqn.x:disk,t,0x0001")
        );
        assert_eq!((ports.target_device.as_str(), ports.relative_target_port), ("iqn.x:disk", 1));
        assert_eq!(ports.initiator_id, *b"\x45\0\0\x1ciqn.x:host,i,0x800000010002\0");
    }
}
