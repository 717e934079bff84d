//! The initiator against the target, with the byte stream split at every position.
#![allow(clippy::unwrap_used)]

use crate::iscsi_support::{Cut, MemoryBackend, Pair, config, pattern};
use iotax_proto::{
    Initiator, Io, IoError, Payload, Refusal, Target, ViolationKind,
    iscsi::{DigestWish, Wishes, target_side},
};

const VOLUME_LEN: usize = 1 << 20;

/// Wishes that lead to different bytes on the wire.
fn variants() -> Vec<Wishes> {
    let digests = Wishes { header_digest: DigestWish::Require, data_digest: DigestWish::Require, ..Wishes::default() };
    let no_immediate = Wishes { immediate_data: false, ..Wishes::default() };
    let solicited = Wishes { initial_r2t: true, immediate_data: false, ..Wishes::default() };
    let small = Wishes {
        max_recv_segment_len: 512,
        max_burst_len: 1024,
        first_burst_len: 700,
        max_outstanding_r2t: 1,
        ..Wishes::default()
    };
    let odd = Wishes {
        max_recv_segment_len: 1021,
        max_burst_len: 4099,
        first_burst_len: 515,
        max_outstanding_r2t: 3,
        data_digest: DigestWish::Prefer,
        ..Wishes::default()
    };
    let immediate_only = Wishes { initial_r2t: true, first_burst_len: 2048, ..Wishes::default() };
    vec![Wishes::default(), digests, no_immediate, solicited, small, odd, immediate_only]
}

/// Does each kind of I/O once and checks it against the volume.
fn exercise(pair: &mut Pair) {
    for (tag, len) in [(0, 512), (1, 4096), (2, 9 * 512), (3, 40 * 512)] {
        let data = pattern(len as u64, len);
        pair.write(tag, 512, &data);
        assert_eq!(pair.backend.bytes[512..512 + len], data);
        assert_eq!(pair.read(tag, 512, len), data);
    }
    assert_eq!(pair.io(4, Io::Flush), Ok(Vec::new()));
    assert_eq!(pair.io(5, Io::WriteZeroes { offset: 512, len: 1024 }), Ok(Vec::new()));
    assert_eq!(pair.backend.bytes[512..1536], [0; 1024]);
    assert_ne!(pair.backend.bytes[1536..2048], [0; 512]);
    assert_eq!(pair.io(6, Io::Unmap { offset: 1536, len: 512 }), Ok(Vec::new()));
    assert_eq!(pair.backend.bytes[1536..2048], [0; 512]);
    assert_eq!(pair.backend.open_operations(), 0);
}

#[test]
fn every_variant_does_every_io_in_deliveries_of_any_size() {
    for wishes in variants() {
        for (queues, in_place) in [(false, false), (true, false), (false, true), (true, true)] {
            for cut in [Cut::Whole, Cut::Every(1), Cut::Every(7), Cut::Every(1000)] {
                let mut backend = MemoryBackend::new(VOLUME_LEN);
                (backend.queues, backend.in_place) = (queues, in_place);
                let target = target_side::Config { wishes: wishes.clone(), ..target_side::Config::default() };
                let mut pair = Pair::ready(wishes.clone(), target, backend, cut);
                exercise(&mut pair);
                pair.close();
            }
        }
    }
}

#[test]
fn streams_may_be_split_at_every_byte() {
    let run = |wishes: &Wishes, cut, in_place, named: &mut usize| {
        let target = target_side::Config { wishes: wishes.clone(), ..target_side::Config::default() };
        let mut backend = MemoryBackend::new(8192);
        backend.in_place = in_place;
        let mut pair = Pair::ready(wishes.clone(), target, backend, cut);
        let data = pattern(3, 1536);
        pair.write(0, 512, &data);
        assert_eq!(pair.read(1, 512, 1536), data);
        pair.close();
        *named += pair.backend.named.get();
        (pair.to_target, pair.to_initiator)
    };
    for wishes in variants() {
        for in_place in [false, true] {
            let mut named = 0;
            let whole = run(&wishes, Cut::Whole, false, &mut named);
            for at in 0..whole.0.len().max(whole.1.len()) {
                assert_eq!(run(&wishes, Cut::At(at), in_place, &mut named), whole, "split at {at}");
            }
            // The memory is named for each split within the data of the write, if no digest covers them. Small PDUs
            // lead to many more splits of that kind.
            let splits = named > 1500;
            assert_eq!(splits, in_place && wishes.data_digest == DigestWish::default(), "{wishes:?}: {named}");
        }
    }
}

#[test]
fn many_ios_are_outstanding_at_once() {
    let mut pair = Pair::ready(
        Wishes::default(),
        target_side::Config { command_window: 8, ..target_side::Config::default() },
        MemoryBackend::new(VOLUME_LEN),
        Cut::Every(999),
    );
    pair.backend.queues = true;
    assert_eq!(pair.initiator.credits(), 8);
    for tag in 0..8 {
        let data = Payload::from_vec(pattern(tag.into(), 4096));
        pair.initiator
            .submit(pair.now, tag, Io::Write { offset: u64::from(tag) * 4096, data, durable: false })
            .unwrap();
    }
    assert_eq!(pair.initiator.credits(), 0);
    pair.run().unwrap();
    let completed: Vec<_> = pair.events.completed.drain(..).collect();
    assert_eq!(completed, (0..8).map(|tag| (tag, Ok(()))).collect::<Vec<_>>());
    assert_eq!(pair.initiator.credits(), 8);
    for tag in 0..8_u32 {
        assert_eq!(pair.read(tag, u64::from(tag) * 4096, 4096), pattern(tag.into(), 4096));
    }
}

#[test]
fn a_refused_login_names_its_reason() {
    let mut backend = MemoryBackend::new(8192);
    backend.refusal = Some(target_side::LoginRefusal::NotAuthorized);
    let mut pair = Pair::new(config(Wishes::default()), target_side::Config::default(), backend, Cut::Whole);
    let refused = pair.run().unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Refused(Refusal::Denied));
    assert!(Target::<MemoryBackend>::is_closing(&pair.target));
    let out = Target::<MemoryBackend>::transmit(&mut pair.target).take_bytes();
    let refused = pair.initiator.receive(pair.now, &out, &mut pair.events).unwrap_err();
    assert_eq!(
        (refused.kind, refused.text()),
        (ViolationKind::Refused(Refusal::Denied), "this initiator may not log in to this target")
    );
}

#[test]
fn a_lost_connection_completes_what_is_outstanding() {
    let mut pair =
        Pair::ready(Wishes::default(), target_side::Config::default(), MemoryBackend::new(VOLUME_LEN), Cut::Whole);
    pair.initiator.submit(pair.now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    pair.initiator.disconnected(pair.now, &mut pair.events);
    assert_eq!(pair.events.completed.pop_front(), Some((3, Err(IoError::ConnectionLost))));
    pair.target.disconnected(pair.now, &mut pair.backend);
    assert_eq!(pair.initiator.credits(), 0);
}
