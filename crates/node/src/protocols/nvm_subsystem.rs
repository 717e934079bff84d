//! An export as an NVM subsystem, and the identity of a host, for any transport of NVMe.

use iotax_proto::nvme::{AnaState, Namespace, Subsystem, SubsystemConfig, fabrics::host::ControllerInfo};

use super::{Exported as Any, ExportedUnit, definition::number};
use crate::{
    access::Access,
    load::settings::Settings,
    server::{Guarded, ServerConfig, identity},
    volume::unit_of,
};

/// The subsystem of an export.
#[derive(Clone, Debug)]
pub struct NvmSubsystem {
    pub(super) name: String,
    pub(super) shared: Guarded<Subsystem>,
}

impl NvmSubsystem {
    /// `tune` sets what depends on the transport.
    pub(super) fn tuned(config: &ServerConfig, index: usize, tune: impl FnOnce(&mut SubsystemConfig)) -> Self {
        let export = &config.exports[index];
        let volume = &config.volumes[export.volume];
        let unit = unit_of(export.volume, export.read_only);
        let name = identity::nvme_name(&volume.name);
        let serial = identity::serial(&volume.name);
        let mut subsystem = SubsystemConfig { serial, ..SubsystemConfig::new(name.clone()) };
        tune(&mut subsystem);
        let mut subsystem = Subsystem::new(subsystem);
        let uuid = identity::uuid(&volume.name);
        subsystem.put_namespace(Namespace { nsid: 1, unit, nguid: uuid, uuid, eui64: [0; 8] });
        Self { name, shared: Guarded::new(subsystem) }
    }

    /// The subsystem of an export over any transport of NVMe.
    pub(super) fn of(exported: &Any) -> Option<&Self> {
        match exported {
            Any::NvmeTcp(subsystem) => Some(subsystem),
            Any::FcNvme(exported) => Some(&exported.subsystem),
            _ => None,
        }
    }
}

impl ExportedUnit for NvmSubsystem {
    fn new(config: &ServerConfig, index: usize) -> Self {
        Self::tuned(config, index, |_| {})
    }

    fn path(&self) -> String {
        format!("/{}?ns=1", self.name)
    }

    fn set_access(&self, port: u16, access: Access) -> Result<(), &'static str> {
        let state = match access {
            Access::Optimized => AnaState::Optimized,
            Access::NonOptimized => AnaState::NonOptimized,
            Access::Inaccessible => AnaState::Inaccessible,
        };
        self.shared.lock().set_access(port, state);
        Ok(())
    }
}

const HOST: &str = "nqn.2026-11.io.iotax:load";

/// NQN and host identifier of a load. The identifier is a UUID of version 8 (RFC 9562 §5.8), whose contents we may
/// define. Each load has its own, because two hosts with one NQN must differ.
pub(super) fn host(settings: &Settings) -> (&str, [u8; 16]) {
    let mut id = *b"iotax\0\x80\0\x80load\0\0\0";
    id[12..].copy_from_slice(&settings.instance.to_be_bytes());
    (settings.initiator.as_deref().unwrap_or(HOST), id)
}

/// Parses NQN and namespace of an endpoint, `NQN?ns=N`.
pub(super) fn namespace(nqn: &str, query: Option<&str>) -> Result<(String, u32), String> {
    if !nqn.starts_with("nqn.") || nqn.contains('/') {
        return Err(format!("'{nqn}' is not an NVMe qualified name: it begins with nqn. and has no '/'"));
    }
    let nsid = number(query, "ns")?.ok_or("the namespace is missing: add ?ns=1")?;
    if nsid == 0 || nsid == u32::MAX {
        return Err(format!("{nsid} is not a namespace"));
    }
    Ok((nqn.to_owned(), nsid))
}

/// How a controller identified itself.
pub(super) fn identity(info: &ControllerInfo) -> Vec<(&'static str, String)> {
    vec![("serial", info.serial.clone()), ("product", info.model.clone()), ("revision", info.firmware.clone())]
}
