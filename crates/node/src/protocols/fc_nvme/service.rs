//! FC-NVMe's interface to the server.

use std::rc::Rc;

use iotax_proto::{
    fc_nvme::{
        PortName,
        target_side::{FcNvmeBackend, LoginGrant, LoginRefusal, Logins},
    },
    nvme::SubsystemConfig,
};

use crate::{
    protocols::{Exported as Any, ExportedUnit, nvm_subsystem::NvmSubsystem},
    server::{Guarded, ServerBackend, ServerConfig, identity},
};

/// Each login has a controller of its own: the limits are those of a port's logins, in total and per address.
const CONTROLLERS_MAX: u16 = 4096;
const CONTROLLERS_OF_ORIGIN_MAX: u16 = 1024;

/// The target port of an export, and the subsystem behind it.
#[derive(Clone, Debug)]
pub struct Exported {
    port_name: PortName,
    node_name: PortName,
    pub(in crate::protocols) subsystem: NvmSubsystem,
    logins: Guarded<Logins>,
}

impl ExportedUnit for Exported {
    fn new(config: &ServerConfig, index: usize) -> Self {
        let (node, port) = identity::fibre_channel_names(&config.volumes[config.exports[index].volume].name);
        let tune = |subsystem: &mut SubsystemConfig| {
            subsystem.max_controllers = CONTROLLERS_MAX;
            subsystem.max_controllers_of_origin = CONTROLLERS_OF_ORIGIN_MAX;
            subsystem.max_io_queues = 1;
        };
        Self {
            port_name: PortName(port),
            node_name: PortName(node),
            subsystem: NvmSubsystem::tuned(config, index, tune),
            logins: Guarded::new(Logins::default()),
        }
    }

    fn path(&self) -> String {
        format!("/{}{}", self.port_name, self.subsystem.path())
    }
}

impl FcNvmeBackend for ServerBackend {
    /// Any port may log in: access is checked when a host connects, by its NQN or address.
    fn port_login(&mut self, _initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        let exported = self.portal().exports.iter().find_map(|export| match &self.state.server.exported[*export] {
            Any::FcNvme(exported) if exported.port_name == target => Some(exported),
            _ => None,
        });
        let Exported { node_name, logins, .. } = exported.ok_or(LoginRefusal::NoSuchPort)?;
        Ok(LoginGrant { logins: Rc::new(logins.clone()), node_name: *node_name, address: self.address(), device: () })
    }
}
