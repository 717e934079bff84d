//! Bytes that a correct peer never sends.
#![allow(clippy::unwrap_used)]

use crate::{
    nfs_support::{Pair, config, give, pattern, served, server::Server},
    spoiled::{pieces, spoil},
};
use iotax_proto::{
    Initiator, Instant, Io, Payload, Target, ViolationKind,
    nfs::{
        PROGRAM,
        common::{FileId, Stability},
        v3::{
            Arguments, MAX_CONTROL_LEN, MAX_IO_BYTES, Procedure, VERSION,
            arguments::WriteHead,
            decode::describe,
            target_side::{Config, Connection},
        },
    },
    rpc::{
        ControlCall, Encoder, Mapping, Portmapper, RpcError, Xid,
        auth::Identity,
        message::{decode_reply, encode_call},
        record::MAX_FRAGMENTS,
    },
    wire::Reader,
};

const NOW: Instant = Instant(0);

fn connection() -> (Connection, Server) {
    (Connection::new(Instant(0), served()), Server::new(4096))
}

/// The bytes that each side sends in a correct session.
fn honest() -> (Vec<u8>, Vec<u8>) {
    let mut pair = Pair::new(config(), Server::new(4096)).ready();
    pair.mount
        .submit(pair.now, 0, Io::Write { offset: 1, data: Payload::from_vec(pattern(99, 1)), durable: false })
        .unwrap();
    pair.mount.submit(pair.now, 1, Io::Read { offset: 3, len: 77 }).unwrap();
    pair.run().unwrap();
    pair.mount.submit(pair.now, 2, Io::Flush).unwrap();
    pair.run().unwrap();
    (pair.to_server, pair.to_client)
}

#[test]
fn a_target_survives_a_spoiled_session() {
    let (honest, _) = honest();
    arbtest::arbtest(|u| {
        let bytes = spoil(u, &honest)?;
        let (mut connection, mut server) = connection();
        server.queues = u.arbitrary()?;
        for piece in pieces(u, &bytes)? {
            server.in_place = u.arbitrary()?;
            if give(&mut connection, NOW, piece, &mut server).is_err() {
                break;
            }
            for (id, result) in server.finish_queued() {
                connection.complete(NOW, id, result, &mut server);
            }
        }
        connection.disconnected(NOW, &mut server);
        let _ = describe(&bytes);
        Ok(())
    });
}

#[test]
fn a_target_survives_garbage_behind_every_procedures_head() {
    arbtest::arbtest(|u| {
        let (mut connection, mut server) = connection();
        let mut portmapper = Portmapper::new(NOW, vec![Mapping::tcp(PROGRAM, VERSION, 2049)]);
        for _ in 0..4 {
            let mut call = Encoder::default();
            let (program, version) = *u.choose(&[(PROGRAM, VERSION), (100_005, 3), (100_000, 2)])?;
            let procedure = u.int_in_range(0..=22)?;
            encode_call(
                call.begin_record(),
                Xid(u.arbitrary()?),
                program,
                version,
                procedure,
                &Identity::None.encode(),
            );
            let len = u.int_in_range(0..=300)?;
            call.raw(u.bytes(len.min(u.len()))?);
            let bytes = call.end_record(0).to_vec();
            for piece in pieces(u, &bytes)? {
                let _ = connection.receive(NOW, piece, &mut server);
                let _ = portmapper.receive(NOW, piece, &mut server);
            }
            let _ = describe(&bytes);
        }
        connection.disconnected(NOW, &mut server);
        Ok(())
    });
}

#[test]
fn a_mount_survives_a_spoiled_session() {
    let (_, honest) = honest();
    arbtest::arbtest(|u| {
        let bytes = spoil(u, &honest)?;
        let mut pair = Pair::new(config(), Server::new(4096));
        for piece in pieces(u, &bytes)? {
            if pair.mount.receive(NOW, piece, &mut pair.log).is_err() {
                break;
            }
            if pair.log.geometry.is_some() && pair.log.completed.is_empty() {
                let write = Io::Write { offset: 1, data: Payload::from_vec(pattern(99, 1)), durable: false };
                let _ = pair.mount.submit(NOW, 0, write);
                let _ = pair.mount.submit(NOW, 1, Io::Read { offset: 3, len: 77 });
                let _ = pair.mount.submit(NOW, 2, Io::Flush);
            }
        }
        pair.mount.disconnected(NOW, &mut pair.log);
        assert_eq!(pair.mount.credits(), 0);
        Ok(())
    });
}

#[test]
fn single_calls_survive_garbage() {
    arbtest::arbtest(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        let mut marked = ((1 << 31) | (bytes.len() as u32 + 24)).to_be_bytes().to_vec();
        marked.extend([0, 0, 0, 7, 0, 0, 0, 1]);
        marked.extend([0; 16]);
        marked.extend(&bytes);
        let _ = ControlCall::mount(Xid(7), &Identity::None, "/export").receive(&marked);
        let _ = ControlCall::exports(Xid(7), &Identity::None).receive(&marked);
        let _ = ControlCall::mounts(Xid(7), &Identity::None).receive(&marked);
        let _ = ControlCall::port(Xid(7), PROGRAM, VERSION).receive(&marked);
        let _ = ControlCall::mappings(Xid(7)).receive(&marked);
        Ok(())
    });
}

#[test]
fn records_beyond_the_limits_end_the_connection() {
    let long = ((1 << 31) | (MAX_IO_BYTES + MAX_CONTROL_LEN + 1)).to_be_bytes().to_vec();
    let many = [0; 4].repeat(MAX_FRAGMENTS as usize + 1);
    // A call that is longer than any call of its procedure can be.
    let mut held = Encoder::default();
    encode_call(held.begin_record(), Xid(1), PROGRAM, VERSION, Procedure::Lookup as u32, &Identity::None.encode());
    held.raw(&vec![0; MAX_CONTROL_LEN as usize]);
    let held = held.end_record(1000).to_vec();
    for bytes in [long, many, held] {
        let (mut connection, mut server) = connection();
        let violation = connection.receive(NOW, &bytes, &mut server).unwrap_err();
        assert_eq!(violation.kind, ViolationKind::Misbehaved);
    }
    // A reply instead of a call, and a record that is not an RPC message.
    for bytes in [&[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1][..], &[0x80, 0, 0, 3, 1, 2, 3]] {
        let (mut connection, mut server) = connection();
        assert!(connection.receive(NOW, bytes, &mut server).is_err());
    }
}

#[test]
fn a_write_that_ends_before_its_data_is_garbage_and_changes_nothing() {
    let head = WriteHead {
        file: served().handles.encode(7, FileId { number: 2, generation: 1 }),
        offset: 0,
        count: 1000,
        stability: Stability::Unstable,
        data_len: 1000,
    };
    let mut call = Encoder::default();
    encode_call(call.begin_record(), Xid(77), PROGRAM, VERSION, Procedure::Write as u32, &Identity::None.encode());
    Arguments::Write(head).encode(&mut call);
    call.raw(&[9; 999]);
    let bytes = call.end_record(0).to_vec();
    for step in [1, 100, bytes.len()] {
        let (mut connection, mut server) = connection();
        for piece in bytes.chunks(step) {
            connection.receive(NOW, piece, &mut server).unwrap();
        }
        let reply = Target::<Server>::transmit(&mut connection).take_bytes();
        let outcome = decode_reply(&mut Reader::new(&reply[4..])).unwrap();
        assert_eq!(outcome, (Xid(77), Err(RpcError::GarbageArguments)));
        assert_eq!(server.volume(), [0; 4096]);
        assert!(server.finish_queued().is_empty());
    }
}

#[test]
fn a_write_with_arguments_that_cannot_be_is_garbage_however_long_it_is_and_the_connection_goes_on() {
    for len in [1000_u32, 64 << 10] {
        let head = WriteHead {
            file: served().handles.encode(7, FileId { number: 2, generation: 1 }),
            offset: 0,
            count: len,
            stability: Stability::Unstable,
            data_len: len,
        };
        let mut call = Encoder::default();
        encode_call(call.begin_record(), Xid(77), PROGRAM, VERSION, Procedure::Write as u32, &Identity::None.encode());
        Arguments::Write(head).encode(&mut call);
        let stability_at = call.len() - 8;
        call.raw(&vec![9; len as usize]);
        call.patch(stability_at, 3);
        let (mut connection, mut server) = connection();
        let mut reply = Vec::new();
        for piece in call.end_record(0).chunks(1448) {
            give(&mut connection, NOW, piece, &mut server).unwrap();
            reply.extend(Target::<Server>::transmit(&mut connection).take_bytes());
        }
        let outcome = decode_reply(&mut Reader::new(&reply[4..])).unwrap();
        assert_eq!(outcome, (Xid(77), Err(RpcError::GarbageArguments)), "{len} bytes");
        assert!(!Target::<Server>::is_closing(&connection));
    }
}

#[test]
fn a_server_that_queues_too_much_puts_calls_off() {
    let mut server = Server::new(4096);
    server.queues = true;
    let mut pair = Pair::new(config(), server).ready();
    pair.connection = Connection::new(pair.now, Config { max_outstanding: 2, ..served() });
    for tag in 0..4 {
        pair.mount.submit(pair.now, tag, Io::Read { offset: 0, len: 8 }).unwrap();
    }
    pair.run().unwrap();
    assert_eq!(pair.log.completed.len(), 2);
    assert_eq!(pair.server.started.len(), 2);
    pair.wake().unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed.len(), 4);
}
