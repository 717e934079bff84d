//! Bytes that a correct peer of NFSv4.1 never sends.
#![allow(clippy::unwrap_used)]

use crate::{
    nfs_support::{Pair, config_41, give, pattern, server::Server, session_of},
    spoiled::{pieces, spoil},
};
use iotax_proto::{
    Initiator, Instant, Io, Payload, Target,
    nfs::{
        PROGRAM,
        common::Handles,
        v41::{
            PROC_COMPOUND, VERSION,
            codec::{CompoundHead, OpCode},
            decode::describe,
            operations::{Operation, SequenceArguments},
            target_side::{Config, Connection},
        },
    },
    rpc::{Encoder, Xid, auth::Identity, message::encode_call},
};

const NOW: Instant = Instant(0);

/// The bytes that each side sends in a correct session.
fn honest() -> (Vec<u8>, Vec<u8>) {
    let mut pair = Pair::of_41(config_41(), Server::new(4096)).ready();
    let data = Payload::from_vec(pattern(99, 1));
    pair.mount.submit(pair.now, 0, Io::Write { offset: 1, data, durable: false }).unwrap();
    pair.mount.submit(pair.now, 1, Io::Read { offset: 3, len: 77 }).unwrap();
    pair.run().unwrap();
    pair.mount.submit(pair.now, 2, Io::Flush).unwrap();
    pair.run().unwrap();
    pair.mount.close(pair.now);
    pair.run().unwrap();
    (pair.to_server, pair.to_client)
}

#[test]
fn a_target_survives_a_spoiled_session() {
    let (honest, _) = honest();
    arbtest::arbtest(|u| {
        let bytes = spoil(u, &honest)?;
        let mut server = Server::new(4096);
        let mut connection = Connection::new(NOW, Config::new(Handles::new([9; 32])));
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

/// On an established session, sends COMPOUNDs of arbitrary operations with arbitrary arguments.
#[test]
fn a_target_survives_garbage_behind_every_operations_number() {
    arbtest::arbtest(|u| {
        let mut pair = Pair::of_41(config_41(), Server::new(4096)).ready();
        let session = session_of(&pair.to_server);
        for turn in 0..6 {
            let mut call = Encoder::default();
            encode_call(call.begin_record(), Xid(turn), PROGRAM, VERSION, PROC_COMPOUND, &Identity::None.encode());
            let count = u.int_in_range(1..=6)?;
            let minor = u.int_in_range(1..=2)?;
            CompoundHead { tag: b"", minor, operations: count + 1 }.encode(&mut call);
            let sequence =
                SequenceArguments { session, seqid: turn + 1, slot: 5, highest_slot: 5, cache_this: u.arbitrary()? };
            Operation::Sequence(sequence).encode(&mut call);
            if u.arbitrary()? {
                call.u32(OpCode::PutRootFh as u32);
            }
            for _ in 0..count {
                call.u32(*u.choose(OpCode::ALL)? as u32);
                let len = u.int_in_range(0..=80)?;
                call.raw(u.bytes(len.min(u.len()))?);
            }
            let bytes = call.end_record(0).to_vec();
            let _ = describe(&bytes);
            for piece in pieces(u, &bytes)? {
                let _ = give(&mut pair.connection, NOW, piece, &mut pair.server);
            }
            for (id, result) in pair.server.finish_queued() {
                pair.connection.complete(NOW, id, result, &mut pair.server);
            }
        }
        pair.connection.disconnected(NOW, &mut pair.server);
        Ok(())
    });
}

#[test]
fn an_initiator_survives_spoiled_replies() {
    let (_, honest) = honest();
    arbtest::arbtest(|u| {
        let bytes = spoil(u, &honest)?;
        let mut pair = Pair::of_41(config_41(), Server::new(4096));
        for piece in pieces(u, &bytes)? {
            if pair.mount.receive(NOW, piece, &mut pair.log).is_err() {
                break;
            }
            if pair.mount.credits() > 0 && pair.log.completed.is_empty() {
                let _ = pair.mount.submit(NOW, 1, Io::Read { offset: 3, len: 77 });
            }
            pair.mount.transmit().clear();
        }
        pair.mount.disconnected(NOW, &mut pair.log);
        Ok(())
    });
}
