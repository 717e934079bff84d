//! NFSv3, with the mount protocol on the same port.

mod connector;
mod describer;

use iotax_proto::{
    Instant,
    nfs::{
        PROGRAM,
        mount::PROGRAM as MOUNT_PROGRAM,
        v3::{
            VERSION,
            initiator::Mount,
            target_side::{Config, Connection},
        },
    },
    rpc::Peer,
};

use super::{
    About, Definition, Describe, Digests,
    definition::number,
    file_export::{FileCommon, FileExport},
};
use crate::{
    failure::Failure,
    load::{
        Facts,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{ServerBackend, ServerConfig},
};

#[derive(Debug)]
pub struct Nfs3;

/// The unit of `nfs://HOST[:PORT]/EXPORT/FILE[?mountport=N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// `None`: a portmapper reports it.
    pub port: Option<u16>,
    /// `None`: the mount protocol uses `port`, too, if that is given.
    pub mount_port: Option<u16>,
    pub export: String,
    pub file: String,
}

impl Definition for Nfs3 {
    const ABOUT: About = About {
        name: "nfs3",
        title: "NFS",
        scheme: "nfs",
        form: "nfs://HOST[:PORT]/EXPORT/FILE",
        common_options: &["uid", "gid"],
        has_paths: false,
        is_multipath: false,
        rpc_programs: &[(PROGRAM, VERSION), (MOUNT_PROGRAM, VERSION)],
    };

    type Unit = Unit;
    type Options = ();
    type Initiator = Mount;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        let (export, file) = path
            .rsplit_once('/')
            .filter(|(export, file)| !export.is_empty() && !file.is_empty())
            .ok_or("the path must name an export and a file in it: nfs://HOST/EXPORT/FILE")?;
        let mount_port = number(query, "mountport")?;
        Ok(Unit { port, mount_port, export: format!("/{export}"), file: file.to_owned() })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        (): &(),
        workers: Workers,
        _: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure> {
        Ok(Box::new(connector::Mounting::new(unit, settings, workers)))
    }

    fn facts(mount: &Mount) -> Facts {
        connector::facts(mount)
    }

    type Target = Connection;
    type Exported = FileExport;
    type ExportOptions = ();
    type Common = FileCommon;

    fn common(config: &ServerConfig) -> FileCommon {
        FileCommon::new(config)
    }

    fn accept(now: Instant, backend: &ServerBackend) -> Connection {
        let peer = Peer { address: backend.peer.ip(), port: backend.peer.port() };
        Connection::new(now, Config { peer, ..Config::new(backend.state.server.common.nfs3.handles()) })
    }

    fn describe(_: Digests) -> Box<dyn Describe> {
        Box::new(describer::Describer::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_understood_or_say_what_is_missing() {
        let unit = |port, mount_port, export: &str, file: &str| {
            Ok(Unit { port, mount_port, export: export.to_owned(), file: file.to_owned() })
        };
        assert_eq!(Nfs3::parse(Some(40001), "v0/data", None), unit(Some(40001), None, "/v0", "data"));
        let deep = Nfs3::parse(None, "vol/a/b/disk.img", Some("mountport=635"));
        assert_eq!(deep, unit(None, Some(635), "/vol/a/b", "disk.img"));
        assert!(Nfs3::parse(None, "file", None).is_err_and(|message| message.contains("an export and a file")));
    }
}
