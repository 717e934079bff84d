//! NVMe over Fibre Channel. Each worker logs in from an initiator port of its own, with an association and its one I/O
//! queue. Here its frames are sent over a stream socket, without an adapter or a fabric.

mod service;

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fc_nvme::{
        PortName,
        decode::describe,
        initiator::{Config as Login, Session},
        target_side::{Config, Connection},
    },
    nvme::{auth::Worked, fabrics::host::SessionConfig},
};

use super::{
    About, Definition, Describe, Digests,
    fibre_channel::{Frames, PORT, initiator_port, negotiated, wwpn},
    nvm_subsystem::{host, identity, namespace},
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
        let (host, host_id) = host(settings);
        let session = SessionConfig {
            // A queue has at least two entries (NVMe base 2.1 §3.3.3.1).
            depth: workers.outstanding.clamp(2, 4096) as u16,
            nsid: Some(unit.nsid),
            ..SessionConfig::new(&unit.nqn, host, host_id)
        };
        let (instance, target, has_crc) = (settings.instance, unit.target, settings.has_frame_crc);
        let session = move |now, worker| {
            let login = Login::new(initiator_port(instance, worker), target, session.clone());
            Session::new(now, Login { has_crc, ..login })
        };
        Ok(Box::new(Direct::new(SocketAddr::new(settings.address, unit.port), workers, session)))
    }

    fn facts(session: &Session) -> Facts {
        let mut facts = Facts { negotiated: session.target().map_or(Vec::new(), negotiated), ..Facts::default() };
        if let Some(info) = session.controller() {
            facts.identity = identity(info);
            facts.negotiated.push(("max_transfer_bytes", info.max_transfer_bytes.to_string()));
        }
        facts
    }

    type Target = Connection;
    type Exported = Exported;
    type ExportOptions = ();
    type Common = ();

    fn common(_: &ServerConfig) {}

    fn accept(now: Instant, backend: &ServerBackend) -> Connection {
        Connection::new(now, Config { has_crc: backend.state.server.config().has_frame_crc, ..Config::default() })
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
