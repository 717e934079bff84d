//! DH-HMAC-CHAP between our host and our controller, on admin and I/O queues, and with peers that violate the protocol.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::time::Duration;

use crate::nvme_support::{
    BLOCK, Cut, Pair, Server,
    raw::{Raw, capsule, connect, connect_data},
};
use iotax_proto::{
    Initiator, Io, Refusal, Target, Violation, ViolationKind,
    nvme::{
        CommandId, ControllerId, QueueId, Sqe, Status,
        auth::{self, DhGroup, Entropy, Failure, Hash, HostConfig, Message, Offer, Policy, Secret},
        command::{ConnectData, admin, fabrics},
    },
    nvme_tcp::{AdminQueue, ConnectConfig, TargetConfig, pdu::Digests},
};

/// The keys "0123456789abcdef" twice, bound to names by SHA-256, and "fedcba9876543210" four times, by SHA-512.
const HOST: &str = "DHHC-1:01:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:";
const CONTROLLER: &str =
    "DHHC-1:03:ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTBmZWRjYmE5ODc2NTQzMjEwZmVkY2JhOTg3NjU0MzIxMHCJdCY=:";

fn secret(text: &str) -> Secret {
    Secret::parse(text).expect("a secret")
}

fn policy() -> Policy {
    Policy { secret: secret(HOST), controller: Some(secret(CONTROLLER)), hash: None, group: Some(DhGroup::Null) }
}

fn host(is_mutual: bool) -> HostConfig {
    HostConfig {
        secret: secret(HOST),
        controller: is_mutual.then(|| secret(CONTROLLER)),
        hash: None,
        group: None,
        entropy: Entropy([7; 32]),
    }
}

fn config(auth: Option<HostConfig>) -> ConnectConfig {
    crate::nvme_support::connect_with(|session| session.auth = auth)
}

fn server(auth: Policy) -> Server {
    let mut server = Server::new();
    server.auth = Some(auth);
    server
}

/// Runs a session up to a read on its I/O queue.
fn session(server: &mut Server, config: &ConnectConfig, cut: Cut) {
    let target = TargetConfig::default();
    let admin = crate::nvme_support::admin(server, config, &target, cut);
    let info = admin.host.controller().expect("a controller");
    let is_mutual = config.session.auth.as_ref().is_some_and(|auth| auth.controller.is_some());
    let asked = server.auth.as_ref().map(|policy| policy.group.unwrap_or(DhGroup::Ffdhe3072));
    assert_eq!(
        info.authentication.map(|agreed| (agreed.group, agreed.is_mutual)),
        asked.map(|group| (group, is_mutual))
    );
    let mut io = crate::nvme_support::io(server, config, info, 1, &target, cut);
    io.host.submit(io.now, 0, Io::Read { offset: 0, len: BLOCK as u32 }).expect("ready");
    io.run(server).expect("the connection stands");
    assert_eq!(io.events.take(0).expect("read").len(), BLOCK);
}

/// Sets up a controller and returns the violation that ends the attempt.
fn refusal(server: &mut Server, config: ConnectConfig) -> Violation {
    let mut pair = Pair::new(AdminQueue::new(iotax_proto::Instant(0), config), &TargetConfig::default(), Cut::Never);
    let violation =
        pair.run_until(server, |pair| pair.host.controller().is_some()).expect_err("the host does not get in");
    // The host still sends its queued bytes before the connection closes.
    let last = pair.host.transmit().take_bytes();
    let _ = pair.target.receive(pair.now, &last, server);
    assert!(Target::<Server>::is_closing(&pair.target) || last.is_empty(), "the controller gives the connection up");
    violation
}

#[test]
fn every_hash_and_group_authenticates_one_way_and_both() {
    for hash in Hash::ALL {
        for group in DhGroup::ALL {
            for is_mutual in [false, true] {
                let mut server = server(Policy { hash: Some(hash), group: Some(group), ..policy() });
                session(&mut server, &config(Some(host(is_mutual))), Cut::Never);
            }
        }
    }
}

#[test]
fn host_that_allows_one_hash_and_group_gets_them_from_a_controller_that_allows_all() {
    let mut server = server(Policy { group: None, ..policy() });
    let only = HostConfig { hash: Some(Hash::Sha384), group: Some(DhGroup::Ffdhe3072), ..host(true) };
    session(&mut server, &config(Some(only)), Cut::Never);
}

#[test]
fn authentication_survives_every_split_and_digests() {
    for pieces in [1, 7, 100] {
        let mut server = server(Policy { group: Some(DhGroup::Ffdhe2048), ..policy() });
        let digests = Digests { header: true, data: true };
        session(&mut server, &ConnectConfig { digests, ..config(Some(host(true))) }, Cut::Pieces(pieces));
    }
    // The host sends ICReq, Connect and three messages; the controller sends ICResp and two messages.
    for at in 0..128 + 8 + 64 + 1024 + 3 * (8 + 64) + 72 + 112 + 16 {
        session(&mut server(policy()), &config(Some(host(true))), Cut::At(at));
    }
}

#[test]
fn wrong_or_missing_secrets_are_refused_by_whoever_notices() {
    let wrong = HostConfig { secret: secret(CONTROLLER), ..host(false) };
    let violation = refusal(&mut server(policy()), config(Some(wrong)));
    assert_eq!(
        (violation.kind, violation.text()),
        (ViolationKind::Refused(Refusal::Unauthenticated), Failure::describe(1))
    );

    let violation = refusal(&mut server(policy()), config(None));
    assert_eq!(violation.kind, ViolationKind::Refused(Refusal::Unauthenticated));
    assert!(violation.text().contains("no secret is given"));

    let wrong = HostConfig { controller: Some(secret(HOST)), ..host(true) };
    let violation = refusal(&mut server(policy()), config(Some(wrong)));
    assert!(violation.text().contains("the controller failed to authenticate itself"), "{violation}");

    let violation = refusal(&mut server(Policy { controller: None, ..policy() }), config(Some(host(true))));
    assert_eq!(violation.text(), Failure::describe(1));

    let violation = refusal(&mut Server::new(), config(Some(host(true))));
    assert!(violation.text().contains("asks for no authentication"), "{violation}");
    // This host does not require the controller to authenticate, so a controller without authentication accepts it.
    session(&mut Server::new(), &config(Some(host(false))), Cut::Never);
}

#[test]
fn hash_or_group_that_only_one_side_allows_is_refused() {
    let only = HostConfig { hash: Some(Hash::Sha256), ..host(false) };
    let violation = refusal(&mut server(Policy { hash: Some(Hash::Sha512), ..policy() }), config(Some(only)));
    assert_eq!(violation.text(), Failure::describe(4));
    let only = HostConfig { group: Some(DhGroup::Ffdhe2048), ..host(false) };
    assert_eq!(refusal(&mut server(policy()), config(Some(only))).text(), Failure::describe(5));
}

// ------------------------------------------------------------------------------------------------------- hostile hosts

/// A queue after Connect and before authentication.
fn unproven(server: &mut Server) -> Raw {
    let mut raw = Raw::open(server, &TargetConfig::default());
    let cqe = raw.connect(server, &connect(QueueId::ADMIN, 31), &connect_data(ControllerId::ANY));
    assert_eq!((cqe.status, cqe.result >> 16), (Status::SUCCESS, 2), "ATR");
    raw
}

fn negotiate(offer: Option<Offer>) -> Vec<u8> {
    Message::Negotiate { transaction: 5, secure_channel: 0, offer }.encode()
}

fn offer() -> Offer {
    Offer { hashes: vec![1], groups: vec![0] }
}

fn send(raw: &mut Raw, server: &mut Server, message: &[u8]) -> Status {
    raw.one(server, &auth::send(CommandId(1), message.len() as u32), message).response().status
}

fn receive(raw: &mut Raw, server: &mut Server) -> Message {
    let pdus = raw
        .send(server, &crate::nvme_support::raw::capsule(&auth::receive(CommandId(2), 4096), &[]))
        .expect("an answer");
    assert_eq!(pdus[0].data.len(), 4096, "the room is filled");
    Message::decode(&pdus[0].data).expect("a message")
}

/// Sends these messages. Asserts that the controller answers with this failure and closes the connection.
fn fails_with(failure: Failure, messages: &[&[u8]]) {
    let mut server = server(policy());
    let mut raw = unproven(&mut server);
    for (at, message) in messages.iter().enumerate() {
        assert_eq!(send(&mut raw, &mut server, message), Status::SUCCESS);
        if at + 1 < messages.len() {
            receive(&mut raw, &mut server);
        }
    }
    let Message::Failure1 { explanation, .. } = receive(&mut raw, &mut server) else { panic!("no failure") };
    assert_eq!(explanation, failure as u8, "{messages:02x?}");
    assert!(Target::<Server>::is_closing(&raw.target));
    assert_eq!(server.subsystem.0.borrow().controller_count(), 0, "the controller is given up");
}

#[test]
fn nothing_but_authentication_comes_through_the_gate() {
    let mut server = server(policy());
    let mut raw = unproven(&mut server);
    for sqe in [
        Sqe::new(admin::IDENTIFY, CommandId(1), 0),
        Sqe::new(admin::KEEP_ALIVE, CommandId(1), 0),
        Sqe::fabrics(fabrics::PROPERTY_GET, CommandId(1)),
        Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(1)),
        Sqe::fabrics(fabrics::CONNECT, CommandId(1)),
    ] {
        assert_eq!(raw.status(&mut server, &sqe).code(), Status::AUTHENTICATION_REQUIRED.code());
    }
    // Receive while the controller expects a message of the host, with another protocol, with no length, and with too
    // much length.
    let mut other = auth::receive(CommandId(1), 64);
    other.0[43] = 0xea;
    for (sqe, status) in [
        (auth::receive(CommandId(1), 64), Status::SEQUENCE_ERROR),
        (other, Status::INVALID_FIELD),
        (auth::receive(CommandId(1), 0), Status::INVALID_FIELD),
        (auth::receive(CommandId(1), auth::MESSAGE_LEN_MAX + 1), Status::INVALID_FIELD),
    ] {
        assert_eq!(raw.status(&mut server, &sqe).code(), status.code());
    }
    assert_eq!(
        raw.one(&mut server, &auth::send(CommandId(1), 5000), &[0; 5000]).status(),
        Status::INVALID_FIELD.code()
    );
    assert_eq!(send(&mut raw, &mut server, &negotiate(Some(offer()))), Status::SUCCESS);
}

#[test]
fn messages_that_are_wrong_or_out_of_turn_end_the_transaction() {
    let reply = |transaction, response: Vec<u8>, public: Vec<u8>| {
        Message::Reply { transaction, response, challenge: None, sequence: 0, public }.encode()
    };
    let first = negotiate(Some(offer()));
    fails_with(Failure::IncorrectPayload, &[&[0xff; 16]]);
    fails_with(Failure::ProtocolUnusable, &[&negotiate(None)]);
    fails_with(Failure::HashUnusable, &[&negotiate(Some(Offer { hashes: vec![9], groups: vec![0] }))]);
    fails_with(Failure::GroupUnusable, &[&negotiate(Some(Offer { hashes: vec![1], groups: vec![1] }))]);
    let channel = Message::Negotiate { transaction: 5, secure_channel: 1, offer: Some(offer()) }.encode();
    fails_with(Failure::SecureChannelMismatch, &[&channel]);
    fails_with(Failure::IncorrectMessage, &[&reply(5, vec![0; 32], vec![])]);
    fails_with(Failure::IncorrectMessage, &[&Message::Success2 { transaction: 5 }.encode()]);
    fails_with(Failure::IncorrectMessage, &[&first, &first]);
    fails_with(Failure::IncorrectMessage, &[&first, &Message::Success2 { transaction: 5 }.encode()]);
    fails_with(Failure::IncorrectMessage, &[&first, &reply(6, vec![0; 32], vec![])]);
    fails_with(Failure::IncorrectPayload, &[&first, &reply(5, vec![0; 32], vec![2; 8])]);
    let challenge = Some(vec![7; 32]);
    let unsigned = Message::Reply { transaction: 5, response: vec![0; 32], challenge, sequence: 0, public: vec![] };
    fails_with(Failure::IncorrectPayload, &[&first, &unsigned.encode()]);
    fails_with(Failure::Failed, &[&first, &reply(5, vec![0; 32], vec![])]);
    fails_with(Failure::Failed, &[&first, &reply(5, vec![], vec![])]);
}

#[test]
fn reply_of_another_connection_does_not_get_in() {
    let mut server = server(policy());
    let admin =
        crate::nvme_support::admin(&mut server, &config(Some(host(true))), &TargetConfig::default(), Cut::Never);
    // The host's PDUs as it sent them: ICReq, then the capsules of Connect, Negotiate, Receive and the reply.
    let sent: Vec<_> = admin.wire.iter().filter(|(way, _)| *way == '>').map(|(_, bytes)| bytes.clone()).collect();
    let mut raw = Raw::new(&TargetConfig::default());
    for bytes in &sent[..5] {
        raw.target.receive(raw.now, bytes, &mut server).expect("the connection stands");
        raw.answers();
    }
    let Message::Failure1 { explanation, .. } = receive(&mut raw, &mut server) else { panic!("no failure") };
    assert_eq!(explanation, Failure::Failed as u8, "the challenge was another");
}

#[test]
fn host_that_gives_up_or_takes_its_time_is_let_go() {
    let mut server = server(policy());
    let mut raw = unproven(&mut server);
    let failure = Message::Failure2 { transaction: 5, explanation: 1 }.encode();
    assert_eq!(send(&mut raw, &mut server, &failure), Status::SUCCESS);
    assert!(Target::<Server>::is_closing(&raw.target));

    let mut raw = unproven(&mut server);
    send(&mut raw, &mut server, &negotiate(Some(offer())));
    raw.now = Target::<Server>::poll_timeout(&raw.target).expect("a deadline");
    assert_eq!(raw.now.since(iotax_proto::Instant(0)), Duration::from_secs(10));
    let violation = raw.target.handle_timeout(raw.now, &mut server).expect_err("time is up");
    assert_eq!(violation.kind, ViolationKind::TimedOut);
    assert_eq!(server.subsystem.0.borrow().controller_count(), 0);
}

#[test]
fn room_too_small_for_the_message_ends_the_connection() {
    let mut server = server(policy());
    let mut raw = unproven(&mut server);
    send(&mut raw, &mut server, &negotiate(Some(offer())));
    assert_eq!(raw.status(&mut server, &auth::receive(CommandId(1), 20)).code(), Status::INVALID_FIELD.code());
    assert!(Target::<Server>::is_closing(&raw.target));
}

// ------------------------------------------------------------------------------------------------- hostile controllers

#[test]
fn host_refuses_a_controller_that_does_not_play_by_the_rules() {
    let challenge = |hash, group, challenge: Vec<u8>, public: Vec<u8>| {
        let transaction = transaction();
        Message::Challenge { transaction, hash, group, sequence: 1, challenge, public }.encode()
    };
    for (message, failure) in [
        (vec![0xff; 64], Failure::IncorrectPayload),
        (challenge(9, 0, vec![0; 32], vec![]), Failure::HashUnusable),
        (challenge(1, 0, vec![0; 31], vec![]), Failure::HashUnusable),
        (challenge(2, 0, vec![0; 48], vec![]), Failure::HashUnusable),
        (challenge(1, 9, vec![0; 32], vec![]), Failure::GroupUnusable),
        (challenge(1, 0, vec![0; 32], vec![1; 8]), Failure::IncorrectPayload),
        (challenge(1, 1, vec![0; 32], vec![0; 256]), Failure::IncorrectPayload),
        (challenge(1, 1, vec![0; 32], vec![]), Failure::IncorrectPayload),
        (
            Message::Success1 { transaction: transaction(), hash_len: 32, response: None }.encode(),
            Failure::IncorrectMessage,
        ),
    ] {
        let ended = new_host().received(&message).expect_err("refused");
        let Some(Message::Failure2 { explanation, .. }) = Message::decode(&ended.last.expect("it is told")) else {
            panic!("no failure")
        };
        assert_eq!(explanation, failure as u8, "{message:02x?}");
        assert_eq!(ended.violation.kind, ViolationKind::Refused(Refusal::Unauthenticated));
    }
    let failure = Message::Failure1 { transaction: 0, explanation: 5 }.encode();
    let ended = new_host().received(&failure).expect_err("refused");
    assert!(ended.last.is_none(), "who gave up is told nothing");
}

#[test]
fn controller_that_leaves_out_its_own_proof_is_refused() {
    let mut host = new_host();
    let transaction = transaction();
    let (challenge, public) = (vec![3; 32], vec![]);
    let challenge = Message::Challenge { transaction, hash: 1, group: 0, sequence: 1, challenge, public };
    host.received(&challenge.encode()).expect("a challenge");
    let silent = Message::Success1 { transaction, hash_len: 32, response: None };
    assert!(host.received(&silent.encode()).is_err());
}

fn new_host() -> auth::Host {
    auth::Host::new(HostConfig { hash: Some(Hash::Sha256), ..host(true) }, "nqn.h", "nqn.s", QueueId::ADMIN)
}

/// The transaction ID that `new_host` chose.
fn transaction() -> u16 {
    let Some(Message::Negotiate { transaction, .. }) = Message::decode(&new_host().first()) else {
        panic!("negotiate")
    };
    transaction
}

#[test]
fn message_is_answered_when_its_arithmetic_is_done_elsewhere() {
    let mut server = server(Policy { group: Some(DhGroup::Ffdhe2048), ..policy() });
    server.works = Some(Vec::new());
    let mut raw = unproven(&mut server);
    let offer = Offer { hashes: vec![1], groups: vec![DhGroup::Ffdhe2048.id()] };
    let message = negotiate(Some(offer));
    let answers =
        raw.send(&mut server, &capsule(&auth::send(CommandId(5), message.len() as u32), &message)).expect("stands");
    assert!(answers.is_empty(), "{answers:?}");
    let early = raw.status(&mut server, &auth::receive(CommandId(6), 4096));
    assert_eq!(early.code(), Status::SEQUENCE_ERROR.code());
    let work = server.works.as_mut().and_then(Vec::pop).expect("work");
    raw.target.worked(raw.now, work.run(), &mut server);
    let answers = raw.answers();
    assert_eq!((answers[0].response().cid, answers[0].response().status.is_success()), (CommandId(5), true));
    let Message::Challenge { public, .. } = receive(&mut raw, &mut server) else { panic!("no challenge") };
    assert_eq!(Some(public), work.run());
    // A result that the target did not request changes nothing.
    raw.target.worked(raw.now, None, &mut server);
    assert!(raw.answers().is_empty());
}

#[test]
fn host_without_a_name_has_no_secret() {
    let mut server = server(policy());
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let data = ConnectData { hostnqn: String::new(), ..connect_data(ControllerId::ANY) };
    let cqe = raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &data);
    assert_eq!((cqe.status.code(), cqe.result), (Status::CONNECT_INVALID_PARAMETERS.code(), 1 << 16 | 512));
}

#[test]
fn io_queues_that_prove_nothing_keep_nobody_from_their_identifier() {
    let mut server = server(policy());
    let admin =
        crate::nvme_support::admin(&mut server, &config(Some(host(false))), &TargetConfig::default(), Cut::Never);
    let cntlid = admin.host.controller().expect("a controller").cntlid;
    let mut strangers = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::open(&mut server, &TargetConfig::default());
        let cqe = raw.connect(&mut server, &connect(QueueId(1), 7), &connect_data(cntlid));
        assert_eq!((cqe.status, cqe.result >> 16), (Status::SUCCESS, 2), "each may prove itself");
        strangers.push(raw);
    }
}

#[test]
fn connects_that_prove_nothing_leave_the_rightful_host_its_place() {
    let mut server = server(policy());
    let strangers: Vec<Raw> = (0..300).map(|_| unproven(&mut server)).collect();
    session(&mut server, &config(Some(host(true))), Cut::Never);
    drop(strangers);
}
