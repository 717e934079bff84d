//! Peers that ask and do not read: every request with an answer larger than itself, by every protocol. What the server keeps for
//! them is bounded, for a connection and in all; nothing that was asked is lost, and others are served.

mod support;

use std::{net::SocketAddr, time::Duration};

use iotax_node::{CloseReason, ConnId, Input, ListenerId, Node, Output, ServerNode};
use iotax_proto::{
    Instant, Transmit,
    nfs3::{self, Arguments, CreateHow, FileHandle, FileRange, MOUNT_PROGRAM, Place, Results, SetAttributes, mount},
    nvme::{
        Sqe,
        command::{Connect, ConnectData, Sgl, fabrics},
        log::GetLogPage,
        property,
    },
    rpc::{
        Credentials, Encoder,
        auth::Identity,
        message::{decode_reply, encode_call},
    },
    wire::Reader,
};
use support::server::{Bench, SIZE};

/// What a driver receives at most at a time.
const RECEIVE_BYTES: usize = 128 << 10;
/// The largest answer to one request, with what belongs to it on the wire.
const ANSWER_MAX: usize = (1 << 20) + 4096;
/// What a thread keeps in all before its connections have less room each, and that room.
const ALL_MAX: usize = 256 << 20;
const SHARE: usize = 64 << 10;
/// Answers asked for, in bytes: more than may be kept.
const ASKED_BYTES: usize = 24 << 20;

struct Peer<'a> {
    node: &'a mut ServerNode,
    conn: ConnId,
    now: Instant,
    sent: u32,
}

impl<'a> Peer<'a> {
    fn connect(node: &'a mut ServerNode, conn: u32, portal: u32) -> Self {
        let (conn, now) = (ConnId(conn), Instant(0));
        // Each from an address of its own.
        let peer = SocketAddr::from(([127, 0, 1, conn.0 as u8], 9999));
        node.handle(now, Input::Accepted { conn, listener: ListenerId(portal), peer });
        Self { node, conn, now, sent: 0 }
    }

    /// Sends, and reads the answer.
    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.node.handle(self.now, Input::Received { conn: self.conn, bytes });
        self.node.transmit(self.conn).expect("open").take_bytes()
    }

    fn queued(&mut self) -> usize {
        self.node.transmit(self.conn).map_or(0, |transmit| transmit.len())
    }

    /// Requests without reading until no more are taken, or `requests` were sent.
    fn pour(&mut self, requests: usize, mut request: impl FnMut(u32) -> Vec<u8>) -> usize {
        let mut poured = 0;
        while poured < requests && self.node.wants_receive(self.conn) {
            let mut bytes = Vec::new();
            while bytes.len() < RECEIVE_BYTES && poured < requests {
                self.sent += 1;
                poured += 1;
                bytes.extend(request(self.sent));
            }
            self.node.handle(self.now, Input::Received { conn: self.conn, bytes: &bytes });
        }
        poured
    }

    /// Reads all that comes, as a driver sends it; the bytes.
    fn read_all(&mut self) -> usize {
        let mut read = 0;
        loop {
            let count = self.queued();
            if let Some(transmit) = self.node.transmit(self.conn) {
                transmit.advance(count);
            }
            read += count;
            if self.node.poll_timeout().is_some_and(|at| at <= self.now) {
                self.node.handle(self.now, Input::Timer);
            }
            if self.queued() == 0 {
                return read;
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------------------- NVMe/TCP

fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let data_offset = if data.is_empty() { 0 } else { 72 };
    [&[4, 0, 72, data_offset], &(72 + data.len() as u32).to_le_bytes()[..], &sqe.0, data].concat()
}

fn nvme_admin(peer: &mut Peer<'_>, subnqn: &str) -> u16 {
    peer.say(&[&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat());
    let cntlid = nvme_connect(peer, subnqn, 0, 0xffff);
    let mut enable = Sqe::fabrics(fabrics::PROPERTY_SET, 1);
    enable.set_cdw(11, property::CC);
    enable.set_cdw(12, property::CC_ENABLE | property::CC_ENTRY_SIZES);
    peer.say(&capsule(&enable, &[]));
    cntlid
}

fn nvme_connect(peer: &mut Peer<'_>, subnqn: &str, qid: u16, cntlid: u16) -> u16 {
    let connect =
        Connect { record_format: 0, qid, sq_size: 31, disable_sq_flow_control: qid > 0, keep_alive_ms: 600_000 };
    let mut sqe = connect.sqe(0);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: ConnectData::LEN as u32 });
    let data = ConnectData { host_id: [9; 16], cntlid, subnqn: subnqn.into(), hostnqn: "nqn.2026-11.x:deaf".into() };
    let answer = peer.say(&capsule(&sqe, &data.encode()));
    assert_eq!(answer[22..24], [0, 0], "connected");
    u16::from_le_bytes([answer[8], answer[9]])
}

fn log_page(id: u8) -> impl Fn(u32) -> Vec<u8> {
    move |number| {
        let mut sqe = GetLogPage::sqe(id, 1 << 20, 0, number as u16 & 0x7fff);
        sqe.set_sgl(Sgl::Transport { len: 1 << 20 });
        capsule(&sqe, &[])
    }
}

fn identify(selector: u32, nsid: u32) -> impl Fn(u32) -> Vec<u8> {
    move |number| {
        let mut sqe = Sqe::new(6, number as u16 & 0x7fff, nsid);
        sqe.set_cdw(10, selector);
        sqe.set_sgl(Sgl::Transport { len: 4096 });
        capsule(&sqe, &[])
    }
}

const VOLUME_NQN: &str = "nqn.2026-11.io.iotax:v0";

#[test]
fn nvme_admin_commands_with_large_answers_are_bounded() {
    for subnqn in ["nqn.2014-08.org.nvmexpress.discovery", VOLUME_NQN] {
        for id in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0c, 0x70] {
            deaf(&format!("log page {id:#x} of {subnqn}"), 2, |peer| _ = nvme_admin(peer, subnqn), log_page(id));
        }
        for (selector, nsid) in [(0, 1), (1, 0), (2, 0), (3, 1), (5, 1), (6, 0), (8, 1), (0x1c, 0)] {
            let what = format!("identify {selector} of {subnqn}");
            deaf(&what, 2, |peer| _ = nvme_admin(peer, subnqn), identify(selector, nsid));
        }
    }
}

#[test]
fn nvme_reads_are_bounded() {
    let mut bench = Bench::new();
    let mut admin = Peer::connect(&mut bench.node, 1, 2);
    let cntlid = nvme_admin(&mut admin, VOLUME_NQN);
    let open = |peer: &mut Peer<'_>| {
        peer.say(&[&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat());
        nvme_connect(peer, VOLUME_NQN, 1, cntlid);
    };
    let read = |number: u32| {
        let mut sqe = Sqe::new(2, number as u16 & 0x7fff, 1);
        sqe.set_range(0, (1 << 20) / 512);
        sqe.set_sgl(Sgl::Transport { len: 1 << 20 });
        capsule(&sqe, &[])
    };
    deaf_on(&mut bench, "read", 2, open, read);
}

// ---------------------------------------------------------------------------------------------------------------------- iSCSI

/// A PDU; `from` is what stands at byte 8 and after.
fn iscsi(opcode: u8, flags: u8, from: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bhs = [0; 48];
    bhs[0] = opcode;
    bhs[1] = flags;
    bhs[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    bhs[8..8 + from.len()].copy_from_slice(from);
    [&bhs[..], data, &[0; 3][..data.len().wrapping_neg() % 4]].concat()
}

fn iscsi_login(peer: &mut Peer<'_>) {
    let text =
        b"InitiatorName=iqn.2026-11.x:deaf\0TargetName=iqn.2026-11.io.iotax:v0\0MaxRecvDataSegmentLength=16776192\0";
    let isid = [0x80, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let answer = peer.say(&iscsi(0x43, 0x87, &isid, text));
    assert_eq!(answer[36], 0, "logged in");
    // The first command is answered by a unit attention.
    peer.sent += 1;
    peer.say(&command(&[0; 6])(peer.sent));
}

/// A command that reads up to 1 MiB; the first has CmdSN 1.
fn command(cdb: &'static [u8]) -> impl Fn(u32) -> Vec<u8> {
    move |number| {
        let mut from = vec![0; 8];
        from.extend(number.to_be_bytes());
        from.extend((1_u32 << 20).to_be_bytes());
        from.extend(number.to_be_bytes());
        from.extend([0; 4]);
        from.extend(cdb);
        iscsi(0x01, 0xc1, &from, &[])
    }
}

#[test]
fn iscsi_requests_with_large_answers_are_bounded() {
    let commands: [(&str, &'static [u8]); 10] = [
        ("inquiry", &[0x12, 0, 0, 0xff, 0xff, 0]),
        ("inquiry of block limits", &[0x12, 1, 0xb0, 0xff, 0xff, 0]),
        ("mode sense", &[0x5a, 0, 0x3f, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
        ("report luns", &[0xa0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
        ("read capacity", &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]),
        ("get lba status", &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]),
        ("report supported operation codes", &[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]),
        ("persistent reserve in", &[0x5e, 3, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
        ("read", &[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]),
        ("no such command", &[0xc7, 0, 0, 0, 0, 0]),
    ];
    for (what, cdb) in commands {
        deaf(what, 1, iscsi_login, command(cdb));
    }
    let tagged = |number: u32| [&[0; 8][..], &number.to_be_bytes(), &[0xff; 4], &number.to_be_bytes()].concat();
    deaf("ping", 1, iscsi_login, move |number| iscsi(0x40, 0x80, &tagged(number), &[7; 4096]));
    deaf("send targets", 1, iscsi_login, move |number| iscsi(0x44, 0x80, &tagged(number), b"SendTargets=\0"));
    deaf("no such request", 1, iscsi_login, move |number| iscsi(0x1d, 0x80, &tagged(number), &[]));
}

// ------------------------------------------------------------------------------------------------------------------------ NFS

fn call(number: u32, program: u32, procedure: u32, arguments: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let identity = Identity::Sys { machine: "deaf".into(), credentials: Credentials::new(7, 7, &[]) };
    let mut call = Encoder::default();
    encode_call(call.begin_record(), number, program, nfs3::VERSION, procedure, &identity.encode());
    arguments(&mut call);
    call.end_record(0).to_vec()
}

fn nfs(number: u32, arguments: &Arguments<'_>) -> Vec<u8> {
    call(number, nfs3::PROGRAM, arguments.procedure() as u32, |call| arguments.encode(call))
}

fn mounted(peer: &mut Peer<'_>) -> FileHandle {
    let reply = peer.say(&call(1, MOUNT_PROGRAM, 1, |call| _ = call.opaque(b"/v0")));
    let mut reader = Reader::new(&reply[4..]);
    decode_reply(&mut reader).expect("a reply").1.expect("success");
    mount::decode_mounted(&mut reader).expect("an answer").expect("mounted")
}

fn made(peer: &mut Peer<'_>, arguments: &Arguments<'_>) -> FileHandle {
    let reply = peer.say(&nfs(2, arguments));
    let mut reader = Reader::new(&reply[4..]);
    decode_reply(&mut reader).expect("a reply").1.expect("success");
    match Results::decode(arguments.procedure(), &mut reader).expect("results").expect("made") {
        Results::Create { object: Some(handle), .. } | Results::Lookup { object: handle, .. } => handle,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nfs_calls_with_large_answers_are_bounded() {
    let mut bench = Bench::new();
    let mut peer = Peer::connect(&mut bench.node, 1, 0);
    let root = mounted(&mut peer);
    let sparse = SetAttributes { size: Some(1 << 30), ..SetAttributes::default() };
    let file = made(
        &mut peer,
        &Arguments::Create { place: Place { directory: root, name: b"sparse" }, how: CreateHow::Unchecked(sparse) },
    );
    let attributes = SetAttributes::default();
    let long = [b'x'; 4000];
    let link = made(
        &mut peer,
        &Arguments::SymLink { place: Place { directory: root, name: b"link" }, attributes, path: &long },
    );
    for number in 0..500_u32 {
        let name = format!("{number:0200}");
        let place = Place { directory: root, name: name.as_bytes() };
        made(&mut peer, &Arguments::Create { place, how: CreateHow::Unchecked(attributes) });
    }
    // As many mounts by as many names as a stranger likes.
    for number in 0..1100 {
        let path = format!("/v0{}", "/.".repeat(number % 500));
        peer.say(&call(3, MOUNT_PROGRAM, 1, |call| _ = call.opaque(path.as_bytes())));
    }
    let volume = made(&mut peer, &Arguments::Lookup(Place { directory: root, name: b"data" }));
    let range = |file, offset| FileRange { file, offset, count: 1 << 20 };
    let calls = [
        ("read of a sparse file", Arguments::Read(range(file, 0))),
        ("read of the volume", Arguments::Read(range(volume, SIZE as u64 - (1 << 20)))),
        ("readlink", Arguments::ReadLink { link }),
        ("readdir", Arguments::ReadDir { directory: root, cookie: 0, verifier: [0; 8], count: u32::MAX }),
        (
            "readdirplus",
            Arguments::ReadDirPlus {
                directory: root,
                cookie: 0,
                verifier: [0; 8],
                name_bytes: u32::MAX,
                max_bytes: u32::MAX,
            },
        ),
        ("getattr", Arguments::GetAttr { file }),
        ("lookup", Arguments::Lookup(Place { directory: root, name: b"data" })),
        ("fsinfo", Arguments::FsInfo { root }),
        ("fsstat", Arguments::FsStat { root }),
        ("pathconf", Arguments::PathConf { file }),
    ];
    for (what, arguments) in calls {
        deaf_on(&mut bench, what, 0, |_| (), |number| nfs(number, &arguments));
    }
    for (what, procedure) in [("dump of the mounts", 2), ("exports", 5)] {
        deaf_on(&mut bench, what, 0, |_| (), |number| call(number, MOUNT_PROGRAM, procedure, |_| ()));
    }
    deaf_on(&mut bench, "mount", 0, |_| (), |number| call(number, MOUNT_PROGRAM, 1, |call| _ = call.opaque(b"/v0")));
}

// --------------------------------------------------------------------------------------------------------------------- bounds

fn deaf(what: &str, portal: u32, open: impl Fn(&mut Peer<'_>), request: impl Fn(u32) -> Vec<u8>) {
    deaf_on(&mut Bench::new(), what, portal, open, request);
}

/// One peer that asks without reading: bounded; then reads, and finds an answer to each.
fn deaf_on(bench: &mut Bench, what: &str, portal: u32, open: impl Fn(&mut Peer<'_>), request: impl Fn(u32) -> Vec<u8>) {
    let mut peer = Peer::connect(&mut bench.node, 60, portal);
    open(&mut peer);
    peer.sent += 1;
    let question = request(peer.sent);
    let answer = peer.say(&question).len();
    assert!(answer > 0, "{what}: an answer");
    let requests = (ASKED_BYTES / answer).min(4_000);
    let poured = peer.pour(requests, &request);
    let kept = peer.queued();
    assert!(kept <= Transmit::ROOM + ANSWER_MAX, "{what}: {kept} bytes are kept after {poured} requests");
    let transmit = peer.node.transmit(peer.conn).expect("open");
    assert!(transmit.held_bytes() <= 3 * (Transmit::ROOM + ANSWER_MAX), "{what}: {} held", transmit.held_bytes());
    let read = peer.read_all();
    assert_eq!(read, poured * answer, "{what}: every request is answered once the peer reads");
    assert!(peer.node.wants_receive(peer.conn), "{what}: and it may ask more");
    assert!(peer.node.transmit(peer.conn).expect("open").held_bytes() <= 4 << 20, "{what}: memory is given back");
    let conn = peer.conn;
    bench.node.handle(Instant(0), Input::Closed { conn, reason: CloseReason::Ended });
}

fn closed(node: &mut ServerNode) -> Vec<ConnId> {
    std::iter::from_fn(|| node.poll_output())
        .filter_map(|output| if let Output::Close { conn } = output { Some(conn) } else { None })
        .collect()
}

#[test]
fn all_peers_together_are_bounded_and_who_does_not_read_ends() {
    const PEERS: u32 = 60;
    let mut bench = Bench::new();
    for conn in 0..PEERS {
        let mut peer = Peer::connect(&mut bench.node, conn, 2);
        nvme_admin(&mut peer, "nqn.2014-08.org.nvmexpress.discovery");
    }
    for conn in 0..PEERS {
        Peer { node: &mut bench.node, conn: ConnId(conn), now: Instant(0), sent: 0 }.pour(4000, log_page(0x70));
    }
    let kept = |node: &mut ServerNode| -> usize {
        (0..PEERS).map(|conn| node.transmit(ConnId(conn)).map_or(0, |transmit| transmit.len())).sum()
    };
    let all = kept(&mut bench.node);
    let each = SHARE + ANSWER_MAX;
    assert!(all <= ALL_MAX + Transmit::ROOM + PEERS as usize * each, "{} MiB are kept", all >> 20);
    // Somebody who reads is served meanwhile, however much it asks for.
    let mut reader = Peer::connect(&mut bench.node, PEERS, 2);
    nvme_admin(&mut reader, "nqn.2014-08.org.nvmexpress.discovery");
    for _ in 0..3 {
        reader.pour(20, log_page(0x70));
        assert_eq!(reader.read_all() / (1 << 20), 20);
    }
    // The others have two seconds.
    let mut now = Instant(0);
    while let Some(at) = bench.node.poll_timeout().filter(|at| *at < Instant(0) + Duration::from_secs(4)) {
        now = now.max(at) + Duration::from_millis(1);
        bench.node.handle(now, Input::Timer);
    }
    let ended = closed(&mut bench.node);
    assert!(ended.len() >= 10 && !ended.contains(&ConnId(PEERS)), "{ended:?}");
    for conn in ended {
        bench.node.handle(now, Input::Closed { conn, reason: CloseReason::Ended });
    }
    assert!(kept(&mut bench.node) <= ALL_MAX);
}
