//! FCP, SCSI over Fibre Channel. Each worker logs in from an initiator port of its own. Here its frames are sent over a
//! stream socket, without an adapter or a fabric.

mod service;

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fcp::{
        PortName,
        decode::describe,
        initiator::{Config as Login, Session},
        target_side::{Config, Connection},
    },
};
use service::Exported;

use super::{
    About, Definition, Describe, Digests,
    definition::no_query,
    fibre_channel::{Frames, PORT, initiator_port, negotiated, wwpn},
    logical_unit::{identity_facts, parse_lun},
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

#[derive(Debug)]
pub struct Fcp;

/// The unit of `fcp://HOST[:PORT]/WWPN/LUN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub port: u16,
    pub target: PortName,
    pub lun: u16,
}

impl Definition for Fcp {
    const ABOUT: About = About {
        name: "fcp",
        title: "FCP",
        scheme: "fcp",
        form: "fcp://HOST[:PORT]/WWPN/LUN",
        common_options: &[],
        has_paths: false,
        is_multipath: true,
        rpc_programs: &[],
    };

    type Unit = Unit;
    type Options = ();
    type Initiator = Session;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        let (name, lun) = path.split_once('/').ok_or("a LUN must follow the WWPN: fcp://HOST/WWPN/LUN")?;
        let target = wwpn(name)?;
        let lun = parse_lun(lun, "WWPN")?;
        no_query(query)?;
        Ok(Unit { port: port.unwrap_or(PORT), target, lun })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        (): &(),
        workers: Workers,
        _: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure> {
        let (instance, target, lun) = (settings.instance, unit.target, unit.lun);
        let has_crc = settings.has_frame_crc;
        let session = move |now, worker| {
            let queue_depth = workers.outstanding.clamp(1, 4096) as u16;
            let login = Login::new(initiator_port(instance, worker), target, lun);
            Session::new(now, Login { queue_depth, has_crc, ..login })
        };
        Ok(Box::new(Direct::new(SocketAddr::new(settings.address, unit.port), workers, session)))
    }

    fn facts(session: &Session) -> Facts {
        let negotiated = session.target().map_or(Vec::new(), negotiated);
        Facts { identity: identity_facts(session.inquiry(), session.serial()), negotiated }
    }

    type Target = Connection;
    type Exported = Exported;
    type ExportOptions = ();
    type Common = ();

    fn common(_: &ServerConfig) {}

    fn accept(now: Instant, backend: &ServerBackend) -> Connection {
        Connection::new(now, Config { has_crc: backend.state.server.config().has_frame_crc, ..Config::default() })
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
        let unit = |path| Fcp::parse(None, path, None);
        let target = PortName(0x3000_0000_0000_00ab);
        assert_eq!(unit("30000000000000AB/3"), Ok(Unit { port: 3225, target, lun: 3 }));
        for (path, says) in [
            ("30000000000000ab", "a LUN must follow"),
            ("30:00:00:00:00:00:00:ab/0", "without colons"),
            ("+0000000000000ab/0", "not a WWPN"),
            ("30000000000000ab/zero", "not a LUN"),
            ("30000000000000ab/65536", "at most 65535"),
        ] {
            assert!(unit(path).is_err_and(|message| message.contains(says)), "{path}");
        }
    }
}
