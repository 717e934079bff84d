//! Asymmetric logical unit access over iSCSI: what an initiator learns of it, and what becomes of its I/Os.

use std::{rc::Rc, time::Duration};

use crate::iscsi_support::{Cut, MemoryBackend, Pair, config, pattern};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Refusal, Shared, Target,
    iscsi::{DigestWish, Wishes, initiator, target_side::Config},
    scsi::{
        AccessState::{self, NonOptimized, Optimized, Transitioning, Unavailable},
        Device, Identity, LogicalUnit,
    },
};

/// Number of the only target port, and of its group.
const PORT: u16 = 1;
const BLOCK: usize = 512;

/// A backend whose target has a target port group.
fn backend(state: AccessState) -> MemoryBackend {
    let backend = MemoryBackend::new(1 << 16);
    backend.device.with(&mut |device| {
        let unit = LogicalUnit::new(0, crate::iscsi_support::backend::UNIT, "serial-1");
        *device = Device::new(Identity::default(), [unit]).with_port_groups([PORT]);
        assert!(device.set_access(PORT, state));
    });
    backend
}

fn watching() -> initiator::Config {
    initiator::Config { watches_access: true, ..config(Wishes::default()) }
}

fn pair(config: initiator::Config, state: AccessState, cut: Cut) -> Pair {
    let mut pair = Pair::new(config, Config::default(), backend(state), cut);
    pair.run().expect("login");
    pair
}

fn set_access(pair: &Pair, state: AccessState) {
    pair.backend.device.with(&mut |device| assert!(device.set_access(PORT, state)));
}

fn write(block: u64) -> Io {
    let data = Payload::from_vec(pattern(block, BLOCK));
    Io::Write { offset: block * BLOCK as u64, data, durable: false }
}

/// Lets time pass until something is so. It must become so before the session's target is pinged.
fn run_until(pair: &mut Pair, done: impl Fn(&Pair) -> bool) {
    let end = pair.now + Duration::from_secs(5);
    pair.run().expect("stands");
    while !done(pair) {
        assert!(pair.now < end, "it never is: {:?}", pair.initiator.access());
        pair.now = pair.now.max(pair.initiator.poll_timeout().expect("a timer"));
        pair.initiator.handle_timeout(pair.now, &mut pair.events).expect("stands");
        pair.run().expect("stands");
    }
}

fn is_inaccessible(result: &Result<(), IoError>) -> bool {
    matches!(result, Err(IoError::Failed { refusal: Refusal::Inaccessible, .. }))
}

#[test]
fn initiator_follows_the_access_under_every_split() {
    let digests = Wishes { header_digest: DigestWish::Require, data_digest: DigestWish::Require, ..Wishes::default() };
    let config = initiator::Config { wishes: digests, ..watching() };
    let (mut longest, mut at) = (0, 0);
    while at <= longest {
        let mut pair = pair(config.clone(), NonOptimized, Cut::At(at));
        assert!(pair.events.ready.is_some());
        assert_eq!(pair.initiator.access(), Some(NonOptimized), "known when it is ready");
        for (block, state) in [Unavailable, Optimized, Transitioning, NonOptimized].into_iter().enumerate() {
            set_access(&pair, state);
            let is_known = pair.initiator.access().expect("reported").is_accessible();
            if is_known {
                pair.initiator.submit(pair.now, 0, write(block as u64)).expect("credit");
            }
            run_until(&mut pair, |pair| pair.initiator.access() == Some(state));
            run_until(&mut pair, |pair| !is_known || !pair.events.completed.is_empty());
            if let Some((0, result)) = pair.events.completed.pop_front() {
                assert!(if state.is_accessible() { result.is_ok() } else { is_inaccessible(&result) }, "{state:?}");
            }
        }
        pair.close();
        longest = pair.to_initiator.len().max(pair.to_target.len());
        at += 1;
    }
    assert!(longest > 1500, "the queries and both kinds of answers went by");
}

#[test]
fn refused_io_says_that_it_was_not_executed_under_every_split() {
    let (mut longest, mut at) = (0, 0);
    while at <= longest {
        let mut pair = pair(watching(), Optimized, Cut::At(at));
        let before = pair.backend.bytes.clone();
        set_access(&pair, Unavailable);
        for tag in 0..4 {
            pair.initiator.submit(pair.now, tag, write(tag.into())).expect("credit");
        }
        run_until(&mut pair, |pair| pair.events.completed.len() == 4);
        // The first gets the unit attention, the others are refused.
        assert!(pair.events.completed.iter().all(|(_, result)| is_inaccessible(result)), "{:?}", pair.events.completed);
        assert!(pair.backend.bytes == before);
        assert_eq!((pair.initiator.access(), pair.events.access[1]), (Some(Unavailable), 4));
        longest = pair.to_initiator.len().max(pair.to_target.len());
        at += 1;
    }
    assert!(longest > 1500, "the login, the queries and the writes went by");
}

#[test]
fn write_that_meets_a_unit_attention_waits_for_the_state_and_is_executed_once() {
    let mut pair = pair(watching(), Optimized, Cut::Whole);
    set_access(&pair, NonOptimized);
    pair.initiator.submit(pair.now, 0, write(3)).expect("credit");
    // The unit attention comes alone.
    let command = pair.initiator.transmit().take_bytes();
    pair.target.receive(pair.now, &command, &mut pair.backend).expect("stands");
    let told = Target::<MemoryBackend>::transmit(&mut pair.target).take_bytes();
    pair.initiator.receive(pair.now, &told, &mut pair.events).expect("stands");
    assert_eq!((pair.initiator.credits(), pair.initiator.access()), (0, Some(Optimized)), "in question");
    assert!(pair.events.completed.is_empty());
    pair.run().expect("stands");
    assert_eq!(pair.events.completed, [(0, Ok(()))]);
    assert_eq!(pair.backend.bytes[3 * BLOCK..4 * BLOCK], pattern(3, BLOCK));
    assert_eq!((pair.initiator.credits(), pair.initiator.access()), (32, Some(NonOptimized)));
    assert_eq!(pair.events.access, [2, 1], "known when it was ready, in question, and known again");
}

#[test]
fn write_that_was_started_before_the_access_ended_is_executed() {
    let wishes = Wishes { immediate_data: false, initial_r2t: true, ..Wishes::default() };
    let mut pair = pair(initiator::Config { wishes, ..watching() }, Optimized, Cut::Whole);
    pair.initiator.submit(pair.now, 0, write(3)).expect("credit");
    let command = pair.initiator.transmit().take_bytes();
    pair.target.receive(pair.now, &command, &mut pair.backend).expect("stands");
    set_access(&pair, Unavailable);
    pair.run().expect("stands");
    assert_eq!(pair.events.completed, [(0, Ok(()))]);
    assert_eq!(pair.backend.bytes[3 * BLOCK..4 * BLOCK], pattern(3, BLOCK));
}

#[test]
fn session_that_begins_without_access_is_ready_once_there_is_access_under_every_split() {
    let (mut longest, mut at) = (0, 0);
    while at <= longest {
        let mut pair = pair(watching(), Unavailable, Cut::At(at));
        assert!(pair.events.ready.is_none());
        assert_eq!(
            (pair.initiator.access(), pair.initiator.credits(), pair.events.access),
            (Some(Unavailable), 0, [1, 0])
        );
        assert!(pair.initiator.inquiry().is_some(), "it is known what it leads to");
        assert_eq!(pair.initiator.serial(), Some("serial-1"));
        set_access(&pair, NonOptimized);
        run_until(&mut pair, |pair| pair.events.ready.is_some());
        assert_eq!((pair.initiator.access(), pair.events.access[0]), (Some(NonOptimized), 2));
        pair.write(0, 0, &[9; BLOCK]);
        pair.close();
        longest = pair.to_initiator.len().max(pair.to_target.len());
        at += 1;
    }
    assert!(longest > 1500, "both logins' queries went by");
}

#[test]
fn idle_session_without_access_asks_every_second_and_can_be_closed() {
    for begins_without in [false, true] {
        let mut pair = pair(watching(), if begins_without { Unavailable } else { Optimized }, Cut::Whole);
        if !begins_without {
            set_access(&pair, Unavailable);
            pair.initiator.submit(pair.now, 0, Io::Flush).expect("credit");
            run_until(&mut pair, |pair| !pair.events.completed.is_empty());
        }
        for _ in 0..4 {
            let (asked_at, sent) = (pair.now, pair.to_target.len());
            run_until(&mut pair, |pair| pair.to_target.len() > sent);
            assert_eq!(pair.now.since(asked_at), Duration::from_secs(1));
        }
        pair.close();
    }
}

#[test]
fn session_that_is_asked_for_the_access_learns_of_a_change_without_an_io() {
    let mut pair = pair(watching(), Optimized, Cut::Whole);
    for state in [NonOptimized, Unavailable, Optimized] {
        set_access(&pair, state);
        assert_eq!(pair.initiator.poll_timeout().map(|due| due > pair.now + Duration::from_millis(900)), Some(true));
        pair.initiator.check_access(pair.now);
        run_until(&mut pair, |pair| pair.initiator.access() == Some(state));
        assert!(pair.now < Instant(400_000_000), "queries have a pause, but a short one");
    }
    assert_eq!(pair.events.access[1], 0, "others need not ask");
}

#[test]
fn session_that_asks_is_closed_once_it_is_answered() {
    let mut pair = pair(watching(), Optimized, Cut::Whole);
    pair.initiator.check_access(pair.now);
    pair.close();
}

#[test]
fn query_that_is_not_answered_ends_the_session() {
    let timeout = Duration::from_secs(2);
    let mut pair = pair(initiator::Config { command_timeout: timeout, ..watching() }, Optimized, Cut::Whole);
    pair.initiator.check_access(pair.now);
    assert!(!pair.initiator.transmit().take_bytes().is_empty(), "it asks");
    let asked_at = pair.now;
    let error = loop {
        pair.now = pair.now.max(pair.initiator.poll_timeout().expect("a timer"));
        if let Err(error) = pair.initiator.handle_timeout(pair.now, &mut pair.events) {
            break error;
        }
    };
    assert_eq!((pair.now, error.to_string().contains("how the unit can be accessed")), (asked_at + timeout, true));
}

#[test]
fn initiator_that_does_not_watch_asks_for_nothing_and_its_io_is_refused() {
    let mut pair = pair(config(Wishes::default()), Optimized, Cut::Whole);
    let watched = self::pair(watching(), Optimized, Cut::Whole);
    assert!(watched.to_target.len() > pair.to_target.len());
    set_access(&pair, NonOptimized);
    assert_eq!(pair.io(0, Io::Flush), Ok(Vec::new()), "the unit attention is no failure");
    set_access(&pair, Unavailable);
    let refused = pair.io(0, Io::Flush).map(|_| ());
    assert!(is_inaccessible(&refused), "{refused:?}");
    pair.initiator.check_access(pair.now);
    assert!(pair.initiator.transmit().is_empty());
    assert_eq!((pair.initiator.access(), pair.events.access), (None, [0, 0]));
}

#[test]
fn target_without_port_groups_is_asked_for_nothing_more() {
    let [with, without] = [watching(), config(Wishes::default())].map(|config| {
        let mut pair = Pair::new(config, Config::default(), MemoryBackend::new(1 << 16), Cut::Whole);
        pair.run().expect("login");
        pair.initiator.check_access(pair.now);
        pair.write(0, 0, &[1; BLOCK]);
        assert_eq!((pair.initiator.access(), pair.events.access), (None, [0, 0]));
        pair.to_target
    });
    assert!(with == without);
}

#[test]
fn sessions_through_two_portal_groups_are_two_nexuses() {
    let mut first = pair(watching(), Optimized, Cut::Whole);
    let mut other = backend(Optimized);
    (other.device, other.sessions) = (Rc::clone(&first.backend.device), Rc::clone(&first.backend.sessions));
    other.portal_group_tag = 2;
    let mut second = Pair::new(watching(), Config::default(), other, Cut::Whole);
    second.run().expect("login");
    assert_eq!([&first, &second].map(|pair| pair.initiator.portal_group()), [Some(1), Some(2)]);
    first.target.handle_notification(first.now, &mut first.backend);
    first.write(0, 0, &[1; BLOCK]);
    second.write(0, 0, &[2; BLOCK]);
}
