//! NVMe/TCP: one controller per thread, with an I/O queue per worker.

use std::net::SocketAddr;

use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, IoError, Tag, Transmit, Violation,
    nvme::{
        AnaState, QueueId,
        auth::{Agreed, Entropy, HostConfig, Policy},
        fabrics::host::SessionConfig,
    },
    nvme_tcp::{AdminQueue, ConnectConfig, IoQueue, pdu::Digests},
};

use super::{Options, Unit};
use crate::{
    access::Access,
    failure::{Failure, FailureKind},
    load::{
        Facts,
        link::{Control, ControlStep, Link},
        settings::{Settings, Workers},
    },
    protocols::nvm_subsystem::{host, identity},
    random::Randomness,
};

pub(super) struct Controller {
    to: SocketAddr,
    /// Without the authentication, which is different for each queue.
    config: ConnectConfig,
    dhchap: Option<Policy>,
    randomness: Randomness,
    workers: Workers,
    place: String,
    admin: Option<AdminQueue>,
    news: News,
    opened: bool,
    closing: bool,
    /// Used before the admin queue exists.
    nothing: Transmit,
}

/// Events of the admin queue.
#[derive(Default)]
struct News {
    ready: bool,
    closed: bool,
}

impl Controller {
    pub(super) fn new(
        unit: &Unit,
        settings: &Settings,
        options: &Options,
        workers: Workers,
        place: &str,
    ) -> Result<Self, Failure> {
        let queues = u16::try_from(workers.count).map_err(|_| Failure::usage("at most 65535 a thread", "workers"))?;
        let (host, host_id) = host(settings);
        let defaults = SessionConfig::new(&unit.nqn, host, host_id);
        let config = ConnectConfig {
            digests: Digests { header: settings.header_digest, data: settings.data_digest },
            session: SessionConfig {
                // A queue has at least two entries (NVMe base 2.1 §3.3.3.1).
                depth: workers.outstanding.clamp(2, u32::from(u16::MAX)) as u16,
                io_queues: queues,
                nsid: Some(unit.nsid),
                keep_alive: settings.keep_alive.unwrap_or(defaults.keep_alive),
                watches_access: settings.has_paths,
                ..defaults
            },
        };
        Ok(Self {
            to: SocketAddr::new(settings.address, unit.port),
            config,
            dhchap: options.dhchap.clone(),
            randomness: settings.randomness.clone(),
            workers,
            place: place.to_owned(),
            admin: None,
            news: News::default(),
            opened: false,
            closing: false,
            nothing: Transmit::default(),
        })
    }

    /// The configuration of one connection of one queue, with authentication values that no other connection has.
    fn queue_config(&self) -> ConnectConfig {
        let auth = self.dhchap.clone().map(|Policy { secret, controller, hash, group }| {
            let mut entropy = [0; 32];
            self.randomness.source("dhchap").fill(&mut entropy);
            HostConfig { secret, controller, hash, group, entropy: Entropy(entropy) }
        });
        let mut config = self.config.clone();
        config.session.auth = auth;
        config
    }

    fn open(&self, now: Instant, admin: &AdminQueue) -> ControlStep<IoQueue> {
        let info = admin.controller().expect("ready once the controller is known");
        if u32::from(info.io_queues) < self.workers.count {
            let message = format!(
                "the controller grants {} I/O queues and the load needs {}",
                info.io_queues, self.workers.count
            );
            return ControlStep::Failed(Failure::new(FailureKind::Usage, message, self.place.clone()));
        }
        let link = |qid| {
            let queue = IoQueue::new(now, &self.queue_config(), info, QueueId(qid));
            Link { initiator: queue, to: Some(self.to) }
        };
        ControlStep::Open((1..=self.workers.count as u16).map(link).collect())
    }
}

impl Control<IoQueue> for Controller {
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation> {
        self.admin.as_mut().map_or(Ok(()), |admin| admin.receive(now, bytes, &mut self.news))
    }

    fn transmit(&mut self) -> &mut Transmit {
        self.admin.as_mut().map_or(&mut self.nothing, Initiator::transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.admin.as_ref().and_then(Initiator::poll_timeout)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.admin.as_mut().map_or(Ok(()), |admin| admin.handle_timeout(now, &mut self.news))
    }

    fn step(&mut self, now: Instant) -> ControlStep<IoQueue> {
        let Some(admin) = &self.admin else {
            if self.closing {
                return ControlStep::Closed;
            }
            self.admin = Some(AdminQueue::new(now, self.queue_config()));
            return ControlStep::Connect(self.to);
        };
        if self.news.closed {
            return ControlStep::Closed;
        }
        if self.news.ready && !self.opened {
            let step = self.open(now, admin);
            self.opened = true;
            return step;
        }
        ControlStep::Wait
    }

    fn close(&mut self, now: Instant) {
        self.closing = true;
        if let Some(admin) = &mut self.admin {
            admin.close(now);
        }
    }

    fn needs_connection(&self) -> bool {
        true
    }

    fn access(&self) -> Option<Access> {
        self.admin.as_ref()?.access().map(access)
    }

    fn check_access(&mut self, now: Instant) {
        if let Some(admin) = &mut self.admin {
            admin.check_access(now);
        }
    }

    fn facts(&self) -> Facts {
        let Some(admin) = &self.admin else { return Facts::default() };
        let Some(info) = admin.controller() else { return Facts::default() };
        let digests = admin.connection().digests();
        Facts {
            identity: identity(info),
            negotiated: vec![
                ("cntlid", info.cntlid.0.to_string()),
                ("header_digest", digests.header.to_string()),
                ("data_digest", digests.data.to_string()),
                ("maxh2cdata_bytes", admin.connection().max_h2c_data_bytes().to_string()),
                ("in_capsule_bytes", info.in_capsule_bytes.to_string()),
                ("max_transfer_bytes", info.max_transfer_bytes.to_string()),
                ("io_queues", info.io_queues.to_string()),
                // One entry more than I/Os, so that a full queue differs from an empty one.
                ("queue_entries", (u32::from(self.config.session.depth.min(info.max_sq_size)) + 1).to_string()),
                ("keep_alive_ms", self.config.session.keep_alive.as_millis().to_string()),
                ("authentication", info.authentication.map_or_else(|| "none".to_owned(), authentication)),
            ],
        }
    }
}

/// The states in which a controller executes no commands (NVMe base 2.1 §8.1.1.6 to §8.1.1.8) are one.
fn access(state: AnaState) -> Access {
    match state {
        AnaState::Optimized => Access::Optimized,
        AnaState::NonOptimized => Access::NonOptimized,
        AnaState::Inaccessible | AnaState::PersistentLoss | AnaState::Change => Access::Inaccessible,
    }
}

impl InitiatorEvents for News {
    fn ready(&mut self, _: Instant, _: &Geometry) {
        self.ready = true;
    }

    fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}

    fn complete(&mut self, _: Instant, _: Tag, _: Result<(), IoError>) {}

    fn closed(&mut self, _: Instant) {
        self.closed = true;
    }
}

fn authentication(agreed: Agreed) -> String {
    let direction = if agreed.is_mutual { "both ways" } else { "one way" };
    format!("DH-HMAC-CHAP {direction}, {:?}, {:?}", agreed.hash, agreed.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_is_authenticated_with_what_another_was() {
        let secret =
            iotax_proto::nvme::auth::Secret::parse("DHHC-1:00:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:");
        let settings = Settings::new([127, 0, 0, 1].into(), 1, Randomness::new([1; 32]));
        let policy = Policy { secret: secret.expect("a secret"), controller: None, hash: None, group: None };
        let options = Options { dhchap: Some(policy) };
        let workers = Workers { first: 0, count: 1, outstanding: 1 };
        let unit = Unit { port: 4420, nqn: "nqn".to_owned(), nsid: 1 };
        let entropy = |controller: &Controller| controller.queue_config().session.auth.expect("a policy").entropy.0;
        let [first, again] =
            [(); 2].map(|()| Controller::new(&unit, &settings, &options, workers, "here").expect("settings"));
        let mut all = [entropy(&first), entropy(&first), entropy(&again), entropy(&again)];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "queues, reconnects and later runs differ");
    }
}
