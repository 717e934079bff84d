//! A session with every procedure, compared with the recorded bytes and decoded by tshark.
//!
//! `IOTAX_RECORD=1` records the session again; check tshark's output before keeping it.
#![allow(clippy::unwrap_used)]

use std::{fmt::Write as _, fs, path::Path, process::Command};

use crate::{
    capture::pcap,
    nfs_support::{Client, Server},
};
use iotax_node::fs::Limits;
use iotax_proto::nfs::{
    common::{CreateHow, FileHandle, NodeKind, SetAttributes, SetTime, Stability, Time},
    mount::PROGRAM as MOUNT_PROGRAM,
    v3::{Arguments, FileRange, Place, VERSION, arguments::WriteHead, decode::describe, results::Results},
};
use iotax_proto::rpc::portmap;

/// Calls of MOUNT and then all of NFS, some of which fail.
fn session() -> Client {
    let mut client = Client::new(Server::new(4096, Limits::default()));
    let root = client.root();
    for procedure in [0, 2, 5] {
        client.call_program(MOUNT_PROGRAM, VERSION, procedure, |_| {}).unwrap();
    }
    let place = |name: &'static str| Place { directory: root, name: name.as_bytes() };
    let set = SetAttributes {
        mode: Some(0o640),
        uid: Some(1000),
        size: Some(3),
        accessed: SetTime::ServerTime,
        modified: SetTime::Client(Time { seconds: 1_000_000_000, nanoseconds: 5 }),
        ..SetAttributes::default()
    };
    let keep = SetAttributes::default();
    client.status(&Arguments::Null).unwrap();
    client.status(&Arguments::FsInfo { root }).unwrap();
    client.status(&Arguments::PathConf { file: root }).unwrap();
    client.status(&Arguments::FsStat { root }).unwrap();
    client.status(&Arguments::GetAttr { file: root }).unwrap();
    client.status(&Arguments::Access { file: root, rights: 0x3f }).unwrap();
    let volume = look_up(&mut client, place("volume"));
    let file = volume;
    for (stability, data) in [(Stability::Unstable, &b"some data"[..]), (Stability::FileSync, b"more")] {
        let (count, data_len) = (data.len() as u32, data.len() as u32);
        let head = WriteHead { file, offset: 10, count, stability, data_len };
        client.call(&Arguments::Write(head), data).0.unwrap();
    }
    client.status(&Arguments::Commit(FileRange { file, offset: 0, count: 0 })).unwrap();
    client.status(&Arguments::Read(FileRange { file, offset: 8, count: 13 })).unwrap();
    client.status(&Arguments::Create { place: place("exclusive"), how: CreateHow::Exclusive(*b"verifier") }).unwrap();
    client.status(&Arguments::Create { place: place("guarded"), how: CreateHow::Guarded(set) }).unwrap();
    client.status(&Arguments::Create { place: place("guarded"), how: CreateHow::Guarded(set) }).unwrap_err();
    client.status(&Arguments::Create { place: place("unchecked"), how: CreateHow::Unchecked(keep) }).unwrap();
    client.status(&Arguments::MkDir { place: place("directory"), attributes: keep }).unwrap();
    client.status(&Arguments::SymLink { place: place("link"), attributes: keep, path: b"../volume" }).unwrap();
    let link = look_up(&mut client, place("link"));
    client.status(&Arguments::ReadLink { link }).unwrap();
    for (name, kind) in [
        ("block", NodeKind::Block { major: 8, minor: 1 }),
        ("character", NodeKind::Character { major: 1, minor: 3 }),
        ("socket", NodeKind::Socket),
        ("pipe", NodeKind::Fifo),
    ] {
        client.status(&Arguments::MkNod { place: place(name), kind: Some(kind), attributes: keep }).unwrap();
    }
    let file = look_up(&mut client, place("unchecked"));
    client.status(&Arguments::SetAttr { file, attributes: set, guard: None }).unwrap();
    let guard = Some(Time { seconds: 1, nanoseconds: 1 });
    client.status(&Arguments::SetAttr { file, attributes: set, guard }).unwrap_err();
    client.status(&Arguments::Link { file, link: place("hard") }).unwrap();
    client.status(&Arguments::Rename { from: place("hard"), to: place("guarded") }).unwrap();
    client.status(&Arguments::Rename { from: place("hard"), to: place("guarded") }).unwrap_err();
    let directory = root;
    client.status(&Arguments::ReadDir { directory, cookie: 0, verifier: [0; 8], count: 4096 }).unwrap();
    let (cookie, verifier) = (0, [0; 8]);
    client.status(&Arguments::ReadDirPlus { directory, cookie, verifier, name_bytes: 512, max_bytes: 4096 }).unwrap();
    client.status(&Arguments::RmDir(place("directory"))).unwrap();
    client.status(&Arguments::RmDir(place("volume"))).unwrap_err();
    client.status(&Arguments::Remove(place("guarded"))).unwrap();
    client.status(&Arguments::Remove(place("guarded"))).unwrap_err();
    client.call_program(MOUNT_PROGRAM, VERSION, 4, |_| {}).unwrap();
    client.call_program(portmap::PROGRAM, portmap::VERSION, portmap::PROC_DUMP, |_| {}).unwrap_err();
    client
}

fn look_up(client: &mut Client, place: Place<'_>) -> FileHandle {
    let Ok(Results::Lookup { object, .. }) = client.call(&Arguments::Lookup(place), &[]).0 else { panic!() };
    object
}

#[test]
fn the_session_is_on_the_wire_as_recorded() {
    let mut text = String::from("# Calls (>) and replies (<) of one NFSv3 session, with their record marks.\n");
    for [call, reply] in session().wire {
        for (direction, bytes) in [('>', call), ('<', reply)] {
            let (used, _) = describe(&bytes).unwrap();
            assert_eq!(used, bytes.len());
            write!(text, "{direction} ").unwrap();
            for byte in bytes {
                write!(text, "{byte:02x}").unwrap();
            }
            text.push('\n');
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nfs_session.hex");
    if std::env::var_os("IOTAX_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == text, "the session differs from {}", path.display());
}

#[test]
fn tshark_finds_every_message_well_formed() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "tshark is missing");
        eprintln!("skipped: tshark is missing");
        return;
    }
    let capture = std::env::temp_dir().join(format!("iotax-nfs-{}.pcap", std::process::id()));
    let wire = session().wire;
    let messages = wire.iter().flat_map(|[call, reply]| [(true, &call[..]), (false, &reply[..])]);
    fs::write(&capture, pcap(2049, messages)).unwrap();
    let fields = ["rpc.msgtyp", "nfs.procedure_v3", "mount.procedure_v3", "nfs.status3", "_ws.malformed", "_ws.expert"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&capture).args(["-o", "tcp.check_checksum:FALSE", "-T", "fields", "-E", "separator=;"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    fs::remove_file(&capture).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    assert_eq!(lines.len(), 2 * wire.len());
    let mut seen = [0; 22];
    for (at, line) in lines.iter().enumerate() {
        let [message, nfs, _, _, malformed, expert] = line[..] else { panic!("{line:?}") };
        assert_eq!(message, (at % 2).to_string(), "message {at} is seen as the call or reply that it is");
        assert_eq!((malformed, expert), ("", ""), "message {at}: {line:?}");
        if let Ok(procedure) = nfs.parse::<usize>() {
            seen[procedure] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count >= 2), "calls and replies of each procedure: {seen:?}");
}
