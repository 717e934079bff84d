//! Arbitrary input of a peer causes no panic, leaves no operation open and completes no I/O twice.
#![allow(clippy::unwrap_used)]

use crate::iscsi_support::{Cut, MemoryBackend, Pair, Peer, Recorder, config, give, pattern};
use arbtest::{
    arbitrary::{self, Unstructured},
    arbtest,
};
use iotax_proto::{
    Initiator, Instant, Io, Payload, Target, Violation,
    iscsi::{
        DigestWish, Wishes,
        decode::describe,
        initiator::{Discovery, Session},
        pdu::{
            AsyncMessage, Bhs, DataIn, DataOut, LoginRequest, LogoutRequest, LogoutResponse, NopIn, NopOut, R2t,
            Reject, ScsiCommand, ScsiResponse, Snack, TaskManagement, TaskManagementResponse, TextRequest,
            TextResponse, TransferTag,
        },
        target_side::{Config, Connection},
    },
};

/// The byte streams, in both directions, of a session that does several kinds of I/O.
fn streams(wishes: &Wishes) -> (Vec<u8>, Vec<u8>) {
    let target = Config { wishes: wishes.clone(), ..Config::default() };
    let mut pair = Pair::ready(wishes.clone(), target, MemoryBackend::new(1 << 16), Cut::Whole);
    pair.write(0, 0, &pattern(1, 4096));
    pair.read(1, 512, 2048);
    pair.io(2, Io::Flush).unwrap();
    pair.io(3, Io::Unmap { offset: 0, len: 512 }).unwrap();
    pair.close();
    (pair.to_target, pair.to_initiator)
}

fn wishes() -> [Wishes; 3] {
    let small = Wishes {
        max_recv_segment_len: 600,
        max_burst_len: 1024,
        first_burst_len: 512,
        max_outstanding_r2t: 2,
        ..Wishes::default()
    };
    let digests = Wishes { header_digest: DigestWish::Require, data_digest: DigestWish::Require, ..Wishes::default() };
    [Wishes::default(), small, digests]
}

/// Changes, removes and duplicates some bytes.
fn mutate(u: &mut Unstructured<'_>, stream: &[u8]) -> arbitrary::Result<Vec<u8>> {
    let mut bytes = stream.to_vec();
    for _ in 0..u.int_in_range(1..=6)? {
        let at = u.choose_index(bytes.len())?;
        match u.int_in_range(0..=3)? {
            0 => bytes[at] = u.arbitrary()?,
            1 => bytes[at] ^= 1 << u.int_in_range(0..=7)?,
            2 => drop(bytes.drain(at..(at + u.int_in_range(1..=60)?).min(bytes.len()))),
            _ => {
                let again = bytes[at..(at + 48).min(bytes.len())].to_vec();
                bytes.splice(at..at, again);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    Ok(bytes)
}

fn feed_target(u: &mut Unstructured<'_>, target: &mut Connection, backend: &mut MemoryBackend, bytes: &[u8]) {
    let now = Instant(0);
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = u.int_in_range(1..=4000).unwrap_or(4000).min(rest.len());
        let (piece, after) = rest.split_at(len);
        rest = after;
        backend.in_place = u.ratio(1_u8, 2_u8).unwrap_or(false);
        if give(target, now, piece, backend).is_err() {
            break;
        }
        while let Some((id, result)) = backend.take_queued() {
            target.complete(now, id, result, backend);
        }
    }
    target.disconnected(now, backend);
    assert_eq!(backend.open_operations(), 0);
}

#[test]
fn mutated_streams_do_not_hurt_the_target() {
    let streams = wishes().map(|wishes| (streams(&wishes).0, wishes));
    arbtest(|u| {
        let (stream, wishes) = u.choose(&streams)?;
        let bytes = mutate(u, stream)?;
        let mut backend = MemoryBackend::new(1 << 16);
        backend.queues = u.arbitrary()?;
        let config = Config { wishes: wishes.clone(), ..Config::default() };
        feed_target(u, &mut Connection::new(Instant(0), config), &mut backend, &bytes);
        Ok(())
    });
}

#[test]
fn random_bytes_do_not_hurt_anybody() {
    arbtest(|u| {
        let bytes = u.bytes(u.len())?.to_vec();
        let _ = describe(&bytes);
        let mut empty = Unstructured::new(&[]);
        feed_target(
            &mut empty,
            &mut Connection::new(Instant(0), Config::default()),
            &mut MemoryBackend::new(512),
            &bytes,
        );
        let mut events = Recorder::default();
        let _ = Session::new(Instant(0), config(Wishes::default())).receive(Instant(0), &bytes, &mut events);
        let _ = Discovery::new(Instant(0), &config(Wishes::default())).receive(&bytes);
        assert!(events.ready.is_none());
        Ok(())
    });
}

#[test]
fn any_sequence_of_pdus_does_not_hurt_the_target() {
    const OPCODES: [u8; 9] = [
        NopOut::OPCODE,
        ScsiCommand::OPCODE,
        TaskManagement::OPCODE,
        LoginRequest::OPCODE,
        TextRequest::OPCODE,
        DataOut::OPCODE,
        LogoutRequest::OPCODE,
        Snack::OPCODE,
        0x1d,
    ];
    const CDBS: [u8; 7] = [0x28, 0x2a, 0x35, 0x42, 0x89, 0x93, 0x12];
    arbtest(|u| {
        let config = Config { command_window: u.int_in_range(1..=4)?, ..Config::default() };
        let keys: [&[_]; 2] = [&[], &[("InitialR2T", "No"), ("FirstBurstLength", "600"), ("MaxBurstLength", "1024")]];
        let mut peer = Peer::logged_in(config, MemoryBackend::new(1 << 16), u.choose(&keys)?);
        peer.clear_attentions();
        peer.backend.queues = u.arbitrary()?;
        let mut ttts = vec![TransferTag::RESERVED];
        let mut max_cmd_sn = peer.cmd_sn;
        while !u.is_empty() {
            let opcode = if u.ratio(2, 3)? { *u.choose(&[0x01, 0x05])? } else { *u.choose(&OPCODES)? };
            let mut bhs = Bhs([0; 48]);
            bhs.0[0] = opcode | if u.ratio(1, 4)? { 0x40 } else { 0 };
            bhs.0[1] = *u.choose(&[0x80, 0xa0, 0xc0, 0x20, 0x81, 0x85, 0x86, 0x00])?;
            bhs.0[19] = u.int_in_range(0..=3)?;
            let ttt = if u.ratio(1, 8)? { TransferTag(u.arbitrary()?) } else { *u.choose(&ttts)? };
            let near = |u: &mut Unstructured<'_>| if u.ratio(1, 8)? { u.arbitrary() } else { Ok(0_u32) };
            match opcode {
                ScsiCommand::OPCODE => {
                    bhs.0[20..24]
                        .copy_from_slice(&u32::from(u.int_in_range(0..=8_u8)? * 4).wrapping_mul(128).to_be_bytes());
                    bhs.0[32] = *u.choose(&CDBS)?;
                    bhs.0[40] = u.int_in_range(0..=8)?;
                }
                DataOut::OPCODE => {
                    bhs.0[20..24].copy_from_slice(&ttt.0.to_be_bytes());
                    bhs.0[36..40].copy_from_slice(&near(u)?.to_be_bytes());
                    let offset = u32::from(u.int_in_range(0..=8_u8)?) * 512 + near(u)?;
                    bhs.0[40..44].copy_from_slice(&offset.to_be_bytes());
                }
                _ => bhs.0[20..24].copy_from_slice(&ttt.0.to_be_bytes()),
            }
            if opcode != DataOut::OPCODE {
                let cmd_sn = if u.ratio(1, 16)? { u.arbitrary()? } else { peer.cmd_sn };
                bhs.0[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
                let taken = !bhs.immediate() && cmd_sn == peer.cmd_sn && opcode != Snack::OPCODE && opcode < 0x10;
                peer.cmd_sn += u32::from(taken && opcode != LoginRequest::OPCODE && cmd_sn <= max_cmd_sn);
            }
            let len = *u.choose(&[0, 0, 512, 1024, 600, 7])?;
            if peer.send(bhs, &pattern(1, len)).is_err() {
                break;
            }
            while u.ratio(1, 2)?
                && let Some((id, result)) = peer.backend.take_queued()
            {
                peer.target.complete(peer.now, id, result, &mut peer.backend);
            }
            for (bhs, _) in peer.answers() {
                if bhs.opcode() == R2t::OPCODE {
                    ttts.push(R2t::parse(&bhs).ttt);
                }
                let exp_cmd_sn = u32::from_be_bytes(bhs.0[28..32].try_into().unwrap());
                max_cmd_sn = u32::from_be_bytes(bhs.0[32..36].try_into().unwrap());
                assert!(max_cmd_sn.wrapping_sub(exp_cmd_sn.wrapping_sub(1)) <= 4, "the window is kept");
            }
        }
        peer.target.disconnected(peer.now, &mut peer.backend);
        assert_eq!(peer.backend.open_operations(), 0);
        Ok(())
    })
    .budget_ms(500);
}

/// A session that is ready and has unanswered I/Os, and the header of the last PDU that the target sent.
fn waiting() -> (Session, Recorder, Bhs) {
    let mut pair = Pair::ready(
        Wishes { initial_r2t: true, immediate_data: false, ..Wishes::default() },
        Config::default(),
        MemoryBackend::new(1 << 16),
        Cut::Whole,
    );
    let now = pair.now;
    // The last PDU of the target contains the current counters.
    let last = pair.last_of_target();
    for tag in 0..2 {
        pair.initiator.submit(now, tag, Io::Read { offset: 0, len: 1024 }).unwrap();
        let data = Payload::from_vec(vec![1; 2048]);
        pair.initiator.submit(now, tag + 2, Io::Write { offset: 0, data, durable: false }).unwrap();
    }
    pair.initiator.transmit().clear();
    (pair.initiator, pair.events, last)
}

fn receive(
    u: &mut Unstructured<'_>,
    session: &mut Session,
    events: &mut Recorder,
) -> arbitrary::Result<Result<(), Violation>> {
    const OPCODES: [u8; 10] = [
        DataIn::OPCODE,
        R2t::OPCODE,
        ScsiResponse::OPCODE,
        NopIn::OPCODE,
        TextResponse::OPCODE,
        TaskManagementResponse::OPCODE,
        LogoutResponse::OPCODE,
        AsyncMessage::OPCODE,
        Reject::OPCODE,
        0x3e,
    ];
    let opcode = if u.ratio(2, 3)? { *u.choose(&OPCODES[..3])? } else { *u.choose(&OPCODES)? };
    let mut bhs = Bhs([0; 48]);
    bhs.0[0] = opcode;
    bhs.0[1] = *u.choose(&[0x80, 0x81, 0x00, 0x82])?;
    bhs.0[3] = *u.choose(&[0, 0, 2, 8, 0x28])?;
    bhs.0[17] = 1;
    bhs.0[19] = u.int_in_range(0..=4)?;
    bhs.0[24..28].copy_from_slice(&u.choose(&STAT_SNS)?.to_be_bytes());
    bhs.0[28..32].copy_from_slice(&100_u32.to_be_bytes());
    bhs.0[32..36].copy_from_slice(&200_u32.to_be_bytes());
    bhs.0[39] = u.int_in_range(0..=1)?;
    bhs.0[42] = *u.choose(&[0, 0, 2, 4, 0xff])?;
    bhs.0[46] = *u.choose(&[0, 2, 4, 8, 0xff])?;
    let len = *u.choose(&[0, 512, 1024, 20, 3])?;
    let mut transmit = iotax_proto::Transmit::default();
    iotax_proto::iscsi::pdu::Sender::default().bytes(&mut transmit, bhs, &pattern(1, len));
    Ok(session.receive(Instant(0), &transmit.take_bytes(), events))
}

/// StatSNs around the next one. The test asserts below that they include it.
const STAT_SNS: [u32; 6] = [8, 9, 10, 11, 12, 13];

#[test]
fn any_sequence_of_pdus_does_not_hurt_the_initiator() {
    let (_, _, last) = waiting();
    let next = u32::from_be_bytes(last.0[24..28].try_into().unwrap()) + 1;
    assert!(STAT_SNS.contains(&next), "the sequence begins at {next}");
    arbtest(|u| {
        let (mut session, mut events, _) = waiting();
        while !u.is_empty() {
            if receive(u, &mut session, &mut events)?.is_err() {
                break;
            }
        }
        session.disconnected(Instant(0), &mut events);
        let mut tags: Vec<_> = events.completed.iter().map(|(tag, _)| *tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, [0, 1, 2, 3], "each I/O completes once");
        assert!(session.transmit().len() < 1 << 16, "each byte is asked for once");
        Ok(())
    });
}

#[test]
fn mutated_streams_do_not_hurt_the_initiator() {
    let streams = wishes().map(|wishes| (streams(&wishes).1, wishes));
    arbtest(|u| {
        let (stream, wishes) = u.choose(&streams)?;
        let bytes = mutate(u, stream)?;
        let now = Instant(0);
        let mut session = Session::new(now, config(wishes.clone()));
        let mut events = Recorder::default();
        let mut submitted = 0;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(u.int_in_range(1..=4000).unwrap_or(4000).min(rest.len()));
            rest = after;
            if session.receive(now, piece, &mut events).is_err() {
                break;
            }
            if session.credits() > 0 && submitted < 4 {
                let io = match submitted {
                    0 => Io::Write { offset: 0, data: Payload::from_vec(pattern(1, 4096)), durable: false },
                    1 => Io::Read { offset: 512, len: 2048 },
                    2 => Io::Flush,
                    _ => Io::Unmap { offset: 0, len: 512 },
                };
                if session.submit(now, submitted, io).is_ok() {
                    submitted += 1;
                }
            }
        }
        session.disconnected(now, &mut events);
        assert_eq!(events.completed.len(), submitted as usize, "each I/O completes once");
        Ok(())
    });
}
