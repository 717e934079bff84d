//! Peers that send requests but do not read: every request whose reply is larger than itself, over every protocol. What
//! the server holds for them is limited, per connection and in total. No request is lost, and other peers are served.

use std::time::Duration;

use crate::support::{
    peers::{
        Peer, VOLUME_NQN, call, capsule, command, iscsi, iscsi_login, log_page, made, mounted, nfs, nvme_admin,
        nvme_connect,
    },
    server::{Bench, SIZE},
};
use iotax_node::{CloseReason, ConnId, Input, Node, Output, ServerNode};
use iotax_proto::{
    Instant, Transmit,
    nfs::{
        common::{CreateHow, SetAttributes},
        mount::PROGRAM as MOUNT_PROGRAM,
        v3::{Arguments, FileRange, Place},
    },
    nvme::{CommandId, QueueId, Sqe, command::Sgl},
};

/// The largest reply to one request, including its protocol overhead.
const ANSWER_MAX: usize = (1 << 20) + 4096;
/// The total that a thread holds before its connections have less room each, and that room.
const ALL_MAX: usize = 256 << 20;
const SHARE: usize = 64 << 10;
/// Bytes of requested replies: more than may be held.
const ASKED_BYTES: usize = 24 << 20;

// ------------------------------------------------------------------------------------------------------------ NVMe/TCP

fn identify(selector: u32, nsid: u32) -> impl Fn(u32) -> Vec<u8> {
    move |number| {
        let mut sqe = Sqe::new(6, CommandId(number as u16 & 0x7fff), nsid);
        sqe.set_cdw(10, selector);
        sqe.set_sgl(Sgl::Transport { len: 4096 });
        capsule(&sqe, &[])
    }
}

#[test]
fn nvme_admin_commands_with_large_answers_are_bounded() {
    for subnqn in ["nqn.2014-08.org.nvmexpress.discovery", VOLUME_NQN] {
        for id in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0c, 0x70] {
            unread(&format!("log page {id:#x} of {subnqn}"), 2, |peer| _ = nvme_admin(peer, subnqn), log_page(id));
        }
        for (selector, nsid) in [(0, 1), (1, 0), (2, 0), (3, 1), (5, 1), (6, 0), (8, 1), (0x1c, 0)] {
            let what = format!("identify {selector} of {subnqn}");
            unread(&what, 2, |peer| _ = nvme_admin(peer, subnqn), identify(selector, nsid));
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
        nvme_connect(peer, VOLUME_NQN, QueueId(1), cntlid);
    };
    let read = |number: u32| {
        let mut sqe = Sqe::new(2, CommandId(number as u16 & 0x7fff), 1);
        sqe.set_range(0, (1 << 20) / 512);
        sqe.set_sgl(Sgl::Transport { len: 1 << 20 });
        capsule(&sqe, &[])
    };
    deaf_on(&mut bench, "read", 2, open, read);
}

// --------------------------------------------------------------------------------------------------------------- iSCSI

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
        unread(what, 1, iscsi_login, command(cdb));
    }
    let tagged = |number: u32| [&[0; 8][..], &number.to_be_bytes(), &[0xff; 4], &number.to_be_bytes()].concat();
    unread("ping", 1, iscsi_login, move |number| iscsi(0x40, 0x80, &tagged(number), &[7; 4096]));
    unread("send targets", 1, iscsi_login, move |number| iscsi(0x44, 0x80, &tagged(number), b"SendTargets=\0"));
    unread("no such request", 1, iscsi_login, move |number| iscsi(0x1d, 0x80, &tagged(number), &[]));
}

// ----------------------------------------------------------------------------------------------------------------- NFS

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
    // A stranger may mount as often as it likes, by as many names.
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

// -------------------------------------------------------------------------------------------------------------- bounds

fn unread(what: &str, portal: u32, open: impl Fn(&mut Peer<'_>), request: impl Fn(u32) -> Vec<u8>) {
    deaf_on(&mut Bench::new(), what, portal, open, request);
}

/// One peer sends requests without reading: the server's memory stays limited. Then it reads, and finds a reply to
/// each.
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
    // A peer that reads is served meanwhile, however much it requests.
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
