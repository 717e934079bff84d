//! A client and its server, byte for byte, for both versions. Features of only one version are tested elsewhere.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::nfs_support::{Pair, V3, V41, Version, config, config_41, pattern, server::Server};
use iotax_proto::{
    Initiator, Io, IoError, Misuse, Payload, Refusal, Target, UnitError, UnitOp, ViolationKind,
    nfs::{
        common::{ExportAccess, STATUS_VERIFIER_CHANGED, Squash, Stability},
        v3::initiator::Config,
        v41::initiator as nfs41,
    },
    rpc::{Credentials, auth::Identity},
};

macro_rules! of_both_versions {
    ($($name:ident,)+) => {
        mod of_v3 {
            $(#[test] fn $name() { super::$name::<super::V3>(); })+
        }
        mod of_v41 {
            $(#[test] fn $name() { super::$name::<super::V41>(); })+
        }
    };
}

of_both_versions! {
    a_session_is_the_same_at_every_split_of_the_byte_stream,
    a_session_goes_the_same_way_with_fragments_of_every_size,
    a_session_goes_the_same_way_when_the_backend_queues,
    the_largest_io_goes_through,
    errors_of_the_backend_become_the_statuses_of_the_standard,
    a_busy_server_is_asked_again_later,
    a_flush_fails_once_when_the_write_verifier_changed,
    what_nfs_does_not_have_completes_as_unsupported,
    misuse_is_refused_and_sends_nothing,
    a_lost_connection_completes_everything_and_aborts_what_the_backend_had,
    a_silent_server_and_a_record_never_ended_are_given_up,
    a_client_that_says_nothing_for_six_minutes_is_given_up,
    a_mount_closed_while_busy_ends_its_ios_first,
}

/// Mounts, writes, reads back, flushes and unmounts.
fn exercise<I: Initiator, T: Target<Server>>(mut pair: Pair<I, T>) -> Pair<I, T> {
    pair.run().unwrap();
    let geometry = pair.log.geometry.clone().unwrap();
    assert_eq!((geometry.size_bytes, geometry.block_size, geometry.max_io_bytes), (4096, 1, 1 << 20));
    let first = pattern(301, 1);
    let second = pattern(64, 2);
    pair.mount
        .submit(pair.now, 0, Io::Write { offset: 100, data: Payload::from_vec(first.clone()), durable: false })
        .unwrap();
    pair.mount
        .submit(pair.now, 1, Io::Write { offset: 4032, data: Payload::from_vec(second.clone()), durable: false })
        .unwrap();
    pair.run().unwrap();
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    pair.mount.submit(pair.now, 2, Io::Read { offset: 100, len: 301 }).unwrap();
    pair.mount.submit(pair.now, 3, Io::Read { offset: 4032, len: 64 }).unwrap();
    pair.mount.submit(pair.now, 4, Io::Read { offset: 0, len: 3 }).unwrap();
    pair.run().unwrap();
    let mut completed = pair.log.completed.clone();
    completed.sort_by_key(|(tag, _)| *tag);
    assert_eq!(completed, [(0, Ok(())), (0, Ok(())), (1, Ok(())), (2, Ok(())), (3, Ok(())), (4, Ok(()))]);
    assert_eq!(pair.log.data[2], first);
    assert_eq!(pair.log.data[3], second);
    assert_eq!(pair.log.data[4], [0; 3]);
    assert_eq!(pair.server.volume()[100..401], first);
    pair.mount.close(pair.now);
    pair.run().unwrap();
    assert!(pair.log.closed);
    assert_eq!(pair.mount.poll_timeout(), None);
    pair
}

fn a_session_is_the_same_at_every_split_of_the_byte_stream<V: Version>() {
    let whole = exercise(V::pair(Server::new(4096)));
    for in_place in [false, true] {
        let mut named = 0;
        for step in 1..400 {
            let mut pair = V::pair(Server::new(4096));
            (pair.step, pair.server.in_place) = (step, in_place);
            let split = exercise(pair);
            assert_eq!(split.to_server, whole.to_server);
            assert_eq!(split.to_client, whole.to_client);
            named += split.server.named.get();
        }
        assert_eq!(named > 1000, in_place, "{named}");
    }
}

fn a_session_goes_the_same_way_with_fragments_of_every_size<V: Version>() {
    for fragment in 1..400 {
        for (step, in_place) in [(1, false), (7, false), (usize::MAX, false), (1, true), (7, true), (50, true)] {
            let mut pair = V::pair(Server::new(4096));
            (pair.fragment, pair.step, pair.server.in_place) = (Some(fragment), step, in_place);
            exercise(pair);
        }
    }
}

fn a_session_goes_the_same_way_when_the_backend_queues<V: Version>() {
    for step in [1, 5, 64, usize::MAX] {
        let mut server = Server::new(4096);
        server.queues = true;
        let mut pair = V::pair(server);
        pair.step = step;
        exercise(pair);
    }
}

fn the_largest_io_goes_through<V: Version>() {
    let mut pair = V::pair(Server::new(2 << 20)).ready();
    (pair.step, pair.server.in_place) = (65_537, true);
    let data = pattern(1 << 20, 9);
    pair.mount
        .submit(pair.now, 0, Io::Write { offset: 4097, data: Payload::from_vec(data.clone()), durable: false })
        .unwrap();
    pair.run().unwrap();
    pair.mount.submit(pair.now, 0, Io::Read { offset: 4097, len: 1 << 20 }).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(())), (0, Ok(()))]);
    assert!(pair.log.data[0] == data);
    let too_large = Io::Read { offset: 0, len: (1 << 20) + 1 };
    assert_eq!(pair.mount.submit(pair.now, 0, too_large), Err(Misuse::BadRange));
}

#[test]
fn write_asks_for_the_stability_configured() {
    for (stability, expected) in
        [(Stability::Unstable, false), (Stability::DataSync, true), (Stability::FileSync, true)]
    {
        let mut pair = Pair::new(Config { stability, ..config() }, Server::new(64)).ready();
        pair.mount
            .submit(pair.now, 0, Io::Write { offset: 0, data: Payload::from_vec(vec![1]), durable: false })
            .unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.started, [UnitOp::Write { offset: 0, len: 1, durable: expected }]);
        assert_eq!(pair.log.completed, [(0, Ok(()))]);
    }
}

fn errors_of_the_backend_become_the_statuses_of_the_standard<V: Version>() {
    let cases = [
        (UnitError::Medium, 5),
        (UnitError::NoSpace, 28),
        (UnitError::ReadOnly, 30),
        (UnitError::NoUnit, 70),
        (UnitError::OutOfRange, 27),
    ];
    for queues in [false, true] {
        for io in [
            Io::Read { offset: 0, len: 8 },
            Io::Write { offset: 0, data: Payload::from_vec(vec![0; 8]), durable: false },
            Io::Flush,
        ] {
            for (error, expected) in cases {
                let mut pair = V::pair(Server::new(64)).ready();
                pair.server.queues = queues;
                pair.server.error = Some(error);
                pair.mount.submit(pair.now, 5, io.clone()).unwrap();
                pair.run().unwrap();
                let [(5, Err(IoError::Failed { status, .. }))] = pair.log.completed[..] else {
                    panic!("{error:?}: {:?}", pair.log.completed)
                };
                assert_eq!(status, expected);
                assert_eq!(pair.mount.credits(), 8);
            }
        }
    }
}

fn a_busy_server_is_asked_again_later<V: Version>() {
    let mut pair = V::pair(Server::new(64)).ready();
    pair.server.error = Some(UnitError::Busy);
    pair.mount.submit(pair.now, 0, Io::Read { offset: 0, len: 8 }).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed, []);
    let before = pair.now;
    pair.wake().unwrap();
    assert!(pair.now > before);
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(()))]);
    let after = pair.now + config().timeout / 2;
    assert!(pair.mount.poll_timeout() > Some(after), "nothing but to see to an idle connection");
}

fn a_flush_fails_once_when_the_write_verifier_changed<V: Version>() {
    let mut pair = V::pair(Server::new(64)).ready();
    let write = |pair: &mut Pair<V::Initiator, V::Target>| {
        pair.mount
            .submit(pair.now, 0, Io::Write { offset: 0, data: Payload::from_vec(vec![1; 8]), durable: false })
            .unwrap();
        pair.run().unwrap();
    };
    write(&mut pair);
    pair.server.verifier = *b"boot two";
    write(&mut pair);
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    pair.run().unwrap();
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    pair.run().unwrap();
    let results: Vec<_> = pair.log.completed.iter().map(|(_, result)| result.clone()).collect();
    assert!(matches!(
        results[..],
        [Ok(()), Ok(()), Err(IoError::Failed { status: STATUS_VERIFIER_CHANGED, .. }), Ok(())]
    ));
}

#[test]
fn a_later_connection_that_knows_the_verifier_finds_the_restart_too() {
    let known = Config { verifier: Some(*b"boot two"), ..config() };
    let mut pair = Pair::new(known, Server::new(64)).ready();
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    pair.run().unwrap();
    assert!(matches!(pair.log.completed[..], [(0, Err(IoError::Failed { status: STATUS_VERIFIER_CHANGED, .. }))]));
    assert_eq!(pair.mount.verifier(), Some(*b"boot one"));
    let known = nfs41::Config { verifier: Some(*b"boot two"), ..config_41() };
    let mut pair = Pair::of_41(known, Server::new(64)).ready();
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    pair.run().unwrap();
    assert!(matches!(pair.log.completed[..], [(0, Err(IoError::Failed { status: STATUS_VERIFIER_CHANGED, .. }))]));
    assert_eq!(pair.mount.verifier(), Some(*b"boot one"));
}

#[test]
fn a_missing_file_is_made_and_grown_where_the_config_says_so() {
    let missing = Config { file: "new".into(), ..config() };
    let refused = Pair::new(missing.clone(), Server::new(64)).run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::NotFound));
    // The server creates the file with half the requested size, so the client has to grow it.
    let created = Config { create: Some(1000), ..missing };
    let pair = Pair::new(created, Server::new(64)).ready();
    assert_eq!(pair.log.geometry.unwrap().size_bytes, 1000);
}

#[test]
fn who_may_not_mount_read_or_write_is_told_so() {
    let mut server = Server::new(64);
    server.access = None;
    let refused = Pair::new(config(), server).run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::Denied));
    assert!(refused.text().contains("may not be mounted"), "{refused}");
    let absent = Config { export: "/absent".into(), ..config() };
    let refused = Pair::new(absent, Server::new(64)).run().unwrap_err();
    assert!(refused.text().contains("no such export"), "{refused}");

    let somebody = Identity::Sys { machine: "m".into(), credentials: Credentials::new(1000, 1000, &[]) };
    let pair = Pair::new(Config { identity: somebody, ..config() }, Server::new(64)).ready();
    assert!(pair.log.geometry.unwrap().read_only);

    let mut pair = Pair::new(config(), Server::new(64)).ready();
    pair.server.access = Some(ExportAccess { read_only: true, squash: Squash::None });
    let mut read_only = Pair::new(config(), pair.server).ready();
    let write = Io::Write { offset: 0, data: Payload::from_vec(vec![1; 8]), durable: false };
    read_only.mount.submit(read_only.now, 0, write).unwrap();
    read_only.run().unwrap();
    assert!(matches!(read_only.log.completed[..], [(0, Err(IoError::Failed { status: 30, .. }))]));
}

fn what_nfs_does_not_have_completes_as_unsupported<V: Version>() {
    let mut pair = V::pair(Server::new(64)).ready();
    pair.mount.submit(pair.now, 3, Io::Unmap { offset: 0, len: 8 }).unwrap();
    assert_eq!(pair.mount.submit(pair.now, 3, Io::Flush), Err(Misuse::BadTag));
    assert_eq!(pair.mount.credits(), 7);
    pair.wake().unwrap();
    assert_eq!(pair.log.completed, [(3, Err(IoError::Unsupported))]);
    assert_eq!(pair.mount.credits(), 8);
}

fn misuse_is_refused_and_sends_nothing<V: Version>() {
    let mut pair = V::pair(Server::new(64));
    assert_eq!(pair.mount.submit(pair.now, 0, Io::Flush), Err(Misuse::NoCredit));
    pair.run().unwrap();
    for (io, misuse) in [
        (Io::Read { offset: 0, len: 0 }, Misuse::BadRange),
        (Io::Read { offset: 60, len: 5 }, Misuse::BadRange),
        (Io::Read { offset: u64::MAX, len: 5 }, Misuse::BadRange),
    ] {
        assert_eq!(pair.mount.submit(pair.now, 0, io), Err(misuse));
    }
    assert_eq!(pair.mount.submit(pair.now, 8, Io::Flush), Err(Misuse::BadTag));
    assert!(pair.mount.transmit().is_empty());
}

fn a_lost_connection_completes_everything_and_aborts_what_the_backend_had<V: Version>() {
    let mut server = Server::new(4096);
    server.queues = true;
    let mut pair = V::pair(server).ready();
    pair.mount.submit(pair.now, 0, Io::Read { offset: 0, len: 8 }).unwrap();
    pair.mount
        .submit(pair.now, 1, Io::Write { offset: 0, data: Payload::from_vec(vec![1; 999]), durable: false })
        .unwrap();
    let bytes = pair.mount.transmit().take_bytes();
    // All data of the write arrive except the last bytes.
    pair.connection.receive(pair.now, &bytes[..bytes.len() - 9], &mut pair.server).unwrap();
    pair.connection.disconnected(pair.now, &mut pair.server);
    pair.mount.disconnected(pair.now, &mut pair.log);
    assert_eq!(pair.server.aborted.len(), 2);
    assert!(pair.server.finish_queued().is_empty());
    assert_eq!(pair.log.completed, [(0, Err(IoError::ConnectionLost)), (1, Err(IoError::ConnectionLost))]);
    assert_eq!(pair.mount.credits(), 0);
    assert_eq!(pair.server.volume(), [0; 4096]);
}

fn a_silent_server_and_a_record_never_ended_are_given_up<V: Version>() {
    let mut pair = V::pair(Server::new(64)).ready();
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    let bytes = pair.mount.transmit().take_bytes();
    pair.connection.receive(pair.now, &bytes[..20], &mut pair.server).unwrap();
    assert_eq!(pair.wake().unwrap_err().kind, ViolationKind::TimedOut);
    let late = pair.connection.poll_timeout().unwrap();
    let given_up = pair.connection.handle_timeout(late, &mut pair.server).unwrap_err();
    assert_eq!(given_up.kind, ViolationKind::TimedOut);
}

fn a_client_that_says_nothing_for_six_minutes_is_given_up<V: Version>() {
    let mut pair = V::pair(Server::new(64)).ready();
    let due = pair.connection.poll_timeout().unwrap();
    pair.now = pair.now + Duration::from_secs(359);
    assert!(due > pair.now, "not yet");
    pair.mount.submit(pair.now, 0, Io::Flush).unwrap();
    pair.run().unwrap();
    pair.connection.handle_timeout(due, &mut pair.server).unwrap();
    let due = pair.connection.poll_timeout().unwrap();
    let given_up = pair.connection.handle_timeout(due, &mut pair.server).unwrap_err();
    assert_eq!(given_up.kind, ViolationKind::TimedOut);
}

fn a_mount_closed_while_busy_ends_its_ios_first<V: Version>() {
    let mut server = Server::new(64);
    server.queues = true;
    let mut pair = V::pair(server).ready();
    pair.mount.submit(pair.now, 0, Io::Read { offset: 0, len: 8 }).unwrap();
    pair.mount.close(pair.now);
    assert_eq!(pair.mount.credits(), 0);
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(()))]);
    assert!(pair.log.closed);
    // A mount that is closed before it is ready never reports ready.
    let mut pair = V::pair(Server::new(64));
    pair.mount.close(pair.now);
    pair.run().unwrap();
    assert!(pair.log.closed && pair.log.geometry.is_none());
}
