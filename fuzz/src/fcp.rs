//! Fuzzes FCP sessions after login.

use crate::{
    fcp_support::{FcBackend, Pair, config, target_config},
    frames::with_crcs,
    iscsi_support::Cut,
    peers::{assert_each_once, feed_initiator, feed_target, ios, submit},
};

fn ready() -> Pair {
    Pair::ready(config(16, 512), target_config(16, 512, 8192), FcBackend::new(1 << 16), Cut::Whole)
}

pub fn target(data: &[u8]) {
    let Pair { mut target, mut backend, .. } = ready();
    backend.memory.queues = data.len() % 2 == 1;
    let take_queued = |backend: &mut FcBackend| std::iter::from_fn(|| backend.memory.take_queued()).collect();
    feed_target(&mut target, &mut backend, &with_crcs(data), take_queued);
    assert_eq!(backend.memory.open_operations(), 0);
}

pub fn initiator(data: &[u8]) {
    let mut pair = ready();
    submit(&mut pair.initiator, pair.now, ios());
    feed_initiator(&mut pair.initiator, pair.now, &mut pair.events, &with_crcs(data));
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
