//! What happens to targets and their paths while a load runs, in the lab that measures.

use std::time::Duration;

use iotax_node::{
    Access, RunConfig,
    load::{Arrivals, Open, Pacing, PathPolicy},
    server::Protocol,
};
use iotax_sim::{
    Link,
    lab::{Happening, Lab, Paths, Simulated, What},
};

use crate::support::{lab, reads};

const PROTOCOLS: [Protocol; 3] = [Protocol::NvmeTcp, Protocol::Iscsi, Protocol::Nfs41];
/// Protocols whose targets report their access.
const WITH_ACCESS: [Protocol; 2] = [Protocol::NvmeTcp, Protocol::Iscsi];
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const RUNTIME: Duration = Duration::from_secs(10);
const LASTS: Duration = Duration::from_secs(4);
const NS: u64 = 1_000_000_000;

/// Two machines, each with two paths, whose written blocks are read back after the run.
fn happening(protocol: Protocol, policy: PathPolicy, what: What) -> Simulated {
    happening_in(protocol, policy, what, RUNTIME)
}

fn happening_in(protocol: Protocol, policy: PathPolicy, what: What, runtime: Duration) -> Simulated {
    let link = Link { latency: Duration::from_micros(20), ..Link::default() };
    let two = Lab {
        machines: 2,
        filled: true,
        paths: Paths { ports: 2, target_ports: 2, portals: true, ..Paths::default() },
        happenings: vec![Happening { at: Duration::from_secs(2), lasts: LASTS, what }],
        ..lab(protocol, link)
    };
    let pacing = Pacing::Open(Open { rate_iops: 500.0, arrivals: Arrivals::Poisson, backlog_max: 100_000 });
    let run =
        RunConfig { read_percent: 50.0, verify: true, filled: true, read_back: true, pacing, ..reads(4, runtime) };
    let adapt = |mut connection: iotax_node::load::connector::ConnectionConfig| {
        connection.policy = policy;
        connection.settings.keep_alive = Some(KEEP_ALIVE);
        Ok(connection)
    };
    two.run(&run, 1, None, adapt, |_| {})
        .unwrap_or_else(|failure| panic!("{protocol:?} {policy:?} {what:?}: {failure}"))
}

fn is_clean(simulated: &Simulated) -> bool {
    let measured = &simulated.measured;
    let errors = measured.read.errors + measured.write.errors;
    errors == 0 && measured.verify.wrong_blocks == 0 && measured.verify.read_back_blocks > 100
}

#[test]
fn silent_path_stops_ios_until_the_keep_alive_has_passed() {
    for (protocol, policy) in
        PROTOCOLS.into_iter().flat_map(|each| [PathPolicy::Fixed, PathPolicy::RoundRobin].map(|policy| (each, policy)))
    {
        let simulated = happening(protocol, policy, What::Fail { path: 0 });
        let gap_ns = simulated.measured.gaps.longest_ns;
        assert!((NS / 2..NS * 3 / 2).contains(&gap_ns), "{protocol:?} {policy:?}: {gap_ns}");
        assert!(is_clean(&simulated), "{protocol:?} {policy:?}");
        let (told, paths) = simulated.paths.expect("two paths");
        assert_eq!((told, paths.len(), paths[0].portal.as_str()), (policy, 2, "path 1"));
        assert!(paths[0].losses == 1 && paths[1].losses == 0, "{paths:?}");
        assert!(paths.iter().all(|path| path.counts.completed > 1000), "{protocol:?} {policy:?}: {paths:?}");
    }
}

#[test]
fn path_that_is_lost_when_the_run_ends_is_opened_again_while_blocks_are_read_back() {
    for protocol in PROTOCOLS {
        // It fails 2 s into a run that ends while the path is down.
        let what = What::Fail { path: 0 };
        let simulated = happening_in(protocol, PathPolicy::RoundRobin, what, Duration::from_secs(4));
        assert!(is_clean(&simulated), "{protocol:?}");
        let (_, paths) = simulated.paths.expect("two paths");
        assert!(paths[0].losses == 1 && paths[0].down >= Duration::from_secs(1), "{protocol:?}: {paths:?}");
    }
}

#[test]
fn target_that_is_down_when_the_run_ends_is_reached_again_to_read_back() {
    for protocol in PROTOCOLS {
        let simulated = happening_in(protocol, PathPolicy::Fixed, What::Kill, Duration::from_secs(4));
        assert!(is_clean(&simulated), "{protocol:?}");
    }
}

#[test]
fn frozen_target_completes_nothing_until_it_answers_again() {
    for protocol in PROTOCOLS {
        let simulated = happening(protocol, PathPolicy::RoundRobin, What::Freeze);
        let gap = Duration::from_nanos(simulated.measured.gaps.longest_ns);
        assert!((LASTS..LASTS + KEEP_ALIVE).contains(&gap), "{protocol:?}: {gap:?}");
        assert!(is_clean(&simulated), "{protocol:?}");
    }
}

#[test]
fn killed_target_ends_all_connections_keeps_its_data_and_is_used_again() {
    for protocol in PROTOCOLS {
        let simulated = happening(protocol, PathPolicy::RoundRobin, What::Kill);
        let gap = Duration::from_nanos(simulated.measured.gaps.longest_ns);
        assert!((LASTS..LASTS + KEEP_ALIVE).contains(&gap), "{protocol:?}: {gap:?}");
        assert!(is_clean(&simulated), "{protocol:?}");
        let (_, paths) = simulated.paths.expect("two paths");
        assert!(paths.iter().all(|path| path.losses >= 1 && path.counts.completed > 500), "{protocol:?}: {paths:?}");
    }
}

#[test]
fn path_without_access_is_left_at_once_and_used_again() {
    for protocol in WITH_ACCESS {
        let what = What::Access { path: 0, access: Access::Inaccessible };
        let simulated = happening(protocol, PathPolicy::Fixed, what);
        assert!(simulated.measured.gaps.longest_ns < NS / 10, "{protocol:?}");
        assert!(is_clean(&simulated), "{protocol:?}");
        let (_, paths) = simulated.paths.expect("two paths");
        assert!(paths.iter().all(|path| path.losses == 0 && path.counts.completed > 1000), "{paths:?}");
    }
}

#[test]
fn path_that_flaps_is_lost_each_time_that_it_fails_for_long_enough() {
    for protocol in PROTOCOLS {
        let lost = |every| {
            let simulated = happening(protocol, PathPolicy::Fixed, What::Flap { path: 0, every });
            assert!(is_clean(&simulated), "{protocol:?}");
            simulated.paths.expect("two paths").1[0].losses
        };
        assert_eq!(lost(LASTS * 5 / 8), 2, "{protocol:?}");
        assert_eq!(lost(KEEP_ALIVE / 4), 0, "{protocol:?}");
    }
}
