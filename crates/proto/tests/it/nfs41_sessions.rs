//! Sessions that outlive their connections, and servers that forget sessions or reduce the number of slots.
#![allow(clippy::unwrap_used)]

use crate::nfs_support::{Pair, V41, Version, compound, config_41, give, handle_of, server::Server, session_of, word};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Target, UnitOp, ViolationKind,
    nfs::{
        common::{Handles, Stability},
        v41::{
            ChannelAttributes, OpCode, Operation, SessionId, StateId, Status,
            codec::share,
            initiator::Client,
            operations::{
                Claim, CreateSessionArguments, ExchangeArguments, OpenArguments, OpenHow, Owner, ReadArguments,
                SequenceArguments, WriteHead,
            },
            target_side::{Config, Connection},
        },
    },
};

const NOW: Instant = Instant(1);

type Session = Pair<Client, Connection>;

/// Offsets in a record, record mark included: of the status, after the RPC reply header, and of the number of results,
/// after the empty tag.
const STATUS_AT: usize = 28;
const COUNT_AT: usize = 36;
/// A slot that the initiator of these tests does not use.
const SLOT: u32 = 5;

fn ready() -> Session {
    V41::pair(Server::new(4096)).ready()
}

fn connection() -> Connection {
    Connection::new(Instant(0), Config::new(Handles::new([9; 32])))
}

/// The answer of a target to a COMPOUND; empty if it waits for its backend.
fn ask(connection: &mut Connection, server: &mut Server, xid: u32, operations: &[Operation<'_>]) -> Vec<u8> {
    let bytes = compound(xid, b"", operations).end_record(0).to_vec();
    give(connection, NOW, &bytes, server).unwrap();
    Target::<Server>::transmit(connection).take_bytes()
}

fn status(reply: &[u8]) -> Result<(), Status> {
    match word(reply, STATUS_AT) {
        0 => Ok(()),
        number => Err(*Status::ALL.iter().find(|status| **status as u32 == number).unwrap()),
    }
}

fn sequence<'a>(session: SessionId, seqid: u32, cache_this: bool) -> Operation<'a> {
    Operation::Sequence(SequenceArguments { session, seqid, slot: SLOT, highest_slot: SLOT, cache_this })
}

/// A COMPOUND that removes a name from the export.
fn remove(session: SessionId, seqid: u32, name: &[u8], cache_this: bool) -> [Operation<'_>; 4] {
    let sequence = sequence(session, seqid, cache_this);
    [sequence, Operation::PutRootFh, Operation::Lookup { name: b"export" }, Operation::Remove { name }]
}

#[test]
fn a_call_repeated_on_another_connection_is_carried_out_once() {
    let Pair { connection: mut first, mut server, to_server, .. } = ready();
    let session = session_of(&to_server);
    let kept = ask(&mut first, &mut server, 1, &remove(session, 1, b"volume", true));
    assert_eq!(status(&kept), Ok(()));
    first.disconnected(NOW, &mut server);

    let mut second = connection();
    let bind = Operation::BindConnToSession { session, direction: 1, rdma: false };
    assert_eq!(status(&ask(&mut second, &mut server, 2, &[bind])), Ok(()));
    let mut again = ask(&mut second, &mut server, 3, &remove(session, 1, b"volume", true));
    assert_eq!(word(&again, 4), 3, "the xid of the repeat");
    again[4..8].copy_from_slice(&1_u32.to_be_bytes());
    assert_eq!(again, kept);
    assert_eq!(server.directory.removed, [b"volume"]);

    let other = ask(&mut second, &mut server, 4, &remove(session, 1, b"b", true));
    assert_eq!(status(&other), Err(Status::FalseRetry));
    assert_eq!(status(&ask(&mut second, &mut server, 5, &remove(session, 2, b"volume", false))), Ok(()));
    let uncached = ask(&mut second, &mut server, 6, &remove(session, 2, b"volume", false));
    assert_eq!(status(&uncached), Err(Status::RetryUncached));
    let ahead = ask(&mut second, &mut server, 7, &remove(session, 4, b"volume", true));
    assert_eq!(status(&ahead), Err(Status::SequenceMisordered));
    assert_eq!(server.directory.removed, [b"volume"; 2]);
}

#[test]
fn an_io_that_is_lost_with_a_trunks_connection_is_done_on_the_other() {
    let Pair { connection: mut first, mut server, to_server, to_client, .. } = ready();
    let (session, handle) = (session_of(&to_server), handle_of(&to_client));
    let mut second = connection();
    let bind = Operation::BindConnToSession { session, direction: 1, rdma: false };
    assert_eq!(status(&ask(&mut second, &mut server, 1, &[bind])), Ok(()));
    server.queues = true;
    let read = Operation::Read(ReadArguments { state: StateId::ANONYMOUS, offset: 8, count: 4 });
    let read = [sequence(session, 1, false), Operation::PutFh(&handle), read];
    assert!(ask(&mut first, &mut server, 2, &read).is_empty(), "it waits for the backend");
    let busy = ask(&mut second, &mut server, 3, &read);
    assert_eq!(status(&busy), Err(Status::Delay), "the slot is busy");
    first.disconnected(NOW, &mut server);
    assert_eq!(server.aborted.len(), 1);
    assert!(ask(&mut second, &mut server, 4, &read).is_empty(), "it waits for the backend");
    for (id, result) in server.finish_queued() {
        second.complete(NOW, id, result, &mut server);
    }
    assert_eq!(status(&Target::<Server>::transmit(&mut second).take_bytes()), Ok(()));
    assert_eq!(server.started, vec![UnitOp::Read { offset: 8, len: 4, durable: false }; 2]);
}

fn write_to(handle: &[u8], session: SessionId, seqid: u32) -> [Operation<'_>; 3] {
    let write = WriteHead { state: StateId::ANONYMOUS, offset: 8, stability: Stability::Unstable, len: 4 };
    [sequence(session, seqid, false), Operation::PutFh(handle), Operation::Write(write)]
}

/// A record with the WRITE of four bytes.
fn write_record(xid: u32, handle: &[u8], session: SessionId, seqid: u32) -> Vec<u8> {
    let mut encoder = compound(xid, b"", &write_to(handle, session, seqid));
    encoder.raw(b"late").end_record(0).to_vec()
}

/// EXCHANGE_ID over a connection. Returns the client's ID.
fn exchange(connection: &mut Connection, server: &mut Server, owner: &[u8]) -> u64 {
    let exchange = ExchangeArguments { verifier: [77; 8], owner, flags: 0, wants_protection: false };
    let known = ask(connection, server, 1, &[Operation::ExchangeId(exchange)]);
    assert_eq!(status(&known), Ok(()));
    u64::from_be_bytes(known[COUNT_AT + 12..COUNT_AT + 20].try_into().unwrap())
}

/// The first CREATE_SESSION of a client, over a connection.
fn create_session(now: Instant, connection: &mut Connection, server: &mut Server, client: u64) -> Result<(), Status> {
    let channel = ChannelAttributes {
        header_pad: 0,
        max_request: 4096,
        max_response: 4096,
        max_response_cached: 0,
        max_operations: 8,
        max_requests: 1,
    };
    let (fore, back) = (channel, channel);
    let asked = CreateSessionArguments { client, sequence: 1, flags: 0, fore, back, callback_program: 0 };
    let bytes = compound(2, b"", &[Operation::CreateSession(asked)]).end_record(0).to_vec();
    give(connection, now, &bytes, server).unwrap();
    status(&Target::<Server>::transmit(connection).take_bytes())
}

/// The owner of the client of these tests, which has started again.
struct Restarted {
    connection: Connection,
    client: u64,
}

impl Restarted {
    fn new(server: &mut Server) -> Self {
        let mut connection = connection();
        let client = exchange(&mut connection, server, &config_41().owner);
        Self { connection, client }
    }

    /// Asks for a session, which ends those of the former client.
    fn create_session(&mut self, server: &mut Server) -> Result<(), Status> {
        create_session(NOW, &mut self.connection, server, self.client)
    }
}

#[test]
fn a_client_that_comes_again_waits_for_what_its_former_self_has_under_way() {
    let Pair { connection: mut former, mut server, to_server, to_client, .. } = ready();
    let (session, handle) = (session_of(&to_server), handle_of(&to_client));
    server.queues = true;
    give(&mut former, NOW, &write_record(2, &handle, session, 1), &mut server).unwrap();
    let mut restarted = Restarted::new(&mut server);
    assert_eq!(restarted.create_session(&mut server), Err(Status::Delay), "the slot is busy");
    assert_eq!(status(&ask(&mut former, &mut server, 3, &[sequence(session, 2, false)])), Err(Status::BadSession));
    for (id, result) in server.finish_queued() {
        former.complete(NOW, id, result, &mut server);
    }
    let _ = Target::<Server>::transmit(&mut former).take_bytes();
    assert_eq!(restarted.create_session(&mut server), Ok(()));
}

#[test]
fn a_client_that_comes_again_waits_for_operations_that_outlive_their_connection() {
    let Pair { connection: mut former, mut server, to_server, to_client, .. } = ready();
    let (session, handle) = (session_of(&to_server), handle_of(&to_client));
    (server.queues, server.going_on) = (true, Some(Vec::new()));
    give(&mut former, NOW, &write_record(2, &handle, session, 1), &mut server).unwrap();
    former.disconnected(NOW, &mut server);
    assert_eq!(server.aborted.len(), 1);
    let mut restarted = Restarted::new(&mut server);
    assert_eq!(restarted.create_session(&mut server), Err(Status::Delay));
    server.going_on = None;
    assert_eq!(restarted.create_session(&mut server), Ok(()));
}

#[test]
fn a_write_whose_data_come_after_its_session_ended_is_not_executed() {
    let Pair { connection: mut former, mut server, to_server, to_client, .. } = ready();
    let (session, handle) = (session_of(&to_server), handle_of(&to_client));
    let record = write_record(2, &handle, session, 1);
    let (begin, end) = record.split_at(record.len() - 2);
    give(&mut former, NOW, begin, &mut server).unwrap();
    assert_eq!(server.started.len(), 1, "its data are awaited");
    let before = server.volume();
    let mut restarted = Restarted::new(&mut server);
    assert_eq!(restarted.create_session(&mut server), Ok(()), "it has changed nothing");
    give(&mut former, NOW, end, &mut server).unwrap();
    let answer = Target::<Server>::transmit(&mut former).take_bytes();
    assert_eq!(status(&answer), Err(Status::BadSession));
    assert_eq!((server.volume(), server.aborted.len()), (before, 1));
}

#[test]
fn a_call_repeated_while_its_first_copy_goes_on_is_put_off() {
    let Pair { connection: mut first, mut server, to_server, to_client, .. } = ready();
    let (session, handle) = (session_of(&to_server), handle_of(&to_client));
    (server.queues, server.going_on) = (true, Some(Vec::new()));
    give(&mut first, NOW, &write_record(2, &handle, session, 1), &mut server).unwrap();
    first.disconnected(NOW, &mut server);
    server.queues = false;
    let mut second = connection();
    let bind = Operation::BindConnToSession { session, direction: 1, rdma: false };
    assert_eq!(status(&ask(&mut second, &mut server, 3, &[bind])), Ok(()));
    for (over, expected) in [(false, Err(Status::Delay)), (true, Ok(())), (true, Err(Status::RetryUncached))] {
        if over {
            server.going_on = None;
        }
        give(&mut second, NOW, &write_record(4, &handle, session, 1), &mut server).unwrap();
        assert_eq!(status(&Target::<Server>::transmit(&mut second).take_bytes()), expected);
    }
}

#[test]
fn a_restarted_server_knows_neither_sessions_nor_what_was_open() {
    let Pair { mut server, to_server, .. } = ready();
    let session = session_of(&to_server);
    server.restart();
    let mut after = connection();
    assert_eq!(status(&ask(&mut after, &mut server, 1, &remove(session, 1, b"volume", true))), Err(Status::BadSession));
    let bind = Operation::BindConnToSession { session, direction: 1, rdma: false };
    assert_eq!(status(&ask(&mut after, &mut server, 2, &[bind])), Err(Status::BadSession));
    assert!(server.directory.removed.is_empty());

    // State from before the restart cannot be reclaimed, because the server has no stable storage (RFC 8881 §8.4.3).
    let mut pair = Pair::of(Client::new(NOW, config_41()), after, server).ready();
    let fresh = session_of(&pair.to_server);
    assert_ne!(fresh, session);
    let open = OpenArguments {
        access: share::BOTH,
        deny: 0,
        owner: Owner { client: 0, name: b"o" },
        how: OpenHow::NoCreate,
        claim: Claim::Previous,
    };
    let handle = handle_of(&pair.to_client);
    let reclaim = [sequence(fresh, 1, false), Operation::PutFh(&handle), Operation::Open(open)];
    let answer = ask(&mut pair.connection, &mut pair.server, 3, &reclaim);
    assert_eq!(status(&answer), Err(Status::NoGrace));
}

#[test]
fn a_client_that_is_not_confirmed_within_a_lease_is_forgotten() {
    let Pair { mut server, .. } = ready();
    let mut connection = connection();
    let client = exchange(&mut connection, &mut server, b"late");
    let late = Instant(91_000_000_000);
    let answer = create_session(late, &mut connection, &mut server, client);
    assert_eq!(answer, Err(Status::StaleClientId));
}

/// Ends a session without the knowledge of its client.
fn destroy(server: &mut Server, session: SessionId) {
    let mut connection = connection();
    let bind = Operation::BindConnToSession { session, direction: 1, rdma: false };
    for operation in [bind, Operation::DestroySession(session)] {
        assert_eq!(status(&ask(&mut connection, server, 1, &[operation])), Ok(()));
    }
}

#[test]
fn a_session_is_ended_by_connections_that_are_bound_to_it_only() {
    let mut pair = ready();
    let session = session_of(&pair.to_server);
    let mut other = connection();
    let end = [Operation::DestroySession(session)];
    assert_eq!(status(&ask(&mut other, &mut pair.server, 1, &end)), Err(Status::ConnectionNotBound));
    pair.mount.submit(pair.now, 0, read()).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(()))], "the session is still there");
    // A connection becomes bound to a session when it carries a request of that session.
    assert_eq!(status(&ask(&mut other, &mut pair.server, 2, &[sequence(session, 1, false)])), Ok(()));
    let foreign = [Operation::DestroySession(SessionId([7; 16]))];
    assert_eq!(status(&ask(&mut other, &mut pair.server, 3, &foreign)), Err(Status::BadSession));
    assert_eq!(status(&ask(&mut other, &mut pair.server, 4, &end)), Ok(()));
    assert_eq!(status(&ask(&mut other, &mut pair.server, 5, &end)), Err(Status::BadSession));
}

fn read() -> Io {
    Io::Read { offset: 3, len: 8 }
}

#[test]
fn a_lost_session_is_made_anew_and_what_was_outstanding_is_done() {
    let mut pair = ready();
    let (credits, lost) = (pair.mount.credits(), session_of(&pair.to_server));
    destroy(&mut pair.server, lost);
    let data = Payload::from_vec(vec![7; 5]);
    pair.mount.submit(pair.now, 0, Io::Write { offset: 0, data, durable: false }).unwrap();
    pair.mount.submit(pair.now, 1, read()).unwrap();
    pair.run().unwrap();
    pair.log.completed.sort_by_key(|(tag, _)| *tag);
    assert_eq!(pair.log.completed, [(0, Ok(())), (1, Ok(()))]);
    assert_eq!(pair.server.volume()[..6], [7, 7, 7, 7, 7, 0]);
    assert_eq!(pair.server.started.len(), 2, "each is done once");
    assert_eq!(pair.mount.credits(), credits);
    assert_ne!(session_of(&newest(&pair.to_server)), lost);
}

/// The bytes from the last EXCHANGE_ID on.
fn newest(to_server: &[u8]) -> Vec<u8> {
    let number = (OpCode::ExchangeId as u32).to_be_bytes();
    let at = to_server.windows(4).rposition(|window| window == number).unwrap();
    to_server[at..].to_vec()
}

#[test]
fn an_idle_client_whose_session_is_lost_makes_another() {
    let mut pair = ready();
    destroy(&mut pair.server, session_of(&pair.to_server));
    pair.wake().unwrap();
    pair.run().unwrap();
    pair.mount.submit(pair.now, 0, read()).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(()))]);
}

#[test]
fn a_close_while_the_session_is_made_anew_waits_for_what_is_outstanding() {
    let mut pair = ready();
    destroy(&mut pair.server, session_of(&pair.to_server));
    pair.mount.submit(pair.now, 0, read()).unwrap();
    let call = pair.mount.transmit().take_bytes();
    give(&mut pair.connection, pair.now, &call, &mut pair.server).unwrap();
    let answer = Target::<Server>::transmit(&mut pair.connection).take_bytes();
    assert_eq!(status(&answer), Err(Status::BadSession));
    pair.mount.receive(pair.now, &answer, &mut pair.log).unwrap();
    assert_eq!(pair.mount.credits(), 0);
    pair.mount.close(pair.now);
    pair.run().unwrap();
    assert_eq!((&pair.log.completed[..], pair.log.closed), (&[(0, Ok(()))][..], true));
}

#[test]
fn a_server_that_loses_every_session_is_given_up() {
    let mut pair = ready();
    pair.mount.submit(pair.now, 0, read()).unwrap();
    let mut sent = pair.to_server.clone();
    for _ in 0..100 {
        let call = pair.mount.transmit().take_bytes();
        let is_read = call.windows(4).any(|window| window == (OpCode::Read as u32).to_be_bytes());
        if is_read {
            destroy(&mut pair.server, session_of(&newest(&sent)));
        }
        sent.extend(&call);
        give(&mut pair.connection, pair.now, &call, &mut pair.server).unwrap();
        let answer = Target::<Server>::transmit(&mut pair.connection).take_bytes();
        if let Err(violation) = pair.mount.receive(pair.now, &answer, &mut pair.log) {
            assert!(matches!(violation.kind, ViolationKind::Refused(_)), "{violation}");
            pair.mount.disconnected(pair.now, &mut pair.log);
            assert_eq!(pair.log.completed, [(0, Err(IoError::ConnectionLost))]);
            return;
        }
    }
    panic!("it goes on for ever");
}

#[test]
fn slots_that_the_server_wants_no_more_are_not_used() {
    let mut pair = ready();
    assert_eq!(pair.mount.credits(), 8);
    for tag in 0..6 {
        pair.mount.submit(pair.now, tag, read()).unwrap();
    }
    let calls = pair.mount.transmit().take_bytes();
    give(&mut pair.connection, pair.now, &calls, &mut pair.server).unwrap();
    let mut answers = Target::<Server>::transmit(&mut pair.connection).take_bytes();
    let session = session_of(&pair.to_server).0;
    let places: Vec<usize> =
        answers.windows(16).enumerate().filter_map(|(at, window)| (window == session).then_some(at)).collect();
    assert_eq!(places.len(), 6);
    for at in places {
        // `sr_target_highest_slotid` follows session, sequence number, slot and highest slot.
        answers[at + 28..at + 32].copy_from_slice(&2_u32.to_be_bytes());
    }
    pair.mount.receive(pair.now, &answers, &mut pair.log).unwrap();
    assert_eq!((pair.log.completed.len(), pair.mount.credits()), (6, 3));
    pair.log.data.clear();
    for tag in 0..3 {
        pair.mount.submit(pair.now, tag, read()).unwrap();
    }
    let calls = pair.mount.transmit().take_bytes();
    let slots = calls.windows(16).enumerate().filter(|(_, window)| *window == session);
    let mut slots: Vec<(u32, u32)> = slots.map(|(at, _)| (word(&calls, at + 20), word(&calls, at + 24))).collect();
    slots.sort_unstable();
    assert_eq!(slots, [(0, 2), (1, 2), (2, 2)], "slots, and the highest in use");
    give(&mut pair.connection, pair.now, &calls, &mut pair.server).unwrap();
    pair.run().unwrap();
    assert_eq!((pair.log.completed.len(), pair.mount.credits()), (9, 3));
}

#[test]
fn an_open_that_is_put_off_in_a_grace_period_is_asked_for_again() {
    let mut pair = V41::pair(Server::new(64));
    let open = [&(OpCode::Open as u32).to_be_bytes()[..], &[0; 4]].concat();
    let mut answer = loop {
        let call = pair.mount.transmit().take_bytes();
        give(&mut pair.connection, pair.now, &call, &mut pair.server).unwrap();
        let answer = Target::<Server>::transmit(&mut pair.connection).take_bytes();
        if answer.windows(8).any(|window| window == open) {
            break answer;
        }
        pair.mount.receive(pair.now, &answer, &mut pair.log).unwrap();
    };
    // A server in its grace period answers like this: SEQUENCE and PUTFH succeed, OPEN fails.
    let at = answer.windows(8).position(|window| window == open).unwrap();
    answer.truncate(at + 8);
    for (at, number) in [(STATUS_AT, Status::Grace as u32), (at + 4, Status::Grace as u32), (COUNT_AT, 3)] {
        answer[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    let mark = 1 << 31 | (answer.len() as u32 - 4);
    answer[..4].copy_from_slice(&mark.to_be_bytes());
    pair.mount.receive(pair.now, &answer, &mut pair.log).unwrap();
    assert!(pair.log.geometry.is_none());
    assert!(pair.mount.transmit().is_empty());
    pair.wake().unwrap();
    let mut pair = pair.ready();
    let data = Payload::from_vec(vec![1]);
    pair.mount.submit(pair.now, 0, Io::Write { offset: 0, data, durable: true }).unwrap();
    pair.run().unwrap();
    assert_eq!(pair.log.completed, [(0, Ok(()))]);
}

#[test]
fn data_of_a_write_that_is_to_be_kept_are_written_once() {
    let Pair { connection: mut first, mut server, to_server, to_client, .. } = ready();
    let (session, handle) = (session_of(&to_server), handle_of(&to_client));
    let head = WriteHead { state: StateId::ANONYMOUS, offset: 0, stability: Stability::FileSync, len: 4 };
    let write = [sequence(session, 1, true), Operation::PutFh(&handle), Operation::Write(head)];
    let whole = |xid: u32| {
        let mut call = compound(xid, b"", &write);
        call.raw(b"once");
        call.end_record(0).to_vec()
    };
    give(&mut first, NOW, &whole(1), &mut server).unwrap();
    let kept = Target::<Server>::transmit(&mut first).take_bytes();
    assert_eq!(status(&kept), Ok(()));
    let mut second = connection();
    give(&mut second, NOW, &whole(2), &mut server).unwrap();
    let again = Target::<Server>::transmit(&mut second).take_bytes();
    assert_eq!(again[8..], kept[8..]);
    assert_eq!((server.started.len(), &server.volume()[..4]), (1, &b"once"[..]));
}
