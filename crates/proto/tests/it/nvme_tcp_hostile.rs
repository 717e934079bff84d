//! Arbitrary input of a peer causes no panic on either side and leaves no operation of the server outstanding.

use crate::nvme_support::{
    Answers, BLOCK, Cut, Pair, Recorder, Server, admin, connect_config, io,
    raw::{Raw, ic_req},
};
use arbtest::{
    arbitrary::{Result, Unstructured},
    arbtest,
};
use iotax_proto::{
    Initiator, Instant, Io, Payload, Target,
    nvme::QueueId,
    nvme_tcp::{AdminQueue, Discovery, TargetConfig, TargetQueue, decode::describe, pdu::Digests},
};

const BUDGET_MS: u64 = 500;

fn target_config() -> TargetConfig {
    TargetConfig { in_capsule_bytes: BLOCK as u32, max_h2c_data_bytes: 4096, ..TargetConfig::default() }
}

/// Changes a stream: overwrites bytes, removes pieces and inserts copies of pieces.
fn mutate(u: &mut Unstructured, stream: &mut Vec<u8>) -> Result<()> {
    for _ in 0..u.int_in_range(1..=4)? {
        if stream.is_empty() {
            break;
        }
        let at = u.choose_index(stream.len())?;
        let len = u.int_in_range(1..=(stream.len() - at).min(96))?;
        match u.int_in_range(0..=3)? {
            0 => stream[at] = u.arbitrary()?,
            1 => stream[at] ^= 1 << u.int_in_range(0..=7)?,
            2 => drop(stream.drain(at..at + len)),
            _ => {
                let piece = stream[at..at + len].to_vec();
                let to = u.choose_index(stream.len())?;
                stream.splice(to..to, piece);
            }
        }
    }
    Ok(())
}

/// Splits a stream into arbitrary pieces.
fn pieces(u: &mut Unstructured, mut stream: &[u8], mut each: impl FnMut(&[u8]) -> bool) -> Result<()> {
    while !stream.is_empty() {
        let (piece, rest) = stream.split_at(u.int_in_range(1..=stream.len().min(400))?);
        if !each(piece) {
            break;
        }
        stream = rest;
    }
    Ok(())
}

fn feed_target(u: &mut Unstructured, server: &mut Server, target: &mut TargetQueue, stream: &[u8]) -> Result<()> {
    server.answers = if u.arbitrary()? { Answers::AtOnce } else { Answers::Later };
    let completes: bool = u.arbitrary()?;
    pieces(u, stream, |piece| {
        let is_sound = target.receive(Instant(1), piece, server).is_ok();
        if completes && is_sound {
            server.complete_all(Instant(1), target);
        }
        Target::<Server>::transmit(target).take_bytes();
        is_sound
    })?;
    let _ = target.handle_timeout(Instant(u64::MAX), server);
    target.disconnected(Instant(1), server);
    assert_eq!(server.outstanding(), 0, "everything outstanding was aborted");
    Ok(())
}

fn submit_all(pair: &mut Pair<iotax_proto::nvme_tcp::IoQueue>) {
    let block = BLOCK as u64;
    let ios = [
        Io::Write { offset: 3 * block, data: Payload::from_vec(vec![1; BLOCK]), durable: false },
        Io::Read { offset: 8 * block, len: 3 * BLOCK as u32 },
        Io::Write { offset: 9 * block, data: Payload::from_vec(vec![2; 9 * BLOCK]), durable: false },
        Io::Flush,
        Io::Unmap { offset: 8 * block, len: 2 * BLOCK as u32 },
    ];
    for (tag, io) in ios.into_iter().enumerate() {
        pair.host.submit(pair.now, tag as u32, io).expect("credit");
    }
}

/// The bytes that a host and a target send each other on an I/O queue after Connect.
fn io_streams(digests: Digests) -> (Vec<u8>, Vec<u8>) {
    let mut server = Server::new();
    let (_session, mut pair) = io_pair(&mut server, digests);
    pair.to_target.clear();
    pair.to_host.clear();
    submit_all(&mut pair);
    pair.run(&mut server).expect("I/O");
    (pair.to_target, pair.to_host)
}

fn io_pair(server: &mut Server, digests: Digests) -> (Pair<AdminQueue>, Pair<iotax_proto::nvme_tcp::IoQueue>) {
    let config = iotax_proto::nvme_tcp::ConnectConfig { digests, ..connect_config() };
    let session = admin(server, &config, &target_config(), Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let pair = io(server, &config, &controller, 1, &target_config(), Cut::Never);
    (session, pair)
}

fn admin_streams() -> (Vec<u8>, Vec<u8>) {
    let mut server = Server::new();
    let mut session = admin(&mut server, &connect_config(), &target_config(), Cut::Never);
    session.host.close(session.now);
    session.run_until(&mut server, |pair| pair.events.is_closed).expect("shut down");
    (session.to_target, session.to_host)
}

#[test]
fn target_survives_random_bytes_in_every_phase() {
    arbtest(|u| {
        let mut server = Server::new();
        let stream: Vec<u8> = u.arbitrary()?;
        let (mut admin, cntlid) = Raw::admin(&mut server, &target_config());
        let mut target = match u.int_in_range(0..=3)? {
            0 => TargetQueue::new(Instant(0), target_config()),
            1 => Raw::open(&mut server, &target_config()).target,
            2 => Raw::io(&mut server, &target_config(), cntlid, QueueId(1)).target,
            _ => std::mem::replace(&mut admin.target, TargetQueue::new(Instant(0), target_config())),
        };
        feed_target(u, &mut server, &mut target, &stream)
    })
    .budget_ms(BUDGET_MS);
}

#[test]
fn target_survives_mutated_sessions() {
    let (admin_stream, _) = admin_streams();
    arbtest(|u| {
        let mut stream = admin_stream.clone();
        mutate(u, &mut stream)?;
        let mut server = Server::new();
        let mut target = TargetQueue::new(Instant(0), target_config());
        feed_target(u, &mut server, &mut target, &stream)
    })
    .budget_ms(BUDGET_MS);
    for digests in [Digests::default(), Digests { header: false, data: true }] {
        let (io_stream, _) = io_streams(digests);
        arbtest(|u| {
            let mut stream = io_stream.clone();
            mutate(u, &mut stream)?;
            let mut server = Server::new();
            let (_session, mut pair) = io_pair(&mut server, digests);
            feed_target(u, &mut server, &mut pair.target, &stream)
        })
        .budget_ms(BUDGET_MS);
    }
}

#[test]
fn initiators_survive_random_bytes_and_mutated_sessions() {
    let (_, admin_stream) = admin_streams();
    arbtest(|u| {
        let stream = if u.arbitrary()? {
            let mut stream = admin_stream.clone();
            mutate(u, &mut stream)?;
            stream
        } else {
            [&admin_stream[..128], &u.arbitrary::<Vec<u8>>()?].concat()
        };
        let mut events = Recorder::default();
        let mut host = AdminQueue::new(Instant(0), connect_config());
        pieces(u, &stream, |piece| host.receive(Instant(1), piece, &mut events).is_ok())?;
        let _ = host.handle_timeout(Instant(u64::MAX), &mut events);
        host.disconnected(Instant(1), &mut events);
        let mut discovery = Discovery::new(Instant(0), connect_config());
        pieces(u, &stream, |piece| discovery.receive(Instant(1), piece).is_ok())?;
        Ok(())
    })
    .budget_ms(BUDGET_MS);
    for digests in [Digests::default(), Digests { header: false, data: true }] {
        let (_, io_stream) = io_streams(digests);
        arbtest(|u| {
            let mut stream = io_stream.clone();
            mutate(u, &mut stream)?;
            if u.ratio(1, 8)? {
                stream = u.arbitrary()?;
            }
            let mut server = Server::new();
            let (_session, mut pair) = io_pair(&mut server, digests);
            submit_all(&mut pair);
            let Pair { host, events, .. } = &mut pair;
            pieces(u, &stream, |piece| host.receive(Instant(1), piece, events).is_ok())?;
            let _ = host.handle_timeout(Instant(u64::MAX), events);
            host.disconnected(Instant(1), events);
            assert_eq!(events.completions.len(), 5, "every I/O completes once");
            Ok(())
        })
        .budget_ms(BUDGET_MS);
    }
}

#[test]
fn describe_survives_random_bytes() {
    arbtest(|u| {
        let mut bytes: Vec<u8> = u.arbitrary()?;
        if u.arbitrary()? {
            bytes.splice(0..0, ic_req(0, 0));
            mutate(u, &mut bytes)?;
        }
        let mut rest = &bytes[..];
        while let Ok(Some((len, _))) = describe(rest) {
            assert!(len > 0);
            rest = &rest[len..];
        }
        Ok(())
    })
    .budget_ms(BUDGET_MS);
}

#[test]
fn flipped_bit_anywhere_is_noticed_with_digests() {
    let digests = Digests { header: true, data: true };
    let (to_target, _) = io_streams(digests);
    let mut noticed = 0;
    for at in 0..to_target.len() {
        let mut server = Server::new();
        let before = server.volume.clone();
        let (_session, mut pair) = io_pair(&mut server, digests);
        let mut stream = to_target.clone();
        stream[at] ^= 0x10;
        let is_fatal = pair.target.receive(Instant(1), &stream, &mut server).is_err();
        let answers = Target::<Server>::transmit(&mut pair.target).take_bytes();
        pair.target.disconnected(Instant(1), &mut server);
        let is_transient = answers.chunks(28).any(|pdu| pdu.first() == Some(&5) && pdu.get(22..24) == Some(&[0x44, 0]));
        // Corrupted data are not written: each byte of the volume is as before or as in a correct write.
        let is_clean =
            server.volume.iter().zip(&before).all(|(after, before)| matches!(after, 1 | 2 | 0xdd) || after == before);
        assert!(is_clean, "byte {at}");
        noticed += usize::from(is_fatal || is_transient);
    }
    assert!(noticed * 100 > to_target.len() * 95, "{noticed} of {}", to_target.len());
}
