//! iSCSI: a session a worker, each with an ISID of its own.

use std::net::SocketAddr;

use iotax_proto::{
    Instant, Transmit, Violation,
    iscsi::{
        DigestWish, Wishes,
        chap::CHALLENGE_LEN,
        initiator::{self, Config, Mutual, Session},
    },
};

use super::{Settings, Workers};
use crate::{
    failure::Failure,
    load::{
        facts::Facts,
        link::{AnyInitiator, Control, Link, Step},
    },
    random::Randomness,
    secrets::Chap,
};

const INITIATOR: &str = "iqn.2026-11.io.iotax:load";

struct Login {
    to: SocketAddr,
    config: Config,
    chap: Option<Chap>,
    randomness: Randomness,
    instance: u32,
    workers: Workers,
    opened: bool,
    closing: bool,
    /// Sessions need no connection beside their own.
    transmit: Transmit,
}

pub(super) fn control(
    port: u16,
    iqn: &str,
    lun: u64,
    settings: &Settings,
    workers: Workers,
) -> Result<Box<dyn Control>, Failure> {
    settings.refuse_nfs("iSCSI")?;
    settings.refuse_nvme("iSCSI")?;
    let lun = u16::try_from(lun).map_err(|_| Failure::usage("a LUN is at most 65535", "endpoint"))?;
    let initiator = settings.initiator.as_deref().unwrap_or(INITIATOR);
    let defaults = Wishes::default();
    let digest = |wanted| if wanted { DigestWish::Require } else { DigestWish::Accept };
    let config = Config {
        wishes: Wishes {
            header_digest: digest(settings.header_digest),
            data_digest: digest(settings.data_digest),
            immediate_data: settings.immediate_data.unwrap_or(defaults.immediate_data),
            initial_r2t: settings.initial_r2t.unwrap_or(defaults.initial_r2t),
            first_burst_len: settings.first_burst_bytes.unwrap_or(defaults.first_burst_len),
            max_burst_len: settings.max_burst_bytes.unwrap_or(defaults.max_burst_len),
            max_recv_segment_len: settings.max_recv_data_segment_bytes.unwrap_or(defaults.max_recv_segment_len),
            ..defaults
        },
        queue_depth: workers.outstanding.clamp(1, 4096) as u16,
        ..Config::new(initiator, iqn, lun)
    };
    let to = SocketAddr::new(settings.address, port);
    let transmit = Transmit::default();
    let (chap, randomness, instance) = (settings.chap.clone(), settings.randomness.clone(), settings.instance);
    Ok(Box::new(Login { to, config, chap, randomness, instance, workers, opened: false, closing: false, transmit }))
}

impl Login {
    /// Our part in CHAP: each session challenges the target anew.
    fn chap(&self) -> Option<initiator::Chap> {
        let Chap { initiator, target } = self.chap.clone()?;
        let mutual = |credentials| {
            let mut random = [0; 1 + CHALLENGE_LEN];
            self.randomness.source("challenge").fill(&mut random);
            let [identifier, challenge @ ..] = random;
            Mutual { credentials, identifier, challenge: challenge.to_vec() }
        };
        Some(initiator::Chap { initiator, target: target.map(mutual) })
    }
}

impl Control for Login {
    fn receive(&mut self, _: Instant, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Violation> {
        Ok(())
    }

    fn step(&mut self, now: Instant) -> Step {
        if self.closing {
            return Step::Closed;
        }
        if std::mem::replace(&mut self.opened, true) {
            return Step::Wait;
        }
        let link = |worker| {
            let config = Config { isid: isid(self.instance, worker), chap: self.chap(), ..self.config.clone() };
            Link { initiator: AnyInitiator::Iscsi(Box::new(Session::new(now, config))), to: Some(self.to) }
        };
        Step::Open(self.workers.numbers().map(link).collect())
    }

    fn close(&mut self, _: Instant) {
        self.closing = true;
    }

    fn needs_connection(&self) -> bool {
        false
    }

    /// The session itself knows.
    fn facts(&self) -> Facts {
        Facts::default()
    }
}

/// The random format (RFC 7143 §11.12.5): 24 bits that tell loads apart, 16 that tell workers apart.
fn isid(instance: u32, worker: u32) -> [u8; 6] {
    let [_, a, b, c] = instance.to_be_bytes();
    let [high, low] = (worker as u16).to_be_bytes();
    [0x80, a, b, c, high, low]
}
