//! iSCSI: each worker has a session with an ISID of its own.

use iotax_proto::{
    Instant,
    iscsi::{
        DigestWish, Wishes,
        chap::CHALLENGE_LEN,
        initiator::{self, Config, Mutual, Session},
    },
    scsi::AccessState,
};

use super::{Options, Unit};
use crate::{
    access::Access,
    load::{Facts, settings::Settings},
    protocols::logical_unit::identity_facts,
    random::Randomness,
    secrets::Chap,
};

/// With several paths, fewer workers than this power of two have different names on all of them.
const PATH_SHIFT: u32 = 13;
const INITIATOR: &str = "iqn.2026-11.io.iotax:load";

pub(super) struct Login {
    config: Config,
    chap: Option<Chap>,
    randomness: Randomness,
    instance: u32,
    path: u32,
}

impl Login {
    pub(super) fn new(unit: &Unit, settings: &Settings, options: &Options, outstanding: u32) -> Self {
        let initiator = settings.initiator.as_deref().unwrap_or(INITIATOR);
        let defaults = Wishes::default();
        let digest = |wanted| if wanted { DigestWish::Require } else { DigestWish::Accept };
        let unnamed = Config::new(initiator, &unit.iqn, unit.lun);
        let config = Config {
            wishes: Wishes {
                header_digest: digest(settings.header_digest),
                data_digest: digest(settings.data_digest),
                immediate_data: options.immediate_data.unwrap_or(defaults.immediate_data),
                initial_r2t: options.initial_r2t.unwrap_or(defaults.initial_r2t),
                first_burst_len: options.first_burst_bytes.unwrap_or(defaults.first_burst_len),
                max_burst_len: options.max_burst_bytes.unwrap_or(defaults.max_burst_len),
                max_recv_segment_len: options.max_recv_data_segment_bytes.unwrap_or(defaults.max_recv_segment_len),
                ..defaults
            },
            // The target is pinged after half of the time, and lost after the other half.
            ping_interval: settings.keep_alive.map_or(unnamed.ping_interval, |keep_alive| keep_alive / 2),
            login_timeout: settings.keep_alive.unwrap_or(unnamed.login_timeout),
            queue_depth: outstanding.clamp(1, 4096) as u16,
            watches_access: settings.has_paths,
            ..unnamed
        };
        let (chap, randomness, instance) = (options.chap.clone(), settings.randomness.clone(), settings.instance);
        Self { config, chap, randomness, instance, path: settings.path }
    }

    pub(super) fn session(&self, now: Instant, worker: u32) -> Session {
        let isid = isid(self.instance, self.path, worker);
        Session::new(now, Config { isid, chap: self.chap(), ..self.config.clone() })
    }

    /// The initiator's side of CHAP: each session sends the target a new challenge.
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

/// The states in which a target executes no I/O are one (SPC-4 §5.15).
pub(super) fn access(state: AccessState) -> Access {
    match state {
        AccessState::Optimized | AccessState::BlockDependent => Access::Optimized,
        AccessState::NonOptimized => Access::NonOptimized,
        AccessState::Standby | AccessState::Unavailable | AccessState::Offline | AccessState::Transitioning => {
            Access::Inaccessible
        }
    }
}

/// What a session found and negotiated.
pub(super) fn facts(session: &Session) -> Facts {
    let yes = |yes: bool| if yes { "Yes" } else { "No" }.to_owned();
    let digest = |on: bool| if on { "CRC32C" } else { "None" }.to_owned();
    let agreed = session.agreed();
    Facts {
        identity: identity_facts(session.inquiry(), session.serial()),
        negotiated: vec![
            ("HeaderDigest", digest(agreed.header_digest)),
            ("DataDigest", digest(agreed.data_digest)),
            ("ImmediateData", yes(agreed.immediate_data)),
            ("InitialR2T", yes(agreed.initial_r2t)),
            ("FirstBurstLength", agreed.first_burst_len.to_string()),
            ("MaxBurstLength", agreed.max_burst_len.to_string()),
            ("MaxOutstandingR2T", agreed.max_outstanding_r2t.to_string()),
            ("MaxRecvDataSegmentLength", agreed.max_recv_segment_len.to_string()),
            ("MaxRecvDataSegmentLength of the target", agreed.max_send_segment_len.to_string()),
            ("AuthMethod", session.auth_method().to_owned()),
        ],
    }
}

/// The random format (RFC 7143 §11.12.5): 24 bits distinguish loads, 16 distinguish workers and their paths.
fn isid(instance: u32, path: u32, worker: u32) -> [u8; 6] {
    let [_, a, b, c] = instance.to_be_bytes();
    let [high, low] = ((path << PATH_SHIFT) as u16 ^ worker as u16).to_be_bytes();
    [0x80, a, b, c, high, low]
}
