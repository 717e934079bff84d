//! Fuzzes iSCSI sessions after login.

use iotax_proto::iscsi::{Wishes, target_side::Config};

use crate::{
    iscsi_support::{Cut, MemoryBackend, Pair},
    peers::{assert_each_once, feed_initiator, feed_target, ios, submit},
};

fn ready() -> Pair {
    Pair::ready(Wishes::default(), Config::default(), MemoryBackend::new(1 << 16), Cut::Whole)
}

pub fn target(data: &[u8]) {
    let Pair { mut target, mut backend, .. } = ready();
    (backend.queues, backend.in_place) = (data.len() % 2 == 1, data.len() % 4 < 2);
    let take_queued = |backend: &mut MemoryBackend| std::iter::from_fn(|| backend.take_queued()).collect();
    feed_target(&mut target, &mut backend, data, take_queued);
    assert_eq!(backend.open_operations(), 0);
}

pub fn initiator(data: &[u8]) {
    let mut pair = ready();
    submit(&mut pair.initiator, pair.now, ios());
    feed_initiator(&mut pair.initiator, pair.now, &mut pair.events, data);
    assert_each_once(pair.events.completed.iter().map(|(tag, _)| *tag), ios().len());
}

/// The bytes that each side sends during these I/Os and a logout.
pub fn streams() -> (Vec<u8>, Vec<u8>) {
    let mut pair = ready();
    pair.to_target.clear();
    pair.to_initiator.clear();
    submit(&mut pair.initiator, pair.now, ios());
    pair.run().expect("no violation");
    pair.close();
    (pair.to_target, pair.to_initiator)
}
