//! NFSv4.1: each worker has a connection and a client of its own.

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    nfs::v41::initiator::{Client, Config},
    rpc::{Xid, auth::Identity},
};

use super::Unit;
use crate::{
    load::{
        Facts,
        link::Link,
        settings::{Settings, Workers},
    },
    protocols::file_export::identity,
};

/// The calls of each worker start at different xids.
const XIDS_OF_WORKER: u32 = 1 << 16;

pub(super) struct Opening {
    to: SocketAddr,
    file: String,
    identity: Identity,
    instance: u32,
    workers: Workers,
}

impl Opening {
    pub(super) fn new(unit: &Unit, settings: &Settings, workers: Workers) -> Self {
        Self {
            to: SocketAddr::new(settings.address, unit.port),
            file: unit.file.clone(),
            identity: identity(settings),
            instance: settings.instance,
            workers,
        }
    }

    pub(super) fn links(&self, now: Instant) -> Vec<Link<Client>> {
        let link = |worker: u32| {
            let first_xid = self.instance.wrapping_add(worker + 1).wrapping_mul(XIDS_OF_WORKER);
            let config = Config {
                file: self.file.clone(),
                identity: self.identity.clone(),
                owner: format!("iotax {:08x} {worker}", self.instance).into_bytes(),
                depth: self.workers.outstanding as usize,
                first_xid: Xid(first_xid),
                ..Config::default()
            };
            Link { initiator: Client::new(now, config), to: Some(self.to) }
        };
        self.workers.numbers().map(link).collect()
    }
}

/// What a session negotiated.
pub(super) fn facts(client: &Client) -> Facts {
    let channel = client.channel();
    let negotiated = [
        ("minor_version", u64::from(iotax_proto::nfs::v41::MINOR_VERSION)),
        ("slots", channel.max_requests.into()),
        ("max_request_bytes", channel.max_request.into()),
        ("max_response_bytes", channel.max_response.into()),
        ("lease_seconds", client.lease().as_secs()),
    ];
    let negotiated = negotiated.map(|(name, value)| (name, value.to_string())).to_vec();
    Facts { identity: Vec::new(), negotiated }
}
