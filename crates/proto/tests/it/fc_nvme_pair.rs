//! The initiator against the target, with the byte stream split at every position.
#![allow(clippy::unwrap_used)]

use crate::fc_nvme_support::{Pair, config, target_config};
use crate::nvme_support::{Answers, BLOCK, BLOCKS, Cut, Server};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Misuse, Payload, Refusal, Target, ViolationKind,
    fc_nvme::{PortName, decode::describe, initiator, target_side},
};

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Pairs of configurations that lead to different bytes on the wire.
fn variants() -> Vec<(initiator::Config, target_side::Config)> {
    let plain = (config(1024, 2048), target_config(1024, 2048, 1 << 20));
    let starved = (config(1, 512), target_config(1, 2112, 1 << 20));
    let odd = (initiator::Config { ersp_ratio: 1, ..config(3, 2112) }, target_config(7, 260, 3000));
    let mut flow = config(64, 256);
    flow.session.disable_sq_flow_control = false;
    vec![plain, starved, odd, (flow, target_config(2, 256, 512))]
}

/// Does each kind of I/O once and checks it against the volume.
fn exercise(pair: &mut Pair) {
    for (tag, len) in [(0, BLOCK), (1, 8 * BLOCK), (2, 9 * BLOCK), (3, 40 * BLOCK)] {
        let data = pattern(tag as u8, len);
        pair.write(tag, 512, &data);
        assert_eq!(pair.server.volume[512..512 + len], data);
        assert_eq!(pair.read(tag, 512, len), data);
    }
    assert_eq!(pair.io(4, Io::Flush), Ok(Vec::new()));
    assert_eq!(pair.io(5, Io::WriteZeroes { offset: 512, len: 1024 }), Ok(Vec::new()));
    assert_eq!(pair.server.volume[512..1536], [0; 1024]);
    assert_eq!(pair.io(6, Io::Unmap { offset: 1536, len: 512 }), Ok(Vec::new()));
    assert_eq!(pair.server.volume[1536..2048], [0xdd; 512]);
    assert_eq!(pair.server.outstanding(), 0);
}

#[test]
fn every_variant_does_every_io_in_deliveries_of_any_size() {
    for (initiator, target) in variants() {
        for answers in [Answers::AtOnce, Answers::Later] {
            for cut in [Cut::Never, Cut::Pieces(1), Cut::Pieces(7), Cut::Pieces(1000)] {
                let mut server = Server::new();
                server.answers = answers;
                let mut pair = Pair::ready(initiator.clone(), target.clone(), server, cut);
                assert_eq!(pair.events.geometry.as_ref().unwrap().size_bytes, (BLOCK * BLOCKS) as u64);
                exercise(&mut pair);
                pair.close();
            }
        }
    }
}

#[test]
fn streams_may_be_split_at_every_byte() {
    let run = |(initiator, target): &(initiator::Config, target_side::Config), cut| {
        let mut pair = Pair::ready(initiator.clone(), target.clone(), Server::new(), cut);
        let data = pattern(3, 1536);
        pair.write(0, 512, &data);
        assert_eq!(pair.read(1, 512, 1536), data);
        pair.close();
        pair.to_target.len().max(pair.to_initiator.len())
    };
    // This variant splits the data into unequal pieces. What is sent depends on when credits arrive; what is received
    // does not.
    let variant = &variants()[2];
    for at in 0..run(variant, Cut::Never) {
        run(variant, Cut::At(at));
    }
}

#[test]
fn many_ios_are_outstanding_at_once_however_few_the_credits() {
    for (credit, cut) in [(1024, Cut::Never), (1, Cut::Pieces(999)), (4, Cut::Pieces(100))] {
        let (initiator, target) = (config(credit, 2048), target_config(credit, 2048, 1024));
        let mut pair = Pair::ready(initiator, target, Server::new(), cut);
        pair.server.answers = Answers::Later;
        assert_eq!(pair.initiator.credits(), 32);
        for tag in 0..32 {
            let data = Payload::from_vec(pattern(tag as u8, 4096));
            pair.initiator
                .submit(pair.now, tag, Io::Write { offset: u64::from(tag) * 4096, data, durable: false })
                .unwrap();
        }
        assert_eq!(pair.initiator.submit(pair.now, 0, Io::Flush), Err(Misuse::NoCredit));
        pair.run().unwrap();
        assert_eq!(pair.events.completions.drain(..).filter(|(_, result)| result.is_ok()).count(), 32);
        for tag in 0..32 {
            pair.initiator.submit(pair.now, tag, Io::Read { offset: u64::from(tag) * 4096, len: 4096 }).unwrap();
        }
        pair.run().unwrap();
        for tag in 0..32 {
            assert_eq!(pair.events.data[&tag], pattern(tag as u8, 4096));
        }
    }
}

/// A description of each frame in `bytes`.
fn said(bytes: &[u8]) -> Vec<String> {
    let (mut at, mut words) = (0, Vec::new());
    while let Some((len, line)) = describe(&bytes[at..]).unwrap() {
        words.push(line);
        at += len;
    }
    words
}

#[test]
fn responses_are_short_but_for_one_of_as_many_as_the_host_asked_for() {
    for (ersp_ratio, wanted) in [(1, 12), (4, 3), (100, 0)] {
        let initiator = initiator::Config { ersp_ratio, ..config(1024, 2048) };
        let mut pair = Pair::ready(initiator, target_config(1024, 2048, 1 << 20), Server::new(), Cut::Never);
        pair.to_initiator.clear();
        for _ in 0..12 {
            pair.read(0, 0, 512);
        }
        let said = said(&pair.to_initiator);
        let count = |name| said.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!((count("NVMe_ERSP"), count("NVMe_RSP")), (wanted, 12 - wanted), "one of {ersp_ratio}");
    }
}

#[test]
fn a_failed_command_brings_its_status() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), Server::new(), Cut::Never);
    pair.server.read_only = true;
    pair.server.fails_with = Some(iotax_proto::UnitError::ReadOnly);
    let data = Payload::from_vec(vec![1; 512]);
    let result = pair.io(0, Io::Write { offset: 0, data, durable: false });
    assert!(matches!(result, Err(IoError::Failed { refusal: Refusal::ReadOnly, .. })), "{result:?}");
    pair.server.fails_with = None;
    assert_eq!(pair.read(0, 0, 512), pair.server.volume[..512]);
}

#[test]
fn ports_and_subsystems_that_are_not_here_or_not_let_in_are_refused_each_in_its_way() {
    let refused = |change: &dyn Fn(&mut initiator::Config, &mut Server)| {
        let (mut initiator, mut server) = (config(8, 512), Server::new());
        change(&mut initiator, &mut server);
        let mut pair = Pair::new(initiator, target_config(8, 512, 512), server, Cut::Never);
        let first = pair.run();
        let out = Target::<Server>::transmit(&mut pair.target).take_bytes();
        first.and_then(|()| pair.initiator.receive(pair.now, &out, &mut pair.events)).unwrap_err().kind
    };
    let (absent, denied) = (ViolationKind::Refused(Refusal::NotFound), ViolationKind::Refused(Refusal::Denied));
    assert_eq!(refused(&|config, _| config.target = PortName(5)), absent);
    assert_eq!(refused(&|_, server| server.port.refusal = Some(target_side::LoginRefusal::NotAuthorized)), denied);
    assert_eq!(refused(&|config, _| config.session.subnqn = "nqn.other".into()), absent);
    assert_eq!(refused(&|config, _| config.session.hostnqn = "nqn.stranger".into()), denied);
    assert_eq!(refused(&|config, _| config.session.nsid = Some(7)), absent);
}

#[test]
fn a_second_login_of_a_port_ends_the_first_and_begins_after_it() {
    let ready = |server| Pair::ready(config(8, 512), target_config(8, 512, 512), server, Cut::Never);
    let mut first = ready(Server::new());
    let mut server = Server::new();
    (server.port.logins, server.subsystem) = (first.server.port.logins.clone(), first.server.subsystem.clone());
    let mut second = Pair::new(config(8, 512), target_config(8, 512, 512), server, Cut::Never);
    second.run().unwrap();
    assert!(second.events.geometry.is_none(), "the first login has not heard of its end");
    assert_eq!(second.server.port.notified, 1);
    first.target.handle_notification(first.now, &mut first.server);
    second.target.handle_timeout(second.now, &mut second.server).unwrap();
    second.run_until(|pair| pair.events.geometry.is_some()).unwrap();
    assert!(Target::<Server>::is_closing(&first.target));
    assert!(!Target::<Server>::is_closing(&second.target));
    assert_eq!(first.server.subsystem.0.borrow().controller_count(), 1, "the first one's controller is gone");
}

/// A pair with a read that the server holds, and a write whose data the server has requested.
fn held() -> Pair {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), Server::new(), Cut::Never);
    pair.server.answers = Answers::Later;
    pair.initiator.submit(pair.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    let data = Payload::from_vec(vec![1; 1024]);
    pair.initiator.submit(pair.now, 4, Io::Write { offset: 0, data, durable: false }).unwrap();
    pair.send().unwrap();
    assert_eq!(pair.server.outstanding(), 2);
    pair
}

#[test]
fn an_abort_ends_the_association_and_all_that_is_outstanding_of_it() {
    let mut pair = held();
    assert!(pair.initiator.abort(pair.now, 3));
    assert!(!pair.initiator.abort(pair.now, 3), "once");
    assert_eq!(pair.initiator.credits(), 0);
    pair.send().unwrap();
    assert_eq!((pair.server.outstanding(), pair.server.aborted.len()), (0, 2));
    assert_eq!(pair.run().unwrap_err().kind, ViolationKind::TimedOut);
    assert_eq!(pair.events.take(3), Err(IoError::Aborted));
    assert_eq!(pair.events.take(4), Err(IoError::ConnectionLost), "another session may do it");
    assert_eq!(pair.server.subsystem.0.borrow().controller_count(), 0);
}

#[test]
fn an_abort_that_crosses_the_end_of_its_command_changes_nothing_about_that() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), Server::new(), Cut::Never);
    pair.initiator.submit(pair.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    pair.send().unwrap();
    assert!(pair.initiator.abort(pair.now, 3));
    assert!(pair.run().is_err());
    assert!(pair.events.take(3).is_ok());
}

#[test]
fn an_abort_is_answered_once_nothing_of_its_command_happens_any_more() {
    let mut pair = held();
    pair.server.lingering = Some(Vec::new());
    assert!(pair.initiator.abort(pair.now, 3));
    pair.run().unwrap();
    assert_eq!(pair.events.completions, []);
    pair.server.lingering = None;
    pair.now = Instant(1_000_000_000);
    pair.target.handle_timeout(pair.now, &mut pair.server).unwrap();
    assert!(pair.run().is_err());
    assert_eq!(pair.events.completions.len(), 2);
}

/// Lets the seconds pass one at a time. The initiator checks its commands, and the target answers everything except the
/// commands that the server holds.
fn wait(pair: &mut Pair, from: u64, to: u64) -> Option<ViolationKind> {
    for second in from..=to {
        pair.now = Instant(second * 1_000_000_000);
        let passed = pair.initiator.handle_timeout(pair.now, &mut pair.events).and_then(|()| {
            pair.target.handle_timeout(pair.now, &mut pair.server)?;
            loop {
                let moved = pair.send()?;
                let out = Target::<Server>::transmit(&mut pair.target).take_bytes();
                pair.initiator.receive(pair.now, &out, &mut pair.events)?;
                if !moved && out.is_empty() {
                    return Ok(());
                }
            }
        });
        if let Err(violation) = passed {
            return Some(violation.kind);
        }
    }
    None
}

#[test]
fn a_command_without_an_answer_ends_its_association() {
    let mut pair = held();
    assert_eq!(wait(&mut pair, 0, 59), None);
    assert_eq!(pair.events.completions, []);
    assert_eq!(wait(&mut pair, 60, 62), Some(ViolationKind::TimedOut));
    for tag in [3, 4] {
        assert_eq!(pair.events.take(tag), Err(IoError::ConnectionLost));
    }
}

#[test]
fn a_target_that_does_not_answer_an_abort_is_given_up() {
    let mut pair = held();
    pair.server.lingering = Some(Vec::new());
    assert_eq!(wait(&mut pair, 0, 119), None);
    assert_eq!(wait(&mut pair, 120, 123), Some(ViolationKind::TimedOut));
    assert_eq!(pair.events.completions, []);
    pair.initiator.disconnected(pair.now, &mut pair.events);
    assert_eq!(pair.events.take(3), Err(IoError::ConnectionLost));
}

#[test]
fn an_idle_session_keeps_its_controller_alive() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), Server::new(), Cut::Never);
    assert_eq!(wait(&mut pair, 1, 300), None);
    assert_eq!(pair.read(0, 0, 512), pair.server.volume[..512]);
}

#[test]
fn a_session_may_be_closed_at_any_time_of_its_set_up() {
    let mut whole = Pair::ready(config(8, 512), target_config(8, 512, 512), Server::new(), Cut::Never);
    whole.close();
    for steps in 0..60 {
        let mut pair = Pair::new(config(8, 512), target_config(8, 512, 512), Server::new(), Cut::Never);
        for _ in 0..steps {
            pair.send().unwrap();
            let out = Target::<Server>::transmit(&mut pair.target).take_bytes();
            pair.initiator.receive(pair.now, &out, &mut pair.events).unwrap();
        }
        pair.close();
        assert_eq!(pair.server.subsystem.0.borrow().controller_count(), 0, "after {steps}");
    }
}

#[test]
fn a_lost_connection_completes_what_is_outstanding() {
    let mut pair = held();
    pair.initiator.disconnected(pair.now, &mut pair.events);
    for tag in [3, 4] {
        assert_eq!(pair.events.take(tag), Err(IoError::ConnectionLost));
    }
    pair.target.disconnected(pair.now, &mut pair.server);
    assert_eq!((pair.server.outstanding(), pair.initiator.credits()), (0, 0));
}

#[test]
fn a_host_that_must_prove_itself_does() {
    use iotax_proto::nvme::auth::{Entropy, HostConfig, Policy, Secret};
    let secret = || Secret::parse("DHHC-1:00:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:").unwrap();
    let mut server = Server::new();
    server.auth = Some(Policy { secret: secret(), controller: None, hash: None, group: None });
    let mut initiator = config(8, 512);
    initiator.session.auth =
        Some(HostConfig { secret: secret(), controller: None, hash: None, group: None, entropy: Entropy([7; 32]) });
    let mut pair = Pair::ready(initiator, target_config(8, 512, 512), server, Cut::Pieces(100));
    assert!(pair.initiator.controller().unwrap().authentication.is_some());
    assert_eq!(pair.read(0, 0, 512), pair.server.volume[..512]);
    pair.close();
}
