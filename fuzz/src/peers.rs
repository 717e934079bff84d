//! Common to all protocols: received bytes, I/Os outstanding meanwhile, and the required end state.

use iotax_proto::{Backend, Initiator, InitiatorEvents, Instant, Io, IoId, Payload, Reserve, Tag, Target, UnitError};

use crate::in_place::give;

/// The received bytes in pieces. The first byte is the length of the pieces, 0 for a single piece.
pub fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let len = if *first == 0 { rest.len().max(1) } else { usize::from(*first) };
    rest.chunks(len)
}

/// A write that fits in a frame or capsule, a read, a write that does not fit, a flush.
pub fn ios() -> [Io; 4] {
    let write = |len: usize| Io::Write { offset: 0, data: Payload::from_vec(vec![7; len]), durable: false };
    [write(512), Io::Read { offset: 512, len: 4096 }, write(32 << 10), Io::Flush]
}

/// The commands of a reservation, for protocols that support them.
pub fn reserves() -> [Io; 3] {
    let asks = [Reserve::Register { key: 7 }, Reserve::Hold { key: 7 }, Reserve::PreemptAndAbort { key: 7, victim: 7 }];
    asks.map(Io::Reserve)
}

/// Submits these I/Os with tags from 0 on.
pub fn submit(initiator: &mut impl Initiator, now: Instant, ios: impl IntoIterator<Item = Io>) {
    for (tag, io) in (0..).zip(ios) {
        initiator.submit(now, tag, io).expect("a credit");
    }
}

/// Gives a target the bytes, and then closes its connection. `take_queued` returns the server's completed operations.
pub fn feed_target<B: Backend, T: Target<B>>(
    target: &mut T,
    server: &mut B,
    data: &[u8],
    take_queued: impl Fn(&mut B) -> Vec<(IoId, Result<Option<Payload>, UnitError>)>,
) {
    let now = Instant(1);
    for piece in pieces(data) {
        if give(target, now, piece, server).is_err() {
            break;
        }
        for (id, result) in take_queued(server) {
            target.complete(now, id, result, server);
        }
        target.transmit().take_bytes();
    }
    target.disconnected(now, server);
}

/// Gives an initiator the bytes, and then closes its connection.
pub fn feed_initiator(initiator: &mut impl Initiator, now: Instant, events: &mut dyn InitiatorEvents, data: &[u8]) {
    for piece in pieces(data) {
        if initiator.receive(now, piece, events).is_err() {
            break;
        }
        initiator.transmit().take_bytes();
    }
    initiator.disconnected(now, events);
}

/// Asserts that each of `count` I/Os completed exactly once.
pub fn assert_each_once(completed: impl Iterator<Item = Tag>, count: usize) {
    let mut tags: Vec<_> = completed.collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..count as Tag).collect::<Vec<_>>(), "each I/O completes once");
}
