//! The initiator against the target: whole sessions, with the byte stream split at every position.

use crate::nvme_support::{Answers, BLOCK, BLOCKS, Cut, Pair, Server, admin, connect_config, connect_with, io};
use iotax_proto::{
    Initiator, Io, IoError, Misuse, Payload, Target,
    nvme_tcp::{IoQueue, TargetConfig, pdu::Digests},
};

/// Limits so small that a write of two or more blocks needs an R2T, and a write of nine or more blocks also needs more
/// than one H2CData PDU.
fn small_target() -> TargetConfig {
    TargetConfig {
        in_capsule_bytes: BLOCK as u32,
        max_h2c_data_bytes: 4096,
        max_transfer_bytes: 8192,
        ..TargetConfig::default()
    }
}

fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn write(block: u64, data: &[u8]) -> Io {
    Io::Write { offset: block * BLOCK as u64, data: Payload::from_vec(data.to_vec()), durable: false }
}

fn read(block: u64, blocks: u32) -> Io {
    Io::Read { offset: block * BLOCK as u64, len: blocks * BLOCK as u32 }
}

/// Does everything that an I/O queue can do and then disconnects.
fn io_session(server: &mut Server, pair: &mut Pair<IoQueue>) {
    let (small, large) = (pattern(1, 1), pattern(9, 2));
    let now = pair.now;
    pair.host.submit(now, 0, write(3, &small)).expect("credit");
    pair.host.submit(now, 1, write(10, &large)).expect("credit");
    pair.host.submit(now, 2, read(5, 2)).expect("credit");
    pair.host.submit(now, 3, Io::Flush).expect("credit");
    pair.run(server).expect("I/O");
    for tag in [0, 1, 3] {
        assert_eq!(pair.events.take(tag), Ok(Vec::new()));
    }
    assert_eq!(pair.events.take(2), Ok(server.volume[5 * BLOCK..7 * BLOCK].to_vec()));
    assert_eq!(server.volume[3 * BLOCK..4 * BLOCK], small);
    assert_eq!(server.volume[10 * BLOCK..19 * BLOCK], large);

    let block = BLOCK as u32;
    pair.host.submit(now, 7, read(10, 9)).expect("credit");
    pair.host.submit(now, 1, Io::WriteZeroes { offset: 30 * BLOCK as u64, len: 4 * block }).expect("credit");
    pair.host.submit(now, 0, Io::Unmap { offset: 40 * BLOCK as u64, len: 2 * block }).expect("credit");
    pair.run(server).expect("I/O");
    assert_eq!(pair.events.take(7), Ok(large));
    assert_eq!(pair.events.take(1), Ok(Vec::new()));
    assert_eq!(pair.events.take(0), Ok(Vec::new()));
    assert_eq!(server.volume[30 * BLOCK..34 * BLOCK], [0; 4 * BLOCK]);
    assert_eq!(server.volume[40 * BLOCK..42 * BLOCK], [0xdd; 2 * BLOCK]);

    pair.host.close(pair.now);
    pair.run(server).expect("disconnect");
    assert!(pair.events.is_closed);
    assert!(Target::<Server>::is_closing(&pair.target));
    assert_eq!(server.outstanding(), 0);
}

fn digests() -> [Digests; 4] {
    [(false, false), (true, false), (false, true), (true, true)].map(|(header, data)| Digests { header, data })
}

#[test]
fn session_reads_and_writes_in_small_pieces() {
    for digests in digests() {
        for cut in [Cut::Never, Cut::Pieces(1), Cut::Pieces(7), Cut::Pieces(73), Cut::Pieces(1000)] {
            for answers in [Answers::AtOnce, Answers::Later] {
                let mut server = Server::new();
                server.answers = answers;
                let config = iotax_proto::nvme_tcp::ConnectConfig { digests, ..connect_config() };
                let target = small_target();
                let mut session = admin(&mut server, &config, &target, cut);
                let controller = session.host.controller().expect("ready").clone();
                assert_eq!(controller.geometry.size_bytes, (BLOCK * BLOCKS) as u64);
                let mut pair = io(&mut server, &config, &controller, 1, &target, cut);
                io_session(&mut server, &mut pair);
                session.host.close(session.now);
                session.run_until(&mut server, |pair| pair.events.is_closed).expect("shut down");
            }
        }
    }
}

#[test]
fn io_session_survives_every_split() {
    let [plain, header, _, both] = digests();
    for (digests, in_place) in [(plain, false), (both, false), (plain, true), (header, true), (both, true)] {
        let config = iotax_proto::nvme_tcp::ConnectConfig { digests, ..connect_config() };
        let target = small_target();
        let (mut longest, mut at, mut named) = (0, 0, 0);
        while at <= longest {
            let mut server = Server::new();
            let session = admin(&mut server, &config, &target, Cut::Never);
            let controller = session.host.controller().expect("ready").clone();
            server.in_place = in_place;
            let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::At(at));
            io_session(&mut server, &mut pair);
            named += server.named.get();
            longest = pair.to_host.len().max(pair.to_target.len());
            at += 1;
        }
        assert!(longest > 5000, "the session is longer than that");
        // The memory is named once for each split within the data of the two writes, if no digest covers the data.
        assert_eq!(named, if in_place && !digests.data { 10 * BLOCK } else { 0 }, "{digests:?}");
    }
}

#[test]
fn admin_session_survives_every_split() {
    let config =
        iotax_proto::nvme_tcp::ConnectConfig { digests: Digests { header: true, data: true }, ..connect_config() };
    let target = small_target();
    let mut longest = 0;
    let mut at = 0;
    while at <= longest {
        let mut server = Server::new();
        let mut session = admin(&mut server, &config, &target, Cut::At(at));
        session.host.close(session.now);
        session.run_until(&mut server, |pair| pair.events.is_closed).expect("shut down");
        longest = session.to_host.len().max(session.to_target.len());
        at += 1;
    }
    assert!(longest > 3 * 4096, "three Identify structures went by");
}

#[test]
fn sq_flow_control_completes_reads_with_a_response() {
    let mut server = Server::new();
    let config = connect_with(|session| session.disable_sq_flow_control = false);
    let target = TargetConfig::default();
    let session = admin(&mut server, &config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::Never);
    pair.to_host.clear();
    pair.host.submit(pair.now, 0, read(0, 1)).expect("credit");
    pair.run(&mut server).expect("I/O");
    assert_eq!(pair.to_host.len(), 24 + BLOCK + 24);
    assert_eq!(pair.events.take(0), Ok(server.volume[..BLOCK].to_vec()));
}

#[test]
fn read_is_one_pdu_without_sq_flow_control() {
    let mut server = Server::new();
    let (config, target) = (connect_config(), TargetConfig::default());
    let session = admin(&mut server, &config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::Never);
    pair.to_host.clear();
    pair.host.submit(pair.now, 0, read(0, 8)).expect("credit");
    pair.run(&mut server).expect("I/O");
    assert_eq!(pair.to_host.len(), 24 + 8 * BLOCK);
}

#[test]
fn misuse_is_refused_and_sends_nothing() {
    let mut server = Server::new();
    let (config, target) = (connect_config(), small_target());
    let session = admin(&mut server, &config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::Never);
    let now = pair.now;
    assert_eq!(pair.host.credits(), 8);
    assert_eq!(pair.host.submit(now, 8, Io::Flush), Err(Misuse::BadTag));
    assert_eq!(pair.host.submit(now, 0, Io::Read { offset: 1, len: 512 }), Err(Misuse::BadRange));
    assert_eq!(pair.host.submit(now, 0, Io::Read { offset: 0, len: 0 }), Err(Misuse::BadRange));
    assert_eq!(pair.host.submit(now, 0, read(BLOCKS as u64, 1)), Err(Misuse::BadRange));
    assert_eq!(pair.host.submit(now, 0, read(0, 17)), Err(Misuse::BadRange));
    assert!(pair.host.transmit().is_empty());
    for tag in 0..8 {
        pair.host.submit(now, tag, Io::Flush).expect("credit");
    }
    assert_eq!(pair.host.submit(now, 0, Io::Flush), Err(Misuse::NoCredit));
    pair.run(&mut server).expect("I/O");
    assert_eq!(pair.events.completions.len(), 8);
}

#[test]
fn lost_connection_completes_what_is_outstanding_and_aborts_at_the_server() {
    let mut server = Server::new();
    let (config, target) = (connect_config(), small_target());
    let session = admin(&mut server, &config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::Never);
    let now = pair.now;
    server.answers = Answers::Later;
    pair.host.submit(now, 0, write(0, &pattern(2, 3))).expect("credit");
    pair.host.submit(now, 1, read(0, 1)).expect("credit");
    let bytes = pair.host.transmit().take_bytes();
    pair.target.receive(now, &bytes, &mut server).expect("commands");
    assert_eq!(server.outstanding(), 2);
    pair.target.disconnected(now, &mut server);
    assert_eq!((server.outstanding(), server.aborted.len()), (0, 2));
    pair.host.disconnected(now, &mut pair.events);
    assert_eq!(pair.events.take(0), Err(IoError::ConnectionLost));
    assert_eq!(pair.events.take(1), Err(IoError::ConnectionLost));
    assert_eq!(pair.host.credits(), 0);
}
