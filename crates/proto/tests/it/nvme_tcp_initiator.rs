//! The initiator against single PDUs of a controller: unrequested data, answers to unknown commands, wrong digests, and
//! silence.

use crate::nvme_support::{BLOCK, Cut, Pair, Server, admin, connect_config, io, raw::pdu};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Payload, Target, ViolationKind,
    nvme::{CommandId, Cqe, Status},
    nvme_tcp::{
        ConnectConfig, IoQueue, TargetConfig,
        pdu::{Digests, flags, kind},
    },
};

/// An I/O queue. From here on, the test plays its controller.
fn queue(server: &mut Server, config: &ConnectConfig) -> Pair<IoQueue> {
    // Every write needs an R2T.
    let target = TargetConfig { in_capsule_bytes: 0, ..TargetConfig::default() };
    let session = admin(server, config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    io(server, config, &controller, 1, &target, Cut::Never)
}

fn response(cid: CommandId) -> Vec<u8> {
    pdu(kind::RESPONSE, 0, &Cqe { result: 0, sq_head: 0, cid, status: Status::SUCCESS }.encode(), &[])
}

/// The fields of C2HData and R2T: command ID, transfer tag, offset and length.
fn body(cid: CommandId, tag: u16, offset: u32, len: u32) -> Vec<u8> {
    [&cid.0.to_le_bytes()[..], &tag.to_le_bytes(), &offset.to_le_bytes(), &len.to_le_bytes(), &[0; 4]].concat()
}

fn c2h_data(flags: u8, cid: CommandId, offset: u32, told: u32, len: usize) -> Vec<u8> {
    pdu(kind::C2H_DATA, flags, &body(cid, 0, offset, told), &vec![7; len])
}

fn r2t(cid: CommandId, offset: u32, len: u32) -> Vec<u8> {
    pdu(kind::R2T, 0, &body(cid, 3, offset, len), &[])
}

#[test]
fn pdus_that_fit_no_command_end_the_connection_and_tell_nothing() {
    const LEN: u32 = BLOCK as u32;
    let last = flags::LAST | flags::SUCCESS;
    // Command 0 is a read, 1 a write and 2 a flush; 3 is not outstanding.
    let cases = [
        ("data beyond the read", c2h_data(last, CommandId(0), 0, LEN + 4, BLOCK + 4)),
        ("data behind a gap", c2h_data(flags::LAST, CommandId(0), 4, 4, 4)),
        ("data of another length", c2h_data(last, CommandId(0), 0, LEN - 4, BLOCK)),
        ("success before the end", c2h_data(last, CommandId(0), 0, 4, 4)),
        ("data for a write", c2h_data(last, CommandId(1), 0, LEN, BLOCK)),
        ("data for no command", c2h_data(last, CommandId(3), 0, LEN, BLOCK)),
        ("data for no slot", c2h_data(last, CommandId(0x7fff), 0, LEN, BLOCK)),
        ("R2T for a read", r2t(CommandId(0), 0, LEN)),
        ("R2T for no command", r2t(CommandId(3), 0, LEN)),
        ("R2T beyond the write", r2t(CommandId(1), 0, LEN + 4)),
        ("R2T behind a gap", r2t(CommandId(1), 4, 4)),
        ("R2T of nothing", r2t(CommandId(1), 0, 0)),
        ("success of a read without data", response(CommandId(0))),
        ("success of a write without data", response(CommandId(1))),
        ("response to no command", response(CommandId(3))),
        ("response to no slot", response(CommandId(0x7fff))),
        ("response of the Connect again", response(CommandId(8))),
        ("a command from a controller", pdu(kind::COMMAND, 0, &[0; 64], &[])),
        ("the handshake again", pdu(kind::IC_RESP, 0, &[0; 120], &[])),
    ];
    for (what, bytes) in cases {
        let mut server = Server::new();
        let mut pair = queue(&mut server, &connect_config());
        let data = Payload::from_vec(vec![1; BLOCK]);
        pair.host.submit(pair.now, 0, Io::Read { offset: 0, len: LEN }).expect("credit");
        pair.host.submit(pair.now, 1, Io::Write { offset: 0, data, durable: false }).expect("credit");
        pair.host.submit(pair.now, 2, Io::Flush).expect("credit");
        let _ = pair.host.transmit().take_bytes();
        pair.host.receive(pair.now, &bytes, &mut pair.events).expect_err(what);
        assert!(pair.events.data.is_empty() && pair.events.completions.is_empty(), "{what}");
        let sent = pair.host.transmit().take_bytes();
        assert_eq!(sent.first(), Some(&kind::H2C_TERM_REQ), "{what}: the controller is told");
        pair.host.disconnected(pair.now, &mut pair.events);
        assert_eq!(pair.events.completions.len(), 3, "{what}");
    }
}

#[test]
fn response_to_an_io_that_was_not_sent_ends_the_connection_and_the_io_completes_once() {
    let mut server = Server::new();
    let config = connect_config();
    let target = TargetConfig::default();
    let session = admin(&mut server, &config, &target, Cut::Never);
    let mut controller = session.host.controller().expect("ready").clone();
    controller.optional_commands = 0;
    let mut pair = io(&mut server, &config, &controller, 1, &target, Cut::Never);
    pair.host.submit(pair.now, 2, Io::Unmap { offset: 0, len: BLOCK as u32 }).expect("credit");
    assert_eq!(pair.host.transmit().take_bytes(), []);
    pair.host.receive(pair.now, &response(CommandId(2)), &mut pair.events).expect_err("there is no such command");
    pair.host.disconnected(pair.now, &mut pair.events);
    assert_eq!(pair.events.completions.len(), 1);
}

#[test]
fn response_and_r2t_cannot_come_twice() {
    let mut server = Server::new();
    let mut pair = queue(&mut server, &connect_config());
    pair.host.submit(pair.now, 2, Io::Flush).expect("credit");
    pair.host.receive(pair.now, &response(CommandId(2)), &mut pair.events).expect("an answer");
    assert_eq!(pair.events.take(2), Ok(Vec::new()));
    pair.host.receive(pair.now, &response(CommandId(2)), &mut pair.events).expect_err("replayed");
    assert!(pair.events.completions.is_empty());

    let mut pair = queue(&mut Server::new(), &connect_config());
    let data = Payload::from_vec(vec![1; BLOCK]);
    pair.host.submit(pair.now, 1, Io::Write { offset: 0, data, durable: false }).expect("credit");
    let _ = pair.host.transmit().take_bytes();
    let whole = r2t(CommandId(1), 0, BLOCK as u32);
    pair.host.receive(pair.now, &whole, &mut pair.events).expect("asked for");
    assert!(pair.host.transmit().take_bytes().len() > BLOCK);
    pair.host.receive(pair.now, &whole, &mut pair.events).expect_err("replayed");
    assert!(pair.host.transmit().take_bytes().len() < BLOCK, "no data a second time");
}

#[test]
fn wrong_digests_fail_the_read_or_the_connection() {
    let config = ConnectConfig { digests: Digests { header: true, data: true }, ..connect_config() };
    // Change a byte of the data digest, which only fails the read, or of the header, which ends the connection.
    for (at_data, is_fatal) in [(true, false), (false, true)] {
        let mut server = Server::new();
        let mut pair = queue(&mut server, &config);
        pair.host.submit(pair.now, 0, Io::Read { offset: 0, len: BLOCK as u32 }).expect("credit");
        let bytes = pair.host.transmit().take_bytes();
        pair.target.receive(pair.now, &bytes, &mut server).expect("a command");
        server.complete_all(pair.now, &mut pair.target);
        let mut bytes = Target::<Server>::transmit(&mut pair.target).take_bytes();
        assert_eq!(bytes[0], kind::C2H_DATA);
        let at = if at_data { bytes.len() - 1 } else { 12 };
        bytes[at] ^= 1;
        let received = pair.host.receive(pair.now, &bytes, &mut pair.events);
        assert_eq!(received.is_err(), is_fatal);
        if !is_fatal {
            assert!(matches!(pair.events.take(0), Err(IoError::Failed { .. })));
            pair.host.submit(pair.now, 0, Io::Flush).expect("the queue goes on");
            pair.run(&mut server).expect("an answer");
            assert_eq!(pair.events.take(0), Ok(Vec::new()));
        }
    }
}

#[test]
fn silent_queue_is_given_up_with_commands_outstanding_only() {
    let mut server = Server::new();
    let config = connect_config();
    let mut pair = queue(&mut server, &config);
    assert_eq!(pair.host.poll_timeout(), None, "nothing is waited for");
    let sent_at = pair.now;
    pair.host.submit(sent_at, 0, Io::Read { offset: 0, len: BLOCK as u32 }).expect("credit");
    let due = pair.host.poll_timeout().expect("a timer");
    assert_eq!(due, sent_at + config.session.io_timeout);
    pair.host.handle_timeout(Instant(due.0 - 1), &mut pair.events).expect("time is left");
    let violation = pair.host.handle_timeout(due, &mut pair.events).expect_err("given up");
    assert_eq!(violation.kind, ViolationKind::TimedOut);
    pair.host.disconnected(due, &mut pair.events);
    assert_eq!(pair.events.take(0), Err(IoError::ConnectionLost));
}
