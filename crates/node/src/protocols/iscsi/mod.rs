//! iSCSI.

mod connector;
mod options;
mod service;

pub use options::{ExportOptions, Options, PortalGroups};

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    iscsi::{
        decode::{DescribeError, describe_with_digests},
        initiator::Session,
        target_side::{Config, Connection},
    },
};
use service::Exported;

use super::{
    About, Definition, Describe, Digests,
    definition::{cut_off, no_query},
    logical_unit::parse_lun,
};
use crate::{
    access::Access,
    failure::Failure,
    load::{
        AfterLoss, Direct, Facts,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{ServerBackend, ServerConfig},
};

const PORT: u16 = 3260;

#[derive(Debug)]
pub struct Iscsi;

/// The unit of `iscsi://HOST[:PORT]/IQN/LUN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub port: u16,
    pub iqn: String,
    pub lun: u16,
}

impl Definition for Iscsi {
    const ABOUT: About = About {
        name: "iscsi",
        title: "iSCSI",
        scheme: "iscsi",
        form: "iscsi://HOST[:PORT][,HOST…]/IQN/LUN",
        common_options: &["initiator", "keep_alive_ns", "header_digest", "data_digest"],
        has_paths: true,
        is_multipath: true,
        rpc_programs: &[],
    };

    type Unit = Unit;
    type Options = Options;
    type Initiator = Session;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        let (iqn, lun) = path.split_once('/').ok_or("a LUN must follow the IQN: iscsi://HOST/IQN/LUN")?;
        if !["iqn.", "eui.", "naa."].iter().any(|form| iqn.starts_with(form)) {
            return Err(format!("'{iqn}' is not an iSCSI name: it begins with iqn., eui. or naa."));
        }
        let lun = parse_lun(lun, "IQN")?;
        no_query(query)?;
        Ok(Unit { port: port.unwrap_or(PORT), iqn: iqn.to_owned(), lun })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        options: &Options,
        workers: Workers,
        _: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure> {
        let login = connector::Login::new(unit, settings, options, workers.outstanding);
        let to = SocketAddr::new(settings.address, unit.port);
        Ok(Box::new(Direct::new(to, workers, move |now, worker| login.session(now, worker))))
    }

    fn after_loss(session: &Session) -> Option<AfterLoss> {
        Some(AfterLoss::Login { group: session.portal_group() })
    }

    fn access(session: &Session) -> Option<Access> {
        session.access().map(connector::access)
    }

    fn check_access(session: &mut Session, now: Instant) {
        session.check_access(now);
    }

    fn facts(session: &Session) -> Facts {
        connector::facts(session)
    }

    type Target = Connection;
    type Exported = Exported;
    type ExportOptions = ExportOptions;
    type Common = ();

    fn common(_: &ServerConfig) {}

    fn accept(now: Instant, _: &ServerBackend) -> Connection {
        Connection::new(now, Config::default())
    }

    fn describe(digests: Digests) -> Box<dyn Describe> {
        Box::new(digests)
    }
}

impl Describe for Digests {
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String> {
        describe_with_digests(bytes, self.header, self.data).map_err(|error| match error {
            DescribeError::Short(_) => cut_off(bytes),
            DescribeError::Malformed(violation) => violation.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_understood_or_say_what_is_missing() {
        let unit = |path| Iscsi::parse(None, path, None);
        let iqn = "iqn.2026-11.io.iotax:v0".to_owned();
        assert_eq!(unit("iqn.2026-11.io.iotax:v0/3"), Ok(Unit { port: 3260, iqn, lun: 3 }));
        for (path, says) in [
            ("iqn.x:y", "a LUN must follow"),
            ("name/0", "not an iSCSI name"),
            ("iqn.x:y/zero", "not a LUN"),
            ("iqn.x:y/65536", "at most 65535"),
        ] {
            assert!(unit(path).is_err_and(|message| message.contains(says)), "{path}");
        }
    }
}
