//! What NVMe/TCP asks of the server.

use std::rc::Rc;

use iotax_proto::{
    Origin,
    nvme::{
        Admission, DISCOVERY_NQN, DiscoveryEntry, NvmeBackend, Refusal,
        auth::{Work, Worked},
        subsystem::DiscoveryLog,
    },
};

use super::{
    desk::Desk,
    portals::{Protocol, Service},
    shared::Target,
};

impl NvmeBackend for Desk {
    fn subsystem(&mut self, subnqn: &str, hostnqn: &str) -> Result<Admission, Refusal> {
        if subnqn == DISCOVERY_NQN {
            // Authentication is for what is found, not for finding: who may see what, groups say.
            let subsystem = Rc::new(self.counter.server.discovery.clone());
            return Ok(Admission { subsystem, auth: None, address: self.address() });
        }
        let mut refusal = Refusal::NoSubsystem;
        for export in &self.portal().exports {
            let Target::Nvme { name, subsystem } = &self.counter.server.targets[*export] else { continue };
            if name != subnqn {
                continue;
            }
            let export = self.export(*export);
            if export.admits(Some(hostnqn), self.address()) {
                let auth = export.group(Some(hostnqn), self.address()).and_then(super::Group::dhchap);
                return Ok(Admission { subsystem: Rc::new(subsystem.clone()), auth, address: self.address() });
            }
            refusal = Refusal::HostNotAllowed;
        }
        Err(refusal)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.counter.random.borrow_mut().fill(bytes);
    }

    fn work(&mut self, work: Work) -> Option<Worked> {
        let origin = Origin::of_address(self.address());
        self.counter.server.arithmetic.ask(self.asker, origin, work)
    }

    fn discovery_log(&self, hostnqn: &str) -> DiscoveryLog {
        let server = &self.counter.server;
        let mut entries = Vec::new();
        for (index, portal) in server.config.portals.iter().enumerate() {
            if portal.service != Service::Protocol(Protocol::NvmeTcp) {
                continue;
            }
            let (address, port) = (portal.address.ip().to_string(), portal.address.port().to_string());
            for export in portal.exports.iter().copied() {
                if let Target::Nvme { name, .. } = &server.targets[export]
                    && server.config.exports[export].admits(Some(hostnqn), self.address())
                {
                    entries.push(DiscoveryEntry::tcp(index as u16 + 1, name, &address, &port));
                }
            }
        }
        DiscoveryLog { generation: 1, entries }
    }
}
