//! The initiator against the target, with the byte stream split at every position.
#![allow(clippy::unwrap_used)]

use crate::fcp_support::{FcBackend, Pair, config, target_config};
use crate::iscsi_support::{Cut, pattern};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Refusal, Target, ViolationKind,
    fcp::{PortName, function, initiator, target_side},
};

const VOLUME_LEN: usize = 1 << 20;

/// Pairs of configurations that lead to different bytes on the wire.
fn variants() -> Vec<(initiator::Config, target_side::Config)> {
    let plain = (config(1024, 2048), target_config(1024, 2048, 1 << 20));
    let starved = (config(1, 512), target_config(1, 2112, 1 << 20));
    let odd = (config(3, 2112), target_config(7, 260, 3000));
    let small = (config(64, 256), target_config(2, 256, 512));
    vec![plain, starved, odd, small]
}

/// Does each kind of I/O once and checks it against the volume.
fn exercise(pair: &mut Pair) {
    for (tag, len) in [(0, 512), (1, 4096), (2, 9 * 512), (3, 40 * 512)] {
        let data = pattern(len as u64, len);
        pair.write(tag, 512, &data);
        assert_eq!(pair.backend.memory.bytes[512..512 + len], data);
        assert_eq!(pair.read(tag, 512, len), data);
    }
    assert_eq!(pair.io(4, Io::Flush), Ok(Vec::new()));
    assert_eq!(pair.io(5, Io::WriteZeroes { offset: 512, len: 1024 }), Ok(Vec::new()));
    assert_eq!(pair.backend.memory.bytes[512..1536], [0; 1024]);
    assert_ne!(pair.backend.memory.bytes[1536..2048], [0; 512]);
    assert_eq!(pair.io(6, Io::Unmap { offset: 1536, len: 512 }), Ok(Vec::new()));
    assert_eq!(pair.backend.memory.bytes[1536..2048], [0; 512]);
    assert_eq!(pair.backend.memory.open_operations(), 0);
}

#[test]
fn every_variant_does_every_io_in_deliveries_of_any_size() {
    for (initiator, target) in variants() {
        for queues in [false, true] {
            for cut in [Cut::Whole, Cut::Every(1), Cut::Every(7), Cut::Every(1000)] {
                let mut backend = FcBackend::new(VOLUME_LEN);
                backend.memory.queues = queues;
                let mut pair = Pair::ready(initiator.clone(), target.clone(), backend, cut);
                exercise(&mut pair);
                pair.close();
            }
        }
    }
}

#[test]
fn streams_may_be_split_at_every_byte() {
    let run = |(initiator, target): &(initiator::Config, target_side::Config), cut| {
        let mut pair = Pair::ready(initiator.clone(), target.clone(), FcBackend::new(8192), cut);
        let data = pattern(3, 1536);
        pair.write(0, 512, &data);
        assert_eq!(pair.read(1, 512, 1536), data);
        pair.close();
        (pair.to_target, pair.to_initiator)
    };
    // What is sent depends on when credits arrive; what is received does not.
    for variant in variants() {
        let whole = run(&variant, Cut::Whole);
        for at in 0..whole.0.len().max(whole.1.len()) {
            run(&variant, Cut::At(at));
        }
    }
}

#[test]
fn many_ios_are_outstanding_at_once_however_few_the_credits() {
    for (credit, cut) in [(1024, Cut::Whole), (1, Cut::Every(999)), (4, Cut::Every(100))] {
        let mut pair =
            Pair::ready(config(credit, 2048), target_config(credit, 2048, 8192), FcBackend::new(VOLUME_LEN), cut);
        pair.backend.memory.queues = true;
        assert_eq!(pair.initiator.credits(), 32);
        for tag in 0..32 {
            let data = Payload::from_vec(pattern(tag.into(), 16384));
            pair.initiator
                .submit(pair.now, tag, Io::Write { offset: u64::from(tag) * 16384, data, durable: false })
                .unwrap();
        }
        assert_eq!(pair.initiator.credits(), 0);
        pair.run().unwrap();
        assert_eq!(pair.events.completed.drain(..).filter(|(_, result)| result.is_ok()).count(), 32);
        for tag in 0..32 {
            pair.initiator.submit(pair.now, tag, Io::Read { offset: u64::from(tag) * 16384, len: 16384 }).unwrap();
        }
        pair.run().unwrap();
        for tag in 0..32 {
            assert_eq!(pair.events.data[&tag], pattern(tag.into(), 16384));
        }
    }
}

#[test]
fn more_commands_than_the_target_has_room_for_are_sent_again() {
    let target = target_side::Config { tasks: 4, ..target_config(1024, 2048, 1 << 20) };
    let mut pair = Pair::ready(config(1024, 2048), target, FcBackend::new(VOLUME_LEN), Cut::Whole);
    for tag in 0..5 {
        let data = Payload::from_vec(vec![1; 512]);
        pair.initiator.submit(pair.now, tag, Io::Write { offset: u64::from(tag) * 512, data, durable: false }).unwrap();
    }
    pair.run().unwrap();
    let completed: Vec<_> = pair.events.completed.iter().filter(|(_, result)| result.is_ok()).collect();
    assert_eq!(completed.len(), 5);
}

#[test]
fn ports_that_are_not_here_or_not_let_in_are_refused_each_in_its_way() {
    for (refusal, wanted) in [
        (target_side::LoginRefusal::NoSuchPort, Refusal::NotFound),
        (target_side::LoginRefusal::NotAuthorized, Refusal::Denied),
    ] {
        let mut backend = FcBackend::new(8192);
        backend.refusal = Some(refusal);
        let mut pair = Pair::new(config(8, 512), target_config(8, 512, 512), backend, Cut::Whole);
        assert_eq!(pair.run().unwrap_err().kind, ViolationKind::Refused(wanted));
        let out = Target::<FcBackend>::transmit(&mut pair.target).take_bytes();
        let refused = pair.initiator.receive(pair.now, &out, &mut pair.events).unwrap_err();
        assert_eq!(refused.kind, ViolationKind::Refused(wanted));
    }
}

#[test]
fn a_second_login_of_a_port_ends_the_first_and_begins_after_it() {
    let mut first = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    let mut backend = FcBackend::new(8192);
    (backend.memory.device, backend.logins) = (first.backend.memory.device.clone(), first.backend.logins.clone());
    first.backend.memory.lingering = Some(Vec::new());
    first.backend.memory.queues = true;
    first.initiator.submit(first.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    let out = first.initiator.transmit().take_bytes();
    first.target.receive(first.now, &out, &mut first.backend).unwrap();

    let mut second = Pair::new(config(8, 512), target_config(8, 512, 512), backend, Cut::Whole);
    second.run().unwrap();
    assert!(second.events.ready.is_none(), "the first login has not heard of its end");
    assert_eq!(second.backend.notified, 1);
    first.target.handle_notification(first.now, &mut first.backend);
    assert!(Target::<FcBackend>::is_closing(&first.target));
    second.target.handle_timeout(second.now, &mut second.backend).unwrap();
    second.run().unwrap();
    assert!(second.events.ready.is_none(), "a command of it goes on");
    first.backend.memory.lingering = None;
    second.target.handle_timeout(second.now, &mut second.backend).unwrap();
    second.run().unwrap();
    assert!(second.events.ready.is_some());
    assert!(!Target::<FcBackend>::is_closing(&second.target));
}

#[test]
fn a_login_is_refused_where_the_one_before_it_does_not_end() {
    let first = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    let mut backend = FcBackend::new(8192);
    (backend.memory.device, backend.logins) = (first.backend.memory.device.clone(), first.backend.logins.clone());
    let mut second = Pair::new(config(8, 512), target_config(8, 512, 512), backend, Cut::Whole);
    second.run().unwrap();
    let late = Instant(2_000_000_000);
    let refused = second.target.handle_timeout(late, &mut second.backend);
    assert!(refused.is_err() || Target::<FcBackend>::is_closing(&second.target));
    let out = Target::<FcBackend>::transmit(&mut second.target).take_bytes();
    let told = second.initiator.receive(late, &out, &mut second.events).unwrap_err();
    assert_eq!(told.kind, ViolationKind::Refused(Refusal::Busy));
}

#[test]
fn an_abort_ends_an_exchange_and_its_id_may_be_used_again() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    pair.backend.memory.queues = true;
    pair.initiator.submit(pair.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    let out = pair.initiator.transmit().take_bytes();
    pair.target.receive(pair.now, &out, &mut pair.backend).unwrap();
    assert!(pair.initiator.abort(pair.now, 3));
    assert!(!pair.initiator.abort(pair.now, 3), "once");
    let out = pair.initiator.transmit().take_bytes();
    pair.target.receive(pair.now, &out, &mut pair.backend).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.events.completed.pop_front(), Some((3, Err(IoError::Aborted))));
    assert_eq!(pair.backend.memory.open_operations(), 0);
    pair.backend.memory.queues = false;
    assert_eq!(pair.read(3, 0, 512), [0; 512]);
}

#[test]
fn an_abort_that_crosses_the_end_of_its_command_changes_nothing() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    pair.initiator.submit(pair.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    let command = pair.initiator.transmit().take_bytes();
    pair.target.receive(pair.now, &command, &mut pair.backend).unwrap();
    assert!(pair.initiator.abort(pair.now, 3));
    pair.run().unwrap();
    assert_eq!(pair.events.completed.pop_front(), Some((3, Ok(()))));
    assert_eq!(pair.read(3, 0, 512), [0; 512]);
}

/// Lets the seconds pass one at a time. The initiator checks its commands, and the target answers everything except the
/// commands that the backend holds.
fn wait(pair: &mut Pair, from: u64, to: u64) {
    for second in from..=to {
        pair.now = Instant(second * 1_000_000_000);
        pair.initiator.handle_timeout(pair.now, &mut pair.events).unwrap();
        let out = pair.initiator.transmit().take_bytes();
        if !out.is_empty() {
            pair.target.receive(pair.now, &out, &mut pair.backend).unwrap();
            let out = Target::<FcBackend>::transmit(&mut pair.target).take_bytes();
            pair.initiator.receive(pair.now, &out, &mut pair.events).unwrap();
        }
    }
}

#[test]
fn a_command_without_an_answer_is_aborted_and_sent_again_four_times_in_all() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    pair.backend.memory.queues = true;
    pair.initiator.submit(pair.now, 0, Io::Read { offset: 0, len: 512 }).unwrap();
    wait(&mut pair, 0, 239);
    assert_eq!((pair.events.completed.len(), pair.backend.memory.aborted.len()), (0, 3));
    wait(&mut pair, 240, 244);
    assert_eq!(pair.events.completed.pop_front(), Some((0, Err(IoError::Aborted))));
    assert_eq!(pair.backend.memory.open_operations(), 0);
}

#[test]
fn an_abort_is_answered_once_nothing_of_its_command_happens_any_more() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    (pair.backend.memory.queues, pair.backend.memory.lingering) = (true, Some(Vec::new()));
    pair.initiator.submit(pair.now, 0, Io::Read { offset: 0, len: 512 }).unwrap();
    wait(&mut pair, 0, 100);
    assert_eq!((pair.events.completed.len(), pair.backend.memory.aborted.len()), (0, 1), "aborted, and not sent again");
    (pair.backend.memory.queues, pair.backend.memory.lingering) = (false, None);
    pair.target.handle_timeout(pair.now, &mut pair.backend).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.events.completed.pop_front(), Some((0, Ok(()))));
}

#[test]
fn a_target_that_does_not_answer_an_abort_is_given_up() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    (pair.backend.memory.queues, pair.backend.memory.lingering) = (true, Some(Vec::new()));
    pair.initiator.submit(pair.now, 0, Io::Read { offset: 0, len: 512 }).unwrap();
    wait(&mut pair, 0, 119);
    let later = (120..130).map(|second| Instant(second * 1_000_000_000));
    let ends = later.map(|now| pair.initiator.handle_timeout(now, &mut pair.events)).find(Result::is_err);
    assert_eq!(ends.unwrap().unwrap_err().kind, ViolationKind::TimedOut);
}

#[test]
fn a_reset_ends_what_is_outstanding() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    pair.backend.memory.queues = true;
    for tag in 0..3 {
        pair.initiator.submit(pair.now, tag, Io::Read { offset: 0, len: 512 }).unwrap();
    }
    assert!(pair.initiator.reset(pair.now, function::LOGICAL_UNIT_RESET));
    assert!(!pair.initiator.reset(pair.now, function::LOGICAL_UNIT_RESET), "one at a time");
    let out = pair.initiator.transmit().take_bytes();
    pair.target.receive(pair.now, &out, &mut pair.backend).unwrap();
    pair.run().unwrap();
    let ended: Vec<_> = pair.events.completed.drain(..).collect();
    assert_eq!(ended, (0..3).map(|tag| (tag, Err(IoError::Aborted))).collect::<Vec<_>>());
    pair.backend.memory.queues = false;
    assert_eq!(pair.read(0, 0, 512), [0; 512], "the unit attention condition is tried over");
}

#[test]
fn a_lost_connection_completes_what_is_outstanding() {
    let mut pair = Pair::ready(config(8, 512), target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    pair.initiator.submit(pair.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    pair.initiator.disconnected(pair.now, &mut pair.events);
    assert_eq!(pair.events.completed.pop_front(), Some((3, Err(IoError::ConnectionLost))));
    pair.target.disconnected(pair.now, &mut pair.backend);
    assert_eq!(pair.initiator.credits(), 0);
}

#[test]
fn another_port_than_was_asked_for_is_not_taken() {
    let wanted = initiator::Config { target: PortName(5), ..config(8, 512) };
    let mut pair = Pair::new(wanted, target_config(8, 512, 512), FcBackend::new(8192), Cut::Whole);
    assert_eq!(pair.run().unwrap_err().kind, ViolationKind::Refused(Refusal::NotFound));
}
