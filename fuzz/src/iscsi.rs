//! iSCSI sessions, logged in.

use iotax_proto::{
    Initiator, Io, Payload, Target,
    iscsi::{Wishes, target_side::Config},
};

use crate::{
    iscsi_support::{Cut, MemoryBackend, Pair},
    pieces,
};

fn ready() -> Pair {
    Pair::ready(Wishes::default(), Config::default(), MemoryBackend::new(1 << 16), Cut::Whole)
}

fn submit(pair: &mut Pair) {
    let write = |len: usize| Io::Write { offset: 0, data: Payload::from_vec(vec![7; len]) };
    let ios = [
        write(512),
        Io::Read { offset: 512, len: 4096 },
        write(32 << 10),
        Io::Flush,
        Io::Unmap { offset: 0, len: 512 },
    ];
    for (tag, io) in (0..).zip(ios) {
        let _ = pair.initiator.submit(pair.now, tag, io);
    }
}

pub fn target(data: &[u8]) {
    let mut pair = ready();
    pair.backend.queues = data.len() % 2 == 1;
    for piece in pieces(data) {
        if pair.target.receive(pair.now, piece, &mut pair.backend).is_err() {
            break;
        }
        while let Some((id, result)) = pair.backend.take_queued() {
            pair.target.complete(pair.now, id, result, &mut pair.backend);
        }
        Target::<MemoryBackend>::transmit(&mut pair.target).take_bytes();
    }
    pair.target.disconnected(pair.now, &mut pair.backend);
    assert_eq!(pair.backend.open_operations(), 0);
}

pub fn initiator(data: &[u8]) {
    let mut pair = ready();
    submit(&mut pair);
    for piece in pieces(data) {
        if pair.initiator.receive(pair.now, piece, &mut pair.events).is_err() {
            break;
        }
        pair.initiator.transmit().take_bytes();
    }
    pair.initiator.disconnected(pair.now, &mut pair.events);
    let mut tags: Vec<_> = pair.events.completed.iter().map(|(tag, _)| *tag).collect();
    let completed = tags.len();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!((tags.len(), completed), (5, 5), "each I/O completes once");
}

/// What the sides say to each other over those I/Os and a logout.
pub fn streams() -> (Vec<u8>, Vec<u8>) {
    let mut pair = ready();
    pair.to_target.clear();
    pair.to_initiator.clear();
    submit(&mut pair);
    pair.run().expect("no violation");
    pair.close();
    (pair.to_target, pair.to_initiator)
}
