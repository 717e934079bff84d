//! Asymmetric Namespace Access: what controllers report and refuse, and what an initiator learns of it.

use crate::nvme_support::{
    BLOCK, BLOCKS, Cut, Pair, Server, admin, connect_with, io,
    raw::{Raw, capsule},
};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Refusal, Target,
    nvme::{
        AnaState, CommandId, QueueId, Sqe, Status,
        command::{Sgl, admin as opcode, feature, log_id, nvm},
        identify::{LEN, OAES_ANA, cns},
    },
    nvme_tcp::{AdminQueue, ConnectConfig, TargetConfig, pdu::Digests},
};
use std::time::Duration;

const PORT: u16 = 1;

fn set_access(server: &Server, port: u16, state: AnaState) {
    server.subsystem.0.borrow_mut().set_access(port, state);
}

fn log_command(len: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::GET_LOG_PAGE, CommandId(3), 0);
    sqe.set_cdw(10, u32::from(log_id::ANA) | (len / 4 - 1) << 16);
    sqe.set_sgl(Sgl::Transport { len });
    sqe
}

fn state_in_log(server: &mut Server, raw: &mut Raw) -> u8 {
    raw.data(server, &log_command(56))[32]
}

fn feature_command(opcode: u8, id: u8, value: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, CommandId(4), 1);
    sqe.set_cdw(10, u32::from(id));
    sqe.set_cdw(11, value);
    sqe
}

fn enable_events(server: &mut Server, raw: &mut Raw) {
    let sqe = feature_command(opcode::SET_FEATURES, feature::ASYNC_EVENT_CONFIG, OAES_ANA);
    assert!(raw.status(server, &sqe).is_success());
}

fn event_request(cid: u16) -> Vec<u8> {
    capsule(&Sqe::new(opcode::ASYNC_EVENT, CommandId(cid), 0), &[])
}

/// A read, a write with its data in the capsule, and a flush.
fn commands() -> [(Sqe, Vec<u8>); 3] {
    let mut read = Sqe::new(nvm::READ, CommandId(1), 1);
    read.set_range(2, 1);
    read.set_sgl(Sgl::Transport { len: BLOCK as u32 });
    let mut write = Sqe::new(nvm::WRITE, CommandId(2), 1);
    write.set_range(3, 1);
    write.set_sgl(Sgl::InCapsule { offset: 0, len: BLOCK as u32 });
    [(read, Vec::new()), (write, vec![7; BLOCK]), (Sqe::new(nvm::FLUSH, CommandId(3), 1), Vec::new())]
}

// -------------------------------------------------------------------------------------------------------------- target

#[test]
fn namespace_without_access_refuses_every_command_and_executes_none() {
    let mut server = Server::new();
    let (mut admin, cntlid) = Raw::admin(&mut server, &TargetConfig::default());
    let mut queue = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
    let before = server.volume.clone();
    for (state, code) in [
        (AnaState::Inaccessible, Status::ACCESS_INACCESSIBLE),
        (AnaState::PersistentLoss, Status::ACCESS_PERSISTENT_LOSS),
        (AnaState::Change, Status::ACCESS_TRANSITION),
    ] {
        set_access(&server, PORT, state);
        for (sqe, data) in commands() {
            // Without Do Not Retry, because another controller may execute the command.
            assert_eq!(queue.one(&mut server, &sqe, &data).response().status, code, "{state:?}");
        }
        assert_eq!(state_in_log(&mut server, &mut admin), state as u8);
    }
    assert_eq!((server.volume == before, server.outstanding()), (true, 0));
    for state in [AnaState::NonOptimized, AnaState::Optimized] {
        set_access(&server, PORT, state);
        let [_, (write, data), (flush, _)] = commands();
        assert!(queue.one(&mut server, &write, &data).response().status.is_success(), "{state:?}");
        assert!(queue.status(&mut server, &flush).is_success(), "{state:?}");
        assert_eq!(state_in_log(&mut server, &mut admin), state as u8);
    }
    assert_eq!(server.volume[3 * BLOCK..4 * BLOCK], [7; BLOCK]);
}

#[test]
fn namespace_that_does_not_exist_is_not_found_with_or_without_access() {
    let mut server = Server::new();
    let (_admin, cntlid) = Raw::admin(&mut server, &TargetConfig::default());
    let mut queue = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
    set_access(&server, PORT, AnaState::Inaccessible);
    for nsid in [0, 2, u32::MAX] {
        let status = queue.status(&mut server, &Sqe::new(nvm::FLUSH, CommandId(3), nsid));
        assert_eq!(status.bare(), Status::INVALID_NAMESPACE, "{nsid}");
    }
}

#[test]
fn state_is_that_of_the_port_of_the_controller() {
    let mut server = Server::new();
    let (mut first, cntlid) = Raw::admin(&mut server, &TargetConfig::default());
    // An I/O queue belongs to its controller, over whichever port it is connected.
    server.portal = 2;
    let mut queue = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
    let (mut second, other) = Raw::admin(&mut server, &TargetConfig::default());
    let mut other = Raw::io(&mut server, &TargetConfig::default(), other, QueueId(1));
    set_access(&server, PORT, AnaState::Inaccessible);
    assert_eq!([state_in_log(&mut server, &mut first), state_in_log(&mut server, &mut second)], [3, 1]);
    let flush = Sqe::new(nvm::FLUSH, CommandId(3), 1);
    assert_eq!(queue.status(&mut server, &flush), Status::ACCESS_INACCESSIBLE);
    assert!(other.status(&mut server, &flush).is_success());
}

#[test]
fn write_that_was_started_before_the_access_ended_is_executed() {
    let mut server = Server::new();
    let config = TargetConfig { in_capsule_bytes: 0, ..TargetConfig::default() };
    let session = admin(&mut server, &watching(), &config, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let mut pair = io(&mut server, &watching(), &controller, 1, &config, Cut::Never);
    pair.host.submit(pair.now, 0, write(3)).expect("credit");
    let command = pair.host.transmit().take_bytes();
    pair.target.receive(pair.now, &command, &mut server).expect("stands");
    set_access(&server, PORT, AnaState::Inaccessible);
    let r2t = Target::<Server>::transmit(&mut pair.target).take_bytes();
    pair.host.receive(pair.now, &r2t, &mut pair.events).expect("stands");
    pair.run(&mut server).expect("stands");
    assert_eq!(pair.events.take(0), Ok(Vec::new()));
    assert_eq!(server.volume[3 * BLOCK..4 * BLOCK], [7; BLOCK]);
}

#[test]
fn change_of_access_is_told_once_until_the_log_is_read() {
    let mut server = Server::new();
    let (mut raw, _) = Raw::admin(&mut server, &TargetConfig::default());
    enable_events(&mut server, &mut raw);
    for cid in [20, 21] {
        assert!(raw.send(&mut server, &event_request(cid)).expect("stands").is_empty());
    }
    set_access(&server, 2, AnaState::Inaccessible);
    raw.target.handle_notification(Instant(1), &mut server);
    assert!(raw.answers().is_empty(), "another port's");
    set_access(&server, PORT, AnaState::Inaccessible);
    raw.target.handle_notification(Instant(2), &mut server);
    let told = raw.answers();
    // Notice, Asymmetric Namespace Access Change, log page 0Ch.
    assert_eq!((told.len(), told[0].response().cid, told[0].response().result), (1, CommandId(20), 0x000c_0302));
    set_access(&server, PORT, AnaState::Optimized);
    raw.target.handle_notification(Instant(3), &mut server);
    assert!(raw.answers().is_empty(), "the log was not read");
    let answers = raw.send(&mut server, &capsule(&log_command(56), &[])).expect("stands");
    assert_eq!(answers[0].data[32], AnaState::Optimized as u8);
    assert_eq!(answers.last().expect("the second event").response().cid, CommandId(21));
}

#[test]
fn change_of_access_is_not_told_to_a_host_that_did_not_enable_it() {
    let mut server = Server::new();
    let (mut raw, _) = Raw::admin(&mut server, &TargetConfig::default());
    assert!(raw.send(&mut server, &event_request(20)).expect("stands").is_empty());
    set_access(&server, PORT, AnaState::Inaccessible);
    raw.target.handle_notification(Instant(1), &mut server);
    assert!(raw.answers().is_empty());
}

#[test]
fn namespace_without_access_has_its_size_but_no_utilization_nor_reservation_features() {
    let mut server = Server::new();
    let (mut raw, _) = Raw::admin(&mut server, &TargetConfig::default());
    let mut identify = Sqe::new(opcode::IDENTIFY, CommandId(5), 1);
    identify.set_cdw(10, u32::from(cns::NAMESPACE));
    identify.set_sgl(Sgl::Transport { len: LEN as u32 });
    let get = feature_command(opcode::GET_FEATURES, feature::RESERVATION_NOTIFICATION_MASK, 0);
    let set = feature_command(opcode::SET_FEATURES, feature::RESERVATION_PERSISTENCE, 0);
    let size = (BLOCKS as u64).to_le_bytes();
    for (state, used) in [(AnaState::Inaccessible, [0; 8]), (AnaState::Optimized, size)] {
        set_access(&server, PORT, state);
        let bytes = raw.data(&mut server, &identify);
        assert_eq!((&bytes[..8], &bytes[8..16], &bytes[16..24], bytes[92]), (&size[..], &size[..], &used[..], 1));
        let mut all = feature_command(opcode::SET_FEATURES, feature::KEEP_ALIVE_TIMER, 1000);
        all.0[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        for sqe in [&get, &set, &all] {
            let expected = state.refusal().unwrap_or(Status::SUCCESS);
            assert_eq!(raw.status(&mut server, sqe), expected, "{state:?}");
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- initiator

fn watching() -> ConnectConfig {
    connect_with(|session| session.watches_access = true)
}

fn write(block: u64) -> Io {
    Io::Write { offset: block * BLOCK as u64, data: Payload::from_vec(vec![7; BLOCK]), durable: false }
}

fn changed(server: &mut Server, pair: &mut Pair<AdminQueue>, state: AnaState) {
    set_access(server, PORT, state);
    pair.target.handle_notification(pair.now, server);
    pair.run_until(server, |pair| pair.host.access() == Some(state)).expect("stands");
}

#[test]
fn initiator_follows_the_access_under_every_split() {
    let digests = Digests { header: true, data: true };
    let config = ConnectConfig { digests, ..watching() };
    let target = TargetConfig::default();
    let (mut longest, mut at) = (0, 0);
    while at <= longest {
        let mut server = Server::new();
        set_access(&server, PORT, AnaState::NonOptimized);
        let mut pair = admin(&mut server, &config, &target, Cut::At(at));
        assert_eq!(pair.host.access(), Some(AnaState::NonOptimized), "known when it is ready");
        for state in [AnaState::Inaccessible, AnaState::Optimized, AnaState::PersistentLoss, AnaState::NonOptimized] {
            changed(&mut server, &mut pair, state);
        }
        pair.host.close(pair.now);
        pair.run_until(&mut server, |pair| pair.events.is_closed).expect("shut down");
        longest = pair.to_host.len().max(pair.to_target.len());
        at += 1;
    }
    assert!(longest > 2 * 4096 + 5 * 48, "two Identify structures and five logs went by");
}

#[test]
fn refused_io_says_that_it_was_not_executed_under_every_split() {
    let (config, target) = (watching(), TargetConfig::default());
    let (mut longest, mut at) = (0, 0);
    while at <= longest {
        let mut server = Server::new();
        let session = admin(&mut server, &config, &target, Cut::Never);
        let controller = session.host.controller().expect("ready").clone();
        let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::At(at));
        let before = server.volume.clone();
        set_access(&server, PORT, AnaState::Inaccessible);
        pair.host.submit(pair.now, 0, write(3)).expect("credit");
        pair.host.submit(pair.now, 1, Io::Read { offset: 0, len: 2 * BLOCK as u32 }).expect("credit");
        pair.run(&mut server).expect("stands");
        for tag in [0, 1] {
            let refused = pair.events.take(tag);
            let is_inaccessible = matches!(refused, Err(IoError::Failed { refusal: Refusal::Inaccessible, .. }));
            assert!(is_inaccessible, "{refused:?}");
        }
        assert!(server.volume == before);
        longest = pair.to_host.len().max(pair.to_target.len());
        at += 1;
    }
    assert!(longest > 500, "Connect and both commands went by");
}

#[test]
fn access_is_unknown_from_a_refusal_until_the_log_is_read_and_reads_have_a_pause() {
    let mut server = Server::new();
    let mut pair = admin(&mut server, &watching(), &TargetConfig::default(), Cut::Never);
    let sent = |pair: &Pair<AdminQueue>| pair.to_target.len();
    let began = pair.now;
    // The controller refuses, and says every time that there is access.
    for refusal in 0..20 {
        pair.host.check_access(pair.now);
        assert_eq!(pair.host.access(), Some(AnaState::Change));
        let before = sent(&pair);
        pair.run(&mut server).expect("stands");
        assert_eq!((sent(&pair), pair.host.access()), (before, Some(AnaState::Change)), "it waits");
        pair.run_until(&mut server, |pair| pair.host.access() == Some(AnaState::Optimized)).expect("stands");
        assert!(pair.now.since(began) >= refusal * Duration::from_millis(50));
    }
}

#[test]
fn keep_alives_go_on_while_the_access_changes() {
    let mut server = Server::new();
    let config = connect_with(|session| {
        session.watches_access = true;
        session.keep_alive = Duration::from_millis(200);
    });
    let mut pair = admin(&mut server, &config, &TargetConfig::default(), Cut::Never);
    for round in 0..100 {
        let state = if round % 2 == 0 { AnaState::Inaccessible } else { AnaState::Optimized };
        changed(&mut server, &mut pair, state);
        let until = pair.now + Duration::from_millis(30);
        pair.run_until(&mut server, |pair| pair.now >= until).expect("the controller hears of its host");
    }
    assert!(pair.now > Instant(3_000_000_000), "fifteen timeouts went by");
}

#[test]
fn log_that_is_not_answered_ends_the_session_like_a_keep_alive() {
    let mut server = Server::new();
    let config = connect_with(|session| {
        session.watches_access = true;
        session.keep_alive = Duration::from_millis(200);
    });
    let mut pair = admin(&mut server, &config, &TargetConfig::default(), Cut::Never);
    pair.now = pair.now + Duration::from_millis(60);
    pair.host.check_access(pair.now);
    assert!(!pair.host.transmit().take_bytes().is_empty(), "the log is asked for");
    let asked_at = pair.now;
    loop {
        pair.now = pair.now.max(pair.host.poll_timeout().expect("a timer"));
        if pair.host.handle_timeout(pair.now, &mut pair.events).is_err() {
            break;
        }
    }
    assert_eq!(pair.now, asked_at + Duration::from_millis(100));
}

#[test]
fn initiator_that_does_not_watch_asks_for_nothing() {
    let mut server = Server::new();
    let mut pair = admin(&mut server, &connect_with(|_| {}), &TargetConfig::default(), Cut::Never);
    let sent = pair.to_target.len();
    pair.host.check_access(pair.now);
    pair.run(&mut server).expect("stands");
    assert_eq!((pair.host.access(), pair.to_target.len()), (None, sent));
    let watching = admin(&mut server, &watching(), &TargetConfig::default(), Cut::Never);
    assert_eq!(watching.to_target.len(), sent + 3 * 72, "the feature, the log and the event request");
}
