//! The expected bytes of sessions. `data/nvme_tcp_*.hex` has one line per PDU, `>` to the target and `<` to the host,
//! each below its description. tshark decodes the same sessions.
//!
//! `IOTAX_RECORD=1` writes the files anew; check what tshark reports for them before you commit them.

use std::{fmt::Write, fs, path::PathBuf, process::Command};

use crate::capture::{capture_path, pcap};
use crate::nvme_support::{
    BLOCK, Cut, Server, admin, connect_config, io,
    raw::{Raw, capsule, connect, connect_data, ic_req},
};
use iotax_proto::{
    Initiator, Io, Payload, Reserve, Target,
    nvme::{
        CommandId, ControllerId, QueueId, Sqe,
        command::{Sgl, admin, fabrics, feature, log_id},
        log::GetLogPage,
        property,
    },
    nvme_tcp::{
        ConnectConfig, TargetConfig,
        decode::{Stream, describe},
        pdu::{Digests, Header},
    },
};

/// A complete session of an I/O queue: handshake, Connect, every kind of I/O, Disconnect.
fn io_session(digests: Digests) -> Vec<(char, Vec<u8>)> {
    let target = TargetConfig { in_capsule_bytes: BLOCK as u32, max_h2c_data_bytes: 4096, ..TargetConfig::default() };
    let config = ConnectConfig { digests, ..connect_config() };
    let mut server = Server::new();
    let session = admin(&mut server, &config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::Never);
    let block = BLOCK as u64;
    let ios = [
        Io::Write { offset: 3 * block, data: Payload::from_vec(vec![0xa5; BLOCK]), durable: false },
        Io::Read { offset: 3 * block, len: BLOCK as u32 },
        Io::Write { offset: 8 * block, data: Payload::from_vec(vec![0x5a; 2 * BLOCK]), durable: false },
        Io::Flush,
        Io::WriteZeroes { offset: 3 * block, len: 4 * BLOCK as u32 },
        Io::Unmap { offset: 8 * block, len: 2 * BLOCK as u32 },
        Io::Reserve(Reserve::Register { key: 7 }),
        Io::Reserve(Reserve::Hold { key: 7 }),
        Io::Reserve(Reserve::PreemptAndAbort { key: 7, victim: 7 }),
    ];
    for (tag, io) in ios.into_iter().enumerate() {
        pair.host.submit(pair.now, tag as u32 % 8, io).expect("credit");
        pair.run(&mut server).expect("I/O");
    }
    pair.host.close(pair.now);
    pair.run(&mut server).expect("disconnect");
    let split = |(direction, bytes): &(char, Vec<u8>)| {
        split(bytes).into_iter().map(|pdu| (*direction, pdu)).collect::<Vec<_>>()
    };
    pair.wire.iter().flat_map(split).collect()
}

/// The commands of an admin queue that carry little data, and then a violation.
fn admin_session() -> Vec<(char, Vec<u8>)> {
    let mut server = Server::new();
    let mut raw = Raw::new(&TargetConfig::default());
    let mut smart = GetLogPage::sqe(log_id::SMART, 512, 0, CommandId(4));
    smart.set_sgl(Sgl::Transport { len: 512 });
    let mut cap = Sqe::fabrics(fabrics::PROPERTY_GET, CommandId(1));
    cap.0[40] = 1;
    cap.set_cdw(11, property::CAP);
    let mut queues = Sqe::new(admin::SET_FEATURES, CommandId(2), 0);
    queues.set_cdw(10, u32::from(feature::QUEUE_COUNT));
    queues.set_cdw(11, 0x0003_0003);
    let sqes = [
        cap,
        queues,
        Sqe::new(admin::KEEP_ALIVE, CommandId(3), 0),
        smart,
        Sqe::new(admin::ASYNC_EVENT, CommandId(5), 0),
    ];
    let mut lines = Vec::new();
    let mut say = |raw: &mut Raw, bytes: Vec<u8>| {
        // On a violation, the target still queues a terminate request.
        let _ = raw.target.receive(raw.now, &bytes, &mut server);
        lines.push(('>', bytes));
        let answer = Target::<Server>::transmit(&mut raw.target).take_bytes();
        lines.extend(split(&answer).into_iter().map(|pdu| ('<', pdu)));
    };
    say(&mut raw, ic_req(0, 0));
    let mut sqe = connect(QueueId::ADMIN, 31).sqe(CommandId(0));
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: 1024 });
    say(&mut raw, capsule(&sqe, &connect_data(ControllerId::ANY).encode()));
    let mut enable = Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(1));
    enable.set_cdw(11, property::CC);
    enable.set_cdw(12, property::CC_ENABLE | property::CC_ENTRY_SIZES);
    say(&mut raw, capsule(&enable, &[]));
    for sqe in &sqes {
        say(&mut raw, capsule(sqe, &[]));
    }
    let mut wrong = capsule(&Sqe::new(admin::KEEP_ALIVE, CommandId(6), 0), &[]);
    wrong[2] = 70;
    say(&mut raw, wrong);
    lines
}

/// Splits a stream into PDUs.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pdus = Vec::new();
    while !bytes.is_empty() {
        let len = u32::from_le_bytes(*bytes[4..].first_chunk().expect("a length")) as usize;
        let (pdu, rest) = bytes.split_at(len);
        pdus.push(pdu.to_vec());
        bytes = rest;
    }
    pdus
}

fn render(lines: &[(char, Vec<u8>)]) -> String {
    let mut text = String::new();
    let mut stream = Stream::default();
    for (direction, pdu) in lines {
        let description = match stream.describe(pdu) {
            Ok(Some((len, description))) if len == pdu.len() => description,
            Ok(other) => panic!("{other:?} of a PDU of {} bytes", pdu.len()),
            Err(violation) => violation.to_string(),
        };
        writeln!(text, "# {description}").expect("a string takes it");
        write!(text, "{direction} ").expect("a string takes it");
        for byte in pdu {
            write!(text, "{byte:02x}").expect("a string takes it");
        }
        text.push('\n');
    }
    text
}

fn check(name: &str, lines: &[(char, Vec<u8>)]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let rendered = render(lines);
    if std::env::var_os("IOTAX_RECORD").is_some() {
        fs::write(&path, &rendered).expect("the file can be written");
    }
    let pinned = fs::read_to_string(&path).expect("the file is there");
    for (at, (ours, theirs)) in rendered.lines().zip(pinned.lines()).enumerate() {
        assert_eq!(ours, theirs, "{name}, line {}", at + 1);
    }
    assert_eq!(rendered.lines().count(), pinned.lines().count(), "{name}");
}

#[test]
fn io_session_is_as_pinned() {
    check("nvme_tcp_io.hex", &io_session(Digests::default()));
}

#[test]
fn io_session_with_digests_is_as_pinned() {
    check("nvme_tcp_io_digests.hex", &io_session(Digests { header: true, data: true }));
}

#[test]
fn admin_session_is_as_pinned() {
    check("nvme_tcp_admin.hex", &admin_session());
}

#[test]
fn tshark_finds_every_pdu_well_formed_and_every_digest_right() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "tshark is missing");
        eprintln!("skipped: tshark is missing");
        return;
    }
    let digests = Digests { header: true, data: true };
    let mut admin = admin_session();
    // The last command is invalid on purpose, so tshark does not get it.
    admin.truncate(admin.len() - 2);
    for (session, has_digests) in [(io_session(Digests::default()), false), (io_session(digests), true), (admin, false)]
    {
        for (at, ((_, pdu), line)) in session.iter().zip(tshark(&session)).enumerate() {
            let [kind, malformed, expert, header_digest, data_digest] = &line[..] else { panic!("{line:?}") };
            assert_eq!(*kind, pdu[0].to_string(), "PDU {at}");
            assert_eq!((malformed.as_str(), expert.as_str()), ("", ""), "PDU {at}");
            // PDUs of the handshake have no digests. A status of 1 is tshark's "good".
            let expected = |is_there: bool| if is_there { "1" } else { "" };
            assert_eq!(header_digest, expected(has_digests && pdu[0] > 3), "PDU {at}");
            assert_eq!(data_digest, expected(has_digests && pdu[3] > 0), "PDU {at}");
        }
    }
}

/// The output of tshark for each PDU: type, malformed fields, expert messages, status of the header digest and of the
/// data digest.
fn tshark(session: &[(char, Vec<u8>)]) -> Vec<Vec<String>> {
    let capture = capture_path();
    let messages = session.iter().map(|(direction, pdu)| (*direction == '>', &pdu[..]));
    fs::write(&capture, pcap(4420, messages)).expect("the capture can be written");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&capture).args(["-T", "fields", "-E", "separator=;"]);
    for option in ["tcp.check_checksum:FALSE", "nvme-tcp.check_hdgst:TRUE", "nvme-tcp.check_ddgst:TRUE"] {
        command.args(["-o", option]);
    }
    for field in ["nvme-tcp.type", "_ws.malformed", "_ws.expert", "nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status"] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    fs::remove_file(&capture).expect("the capture is there");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Vec<String>> = text.lines().map(|line| line.split(';').map(String::from).collect()).collect();
    assert_eq!(lines.len(), session.len());
    lines
}

#[test]
fn descriptions_need_whole_pdus_and_never_panic() {
    for (_, pdu) in io_session(Digests { header: true, data: true }) {
        for len in 0..pdu.len() {
            assert!(matches!(describe(&pdu[..len]), Ok(None)), "{len} of {}", pdu.len());
        }
        let Ok(Some((_, line))) = describe(&pdu) else { panic!("a whole PDU") };
        assert!(!line.contains('\n'));
    }
    let whole = capsule(&Sqe::new(admin::KEEP_ALIVE, CommandId(6), 0), &[]);
    for at in 0..8 {
        for byte in 0..=255 {
            let mut mutated = whole.clone();
            mutated[at] = byte;
            if let Ok(Some((len, _))) = describe(&mutated) {
                assert!(len <= mutated.len());
            }
        }
    }
    assert!(Header::decode(iotax_proto::nvme_tcp::pdu::Common::decode([4, 0, 72, 0, 72, 0, 0, 0]), &[0; 70]).is_none());
}
