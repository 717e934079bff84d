//! What NVMe/TCP asks of the server.

use std::rc::Rc;

use iotax_proto::{
    Shared,
    nvme::{DISCOVERY_NQN, DiscoveryEntry, NvmeBackend, Refusal, Subsystem, subsystem::DiscoveryLog},
};

use super::{
    desk::Desk,
    portals::{Protocol, Service},
    shared::Target,
};

impl NvmeBackend for Desk {
    fn subsystem(&mut self, subnqn: &str, hostnqn: &str) -> Result<Rc<dyn Shared<Subsystem>>, Refusal> {
        if subnqn == DISCOVERY_NQN {
            return Ok(Rc::new(self.counter.server.discovery.clone()));
        }
        let mut refusal = Refusal::NoSubsystem;
        for export in &self.portal().exports {
            let Target::Nvme { name, subsystem } = &self.counter.server.targets[*export] else { continue };
            if name != subnqn {
                continue;
            }
            if self.export(*export).admits(Some(hostnqn), self.address()) {
                return Ok(Rc::new(subsystem.clone()));
            }
            refusal = Refusal::HostNotAllowed;
        }
        Err(refusal)
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
