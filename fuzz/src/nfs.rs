//! Fuzzes an NFS connection of any version; the initiator has mounted its export.

use iotax_proto::{Io, Payload};

use crate::{
    nfs_support::{Pair, Version, server::Server},
    peers::{assert_each_once, feed_initiator, feed_target, submit},
};

fn ready<V: Version>() -> Pair<V::Initiator, V::Target> {
    V::pair(Server::new(1 << 16)).ready()
}

/// I/Os without alignment, because files have no blocks.
fn ios() -> [Io; 4] {
    let write = |len: usize| Io::Write { offset: 1, data: Payload::from_vec(vec![7; len]), durable: false };
    [write(99), Io::Read { offset: 3, len: 4096 }, write(20 << 10), Io::Flush]
}

pub fn target<V: Version>(data: &[u8]) {
    let Pair { mut connection, mut server, .. } = V::pair(Server::new(1 << 16));
    (server.queues, server.in_place) = (data.len() % 2 == 1, data.len() % 4 < 2);
    feed_target(&mut connection, &mut server, data, |server| server.finish_queued().into_iter().collect());
    assert!(server.finish_queued().is_empty(), "everything outstanding was aborted");
}

pub fn initiator<V: Version>(data: &[u8]) {
    let mut pair = ready::<V>();
    submit(&mut pair.mount, pair.now, ios());
    feed_initiator(&mut pair.mount, pair.now, &mut pair.log, data);
    assert_each_once(pair.log.completed.iter().map(|(tag, _)| *tag), ios().len());
}

/// The bytes that each side sends, from the mount on.
pub fn streams<V: Version>() -> (Vec<u8>, Vec<u8>) {
    let mut pair = ready::<V>();
    submit(&mut pair.mount, pair.now, ios());
    pair.run().expect("no violation");
    (pair.to_server, pair.to_client)
}

/// Only the server's replies to these I/Os.
pub fn answers<V: Version>() -> Vec<u8> {
    let mut pair = ready::<V>();
    pair.to_client.clear();
    submit(&mut pair.mount, pair.now, ios());
    pair.run().expect("no violation");
    pair.to_client
}
