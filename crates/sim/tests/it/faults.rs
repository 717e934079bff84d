//! Random faults: no acknowledged write is lost, no wrong data are read, everything continues once faults stop; and the
//! checkers find the bugs inserted for them.

use iotax_node::server::Protocol;
use iotax_sim::{Canary, Options, PROTOCOLS, trial};

/// Seeds per protocol in every test run; `make sim-test` runs more.
const SEEDS: u64 = 150;
/// A canary must be found within this many seeds.
const CANARY_SEEDS: u64 = 1_000;

fn protocols() -> impl Iterator<Item = Protocol> {
    PROTOCOLS.iter().map(|(protocol, _)| *protocol)
}

fn all_pass(protocol: Protocol) {
    let (mut commands, mut faults, mut lost) = (0, 0, 0);
    for seed in 0..SEEDS {
        let options = Options::draw(protocol, seed);
        let report = trial::run(&options);
        if !report.findings.is_empty() {
            let least = trial::minimise(&options);
            panic!("seed {seed}: {:?}\nagain: make sim-test SEED='{least}'", trial::run(&least).findings);
        }
        commands += report.counts.submitted;
        faults += report.faults;
        lost += report.counts.lost;
    }
    // Worlds in which nothing happens would pass, too.
    assert!(
        commands > 150 * SEEDS && faults > SEEDS && lost > SEEDS,
        "{commands} commands, {faults} faults, {lost} lost"
    );
}

#[test]
fn nvme_tcp_keeps_what_it_acknowledged() {
    all_pass(Protocol::NvmeTcp);
}

#[test]
fn iscsi_keeps_what_it_acknowledged() {
    all_pass(Protocol::Iscsi);
}

#[test]
fn fcp_keeps_what_it_acknowledged() {
    all_pass(Protocol::Fcp);
}

#[test]
fn fc_nvme_keeps_what_it_acknowledged() {
    all_pass(Protocol::FcNvme);
}

#[test]
fn nfs3_keeps_what_it_acknowledged() {
    all_pass(Protocol::Nfs3);
}

#[test]
fn nfs41_keeps_what_it_acknowledged() {
    all_pass(Protocol::Nfs41);
}

/// Number of seeds until the checkers find a canary.
fn seeds_until_found(protocol: Protocol, canary: Canary) -> u64 {
    let fails = |seed: &u64| {
        let options = Options { canary: Some(canary), ..Options::draw(protocol, *seed) };
        !trial::run(&options).findings.is_empty()
    };
    (0..CANARY_SEEDS).find(fails).unwrap_or_else(|| panic!("{canary:?} is not found by {protocol:?}")) + 1
}

#[test]
fn flush_that_never_reaches_the_disk_is_found() {
    for protocol in protocols() {
        seeds_until_found(protocol, Canary::DroppedFlush);
    }
}

#[test]
fn answer_to_another_command_is_found() {
    for protocol in protocols() {
        seeds_until_found(protocol, Canary::WrongTag);
    }
}

#[test]
fn call_that_is_carried_out_twice_is_found() {
    for protocol in [Protocol::Nfs3, Protocol::Nfs41] {
        seeds_until_found(protocol, Canary::ForgottenCall);
    }
}

#[test]
fn preemption_that_never_was_is_found() {
    for protocol in [Protocol::Iscsi, Protocol::Fcp, Protocol::NvmeTcp, Protocol::FcNvme] {
        seeds_until_found(protocol, Canary::StaleReservation);
    }
}

/// A world in which no client is fenced does not test reservations.
#[test]
fn clients_preempt_each_other_and_are_refused() {
    for protocol in [Protocol::Iscsi, Protocol::Fcp, Protocol::NvmeTcp, Protocol::FcNvme] {
        let (mut preempted, mut fenced) = (0, 0);
        for seed in 0..SEEDS {
            let options = Options { reserves: true, agents: 3, ..Options::draw(protocol, seed) };
            let report = trial::run(&options);
            assert_eq!(report.findings, Vec::<String>::new(), "{options}");
            (preempted, fenced) = (preempted + report.counts.preempted, fenced + report.counts.fenced);
        }
        assert!(preempted > SEEDS && fenced > SEEDS, "{protocol:?}: {preempted} preempted, {fenced} refused");
    }
}

#[test]
fn seed_gives_the_same_trace_again_and_another_seed_another() {
    for protocol in protocols() {
        for seed in 0..10 {
            let options = Options::draw(protocol, seed);
            let (first, again) = (trial::run(&options), trial::run(&options));
            assert_eq!(first, again, "{options}");
            let other = trial::run(&Options { seed: seed + 1000, ..options });
            assert_ne!(first.trace, other.trace);
        }
    }
}

#[test]
fn failing_trial_is_reduced_to_fewer_options_that_still_fail() {
    let failing = (0..CANARY_SEEDS)
        .map(|seed| Options { canary: Some(Canary::WrongTag), ..Options::draw(Protocol::NvmeTcp, seed) })
        .find(|options| options.faults.len() > 2 && !trial::run(options).findings.is_empty())
        .expect("one with faults that have nothing to do with it");
    let least = trial::minimise(&failing);
    assert!(least.faults.len() < failing.faults.len(), "{least}");
    assert!(!trial::run(&least).findings.is_empty(), "{least}");
    let written: Options = least.to_string().parse().expect("as it is written down");
    assert_eq!(trial::run(&written), trial::run(&least));
}

/// Seeds that found a bug, each with a description of the bug.
const KEPT: [(&str, &str); 14] = [
    (
        "a CRC over the memory of a volume that another command wrote to before it was sent",
        "protocol=fcp seed=128 faults=split agents=1 workers=2 depth=1 threads=1 block_size=0 names=0 commands=309 reserves=0",
    ),
    (
        "a write that was aborted with its connection, and was still at the disk, undid one of the next session",
        "protocol=iscsi seed=280 faults=reset,slow-media agents=1 workers=1 depth=1 threads=1 block_size=512 commands=329 reserves=0",
    ),
    (
        "the same, beside failing media",
        "protocol=iscsi seed=296 faults=half-close,media-error,slow-media agents=3 workers=1 depth=1 threads=1 \
         block_size=4096 commands=277 reserves=0",
    ),
    (
        "a session that was reinstated ended its tasks only when it next looked, up to a second later",
        "protocol=iscsi seed=24 faults=vanish,slow-media agents=1 workers=1 depth=2 threads=1 block_size=512 commands=209 reserves=0",
    ),
    (
        "the same after the initiator crashed",
        "protocol=iscsi seed=111 faults=slow-media,initiator-crash agents=1 workers=1 depth=1 threads=1 block_size=512 \
         commands=74 reserves=0",
    ),
    (
        "the same, with power lost beside",
        "protocol=iscsi seed=298 faults=vanish,power-loss,slow-media agents=1 workers=1 depth=2 threads=1 \
         block_size=4096 commands=392 reserves=0",
    ),
    (
        "an operation that was aborted while it waited for blocks stayed in the list of those that wait",
        "protocol=nfs3 seed=204 faults=stall,half-close,vanish,slow-media agents=2 workers=1 depth=6 threads=1 \
         block_size=4096 names=0 commands=254",
    ),
    (
        "the world let a connection stand beside a later one from the same port, as TCP does not: a call stalled there came a \
         minute late, after the 1,024 replies that the server remembers, and was carried out again",
        "protocol=nfs3 seed=5290 faults=stall agents=1 workers=1 depth=1 threads=1 block_size=4096 names=1 commands=63",
    ),
    (
        "the same, where what it did again was to remove",
        "protocol=nfs3 seed=6540 faults=stall agents=1 workers=1 depth=1 threads=1 block_size=512 names=1 commands=326",
    ),
    (
        "a command that took too long ended its association, as it must, and was told as failed: another session may do it",
        "protocol=fc-nvme seed=998 faults=slow-media,clock-step agents=1 workers=1 depth=1 threads=1 block_size=512 names=0 \
         commands=84 reserves=0",
    ),
    (
        "the same, beside failing media",
        "protocol=fc-nvme seed=8750 faults=media-error,slow-media,clock-step agents=2 workers=2 depth=2 threads=1 \
         block_size=512 names=0 commands=315 reserves=0",
    ),
    (
        "a controller whose host was silent closed its connection, and what it had begun on the disk went on until its last answers \
         had left, which a stall kept: it undid a write of the next session",
        "protocol=fc-nvme seed=13540 faults=stall,slow-media,clock-step agents=1 workers=1 depth=5 threads=1 block_size=512 \
         names=0 commands=219 reserves=0",
    ),
    (
        "the same on two threads",
        "protocol=fc-nvme seed=5222 faults=stall,slow-media,clock-step agents=1 workers=2 depth=2 threads=2 block_size=4096 \
         names=0 commands=277 reserves=0",
    ),
    (
        "the checker took a write for ended by the preemption of its host, which crashed and came back: over NVMe a host is registered, so \
         what was still on the way of its earlier connection was let in with it",
        "protocol=nvme-tcp seed=18031 faults=split,stall,initiator-crash agents=2 workers=1 depth=2 threads=2 block_size=512 \
         names=0 reserves=1 commands=373",
    ),
];

#[test]
fn seeds_that_found_a_bug_pass() {
    for (what, options) in KEPT {
        let options: Options = options.parse().expect("options");
        assert_eq!(trial::run(&options).findings, Vec::<String>::new(), "{what}: {options}");
    }
}
