//! Peers that request as much work as possible in one packet: their turn ends after a bounded part of it, other
//! connections have turns in between, and in the end everything is done and answered.

use crate::support::{
    peers::{Peer, RECEIVE_BYTES, VOLUME_NQN, call, command, iscsi_login, log_page, made, mounted, nfs, nvme_admin},
    server::Bench,
};
use iotax_node::{CloseReason, ConnId, Input, Node};
use iotax_proto::{
    Instant, Transmit,
    nfs::{
        common::{CreateHow, FileHandle, SetAttributes},
        mount::PROGRAM as MOUNT_PROGRAM,
        v3::{Arguments, FileRange, Place},
    },
    wire::Reader,
};

const ATTACKER: u32 = 1;
const OTHER: u32 = 2;

/// Sends a packet full of one request, at most `most` times. One turn answers at most `a_turn` of them. Between any two
/// turns, another connection is answered. In the end all are answered.
fn takes_turns(
    bench: &mut Bench,
    what: &str,
    portal: u32,
    most: usize,
    a_turn: usize,
    request: impl Fn(u32) -> Vec<u8>,
) {
    let mut other = Peer::connect(&mut bench.node, OTHER, 0);
    let root = mounted(&mut other);
    let question = nfs(9, &Arguments::GetAttr { file: root });
    let expected = other.say(&question).len();

    // Over iSCSI, one command was sent after login.
    let mut peer = Peer::again(&mut bench.node, ATTACKER, u32::from(portal == 1));
    let mut next = || {
        peer.sent += 1;
        request(peer.sent)
    };
    let first = next();
    let mut packet = Vec::new();
    let mut asked = 0;
    while packet.len() < RECEIVE_BYTES && asked < most {
        asked += 1;
        packet.extend(next());
    }
    // One reply, to learn its length.
    let answer = peer.say(&first).len();
    assert!(answer > 0, "{what}: an answer");

    bench.node.handle(Instant(0), Input::Received { conn: ConnId(ATTACKER), bytes: &packet });
    let (mut answered, mut turns) = (0, 0);
    loop {
        let got = bench.node.transmit(ConnId(ATTACKER)).expect("open").take_bytes().len();
        assert!(got <= a_turn * answer, "{what}: {} answers in one turn", got / answer);
        answered += got / answer;
        turns += 1;
        // A request of another connection arrives: it is answered before the next turn.
        bench.node.handle(Instant(0), Input::Received { conn: ConnId(OTHER), bytes: &question });
        assert_eq!(bench.node.transmit(ConnId(OTHER)).expect("open").take_bytes().len(), expected, "{what}");
        if bench.node.poll_timeout().is_none_or(|at| at > Instant(0)) {
            break;
        }
        bench.node.handle(Instant(0), Input::Timer);
    }
    assert_eq!(answered, asked, "{what}: all is answered in the end");
    assert!(turns >= answered / a_turn, "{what}: {turns} turns for {answered} answers");
    assert!(bench.node.wants_receive(ConnId(ATTACKER)), "{what}: and it may ask more");
    bench.node.handle(Instant(0), Input::Closed { conn: ConnId(OTHER), reason: CloseReason::Ended });
}

#[test]
fn turn_that_ends_while_an_operation_completes_is_followed_by_another() {
    let mut bench = Bench::new();
    nvme_admin(&mut Peer::connect(&mut bench.node, ATTACKER, 2), VOLUME_NQN);
    // As the rest of a COMPOUND does that an operation of a disk held up.
    bench.node.transmit(ConnId(ATTACKER)).expect("open").charge(Transmit::TURN);
    bench.node.handle(Instant(0), Input::Placed { conn: ConnId(ATTACKER), len: 0 });
    assert!(!bench.node.wants_receive(ConnId(ATTACKER)));
    assert!(bench.node.poll_timeout().is_some_and(|at| at <= Instant(0)), "its next turn comes at once");
    bench.node.handle(Instant(0), Input::Timer);
    assert!(bench.node.wants_receive(ConnId(ATTACKER)));
}

/// Number of requests with the fixed cost in one turn.
const REQUESTS: usize = Transmit::TURN / Transmit::REQUEST;

#[test]
fn log_pages_are_made_one_in_a_turn() {
    for (subnqn, page) in [("nqn.2014-08.org.nvmexpress.discovery", 0x70), (VOLUME_NQN, 0x05)] {
        let mut bench = Bench::new();
        nvme_admin(&mut Peer::connect(&mut bench.node, ATTACKER, 2), subnqn);
        takes_turns(&mut bench, subnqn, 2, 30, 1, log_page(page));
    }
}

#[test]
fn scsi_commands_that_move_no_data_take_turns() {
    let commands: [(&str, &'static [u8]); 4] = [
        ("test unit ready", &[0; 6]),
        ("inquiry", &[0x12, 0, 0, 0xff, 0xff, 0]),
        ("report supported operation codes", &[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]),
        ("get lba status", &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]),
    ];
    for (what, cdb) in commands {
        let mut bench = Bench::new();
        iscsi_login(&mut Peer::connect(&mut bench.node, ATTACKER, 1));
        takes_turns(&mut bench, what, 1, 250, REQUESTS, command(cdb));
    }
}

/// A call that creates a file of 1 GiB that is one hole.
fn create(directory: FileHandle, name: &[u8]) -> Arguments<'_> {
    let attributes = SetAttributes { size: Some(1 << 30), ..SetAttributes::default() };
    Arguments::Create { place: Place { directory, name }, how: CreateHow::Unchecked(attributes) }
}

#[test]
fn nfs_calls_take_turns_by_what_they_cost() {
    let mut bench = Bench::new();
    let mut peer = Peer::connect(&mut bench.node, ATTACKER, 0);
    let root = mounted(&mut peer);
    let attributes = SetAttributes::default();
    let file = made(&mut peer, &create(root, b"sparse"));
    let directory = |peer: &mut Peer<'_>, directory: FileHandle, name: &[u8]| {
        made(peer, &Arguments::MkDir { place: Place { directory, name }, attributes })
    };
    let deep = (0..1000).fold(root, |at, _| directory(&mut peer, at, b"d"));
    directory(&mut peer, deep, b"a");
    let many = directory(&mut peer, root, b"many");
    for number in 0..2000_u32 {
        made(&mut peer, &create(many, format!("{number:04}").as_bytes()));
    }
    for number in 0..1100 {
        let path = format!("/v0{}", "/.".repeat(number % 500));
        peer.say(&call(3, MOUNT_PROGRAM, 1, |call| _ = call.opaque(path.as_bytes())));
    }
    let [a, b] = [Place { directory: deep, name: b"a" }, Place { directory: root, name: b"b" }];
    let calls = [
        ("getattr", usize::MAX, REQUESTS, Arguments::GetAttr { file }),
        ("read of a sparse file", 60, 1, Arguments::Read(FileRange { file, offset: 0, count: 1 << 20 })),
        ("readdir", 200, 2, Arguments::ReadDir { directory: many, cookie: 0, verifier: [0; 8], count: 1 << 16 }),
        (
            "readdirplus",
            200,
            2,
            Arguments::ReadDirPlus {
                directory: many,
                cookie: 0,
                verifier: [0; 8],
                name_bytes: 1 << 16,
                max_bytes: 1 << 16,
            },
        ),
        ("setattr", usize::MAX, 8, Arguments::SetAttr { file, attributes, guard: None }),
    ];
    for (what, most, a_turn, arguments) in calls {
        takes_turns(&mut bench, what, 0, most, a_turn, |number| nfs(number, &arguments));
    }
    // Back and forth: the deepest directory, and one below the root. Each is a different call.
    let renamed = |number: u32| {
        let (from, to) = if number.is_multiple_of(2) { (a, b) } else { (b, a) };
        nfs(number, &Arguments::Rename { from, to })
    };
    takes_turns(&mut bench, "rename", 0, usize::MAX, 2, renamed);
    for (what, procedure, a_turn) in [("dump of the mounts", 2, 4), ("exports", 5, 8)] {
        takes_turns(&mut bench, what, 0, 100, a_turn, |number| call(number, MOUNT_PROGRAM, procedure, |_| ()));
    }
    takes_turns(&mut bench, "mount", 0, usize::MAX, 8, |number| {
        call(number, MOUNT_PROGRAM, 1, |call| _ = call.opaque(b"/v0"))
    });
}

#[test]
fn a_large_file_that_is_removed_is_freed_between_others_requests() {
    let mut bench = Bench::new();
    let mut peer = Peer::connect(&mut bench.node, ATTACKER, 0);
    let root = mounted(&mut peer);
    let attributes = SetAttributes::default();
    let place = Place { directory: root, name: b"large" };
    let file = made(&mut peer, &Arguments::Create { place, how: CreateHow::Unchecked(attributes) });
    let data = vec![7; 1 << 20];
    for number in 0..64_u64 {
        let head = call(5, 100_003, 7, |call| {
            file.encode(call);
            call.u64(number << 20).u32(1 << 20).u32(0).opaque(&data);
        });
        peer.say(&head);
    }
    let removal = nfs(77, &Arguments::Remove(place));
    peer.node.handle(Instant(0), Input::Received { conn: ConnId(ATTACKER), bytes: &removal });
    let reply = peer.node.transmit(ConnId(ATTACKER)).expect("open").take_bytes();
    assert_eq!(Reader::new(&reply[28..]).u32_be(), Ok(0), "answered at once");
    let mut other = Peer::connect(&mut bench.node, OTHER, 0);
    let root = mounted_between(&mut other);
    let question = nfs(9, &Arguments::GetAttr { file: root });
    let mut turns = 0;
    while bench.node.poll_timeout().is_some_and(|at| at <= Instant(0)) {
        bench.node.handle(Instant(0), Input::Received { conn: ConnId(OTHER), bytes: &question });
        assert!(!bench.node.transmit(ConnId(OTHER)).expect("open").take_bytes().is_empty());
        bench.node.handle(Instant(0), Input::Timer);
        turns += 1;
    }
    assert!(turns >= 60, "64 MiB in {turns} turns");
}

/// Mounts as `mounted` does, but without handling what is due.
fn mounted_between(peer: &mut Peer<'_>) -> FileHandle {
    let question = call(1, MOUNT_PROGRAM, 1, |call| _ = call.opaque(b"/v0"));
    peer.node.handle(peer.now, Input::Received { conn: peer.conn, bytes: &question });
    let reply = peer.node.transmit(peer.conn).expect("open").take_bytes();
    iotax_proto::nfs::mount::decode_mounted(&mut Reader::new(&reply[28..])).expect("an answer").expect("mounted")
}
