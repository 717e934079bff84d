//! Features of NFSv4.1 that v3 lacks: a client with a session and an open file, and its server.
#![allow(clippy::unwrap_used)]

use core::time::Duration;

use crate::nfs_support::{Pair, config_41, server::Server};
use iotax_proto::{
    Initiator, Io, IoError, Payload, Refusal, Target, UnitOp, ViolationKind,
    nfs::{
        common::{ExportAccess, Squash, Stability},
        v41::initiator::Config,
    },
    rpc::{Credentials, auth::Identity},
};

#[test]
fn write_asks_for_the_stability_configured() {
    for (stability, expected) in
        [(Stability::Unstable, false), (Stability::DataSync, true), (Stability::FileSync, true)]
    {
        let mut pair = Pair::of_41(Config { stability, ..config_41() }, Server::new(64)).ready();
        let data = Payload::from_vec(vec![1]);
        pair.mount.submit(pair.now, 0, Io::Write { offset: 0, data, durable: false }).unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.started, [UnitOp::Write { offset: 0, len: 1, durable: expected }]);
        assert_eq!(pair.log.completed, [(0, Ok(()))]);
    }
}

#[test]
fn a_missing_file_is_made_and_grown_where_the_config_says_so() {
    let missing = Config { file: "/export/new".into(), ..config_41() };
    let refused = Pair::of_41(missing.clone(), Server::new(64)).run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::NotFound));
    // The server creates the file with half the requested size, so the client has to grow it.
    let created = Config { create: Some(1000), ..missing };
    let pair = Pair::of_41(created, Server::new(64)).ready();
    assert_eq!(pair.log.geometry.unwrap().size_bytes, 1000);
}

#[test]
fn who_may_not_look_up_read_or_write_is_told_so() {
    let mut server = Server::new(64);
    server.access = None;
    let refused = Pair::of_41(config_41(), server).run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::Denied));
    let absent = Config { file: "/absent/volume".into(), ..config_41() };
    let refused = Pair::of_41(absent, Server::new(64)).run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::NotFound));
    let directory = Config { file: "/export".into(), ..config_41() };
    let refused = Pair::of_41(directory, Server::new(64)).run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::WrongKind));

    let somebody = Identity::Sys { machine: "m".into(), credentials: Credentials::new(1000, 1000, &[]) };
    let pair = Pair::of_41(Config { identity: somebody, ..config_41() }, Server::new(64)).ready();
    assert!(pair.log.geometry.unwrap().read_only);

    let mut server = Server::new(64);
    server.access = Some(ExportAccess { read_only: true, squash: Squash::None });
    let mut pair = Pair::of_41(config_41(), server).ready();
    assert!(pair.log.geometry.as_ref().unwrap().read_only);
    let write = Io::Write { offset: 0, data: Payload::from_vec(vec![1; 8]), durable: false };
    pair.mount.submit(pair.now, 0, write).unwrap();
    pair.run().unwrap();
    assert!(matches!(pair.log.completed[..], [(0, Err(IoError::Failed { .. }))]));
}

#[test]
fn more_ios_than_the_session_has_slots_are_not_taken() {
    // The client requests 2001 slots, and the server grants 1024.
    let config = Config { depth: 2000, ..config_41() };
    let mut pair = Pair::of_41(config, Server::new(4096)).ready();
    let slots = pair.mount.channel().max_requests as usize;
    assert_eq!((slots, pair.mount.credits()), (1024, 1024));
    for tag in 0..slots as u32 {
        pair.mount.submit(pair.now, tag, Io::Read { offset: 0, len: 8 }).unwrap();
    }
    assert_eq!(pair.mount.credits(), 0);
    pair.run().unwrap();
    assert_eq!(pair.log.completed.len(), slots);
    assert_eq!(pair.mount.credits(), slots);
}

#[test]
fn a_client_with_a_keep_alive_asks_a_silent_server_and_gives_it_up() {
    let keep_alive = Duration::from_secs(1);
    for depth in [1, 8] {
        let config = Config { keep_alive: Some(keep_alive), depth, ..config_41() };
        let mut pair = Pair::of_41(config, Server::new(64)).ready();
        assert_eq!(pair.mount.credits(), depth, "a slot more is for the question");
        pair.server.queues = true;
        pair.mount.submit(pair.now, 0, Io::Read { offset: 0, len: 8 }).unwrap();
        pair.run().unwrap();
        for _ in 0..3 {
            let before = pair.now;
            pair.wake().unwrap();
            assert!(pair.now <= before + keep_alive / 2 && before + keep_alive / 3 < pair.now);
            let question = pair.mount.transmit().take_bytes();
            pair.connection.receive(pair.now, &question, &mut pair.server).unwrap();
            let answer = Target::<Server>::transmit(&mut pair.connection).take_bytes();
            pair.mount.receive(pair.now, &answer, &mut pair.log).unwrap();
        }
        let heard = pair.now;
        pair.wake().unwrap();
        assert!(!pair.mount.transmit().take_bytes().is_empty());
        let silent = pair.wake().unwrap_err();
        assert_eq!((silent.kind, pair.now), (ViolationKind::TimedOut, heard + keep_alive));
    }
}

#[test]
fn an_idle_client_keeps_its_lease() {
    let mut pair = Pair::of_41(config_41(), Server::new(64)).ready();
    for _ in 0..10 {
        let before = pair.now;
        pair.wake().unwrap();
        assert!(pair.now <= before + pair.mount.lease() / 2 + Duration::from_secs(1));
        let bytes = pair.mount.transmit().take_bytes();
        assert!(!bytes.is_empty(), "SEQUENCE alone");
        pair.connection.receive(pair.now, &bytes, &mut pair.server).unwrap();
        let answer = Target::<Server>::transmit(&mut pair.connection).take_bytes();
        pair.mount.receive(pair.now, &answer, &mut pair.log).unwrap();
    }
    pair.mount.submit(pair.now, 0, Io::Read { offset: 0, len: 8 }).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(()))]);
}
