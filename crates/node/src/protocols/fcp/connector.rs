//! FCP: a login a worker, each of an initiator port of its own.

use std::net::SocketAddr;

use iotax_proto::{
    Instant,
    fcp::{
        Port, PortName,
        initiator::{Config, Session},
    },
};

use super::Unit;
use crate::{
    load::{
        Facts,
        link::Link,
        settings::{Settings, Workers},
    },
    protocols::logical_unit::identity_facts,
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
            let port = Port::new(name(self.instance, worker as u16 + 1), name(self.instance, 0));
            let config = Config {
                queue_depth: self.workers.outstanding.clamp(1, 4096) as u16,
                ..Config::new(port, self.unit.target, self.unit.lun)
            };
            Link { initiator: Session::new(now, config), to: Some(self.to) }
        };
        self.workers.numbers().map(link).collect()
    }
}

/// A name of the locally assigned form (NAA 3): the load's, then the worker's.
fn name(instance: u32, worker: u16) -> PortName {
    PortName(0x3010 << 48 | u64::from(instance) << 16 | u64::from(worker))
}

/// What a session found and agreed on.
pub(super) fn facts(session: &Session) -> Facts {
    let negotiated = session.target().map_or(Vec::new(), |target| {
        vec![
            ("BB_Credit of the target", target.credit.to_string()),
            ("Receive Data Field Size of the target", target.frame_data_len.to_string()),
        ]
    });
    Facts { identity: identity_facts(session.inquiry(), session.serial()), negotiated }
}
