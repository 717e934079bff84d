//! The mount against replies that the test builds: answers that servers other than ours may send.
#![allow(clippy::unwrap_used)]

use crate::nfs_support::{Log, Pair, config, server::Server};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Refusal, Target, Violation, ViolationKind,
    nfs::{
        common::{FileHandle, Stability},
        mount::{self, MountProcedure},
        v3::{
            Arguments, Failure, FileRange, Procedure, Results, Status, Wcc,
            arguments::WriteHead,
            initiator::{Config, Mount, Root},
            results::FailureContext,
        },
    },
    rpc::{
        Call, ControlCall, Encoder, Mapping, Portmapper, RpcError, Xid,
        auth::{AuthStatus, Identity},
        message::{encode_error, encode_success},
    },
    wire::Reader,
};

const NOW: Instant = Instant(0);

/// A function that returns the reply to the call with an xid.
type Reply = fn(Xid) -> Vec<u8>;

/// The xids and arguments of the calls that are queued for sending.
fn calls(mount: &mut Mount) -> Vec<(Xid, Vec<u8>)> {
    let bytes = mount.transmit().take_bytes();
    let mut rest = &bytes[..];
    let mut calls = Vec::new();
    while let Some((mark, after)) = rest.split_first_chunk::<4>() {
        let (record, after) = after.split_at((u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize);
        calls.push((Call::decode(&mut Reader::new(record)).unwrap().xid, record.to_vec()));
        rest = after;
    }
    calls
}

fn success(xid: Xid, results: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut reply = Encoder::default();
    encode_success(reply.begin_record(), xid);
    results(&mut reply);
    reply.end_record(0).to_vec()
}

fn error(xid: Xid, error: RpcError) -> Vec<u8> {
    let mut reply = Encoder::default();
    encode_error(reply.begin_record(), xid, error);
    reply.end_record(0).to_vec()
}

fn read_reply(xid: Xid, count: u32, eof: bool, data: &[u8]) -> Vec<u8> {
    success(xid, |reply| {
        Results::Read { attributes: None, count, eof, data_len: count }.encode(reply);
        reply.raw(data).raw(&[0; 3][..data.len().wrapping_neg() % 4]);
    })
}

fn write_reply(xid: Xid, count: u32, committed: Stability) -> Vec<u8> {
    let file = Wcc::default();
    success(xid, |reply| Results::Write { file, count, committed, verifier: [1; 8] }.encode(reply))
}

/// A mount that is ready, without its server.
fn mount(config: Config) -> (Mount, Log) {
    let pair = Pair::new(config, Server::new(4096)).ready();
    (pair.mount, pair.log)
}

fn answer(mount: &mut Mount, log: &mut Log, reply: &[u8]) -> Result<(), Violation> {
    mount.receive(NOW, reply, log)
}

#[test]
fn a_short_read_is_continued_until_all_of_it_came() {
    let (mut mount, mut log) = mount(config());
    mount.submit(NOW, 3, Io::Read { offset: 100, len: 10 }).unwrap();
    for (offset, left, part) in [(100, 10, &b"abc"[..]), (103, 7, b"defgh"), (108, 2, b"ij")] {
        let [(xid, ref record)] = calls(&mut mount)[..] else { panic!() };
        let mut reader = Reader::new(record);
        Call::decode(&mut reader).unwrap();
        let Ok(Arguments::Read(FileRange { offset: asked, count, .. })) =
            Arguments::decode(Procedure::Read, &mut reader)
        else {
            panic!()
        };
        assert_eq!((asked, count), (offset, left));
        answer(&mut mount, &mut log, &read_reply(xid, part.len() as u32, false, part)).unwrap();
    }
    assert_eq!(log.data[3], b"abcdefghij");
    assert_eq!(log.completed, [(3, Ok(()))]);
}

#[test]
fn a_read_that_meets_the_end_of_the_file_fails() {
    let (mut mount, mut log) = mount(config());
    mount.submit(NOW, 0, Io::Read { offset: 0, len: 10 }).unwrap();
    let xid = calls(&mut mount)[0].0;
    answer(&mut mount, &mut log, &read_reply(xid, 4, true, b"abcd")).unwrap();
    assert!(matches!(log.completed[..], [(0, Err(IoError::Failed { status: 0, .. }))]));
}

#[test]
fn a_short_write_is_continued_with_what_is_left() {
    let (mut mount, mut log) = mount(config());
    let data: Vec<u8> = (0..10).collect();
    mount.submit(NOW, 0, Io::Write { offset: 50, data: Payload::from_vec(data), durable: false }).unwrap();
    for (offset, left, written) in [(50, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9][..], 3), (53, &[3, 4, 5, 6, 7, 8, 9], 7)] {
        let [(xid, ref record)] = calls(&mut mount)[..] else { panic!() };
        let mut reader = Reader::new(record);
        Call::decode(&mut reader).unwrap();
        let head = WriteHead::decode(&mut reader).unwrap();
        assert_eq!((head.offset, head.count, head.data_len), (offset, left.len() as u32, left.len() as u32));
        assert_eq!(&record[reader.position()..][..left.len()], left);
        assert_eq!(record.len() % 4, 0);
        answer(&mut mount, &mut log, &write_reply(xid, written, Stability::Unstable)).unwrap();
    }
    assert_eq!(log.completed, [(0, Ok(()))]);
}

#[test]
fn what_a_server_may_not_answer_ends_the_connection() {
    let read = Io::Read { offset: 0, len: 8 };
    let write = Io::Write { offset: 0, data: Payload::from_vec(vec![0; 8]), durable: false };
    let cases: [(&Io, Reply); 9] = [
        (&read, |xid| read_reply(xid.wrapping_add(1), 8, true, &[0; 8])),
        (&read, |xid| read_reply(xid.wrapping_add(1 << 16), 8, true, &[0; 8])),
        (&read, |xid| read_reply(xid, 9, true, &[0; 9])),
        (&read, |xid| read_reply(xid, 8, true, &[0; 4])),
        (&read, |xid| read_reply(xid, 0, false, b"")),
        (&read, |xid| success(xid, |_| {})),
        (&write, |xid| write_reply(xid, 0, Stability::FileSync)),
        (&write, |xid| write_reply(xid, 9, Stability::FileSync)),
        (&write, |xid| write_reply(xid, 8, Stability::Unstable)),
    ];
    for (number, (io, reply)) in cases.into_iter().enumerate() {
        let (mut mount, mut log) = mount(Config { stability: Stability::DataSync, ..config() });
        mount.submit(NOW, 0, io.clone()).unwrap();
        let xid = calls(&mut mount)[0].0;
        let violation = answer(&mut mount, &mut log, &reply(xid)).expect_err("a violation");
        assert!(matches!(violation.kind, ViolationKind::Misbehaved | ViolationKind::Malformed), "case {number}");
        mount.disconnected(NOW, &mut log);
        assert_eq!(log.completed, [(0, Err(IoError::ConnectionLost))], "case {number}");
    }
}

#[test]
fn a_reply_cannot_come_twice() {
    let (mut mount, mut log) = mount(config());
    mount.submit(NOW, 0, Io::Read { offset: 0, len: 4 }).unwrap();
    let xid = calls(&mut mount)[0].0;
    let reply = read_reply(xid, 4, false, b"abcd");
    answer(&mut mount, &mut log, &reply).unwrap();
    answer(&mut mount, &mut log, &reply).unwrap_err();
}

#[test]
fn rpc_errors_fail_the_io_and_refuse_the_mount() {
    let (mut ready, mut log) = mount(config());
    ready.submit(NOW, 0, Io::Read { offset: 0, len: 4 }).unwrap();
    let xid = calls(&mut ready)[0].0;
    answer(&mut ready, &mut log, &error(xid, RpcError::SystemError)).unwrap();
    assert!(matches!(log.completed[..], [(0, Err(IoError::Failed { .. }))]));

    for (rpc_error, refusal, word) in [
        (RpcError::ProgramUnavailable, Refusal::NotFound, "another"),
        (RpcError::Authentication(AuthStatus::TooWeak as u32), Refusal::Denied, "credential"),
        (RpcError::ProgramMismatch { low: 4, high: 4 }, Refusal::Other, "version"),
    ] {
        let mut fresh = Mount::new(NOW, config());
        let xid = calls(&mut fresh)[0].0;
        let violation = answer(&mut fresh, &mut log, &error(xid, rpc_error)).unwrap_err();
        assert_eq!(violation.kind, ViolationKind::Refused(refusal));
        assert!(violation.text().contains(word), "{violation}");
    }
}

#[test]
fn a_failed_read_is_told_from_its_first_bytes_on() {
    let (mut mount, mut log) = mount(config());
    mount.submit(NOW, 0, Io::Read { offset: 0, len: 4 }).unwrap();
    let xid = calls(&mut mount)[0].0;
    let reply = success(xid, |reply| {
        Failure { status: Status::Stale, context: FailureContext::PostOp(None) }.encode(reply);
    });
    for byte in reply.chunks(1) {
        answer(&mut mount, &mut log, byte).unwrap();
    }
    assert!(matches!(log.completed[..], [(0, Err(IoError::Failed { status: 70, .. }))]));
    mount.submit(NOW, 0, Io::Read { offset: 0, len: 4 }).unwrap();
    let xid = calls(&mut mount)[0].0;
    answer(&mut mount, &mut log, &read_reply(xid, 4, true, b"good")).unwrap();
    assert_eq!(log.data[0], b"good");
}

#[test]
fn connections_of_one_client_begin_at_xids_of_their_own() {
    let first = |first_xid| calls(&mut Mount::new(NOW, Config { first_xid: Xid(first_xid), ..config() }))[0].0;
    assert_eq!(first(7 << 16).0, first(6 << 16).0 + (1 << 16));
}

#[test]
fn an_idle_connection_is_kept_by_calls_for_nothing() {
    let (mut mount, mut log) = mount(config());
    calls(&mut mount);
    let timeout = config().timeout;
    for _ in 0..3 {
        let idle = mount.poll_timeout().expect("it looks after the connection");
        mount.handle_timeout(idle, &mut log).unwrap();
        let asked = calls(&mut mount);
        let [(xid, record)] = &asked[..] else { panic!("one call: {asked:?}") };
        let call = Call::decode(&mut Reader::new(record)).unwrap();
        assert_eq!((call.program, call.procedure), (100_003, Procedure::Null as u32));
        assert_eq!(mount.poll_timeout(), Some(idle + timeout));
        mount.receive(idle, &success(*xid, |_| ()), &mut log).unwrap();
        assert_eq!(mount.poll_timeout(), Some(idle + timeout));
    }
    // A mount that is closed while a call is outstanding sends UMNT after the reply. A call without a reply times out.
    let idle = mount.poll_timeout().unwrap();
    mount.handle_timeout(idle, &mut log).unwrap();
    let [(xid, _)] = calls(&mut mount)[..] else { panic!("one call") };
    mount.close(idle);
    assert!(calls(&mut mount).is_empty());
    mount.receive(idle, &success(xid, |_| ()), &mut log).unwrap();
    assert_eq!(calls(&mut mount).len(), 1, "UMNT");
    let late = mount.handle_timeout(idle + timeout, &mut log).unwrap_err();
    assert_eq!(late.kind, ViolationKind::TimedOut);
}

#[test]
fn mount_and_portmapper_may_be_asked_on_connections_of_their_own() {
    let mut pair = Pair::new(config(), Server::new(4096));
    let mappings = vec![Mapping::tcp(100_003, 3, 2049), Mapping::tcp(100_005, 3, 2050)];
    let (mut portmapper, server) = (Portmapper::new(pair.now, mappings), &mut pair.server);
    assert_eq!(ask_of(&mut portmapper, server, ControlCall::port(Xid(1), 100_005, 3)), Some(2050));
    assert_eq!(ask_of(&mut portmapper, server, ControlCall::port(Xid(2), 100_021, 4)), None);
    assert_eq!(ask_of(&mut portmapper, server, ControlCall::mappings(Xid(3))).len(), 2);
    let identity = Identity::None;
    let exports = ask(&mut pair, ControlCall::exports(Xid(4), &identity));
    assert_eq!(exports.iter().map(|export| export.path.as_str()).collect::<Vec<_>>(), ["/export", "/gone"]);
    let root: FileHandle = ask(&mut pair, ControlCall::mount(Xid(5), &identity, "/export")).unwrap();
    assert_eq!(ask(&mut pair, ControlCall::mounts(Xid(6), &identity))[0].path, "/export");
    ask(&mut pair, ControlCall::unmount(Xid(7), &identity, "/export"));
    assert!(ask(&mut pair, ControlCall::mounts(Xid(8), &identity)).is_empty());
    let unmount_all = (mount::PROGRAM, mount::VERSION, MountProcedure::UmntAll as u32);
    ask(&mut pair, ControlCall::call(Xid(9), &identity, unmount_all, |_| Ok(()), |_| {}));

    // A mount that is configured with the root's handle sends neither MNT nor UMNT.
    let mut pair = Pair::new(Config { root: Root::Handle(root), ..config() }, Server::new(4096)).ready();
    pair.mount.close(NOW);
    pair.run().unwrap();
    assert!(pair.log.closed);
}

fn ask<T>(pair: &mut Pair, call: ControlCall<T>) -> T {
    ask_of(&mut pair.connection, &mut pair.server, call)
}

fn ask_of<T>(target: &mut impl Target<Server>, server: &mut Server, mut call: ControlCall<T>) -> T {
    // In two pieces, as a call may arrive.
    let bytes = call.transmit().take_bytes();
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    for piece in [first, rest] {
        assert_eq!(target.receive(NOW, piece, server), Ok(piece.len()));
    }
    let reply = target.transmit().take_bytes();
    let (last, before) = reply.split_last().unwrap();
    for byte in before {
        assert!(call.receive(&[*byte]).unwrap().is_none());
    }
    call.receive(&[*last]).unwrap().expect("an answer")
}
