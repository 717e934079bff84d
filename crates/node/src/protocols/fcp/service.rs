//! FCP's interface to the server.

use std::rc::Rc;

use iotax_proto::{
    fcp::{
        PortName,
        target_side::{FcpBackend, LoginGrant, LoginRefusal, Logins},
    },
    scsi::{Device, Identity},
};

use crate::{
    protocols::{Exported as Any, ExportedUnit, logical_unit::logical_unit},
    server::{Guarded, ServerBackend, ServerConfig, identity},
};

/// The target port of an export.
#[derive(Clone, Debug)]
pub struct Exported {
    port_name: PortName,
    node_name: PortName,
    device: Guarded<Device>,
    logins: Guarded<Logins>,
}

impl ExportedUnit for Exported {
    fn new(config: &ServerConfig, index: usize) -> Self {
        let (node, port) = identity::fibre_channel_names(&config.volumes[config.exports[index].volume].name);
        Self {
            port_name: PortName(port),
            node_name: PortName(node),
            device: Guarded::new(Device::new(Identity::default(), [logical_unit(config, index)])),
            logins: Guarded::new(Logins::default()),
        }
    }

    fn path(&self) -> String {
        format!("/{}/0", self.port_name)
    }
}

impl FcpBackend for ServerBackend {
    fn login(&mut self, initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        let mut refusal = LoginRefusal::NoSuchPort;
        for export in &self.portal().exports {
            let Any::Fcp(Exported { port_name, node_name, device, logins }) = &self.state.server.exported[*export]
            else {
                unreachable!("exports of a portal have its protocol")
            };
            if *port_name != target {
                continue;
            }
            if self.export(*export).admits(Some(&format!("naa.{initiator}")), self.address()) {
                return Ok(LoginGrant {
                    device: Rc::new(device.clone()),
                    logins: Rc::new(logins.clone()),
                    node_name: *node_name,
                    address: self.address(),
                });
            }
            refusal = LoginRefusal::NotAuthorized;
        }
        Err(refusal)
    }
}
