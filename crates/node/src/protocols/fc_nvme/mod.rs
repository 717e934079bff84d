//! NVMe over Fibre Channel. Here its frames are sent over a stream socket, without an adapter or a fabric.

mod connector;
mod service;

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fc_nvme::{
        PortName,
        decode::describe,
        initiator::Session,
        target_side::{Config, Connection},
    },
    nvme::auth::Worked,
};

use super::{
    About, Definition, Describe, Digests,
    fibre_channel::{Frames, PORT, wwpn},
    nvm_subsystem::namespace,
};
use crate::{
    failure::Failure,
    load::{
        Direct, Facts,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{ServerBackend, ServerConfig},
};
use service::Exported;

#[derive(Debug)]
pub struct FcNvme;

/// The unit of `fc-nvme://HOST[:PORT]/WWPN/NQN?ns=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub port: u16,
    pub target: PortName,
    pub nqn: String,
    pub nsid: u32,
}

impl Definition for FcNvme {
    const ABOUT: About = About {
        name: "fc-nvme",
        title: "FC-NVMe",
        scheme: "fc-nvme",
        form: "fc-nvme://HOST[:PORT]/WWPN/NQN?ns=N",
        common_options: &["initiator"],
        has_paths: false,
        is_multipath: true,
        rpc_programs: &[],
    };

    type Unit = Unit;
    type Options = ();
    type Initiator = Session;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        let (name, nqn) = path.split_once('/').ok_or("an NQN must follow the WWPN: fc-nvme://HOST/WWPN/NQN?ns=1")?;
        let target = wwpn(name)?;
        let (nqn, nsid) = namespace(nqn, query)?;
        Ok(Unit { port: port.unwrap_or(PORT), target, nqn, nsid })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        (): &(),
        workers: Workers,
        _: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure> {
        let login = connector::Login::new(unit, settings, workers);
        Ok(Box::new(Direct::new(move |now| login.links(now))))
    }

    fn facts(session: &Session) -> Facts {
        connector::facts(session)
    }

    type Target = Connection;
    type Exported = Exported;
    type Common = ();

    fn common(_: &ServerConfig) {}

    fn export(config: &ServerConfig, index: usize) -> Exported {
        Exported::new(config, index)
    }

    fn endpoint(exported: &Exported, address: SocketAddr) -> String {
        format!("fc-nvme://{address}/{}/{}?ns=1", exported.port_name, exported.subsystem.name)
    }

    fn accept(now: Instant, _: &ServerBackend) -> Connection {
        Connection::new(now, Config::default())
    }

    fn handle_notification(target: &mut Connection, now: Instant, backend: &mut ServerBackend) {
        target.handle_notification(now, backend);
    }

    fn worked(target: &mut Connection, now: Instant, worked: Worked, backend: &mut ServerBackend) {
        target.worked(now, worked, backend);
    }

    fn describe(_: Digests) -> Box<dyn Describe> {
        Box::new(Frames(describe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_understood_or_say_what_is_missing() {
        let unit = FcNvme::parse(None, "30000000000000AB/nqn.x", Some("ns=2"));
        let target = PortName(0x3000_0000_0000_00ab);
        assert_eq!(unit, Ok(Unit { port: 3225, target, nqn: "nqn.x".to_owned(), nsid: 2 }));
        for (path, query, says) in [
            ("30000000000000ab", Some("ns=1"), "an NQN must follow"),
            ("nqn.x/30000000000000ab", Some("ns=1"), "not a WWPN"),
            ("30000000000000ab/x", Some("ns=1"), "not an NVMe qualified name"),
            ("30000000000000ab/nqn.x", None, "add ?ns=1"),
        ] {
            assert!(FcNvme::parse(None, path, query).is_err_and(|message| message.contains(says)), "{path}");
        }
    }
}
