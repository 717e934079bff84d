//! Peers that violate the protocol: each side ends the connection or the command, and no operation stays open.
#![allow(clippy::unwrap_used)]

use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Target, Violation, ViolationKind,
    fc::{
        Header, Link, OxId, PortId, RxId, Special, els,
        frame::{self, BEFORE_DATA, Kind, f_ctl, kind, r_ctl},
        login,
    },
    fcp::{Command, TransferReady, function, target_side::Connection},
};

use crate::{
    fcp_support::{FcBackend, INITIATOR, Pair, TARGET, config, target_config},
    iscsi_support::Cut,
};

fn ready() -> Pair {
    Pair::ready(config(1024, 512), target_config(1024, 512, 4096), FcBackend::new(1 << 16), Cut::Whole)
}

/// A link on which the test builds its own frames.
fn peer() -> Link {
    let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
    link.open(1024, 512, 1024);
    link
}

fn write(link: &mut Link, ox_id: u16, len: u32) {
    let mut command = Command { writes: true, data_len: len, ..Command::default() };
    command.cdb[0] = 0x2a;
    command.cdb[8] = (len / 512) as u8;
    link.send(Header { ox_id: OxId(ox_id), ..Command::header() }, &command.encode());
}

fn read(link: &mut Link, ox_id: u16) {
    let mut command = Command { reads: true, data_len: 512, ..Command::default() };
    (command.cdb[0], command.cdb[8]) = (0x28, 1);
    link.send(Header { ox_id: OxId(ox_id), ..Command::header() }, &command.encode());
}

fn data(link: &mut Link, ox_id: u16, offset: u32, bytes: &[u8]) {
    let f_ctl = f_ctl::END_SEQUENCE | f_ctl::SEQUENCE_INITIATIVE | f_ctl::RELATIVE_OFFSET;
    let (r_ctl, kind) = (r_ctl::SOLICITED_DATA, kind::FCP);
    let (ox_id, rx_id) = (OxId(ox_id), RxId(0));
    let header = Header { r_ctl, kind, f_ctl, ox_id, rx_id, parameter: offset, ..Header::default() };
    link.send_payload(header, Payload::from_vec(bytes.to_vec()));
}

fn to_target(pair: &mut Pair, link: &mut Link) -> Result<Vec<u8>, Violation> {
    pair.target.receive(pair.now, &link.transmit.take_bytes(), &mut pair.backend)?;
    Ok(Target::<FcBackend>::transmit(&mut pair.target).take_bytes())
}

/// The `RSP_CODE` of the response at the end of `bytes`; `None` if the response has none.
fn code(bytes: &[u8]) -> Option<u8> {
    // FCP_RSP with FCP_RSP_INFO is 32 bytes long and is followed by CRC and EOF.
    let unit = &bytes[bytes.len() - 8 - 32..bytes.len() - 8];
    (unit[10] & 1 == 1 && unit[23] == 8).then_some(unit[27])
}

#[test]
fn data_that_were_not_asked_for_end_their_command_with_its_code() {
    for (offset, len, wanted) in [(512, 1024, 3), (0, 512, 1), (0, 2048, 1)] {
        let (mut pair, mut link) = (ready(), peer());
        write(&mut link, 5, 1024);
        to_target(&mut pair, &mut link).unwrap();
        data(&mut link, 5, offset, &vec![1; len]);
        let answer = to_target(&mut pair, &mut link).unwrap();
        assert_eq!(code(&answer), Some(wanted), "{len} bytes at {offset}");
        assert_eq!(pair.backend.memory.open_operations(), 0);
        assert_eq!(pair.backend.memory.bytes[..1024], [0; 1024]);
    }
}

#[test]
fn data_of_no_task_are_dropped() {
    let (mut pair, mut link) = (ready(), peer());
    data(&mut link, 9, 0, &[1; 512]);
    assert_eq!(to_target(&mut pair, &mut link).unwrap(), []);
}

#[test]
fn an_exchange_that_is_open_is_not_begun_again() {
    let (mut pair, mut link) = (ready(), peer());
    write(&mut link, 5, 512);
    write(&mut link, 5, 512);
    assert_eq!(to_target(&mut pair, &mut link).unwrap_err().kind, ViolationKind::Misbehaved);
    pair.target.disconnected(pair.now, &mut pair.backend);
    assert_eq!(pair.backend.memory.open_operations(), 0);
}

#[test]
fn a_gap_in_a_sequence_ends_the_connection() {
    let (mut pair, mut link) = (ready(), peer());
    write(&mut link, 5, 1024);
    to_target(&mut pair, &mut link).unwrap();
    let mut whole = peer();
    data(&mut whole, 5, 0, &[1; 1024]);
    let frames = whole.transmit.take_bytes();
    let error = pair.target.receive(pair.now, &frames[64 + 512..], &mut pair.backend).unwrap_err();
    assert_eq!(error.kind, ViolationKind::Misbehaved);
}

#[test]
fn a_logout_is_answered_however_little_credit_there_is() {
    let mut pair = Pair::ready(config(4, 512), target_config(1024, 512, 4096), FcBackend::new(1 << 16), Cut::Whole);
    let mut link = peer();
    for ox_id in 0..5 {
        read(&mut link, ox_id);
    }
    write(&mut link, 5, 1024);
    login::logout(INITIATOR, &mut link);
    data(&mut link, 5, 0, &[1; 1024]);
    let mut sent = to_target(&mut pair, &mut link).unwrap();
    // The target still sends the data and the response of each read, the XFER_RDY of the write, whose command is
    // dropped, and LS_ACC.
    for _ in 4..11 {
        assert!(!Target::<FcBackend>::is_closing(&pair.target));
        link.transmit.put(&frame::encode_encapsulation(Kind::Ready(1)));
        sent = to_target(&mut pair, &mut link).unwrap();
    }
    assert!(Target::<FcBackend>::is_closing(&pair.target));
    assert_eq!(sent[BEFORE_DATA], els::command::LS_ACC);
    assert_eq!(pair.backend.memory.open_operations(), 0);
}

#[test]
fn commands_without_credit_for_their_answers_end_the_connection() {
    let target = iotax_proto::fcp::target_side::Config { tasks: 8, ..target_config(1024, 512, 4096) };
    let mut pair = Pair::ready(config(4, 512), target, FcBackend::new(1 << 16), Cut::Whole);
    let mut ended = None;
    for at in 0..200 {
        let mut link = peer();
        read(&mut link, at);
        if let Err(error) = to_target(&mut pair, &mut link) {
            ended = Some((at, error.kind));
            break;
        }
    }
    let (at, kind) = ended.expect("an end");
    assert!(at < 100 && kind == ViolationKind::Misbehaved, "after {at}: {kind:?}");
}

#[test]
fn aborts_and_link_services_without_credit_for_their_answers_end_the_connection() {
    let mut pair = Pair::ready(config(4, 512), target_config(1024, 512, 4096), FcBackend::new(1 << 16), Cut::Whole);
    let ended = (0..4000).find_map(|at| {
        let mut link = peer();
        link.send(els::abts(OxId(at), RxId::UNASSIGNED), &[]);
        to_target(&mut pair, &mut link).err().map(|violation| violation.kind)
    });
    assert_eq!(ended, Some(ViolationKind::Misbehaved));

    // Before the login, credit is for one frame.
    let (mut target, mut backend) = (Connection::new(Instant(0), target_config(8, 512, 4096)), FcBackend::new(8192));
    let special = Special { changed: false, source: INITIATOR, nonce: 0, destination: TARGET };
    target.receive(Instant(0), &special.encode(), &mut backend).unwrap();
    let ended = (0..200).find_map(|at| {
        let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
        link.send(els::request(OxId(at)), &[0x7f, 0, 0, 0]);
        target.receive(Instant(0), &link.transmit.take_bytes(), &mut backend).err()
    });
    assert!(ended.is_some_and(|violation| violation.to_string().contains("requests without end")));
}

#[test]
fn an_abort_of_a_task_management_function_that_waits_is_accepted_and_nothing_follows() {
    let mut pair = ready();
    let mut link = peer();
    pair.backend.memory.queues = true;
    read(&mut link, 5);
    to_target(&mut pair, &mut link).unwrap();
    pair.backend.memory.lingering = Some(Vec::new());
    let command = Command { function: function::LOGICAL_UNIT_RESET, ..Command::default() };
    link.send(Header { ox_id: OxId(6), ..Command::header() }, &command.encode());
    assert_eq!(to_target(&mut pair, &mut link).unwrap(), []);
    link.send(els::abts(OxId(6), RxId::UNASSIGNED), &[]);
    assert_eq!(to_target(&mut pair, &mut link).unwrap()[32], r_ctl::BA_ACC);
    pair.backend.memory.lingering = None;
    pair.now = Instant(pair.now.0 + 1_000_000_000);
    pair.target.handle_timeout(pair.now, &mut pair.backend).unwrap();
    assert_eq!(Target::<FcBackend>::transmit(&mut pair.target).take_bytes(), []);
}

#[test]
fn data_that_were_asked_for_before_an_abort_are_not_sent() {
    let mut pair = ready();
    let data = Payload::from_vec(vec![1; 1024]);
    pair.initiator.submit(pair.now, 1, Io::Write { offset: 0, data, durable: false }).unwrap();
    assert!(pair.initiator.abort(pair.now, 1));
    pair.initiator.transmit().take_bytes();
    let mut link = Link::new(PortId::TARGET, PortId::INITIATOR, true);
    link.open(1024, 512, 1024);
    let header = Header { ox_id: OxId(1), rx_id: RxId(3), ..TransferReady::header(kind::FCP) };
    link.send(header, &TransferReady { offset: 0, len: 1024 }.encode());
    pair.initiator.receive(pair.now, &link.transmit.take_bytes(), &mut pair.events).unwrap();
    assert!(pair.initiator.transmit().take_bytes().len() < 512);
}

#[test]
fn an_abort_of_nothing_is_rejected() {
    let (mut pair, mut link) = (ready(), peer());
    link.send(els::abts(OxId(77), RxId::UNASSIGNED), &[]);
    let answer = to_target(&mut pair, &mut link).unwrap();
    assert_eq!(answer[32], r_ctl::BA_RJT);
}

#[test]
fn nothing_but_logins_in_their_order_comes_before_commands() {
    let fresh = || Connection::new(Instant(0), target_config(8, 512, 4096));
    let special = Special { changed: false, source: INITIATOR, nonce: 0, destination: TARGET };
    let mut command = peer();
    write(&mut command, 0, 512);
    let command = command.transmit.take_bytes();
    for bytes in [
        command.clone(),
        [&special.encode()[..], &special.encode()].concat(),
        [&special.encode()[..], &command].concat(),
        Special { changed: true, ..special }.encode().to_vec(),
    ] {
        let mut backend = FcBackend::new(8192);
        assert!(fresh().receive(Instant(0), &bytes, &mut backend).is_err());
    }
}

#[test]
fn a_login_takes_its_time_and_no_more() {
    let (mut target, mut backend) = (Connection::new(Instant(0), target_config(8, 512, 4096)), FcBackend::new(8192));
    let due = Target::<FcBackend>::poll_timeout(&target).unwrap();
    assert_eq!(target.handle_timeout(due, &mut backend).unwrap_err().kind, ViolationKind::TimedOut);
    let mut pair = ready();
    let silent = Instant(61_000_000_000);
    assert_eq!(pair.target.handle_timeout(silent, &mut pair.backend).unwrap_err().kind, ViolationKind::TimedOut);
}

/// Delivers frames of a target to an initiator that has a read (tag 0) and a write (tag 1) outstanding, of 1024 bytes
/// each.
fn to_initiator(send: impl Fn(&mut Link)) -> Result<(), Violation> {
    let mut pair = ready();
    pair.initiator.submit(pair.now, 0, Io::Read { offset: 0, len: 1024 }).unwrap();
    let data = Payload::from_vec(vec![1; 1024]);
    pair.initiator.submit(pair.now, 1, Io::Write { offset: 0, data, durable: false }).unwrap();
    let mut link = Link::new(PortId::TARGET, PortId::INITIATOR, true);
    link.open(1024, 512, 1024);
    send(&mut link);
    let result = pair.initiator.receive(pair.now, &link.transmit.take_bytes(), &mut pair.events);
    pair.initiator.disconnected(pair.now, &mut pair.events);
    assert_eq!(pair.events.completed.len(), 2, "each completes once");
    assert!(pair.events.completed.iter().all(|(_, result)| *result == Err(IoError::ConnectionLost)));
    result
}

#[test]
fn a_target_that_sends_what_nobody_asked_for_is_given_up() {
    let read = |ox_id: u16, offset: u32, len: usize| {
        move |link: &mut Link| {
            let f_ctl = f_ctl::EXCHANGE_CONTEXT | f_ctl::END_SEQUENCE | f_ctl::RELATIVE_OFFSET;
            let (r_ctl, kind) = (r_ctl::SOLICITED_DATA, kind::FCP);
            let header = Header { r_ctl, kind, f_ctl, ox_id: OxId(ox_id), parameter: offset, ..Header::default() };
            link.send_payload(header, Payload::from_vec(vec![1; len]));
        }
    };
    assert_eq!(to_initiator(read(0, 0, 512)), Ok(()));
    for (ox_id, offset, len) in [(0, 512, 512), (0, 0, 1536), (1, 0, 512), (2, 0, 512), (0xffff, 0, 512)] {
        assert!(to_initiator(read(ox_id, offset, len)).is_err(), "{len} bytes at {offset} of {ox_id}");
    }
    let ready = |ox_id: u16, offset: u32, len: u32| {
        move |link: &mut Link| {
            let header = Header { ox_id: OxId(ox_id), rx_id: RxId(3), ..TransferReady::header(kind::FCP) };
            link.send(header, &TransferReady { offset, len }.encode());
        }
    };
    assert_eq!(to_initiator(ready(1, 0, 1024)), Ok(()));
    for (ox_id, offset, len) in [(1, 0, 1025), (1, 4, 8), (1, 0, 0), (0, 0, 512), (9, 0, 512), (1, u32::MAX, 2)] {
        assert!(to_initiator(ready(ox_id, offset, len)).is_err(), "{len} bytes at {offset} of {ox_id}");
    }
    assert!(to_initiator(|link| link.send(els::answer(r_ctl::COMMAND_STATUS, OxId(0), RxId(0)), &[0; 24])).is_err());
}
