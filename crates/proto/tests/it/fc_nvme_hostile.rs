//! Peers that violate the protocol: each side ends the connection or the command, and no operation stays open.
#![allow(clippy::unwrap_used)]

use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Target, Violation, ViolationKind,
    fc::{
        Header, Link, OxId, PortId, RxId, Special, els,
        frame::{f_ctl, kind, r_ctl},
        sequence::{data_header, response_header},
    },
    fc_nvme::{
        AssociationId, Command, ConnectionId, Extended, RESPONSE_LEN, TransferReady,
        decode::describe,
        ls::{Answer, Request},
        target_side::Connection,
    },
    nvme::{
        CommandId, Cqe, QueueId, Sqe, Status,
        command::{Sgl, admin, fabrics, nvm},
        property,
    },
};

use crate::{
    fc_nvme_support::{INITIATOR, Pair, TARGET, config, target_config},
    nvme_support::{Answers, Cut, Server},
};

/// IDs of the first association of a login and of its I/O queue.
const ASSOCIATION: AssociationId = AssociationId(0x1_0000);
const IO: ConnectionId = ConnectionId(0x1_0001);

fn ready() -> Pair {
    Pair::ready(config(1024, 512), target_config(1024, 512, 4096), Server::new(), Cut::Never)
}

/// A link on which the test builds its own frames.
fn peer() -> Link {
    let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
    link.open(1024, 512, 1024);
    link
}

/// A command on the I/O queue, for the blocks from LBA 0 on.
fn command(csn: u32, cid: u16, opcode: u8, len: u32) -> Command {
    let mut sqe = Sqe::new(opcode, CommandId(cid), 1);
    sqe.set_range(0, (len / 512).max(1));
    sqe.set_sgl(Sgl::Transport { len });
    Command::new(IO, csn, true, sqe)
}

fn send(link: &mut Link, ox_id: u16, command: &Command) {
    link.send(Header { ox_id: OxId(ox_id), ..Command::header() }, &command.encode());
}

fn data(link: &mut Link, ox_id: u16, offset: u32, bytes: &[u8]) {
    let (ox_id, rx_id) = (OxId(ox_id), RxId(0));
    let header = Header { ox_id, rx_id, parameter: offset, ..data_header(kind::NVME, false) };
    link.send_payload(header, Payload::from_vec(bytes.to_vec()));
}

/// Delivers the frames of `link` to the target and returns a description of each frame in its answer.
fn to_target(pair: &mut Pair, link: &mut Link) -> Result<Vec<String>, Violation> {
    pair.target.receive(pair.now, &link.transmit.take_bytes(), &mut pair.server)?;
    let bytes = Target::<Server>::transmit(&mut pair.target).take_bytes();
    let (mut at, mut words) = (0, Vec::new());
    while let Some((len, line)) = describe(&bytes[at..]).unwrap() {
        words.push(line);
        at += len;
    }
    Ok(words)
}

#[test]
fn data_that_were_not_asked_for_end_the_connection() {
    for (offset, len) in [(512, 1024), (0, 512), (0, 2048)] {
        let (mut pair, mut link) = (ready(), peer());
        send(&mut link, 5, &command(1, 5, nvm::WRITE, 1024));
        assert!(to_target(&mut pair, &mut link).unwrap()[0].starts_with("NVMe_XFER_RDY offset=0 burst=1024"));
        let before = pair.server.volume.clone();
        data(&mut link, 5, offset, &vec![1; len]);
        assert!(to_target(&mut pair, &mut link).is_err(), "{len} bytes at {offset}");
        pair.target.disconnected(pair.now, &mut pair.server);
        assert_eq!((pair.server.outstanding(), &pair.server.volume), (0, &before));
    }
}

#[test]
fn data_of_no_command_are_dropped() {
    let (mut pair, mut link) = (ready(), peer());
    data(&mut link, 9, 0, &[1; 512]);
    assert_eq!(to_target(&mut pair, &mut link).unwrap(), Vec::<String>::new());
}

#[test]
fn commands_out_of_order_of_no_connection_or_in_an_open_exchange_end_the_connection() {
    let write = command(1, 5, nvm::WRITE, 512);
    for commands in [
        vec![(5, Command { csn: 2, ..write })],
        vec![(5, Command { connection: ConnectionId(7), ..write })],
        vec![(5, write), (5, command(2, 6, nvm::WRITE, 512))],
    ] {
        let (mut pair, mut link) = (ready(), peer());
        for (ox_id, command) in &commands {
            send(&mut link, *ox_id, command);
        }
        assert_eq!(to_target(&mut pair, &mut link).unwrap_err().kind, ViolationKind::Misbehaved, "{commands:?}");
        pair.target.disconnected(pair.now, &mut pair.server);
        assert_eq!(pair.server.outstanding(), 0);
    }
}

#[test]
fn commands_that_contradict_themselves_are_answered_so_and_the_others_go_on() {
    let (mut pair, mut link) = (ready(), peer());
    send(&mut link, 5, &Command { data_len: 512, ..command(1, 5, nvm::READ, 1024) });
    assert!(to_target(&mut pair, &mut link).unwrap()[0].starts_with("NVMe_ERSP invalid field in the NVMe_CMND"));
    send(&mut link, 6, &command(2, 6, nvm::WRITE, 512));
    send(&mut link, 7, &command(3, 6, nvm::READ, 512));
    let said = to_target(&mut pair, &mut link).unwrap();
    assert!(said[1].contains("Command ID Conflict") && said[1].contains("ox=0x7"), "{said:?}");
    data(&mut link, 6, 0, &[3; 512]);
    assert!(to_target(&mut pair, &mut link).unwrap()[0].starts_with("NVMe_RSP ox=0x6"));
    assert_eq!(pair.server.volume[..512], [3; 512]);
}

#[test]
fn link_services_for_what_is_not_there_or_is_there_already_are_rejected() {
    let association = ASSOCIATION;
    let other = AssociationId(9);
    let connection =
        |association| Request::CreateConnection { association, ersp_ratio: 1, qid: QueueId(1), sq_size: 8 };
    let rejected = |request: &Request| {
        let (mut pair, mut link) = (ready(), peer());
        link.send(Request::header(OxId(0x77)), &request.encode());
        to_target(&mut pair, &mut link).unwrap().concat()
    };
    for (request, reason) in [
        (connection(association), "reason=0x09"),
        (connection(other), "reason=0x40"),
        (Request::DisconnectAssociation(other), "reason=0x40"),
        (Request::Other(6), "reason=0x0b"),
    ] {
        let said = rejected(&request);
        assert!(said.contains("LS_RJT") && said.contains(reason), "{request:?}: {said}");
    }
    assert!(rejected(&Request::DisconnectAssociation(association)).contains("LS_ACC"));
}

/// A command on the admin queue.
fn admin_command(csn: u32, sqe: Sqe) -> Command {
    Command::new(ConnectionId(ASSOCIATION.0), csn, false, sqe)
}

fn set_cc(cid: u16, value: u32) -> Sqe {
    let mut sqe = Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(cid));
    sqe.set_cdw(11, property::CC);
    sqe.set_cdw(12, value);
    sqe
}

#[test]
fn a_controller_that_is_reset_gets_a_new_io_queue_and_forgets_its_event_requests() {
    let enabled = property::CC_ENABLE | property::CC_ENTRY_SIZES;
    let mut link = peer();
    let mut csn = (0..64)
        .find(|csn| {
            send(&mut link, 0x70, &admin_command(*csn, set_cc(70, enabled)));
            to_target(&mut ready(), &mut link).is_ok_and(|said| said.concat().contains("ERSP"))
        })
        .expect("the number of admin commands so far");
    let mut pair = ready();
    let mut asked = |pair: &mut Pair, ox_id: u16, sqe: Sqe| {
        let mut link = peer();
        send(&mut link, ox_id, &admin_command(csn, sqe));
        csn += 1;
        to_target(pair, &mut link).expect("no violation").concat()
    };
    let create = Request::CreateConnection { association: ASSOCIATION, ersp_ratio: 1, qid: QueueId(1), sq_size: 8 };
    let created = |pair: &mut Pair| {
        let mut link = peer();
        link.send(Request::header(OxId(0x77)), &create.encode());
        to_target(pair, &mut link).expect("no violation").concat()
    };
    let event_request = Sqe::new(admin::ASYNC_EVENT, CommandId(70), 0);
    assert_eq!(asked(&mut pair, 0x70, event_request), "", "it waits");
    assert!(created(&mut pair).contains("LS_RJT"), "there is an I/O queue");
    assert!(asked(&mut pair, 0x71, set_cc(71, property::CC_ENTRY_SIZES)).contains("ERSP"));
    assert!(asked(&mut pair, 0x70, set_cc(72, enabled)).contains("ERSP"), "the request's exchange is over");
    assert_eq!(asked(&mut pair, 0x73, event_request), "", "it waits again");
    assert!(created(&mut pair).contains("LS_ACC"));
}

#[test]
fn a_gap_in_a_sequence_ends_the_connection() {
    let (mut pair, mut link) = (ready(), peer());
    send(&mut link, 5, &command(1, 5, nvm::WRITE, 1024));
    to_target(&mut pair, &mut link).unwrap();
    let mut whole = peer();
    data(&mut whole, 5, 0, &[1; 1024]);
    let frames = whole.transmit.take_bytes();
    let error = pair.target.receive(pair.now, &frames[64 + 512..], &mut pair.server).unwrap_err();
    assert_eq!(error.kind, ViolationKind::Misbehaved);
}

#[test]
fn commands_without_credit_for_their_answers_end_the_connection() {
    let mut pair = Pair::ready(config(4, 512), target_config(1024, 512, 4096), Server::new(), Cut::Never);
    let ended = (0..4000).find_map(|at| {
        let mut link = peer();
        send(&mut link, at, &command(u32::from(at) + 1, 5, nvm::READ, 512));
        to_target(&mut pair, &mut link).err().map(|violation| (at, violation.kind))
    });
    let (at, kind) = ended.expect("an end");
    assert!(at < 2200 && kind == ViolationKind::Misbehaved, "after {at}: {kind:?}");
}

#[test]
fn an_abort_of_nothing_is_rejected() {
    let (mut pair, mut link) = (ready(), peer());
    link.send(els::abts(OxId(77), RxId::UNASSIGNED), &[]);
    assert!(to_target(&mut pair, &mut link).unwrap()[0].starts_with("BA_RJT"));
}

#[test]
fn nothing_but_logins_and_an_association_in_their_order_comes_before_commands() {
    let fresh = || Connection::new(Instant(0), target_config(8, 512, 4096));
    let special = Special { changed: false, source: INITIATOR, nonce: 0, destination: TARGET };
    let mut link = peer();
    send(&mut link, 0, &command(0, 0, nvm::READ, 512));
    let command = link.transmit.take_bytes();
    for bytes in [
        command.clone(),
        [&special.encode()[..], &special.encode()].concat(),
        [&special.encode()[..], &command].concat(),
        Special { changed: true, ..special }.encode().to_vec(),
    ] {
        assert!(fresh().receive(Instant(0), &bytes, &mut Server::new()).is_err());
    }
}

#[test]
fn a_login_takes_its_time_and_no_more() {
    let (mut target, mut server) = (Connection::new(Instant(0), target_config(8, 512, 4096)), Server::new());
    let due = Target::<Server>::poll_timeout(&target).unwrap();
    assert_eq!(target.handle_timeout(due, &mut server).unwrap_err().kind, ViolationKind::TimedOut);
    let mut pair = ready();
    let silent = Instant(61_000_000_000);
    assert_eq!(pair.target.handle_timeout(silent, &mut pair.server).unwrap_err().kind, ViolationKind::TimedOut);
}

/// Delivers frames of a target to an initiator that has a read (tag 0) and a write (tag 1) outstanding, of 1024 bytes
/// each.
fn to_initiator(send: impl Fn(&mut Link)) -> Result<(), Violation> {
    let mut pair = ready();
    pair.server.answers = Answers::Later;
    pair.initiator.submit(pair.now, 0, Io::Read { offset: 0, len: 1024 }).unwrap();
    let data = Payload::from_vec(vec![1; 1024]);
    pair.initiator.submit(pair.now, 1, Io::Write { offset: 0, data, durable: false }).unwrap();
    let mut link = Link::new(PortId::TARGET, PortId::INITIATOR, true);
    link.open(1024, 512, 1024);
    send(&mut link);
    let result = pair.initiator.receive(pair.now, &link.transmit.take_bytes(), &mut pair.events);
    pair.initiator.disconnected(pair.now, &mut pair.events);
    assert_eq!(pair.events.completions.len(), 2, "each completes once");
    assert!(pair.events.completions.iter().all(|(_, result)| *result == Err(IoError::ConnectionLost)));
    result
}

#[test]
fn a_target_that_sends_what_nobody_asked_for_is_given_up() {
    let read = |ox_id: u16, offset: u32, len: usize| {
        move |link: &mut Link| {
            let header = Header { ox_id: OxId(ox_id), parameter: offset, ..data_header(kind::NVME, true) };
            link.send_payload(header, Payload::from_vec(vec![1; len]));
        }
    };
    assert_eq!(to_initiator(read(0, 0, 512)), Ok(()));
    for (ox_id, offset, len) in
        [(0, 512, 512), (0, 0, 1536), (1, 0, 512), (2, 0, 512), (0xfff6, 0, 512), (0xffff, 0, 512)]
    {
        assert!(to_initiator(read(ox_id, offset, len)).is_err(), "{len} bytes at {offset} of {ox_id}");
    }
    let ready = |ox_id: u16, offset: u32, len: u32| {
        move |link: &mut Link| {
            let header = Header { ox_id: OxId(ox_id), rx_id: RxId(3), ..TransferReady::header(kind::NVME) };
            link.send(header, &TransferReady { offset, len }.encode());
        }
    };
    assert_eq!(to_initiator(ready(1, 0, 1024)), Ok(()));
    for (ox_id, offset, len) in [(1, 0, 1025), (1, 4, 8), (1, 0, 0), (0, 0, 512), (9, 0, 512), (0xfff7, 0, 4)] {
        assert!(to_initiator(ready(ox_id, offset, len)).is_err(), "{len} bytes at {offset} of {ox_id}");
    }
}

#[test]
fn answers_that_cannot_be_are_violations() {
    let cqe = |cid| Cqe { result: 0, sq_head: 0, cid: CommandId(cid), status: Status::SUCCESS };
    let extended = |result, cqe| Extended { result, rsn: 0, moved: 0, cqe }.encode();
    let respond = |r_ctl, unit: Vec<u8>| {
        move |link: &mut Link| {
            link.send(Header { ox_id: OxId(0), ..response_header(kind::NVME, r_ctl) }, &unit);
        }
    };
    for (what, r_ctl, unit) in [
        ("success before its data", r_ctl::COMMAND_STATUS, vec![0; RESPONSE_LEN]),
        ("not zeros", r_ctl::COMMAND_STATUS, vec![1; RESPONSE_LEN]),
        ("another command's", r_ctl::EXTENDED_STATUS, extended(0, cqe(1)).to_vec()),
        ("a fault of ours", r_ctl::EXTENDED_STATUS, extended(1, cqe(0)).to_vec()),
        ("cut off", r_ctl::EXTENDED_STATUS, vec![0; 31]),
    ] {
        assert!(to_initiator(respond(r_ctl, unit)).is_err(), "{what}");
    }
    let service = |link: &mut Link| {
        let header =
            Header { f_ctl: f_ctl::REPLY, ..Answer::header(&Header { ox_id: OxId(0xfff5), ..Header::default() }) };
        link.send(header, &Answer::Disconnected.encode(5));
    };
    assert!(to_initiator(service).is_err(), "an answer to nothing");
}
