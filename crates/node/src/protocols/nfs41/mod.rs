//! NFSv4.1: one port, without portmapper and mount protocol.

mod connector;

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    nfs::v41::{
        decode::describe,
        initiator::Client,
        target_side::{Config, Connection},
    },
    rpc::Peer,
};

use super::{
    About, Definition, Describe, Digests,
    file_export::{FileCommon, FileExport},
    query::no_query,
};
use crate::{
    failure::Failure,
    fs::Tree,
    load::{
        Direct, Facts,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{Guarded, ServerBackend, ServerConfig},
};

#[derive(Debug)]
pub struct Nfs41;

/// The unit of `nfs41://HOST[:PORT]/EXPORT/FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub port: u16,
    /// Path from the root of the server, whose directories are the exports.
    pub file: String,
}

impl Definition for Nfs41 {
    const ABOUT: About = About {
        name: "nfs4.1",
        title: "NFSv4.1",
        scheme: "nfs41",
        form: "nfs41://HOST[:PORT]/EXPORT/FILE",
        common_options: &["uid", "gid"],
        has_paths: false,
        is_multipath: false,
        rpc_programs: &[],
    };

    type Unit = Unit;
    type Options = ();
    type Initiator = Client;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        no_query(query)?;
        if path.trim_matches('/').is_empty() || path.ends_with('/') {
            return Err("the path must name a file: nfs41://HOST/EXPORT/FILE".to_owned());
        }
        Ok(Unit { port: port.unwrap_or(iotax_proto::nfs::PORT), file: format!("/{path}") })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        (): &(),
        workers: Workers,
        _: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure> {
        let opening = connector::Opening::new(unit, settings, workers);
        Ok(Box::new(Direct::new(move |now| opening.links(now))))
    }

    fn facts(client: &Client) -> Facts {
        connector::facts(client)
    }

    type Target = Connection;
    type Exported = FileExport;
    type Common = FileCommon;

    fn common(config: &ServerConfig) -> FileCommon {
        FileCommon::new(config)
    }

    fn export(config: &ServerConfig, index: usize) -> FileExport {
        FileExport::new(config, index)
    }

    fn endpoint(exported: &FileExport, address: SocketAddr) -> String {
        format!("nfs41://{address}{}", exported.volume_path())
    }

    fn tree(exported: &FileExport) -> Option<&Guarded<Tree>> {
        Some(exported.tree())
    }

    fn accept(now: Instant, backend: &ServerBackend) -> Connection {
        let peer = Peer { address: backend.peer.ip(), port: backend.peer.port() };
        Connection::new(now, Config { peer, ..Config::new(backend.state.server.common.nfs41.handles()) })
    }

    fn describe(_: Digests) -> Box<dyn Describe> {
        Box::new(Compounds)
    }
}

/// A description of messages, each of which can be understood on its own.
struct Compounds;

impl Describe for Compounds {
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String> {
        describe(bytes).map_err(|violation| violation.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_understood_or_say_what_is_missing() {
        let unit = |port, file: &str| Ok(Unit { port, file: file.to_owned() });
        assert_eq!(Nfs41::parse(Some(40001), "v0/data", None), unit(40001, "/v0/data"));
        assert_eq!(Nfs41::parse(None, "vol/a/b/disk.img", None), unit(2049, "/vol/a/b/disk.img"));
        assert!(Nfs41::parse(None, "v0/", None).is_err_and(|message| message.contains("name a file")));
        assert!(Nfs41::parse(None, "v0/data", Some("vers=4.1")).is_err_and(|message| message.contains("understood")));
    }
}
