//! What iSCSI asks of the server.

use std::rc::Rc;

use iotax_proto::iscsi::{
    DiscoveredTarget,
    target::{AuthPolicy, IscsiBackend, LoginGrant, LoginRefusal},
};

use super::{
    desk::Desk,
    portals::{Protocol, Service},
    shared::Target,
};

/// There is one portal group: any session may use any portal of its target.
const PORTAL_GROUP: u16 = 1;

impl IscsiBackend for Desk {
    fn targets(&mut self, initiator: &str) -> Vec<DiscoveredTarget> {
        let mut found: Vec<DiscoveredTarget> = Vec::new();
        let server = &self.counter.server;
        for portal in server.config.portals.iter().filter(|portal| portal.service == Service::Protocol(Protocol::Iscsi))
        {
            // A wildcard is no address to go to; the initiator came through a better one.
            let is_here = std::ptr::eq(portal, self.portal()) || portal.address.ip().is_unspecified();
            for export in portal.exports.iter().copied() {
                let Target::Iscsi { name, .. } = &server.targets[export] else { continue };
                if !server.config.exports[export].admits(Some(initiator), self.address()) {
                    continue;
                }
                let at = found.iter().position(|target| target.name == *name).unwrap_or_else(|| {
                    found.push(DiscoveredTarget { name: name.clone(), portals: Vec::new() });
                    found.len() - 1
                });
                if !is_here {
                    found[at].portals.push(format!("{},{PORTAL_GROUP}", portal.address));
                }
            }
        }
        // A target at this portal and at others is listed with all of them.
        let here = self.portal().address;
        for target in found.iter_mut().filter(|target| !target.portals.is_empty() && !here.ip().is_unspecified()) {
            let is_here = self.portal().exports.iter().any(|export| {
                matches!(&self.counter.server.targets[*export], Target::Iscsi { name, .. } if *name == target.name)
            });
            if is_here {
                target.portals.insert(0, format!("{here},{PORTAL_GROUP}"));
            }
        }
        found
    }

    fn discovery_auth(&mut self, _: &str) -> AuthPolicy {
        AuthPolicy::None
    }

    fn login(&mut self, initiator: &str, target: &str) -> Result<LoginGrant, LoginRefusal> {
        let mut refusal = LoginRefusal::NoSuchTarget;
        for export in &self.portal().exports {
            let Target::Iscsi { name, device, sessions } = &self.counter.server.targets[*export] else { continue };
            if !name.eq_ignore_ascii_case(target) {
                continue;
            }
            if self.export(*export).admits(Some(initiator), self.address()) {
                return Ok(LoginGrant {
                    device: Rc::new(device.clone()),
                    sessions: Rc::new(sessions.clone()),
                    portal_group_tag: PORTAL_GROUP,
                    auth: AuthPolicy::None,
                });
            }
            refusal = LoginRefusal::NotAuthorized;
        }
        Err(refusal)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        let mut random = self.counter.random.borrow_mut();
        for piece in bytes.chunks_mut(8) {
            let word = random.draw().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}
