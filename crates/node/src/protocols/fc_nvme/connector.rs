//! FC-NVMe: each worker logs in from an initiator port of its own, with an association and its one I/O queue.

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fc_nvme::initiator::{Config, Session},
    nvme::fabrics::host::SessionConfig,
};

use super::Unit;
use crate::{
    load::{
        Facts,
        link::Link,
        settings::{Settings, Workers},
    },
    protocols::{
        fibre_channel::{initiator_port, negotiated},
        nvm_subsystem::{host, identity},
    },
};

pub(super) struct Login {
    to: SocketAddr,
    unit: Unit,
    session: SessionConfig,
    instance: u32,
    workers: Workers,
}

impl Login {
    pub(super) fn new(unit: &Unit, settings: &Settings, workers: Workers) -> Self {
        let (host, host_id) = host(settings);
        let session = SessionConfig {
            // A queue has at least two entries (NVMe base 2.1 §3.3.3.1).
            depth: workers.outstanding.clamp(2, 4096) as u16,
            nsid: Some(unit.nsid),
            ..SessionConfig::new(&unit.nqn, host, host_id)
        };
        let to = SocketAddr::new(settings.address, unit.port);
        Self { to, unit: unit.clone(), session, instance: settings.instance, workers }
    }

    pub(super) fn links(&self, now: Instant) -> Vec<Link<Session>> {
        let link = |worker| {
            let port = initiator_port(self.instance, worker);
            let config = Config::new(port, self.unit.target, self.session.clone());
            Link { initiator: Session::new(now, config), to: Some(self.to) }
        };
        self.workers.numbers().map(link).collect()
    }
}

/// What a session found and negotiated.
pub(super) fn facts(session: &Session) -> Facts {
    let mut facts = Facts { negotiated: session.target().map_or(Vec::new(), negotiated), ..Facts::default() };
    if let Some(info) = session.controller() {
        facts.identity = identity(info);
        facts.negotiated.push(("max_transfer_bytes", info.max_transfer_bytes.to_string()));
    }
    facts
}
