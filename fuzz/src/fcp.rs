//! FCP sessions, logged in. CRCs of what the fuzzer makes up are put right where a frame's length is: it would never guess one.

use iotax_proto::{Initiator, Io, Payload, Target, wire::digest::crc32};

use crate::{
    fcp_support::{FcBackend, Pair, config, target_config},
    iscsi_support::Cut,
    pieces,
};

/// Bytes of the encapsulation's header and SOF, of CRC and EOF.
const BEFORE: usize = 32;
const BEHIND: usize = 8;

fn ready() -> Pair {
    Pair::ready(config(16, 512), target_config(16, 512, 8192), FcBackend::new(1 << 16), Cut::Whole)
}

fn with_crcs(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let mut at = 1;
    while let Some([high, low]) = bytes.get(at + 12..at + 14).and_then(<[u8]>::first_chunk) {
        let len = usize::from(u16::from_be_bytes([*high, *low]) & 0x3ff) * 4;
        let Some(frame) = bytes.get_mut(at..at + len).filter(|frame| frame.len() >= BEFORE + BEHIND) else { break };
        let end = frame.len() - BEHIND;
        let crc = crc32(&frame[BEFORE..end]);
        frame[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        at += len;
    }
    bytes
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
    pair.backend.memory.queues = data.len() % 2 == 1;
    for piece in pieces(&with_crcs(data)) {
        if pair.target.receive(pair.now, piece, &mut pair.backend).is_err() {
            break;
        }
        while let Some((id, result)) = pair.backend.memory.take_queued() {
            pair.target.complete(pair.now, id, result, &mut pair.backend);
        }
        Target::<FcBackend>::transmit(&mut pair.target).take_bytes();
    }
    pair.target.disconnected(pair.now, &mut pair.backend);
    assert_eq!(pair.backend.memory.open_operations(), 0);
}

pub fn initiator(data: &[u8]) {
    let mut pair = ready();
    submit(&mut pair);
    for piece in pieces(&with_crcs(data)) {
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
