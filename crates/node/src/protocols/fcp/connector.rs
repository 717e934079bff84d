//! FCP: each worker logs in from an initiator port of its own.

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fcp::initiator::{Config, Session},
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
        logical_unit::identity_facts,
    },
};

pub(super) struct Login {
    to: SocketAddr,
    unit: Unit,
    instance: u32,
    workers: Workers,
}

impl Login {
    pub(super) fn new(unit: &Unit, settings: &Settings, workers: Workers) -> Self {
        let to = SocketAddr::new(settings.address, unit.port);
        Self { to, unit: unit.clone(), instance: settings.instance, workers }
    }

    pub(super) fn links(&self, now: Instant) -> Vec<Link<Session>> {
        let link = |worker| {
            let config = Config {
                queue_depth: self.workers.outstanding.clamp(1, 4096) as u16,
                ..Config::new(initiator_port(self.instance, worker), self.unit.target, self.unit.lun)
            };
            Link { initiator: Session::new(now, config), to: Some(self.to) }
        };
        self.workers.numbers().map(link).collect()
    }
}

/// What a session found and negotiated.
pub(super) fn facts(session: &Session) -> Facts {
    let negotiated = session.target().map_or(Vec::new(), negotiated);
    Facts { identity: identity_facts(session.inquiry(), session.serial()), negotiated }
}
