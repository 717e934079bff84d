//! NFSv4.1: one port, without portmapper and mount protocol. Each worker has a connection and a client of its own.

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    nfs::v41::{
        MINOR_VERSION,
        decode::describe,
        initiator::{Client, Config as ClientConfig},
        target_side::{Config, Connection},
    },
    rpc::{Peer, Xid},
};

use super::{
    About, Definition, Describe, Digests,
    definition::no_query,
    file_export::{FileCommon, FileExport, identity},
};
use crate::{
    failure::Failure,
    load::{
        AfterLoss, Direct, Facts,
        link::Control,
        settings::{Settings, Workers},
        verify::hex,
    },
    server::{ServerBackend, ServerConfig},
};

/// The calls of each worker start at different xids.
const XIDS_OF_WORKER: u32 = 1 << 16;

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
        form: "nfs41://HOST[:PORT][,HOST…]/EXPORT/FILE",
        common_options: &["uid", "gid", "keep_alive_ns"],
        has_paths: true,
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
        let (instance, path, keep_alive) = (settings.instance, settings.path, settings.keep_alive);
        let (identity, file) = (identity(settings), unit.file.clone());
        let client = move |now, worker| {
            let config = ClientConfig {
                file: file.clone(),
                identity: identity.clone(),
                owner: format!("iotax {instance:08x} {path} {worker}").into_bytes(),
                depth: workers.outstanding as usize,
                first_xid: Xid(instance.wrapping_add(worker + 1).wrapping_mul(XIDS_OF_WORKER)),
                keep_alive,
                ..ClientConfig::default()
            };
            Client::new(now, config)
        };
        Ok(Box::new(Direct::new(SocketAddr::new(settings.address, unit.port), workers, client)))
    }

    /// A client that comes again, at any address of the server, ends what it had there before (RFC 8881 §18.35.5).
    fn after_loss(_: &Client) -> Option<AfterLoss> {
        Some(AfterLoss::Login { group: Some(0) })
    }

    fn facts(client: &Client) -> Facts {
        let channel = client.channel();
        let negotiated = [
            ("minor_version", u64::from(MINOR_VERSION)),
            ("slots", channel.max_requests.into()),
            ("max_request_bytes", channel.max_request.into()),
            ("max_response_bytes", channel.max_response.into()),
            ("lease_seconds", client.lease().as_secs()),
        ];
        let negotiated = negotiated.map(|(name, value)| (name, value.to_string())).to_vec();
        Facts { identity: vec![("server", hex(client.server()))], negotiated }
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
