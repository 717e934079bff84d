//! FCP, SCSI over Fibre Channel. Here its frames are sent over a stream socket, without an adapter or a fabric.

mod connector;
mod service;

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fcp::{
        PortName,
        decode::describe,
        initiator::Session,
        target_side::{Config, Connection},
    },
};

use super::{
    About, Definition, Describe, Digests,
    fibre_channel::{Frames, PORT, wwpn},
    logical_unit::parse_lun,
    query::no_query,
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
        format!("fcp://{address}/{}/0", exported.port_name)
    }

    fn accept(now: Instant, _: &ServerBackend) -> Connection {
        Connection::new(now, Config::default())
    }

    fn handle_notification(target: &mut Connection, now: Instant, backend: &mut ServerBackend) {
        target.handle_notification(now, backend);
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
