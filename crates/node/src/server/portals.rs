//! Exports as the user configures them, and the listeners that they need.

use std::net::SocketAddr;

use iotax_proto::nfs::common::Squash;

use super::groups::Group;
use crate::{
    failure::Failure,
    protocols::{ExportOptions, Protocol},
};

/// A volume exported by one protocol.
#[derive(Clone, Debug)]
pub struct Export {
    pub protocol: Protocol,
    /// Index of the volume.
    pub volume: usize,
    pub read_only: bool,
    /// Address to listen on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// The groups that have access; `None`: everyone who can reach the listener.
    pub groups: Option<Vec<Group>>,
    /// Address at which portmapper calls are answered for it.
    pub portmap: Option<SocketAddr>,
    /// How the identities of NFS callers are mapped.
    pub squash: Squash,
    pub options: ExportOptions,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Protocol(Protocol),
    Portmap,
}

/// One listening socket. The driver's listeners are in the same order.
#[derive(Clone, Debug)]
pub struct Portal {
    pub service: Service,
    /// The address to listen on; once listening, the actual address.
    pub address: SocketAddr,
    /// Indices of the exports that are accessed through it.
    pub exports: Vec<usize>,
}

/// Plans the listeners of a list of exports: exports of one protocol share a listener if they name the same address.
pub fn plan_portals(exports: &[Export]) -> Result<Vec<Portal>, Failure> {
    let mut portals = Vec::new();
    for (index, export) in exports.iter().enumerate() {
        if let Some(option) = export.options.given_to_others(export.protocol) {
            let message = format!("exports over {} have no such option", export.protocol.about().title);
            return Err(Failure::usage(message, format!("exports.{option}")));
        }
        if exports[..index].iter().any(|earlier| earlier.is_same_target(export) && earlier.options != export.options) {
            return Err(Failure::usage("the portals of one volume must have the same options", "exports"));
        }
        put(&mut portals, Service::Protocol(export.protocol), export.listen, index)?;
        if let Some(portmap) = export.portmap {
            let about = export.protocol.about();
            if about.rpc_programs.is_empty() {
                return Err(Failure::usage(format!("{} has no portmapper", about.title), "exports.portmap"));
            }
            put(&mut portals, Service::Portmap, portmap, index)?;
        }
    }
    Ok(portals)
}

fn put(portals: &mut Vec<Portal>, service: Service, address: SocketAddr, export: usize) -> Result<(), Failure> {
    let same = portals.iter_mut().find(|portal| portal.address == address && address.port() != 0);
    match same {
        Some(portal) if portal.service == service => portal.exports.push(export),
        Some(_) => return Err(Failure::usage("two protocols cannot share a port", format!("listen {address}"))),
        None => portals.push(Portal { service, address, exports: vec![export] }),
    }
    Ok(())
}

impl Export {
    /// Whether this is the same view of a volume at another portal, a second path to the same target.
    pub(crate) fn is_same_target(&self, other: &Self) -> bool {
        self.protocol.about().is_multipath
            && (self.protocol, self.volume, self.read_only) == (other.protocol, other.volume, other.read_only)
    }

    pub(crate) fn admits(&self, name: Option<&str>, address: std::net::IpAddr) -> bool {
        self.groups.is_none() || self.group(name, address).is_some()
    }

    /// The first group that admits the caller.
    pub(crate) fn group(&self, name: Option<&str>, address: std::net::IpAddr) -> Option<&Group> {
        self.groups.iter().flatten().find(|group| group.has(name, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(protocol: Protocol, listen: &str) -> Export {
        let listen = listen.parse().expect("an address");
        Export {
            protocol,
            volume: 0,
            read_only: false,
            listen,
            groups: None,
            portmap: None,
            squash: Squash::None,
            options: ExportOptions::default(),
        }
    }

    #[test]
    fn exports_of_one_protocol_share_a_port_and_free_ports_are_each_their_own() {
        let exports = [
            export(Protocol::Iscsi, "127.0.0.1:3260"),
            export(Protocol::Iscsi, "127.0.0.1:3260"),
            export(Protocol::Iscsi, "127.0.0.1:0"),
            export(Protocol::NvmeTcp, "127.0.0.1:0"),
        ];
        let portals = plan_portals(&exports).expect("a plan");
        assert_eq!(
            portals.iter().map(|portal| portal.exports.clone()).collect::<Vec<_>>(),
            [vec![0, 1], vec![2], vec![3]]
        );
    }

    #[test]
    fn two_protocols_on_one_port_are_refused() {
        let exports = [export(Protocol::Iscsi, "127.0.0.1:3260"), export(Protocol::NvmeTcp, "127.0.0.1:3260")];
        assert!(plan_portals(&exports).is_err());
        let portmap = Export { portmap: "127.0.0.1:111".parse().ok(), ..export(Protocol::Iscsi, "127.0.0.1:0") };
        assert!(plan_portals(&[portmap]).is_err());
    }
}
