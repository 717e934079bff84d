//! An NFS mount, done.

use iotax_proto::{
    Initiator, Instant, Io, Payload, Target,
    nfs::v3::target_side::{Config, Connection},
};

use crate::{
    nfs_support::{Pair, config, server::Server},
    pieces,
};

const IOS: usize = 4;

fn ready() -> Pair {
    Pair::new(config(), Server::new(1 << 16)).ready()
}

fn submit(pair: &mut Pair) {
    let write = |len: usize| Io::Write { offset: 1, data: Payload::from_vec(vec![7; len]) };
    let ios = [write(99), Io::Read { offset: 3, len: 4096 }, write(20 << 10), Io::Flush];
    for (tag, io) in (0..).zip(ios) {
        pair.mount.submit(pair.now, tag, io).expect("a credit");
    }
}

pub fn target(data: &[u8]) {
    let now = Instant(1);
    let (mut connection, mut server) = (Connection::new(now, Config::default()), Server::new(1 << 16));
    server.queues = data.len() % 2 == 1;
    for piece in pieces(data) {
        if connection.receive(now, piece, &mut server).is_err() {
            break;
        }
        for (id, result) in server.finish_queued() {
            connection.complete(now, id, result, &mut server);
        }
        Target::<Server>::transmit(&mut connection).take_bytes();
    }
    connection.disconnected(now, &mut server);
    assert!(server.finish_queued().is_empty(), "everything outstanding was aborted");
}

pub fn initiator(data: &[u8]) {
    let mut pair = ready();
    submit(&mut pair);
    for piece in pieces(data) {
        if pair.mount.receive(pair.now, piece, &mut pair.log).is_err() {
            break;
        }
        pair.mount.transmit().take_bytes();
    }
    pair.mount.disconnected(pair.now, &mut pair.log);
    let mut tags: Vec<_> = pair.log.completed.iter().map(|(tag, _)| *tag).collect();
    let completed = tags.len();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!((tags.len(), completed), (IOS, IOS), "each I/O completes once");
}

/// What both sides say to each other from the mount on.
pub fn streams() -> (Vec<u8>, Vec<u8>) {
    let mut pair = ready();
    submit(&mut pair);
    pair.run().expect("no violation");
    (pair.to_server, pair.to_client)
}

/// The answers to those I/Os alone.
pub fn answers() -> Vec<u8> {
    let mut pair = ready();
    pair.to_client.clear();
    submit(&mut pair);
    pair.run().expect("no violation");
    pair.to_client
}
