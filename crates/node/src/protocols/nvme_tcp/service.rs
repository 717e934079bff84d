//! NVMe/TCP's interface to the server.

use std::rc::Rc;

use iotax_proto::{
    Origin,
    nvme::{
        Admission, DISCOVERY_NQN, DiscoveryEntry, NvmeBackend, Refusal, Subsystem, SubsystemConfig,
        auth::{Work, Worked},
        subsystem::DiscoveryLog,
    },
};

use crate::{
    protocols::{Exported as Any, Protocol, nvm_subsystem::NvmSubsystem},
    server::{Group, Guarded, ServerBackend, Service, port_id},
};

/// State that all portals share.
#[derive(Debug)]
pub struct Common {
    discovery: Guarded<Subsystem>,
}

impl Common {
    pub(super) fn new() -> Self {
        Self { discovery: Guarded::new(Subsystem::new(SubsystemConfig::discovery())) }
    }
}

impl NvmeBackend for ServerBackend {
    fn subsystem(&mut self, subnqn: &str, hostnqn: &str) -> Result<Admission, Refusal> {
        if subnqn == DISCOVERY_NQN {
            // Discovery needs no authentication: groups determine which subsystems a host sees.
            let subsystem = Rc::new(self.state.server.common.nvme_tcp.discovery.clone());
            return Ok(Admission { subsystem, auth: None, address: self.address(), port: self.port() });
        }
        let mut refusal = Refusal::NoSubsystem;
        for export in &self.portal().exports {
            let Some(NvmSubsystem { name, shared }) = NvmSubsystem::of(&self.state.server.exported[*export]) else {
                unreachable!("exports of a portal have its protocol")
            };
            if name != subnqn {
                continue;
            }
            let export = self.export(*export);
            if export.admits(Some(hostnqn), self.address()) {
                let auth = export.group(Some(hostnqn), self.address()).and_then(Group::dhchap);
                let subsystem = Rc::new(shared.clone());
                return Ok(Admission { subsystem, auth, address: self.address(), port: self.port() });
            }
            refusal = Refusal::HostNotAllowed;
        }
        Err(refusal)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        self.state.random.borrow_mut().fill(bytes);
    }

    fn work(&mut self, work: Work) -> Option<Worked> {
        let origin = Origin::of_address(self.address());
        self.state.server.arithmetic.ask(self.requester, origin, work)
    }

    fn notify_others(&mut self) {
        self.state.server.notifier.notify();
    }

    fn discovery_log(&self, hostnqn: &str) -> DiscoveryLog {
        let server = &self.state.server;
        let mut entries = Vec::new();
        for (index, portal) in server.config.portals.iter().enumerate() {
            if portal.service != Service::Protocol(Protocol::NvmeTcp) {
                continue;
            }
            let (address, port) = (portal.address.ip().to_string(), portal.address.port().to_string());
            for export in portal.exports.iter().copied() {
                if let Any::NvmeTcp(NvmSubsystem { name, .. }) = &server.exported[export]
                    && server.config.exports[export].admits(Some(hostnqn), self.address())
                {
                    entries.push(DiscoveryEntry::tcp(port_id(index), name, &address, &port));
                }
            }
        }
        DiscoveryLog { generation: 1, entries }
    }
}
