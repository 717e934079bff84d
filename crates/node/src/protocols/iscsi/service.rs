//! iSCSI's interface to the server.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
};

use iotax_proto::{
    iscsi::{
        DiscoveredTarget,
        target_side::{AuthPolicy, IscsiBackend, LoginGrant, LoginRefusal, Sessions},
    },
    scsi::{AccessState, Device, Identity},
};

use super::PortalGroups;
use crate::{
    access::Access,
    protocols::{Exported as Any, ExportedUnit, Protocol, logical_unit::logical_unit},
    secrets::Chap,
    server::{Group, Guarded, Portal, ServerBackend, ServerConfig, Service, identity, port_id},
};

/// The only portal group of a target without one for each portal.
const PORTAL_GROUP: u16 = 1;

/// The target of an export.
#[derive(Clone, Debug)]
pub struct Exported {
    name: String,
    device: Guarded<Device>,
    sessions: Guarded<Sessions>,
    portal_groups: PortalGroups,
}

impl ExportedUnit for Exported {
    fn new(config: &ServerConfig, index: usize) -> Self {
        let export = &config.exports[index];
        let portal_groups = export.options.iscsi.portal_groups.unwrap_or_default();
        let device = Device::new(Identity::default(), [logical_unit(config, index)]);
        let leads_here =
            |portal: &Portal| portal.exports.iter().any(|each| config.exports[*each].is_same_target(export));
        let portals = config.portals.iter().enumerate().filter(|(_, portal)| leads_here(portal));
        Self {
            name: identity::iscsi_name(&config.volumes[export.volume].name),
            device: Guarded::new(match portal_groups {
                PortalGroups::One => device,
                PortalGroups::Each => device.with_port_groups(portals.map(|(portal, _)| port_id(portal))),
            }),
            sessions: Guarded::new(Sessions::default()),
            portal_groups,
        }
    }

    fn path(&self) -> String {
        format!("/{}/0", self.name)
    }

    fn set_access(&self, port: u16, access: Access) -> Result<(), &'static str> {
        let state = match access {
            Access::Optimized => AccessState::Optimized,
            Access::NonOptimized => AccessState::NonOptimized,
            Access::Inaccessible => AccessState::Unavailable,
        };
        let is_known = self.device.lock().set_access(port, state);
        is_known.then_some(()).ok_or("its target has one portal group; say `portal_groups: each` in its exports")
    }
}

impl Exported {
    /// Tag of the portal group of a portal.
    fn portal_group(&self, port: u16) -> u16 {
        match self.portal_groups {
            PortalGroups::One => PORTAL_GROUP,
            PortalGroups::Each => port,
        }
    }
}

impl IscsiBackend for ServerBackend {
    fn targets(&mut self, initiator: &str) -> Vec<DiscoveredTarget> {
        let mut found: Vec<DiscoveredTarget> = Vec::new();
        let server = &self.state.server;
        let portals = server.config.portals.iter().enumerate();
        for (index, portal) in portals.filter(|(_, portal)| portal.service == Service::Protocol(Protocol::Iscsi)) {
            let address = self.reached_at(portal.address);
            for export in portal.exports.iter().copied() {
                let Any::Iscsi(exported @ Exported { name, .. }) = &server.exported[export] else {
                    unreachable!("exports of a portal have its protocol")
                };
                if !server.config.exports[export].admits(Some(initiator), self.address()) {
                    continue;
                }
                let at = found.iter().position(|target| target.name == *name).unwrap_or_else(|| {
                    found.push(DiscoveredTarget { name: name.clone(), portals: Vec::new() });
                    found.len() - 1
                });
                found[at]
                    .portals
                    .extend(address.map(|address| format!("{address},{}", exported.portal_group(port_id(index)))));
            }
        }
        found
    }

    /// Discovery needs no authentication: groups determine which targets an initiator sees.
    fn discovery_auth(&mut self, _: &str) -> AuthPolicy {
        AuthPolicy::None
    }

    fn login(&mut self, initiator: &str, target: &str) -> Result<LoginGrant, LoginRefusal> {
        let mut refusal = LoginRefusal::NoSuchTarget;
        for export in &self.portal().exports {
            let Any::Iscsi(exported) = &self.state.server.exported[*export] else {
                unreachable!("exports of a portal have its protocol")
            };
            let Exported { name, device, sessions, .. } = exported;
            if !name.eq_ignore_ascii_case(target) {
                continue;
            }
            let export = self.export(*export);
            if export.admits(Some(initiator), self.address()) {
                let group = export.group(Some(initiator), self.address());
                return Ok(LoginGrant {
                    device: Rc::new(device.clone()),
                    sessions: Rc::new(sessions.clone()),
                    portal_group_tag: exported.portal_group(self.port()),
                    auth: group
                        .and_then(Group::chap)
                        .map_or(AuthPolicy::None, |Chap { initiator, target }| AuthPolicy::Chap { initiator, target }),
                    address: self.address(),
                });
            }
            refusal = LoginRefusal::NotAuthorized;
        }
        Err(refusal)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.state.random.borrow_mut().fill(bytes);
    }
}

impl ServerBackend {
    /// The address at which this peer reaches a portal. A wildcard address cannot be connected to. A peer on this
    /// machine gets the loopback address; for others the portal is left out, so that they use the address they are
    /// connected to (RFC 7143 §C).
    fn reached_at(&self, portal: SocketAddr) -> Option<SocketAddr> {
        if !portal.ip().is_unspecified() {
            return Some(portal);
        }
        let peer = self.address().to_canonical();
        let loopback = match peer {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        peer.is_loopback().then(|| SocketAddr::new(loopback, portal.port()))
    }
}
