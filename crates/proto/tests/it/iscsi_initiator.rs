//! The initiator against single PDUs of a target: retries, pings, aborts, and PDUs with which the target rejects a
//! command or requests something.
#![allow(clippy::unwrap_used)]

use crate::iscsi_support::{Cut, MemoryBackend, Pair, Recorder, pattern};
use iotax_proto::{
    Initiator, Instant, Io, IoError, Misuse, Payload, Refusal, Target, Transmit, Violation, ViolationKind,
    iscsi::{
        DigestWish, Wishes,
        decode::describe,
        initiator::{self, Session},
        pdu::{
            AsyncMessage, Bhs, DataIn, DataOut, LogoutRequest, NopIn, NopOut, R2t, Reject, ScsiCommand, ScsiResponse,
            Sender, TaskManagement, TaskManagementResponse, TaskTag, TransferTag,
            control::{async_event, function, function_response, reject_reason},
        },
        target_side::Config,
    },
    scsi::{Sense, status},
};

/// A session that is ready. From here on, the test plays the target.
struct Stage {
    session: Session,
    events: Recorder,
    stat_sn: u32,
    exp_cmd_sn: u32,
}

impl Stage {
    fn new(wishes: Wishes) -> Self {
        let config = Config { wishes: wishes.clone(), ..Config::default() };
        let mut pair = Pair::ready(wishes, config, MemoryBackend::new(1 << 16), Cut::Whole);
        pair.events.completed.clear();
        let last = pair.last_of_target();
        let field = |at: usize| u32::from_be_bytes(last.0[at..at + 4].try_into().unwrap());
        Self { session: pair.initiator, events: pair.events, stat_sn: field(24) + 1, exp_cmd_sn: field(28) }
    }

    fn submit(&mut self, tag: u32, io: Io) -> Vec<(Bhs, Vec<u8>)> {
        self.session.submit(Instant(0), tag, io).unwrap();
        self.sent()
    }

    /// The PDUs that the initiator sent since the last call.
    fn sent(&mut self) -> Vec<(Bhs, Vec<u8>)> {
        let bytes = self.session.transmit().take_bytes();
        let (mut at, mut sent) = (0, Vec::new());
        while at < bytes.len() {
            let (len, _) = describe(&bytes[at..]).unwrap();
            let bhs = Bhs(*bytes[at..].first_chunk().unwrap());
            sent.push((bhs, bytes[at + 48..at + 48 + bhs.data_len() as usize].to_vec()));
            at += len;
        }
        sent
    }

    fn receive(&mut self, bhs: Bhs, data: &[u8]) -> Result<(), Violation> {
        self.receive_at(Instant(0), bhs, data)
    }

    fn receive_at(&mut self, now: Instant, bhs: Bhs, data: &[u8]) -> Result<(), Violation> {
        let mut transmit = Transmit::default();
        Sender::default().bytes(&mut transmit, bhs, data);
        self.session.receive(now, &transmit.take_bytes(), &mut self.events)
    }

    fn take_stat_sn(&mut self) -> u32 {
        self.stat_sn += 1;
        self.stat_sn - 1
    }

    fn respond(&mut self, itt: TaskTag, status: u8, sense: Option<Sense>) -> Result<(), Violation> {
        self.respond_with(itt, status, sense, 32)
    }

    /// `room`: further commands that the target takes; fewer than before change nothing.
    fn respond_with(&mut self, itt: TaskTag, status: u8, sense: Option<Sense>, room: u32) -> Result<(), Violation> {
        self.exp_cmd_sn += 1;
        let response = ScsiResponse {
            last: true,
            status,
            itt,
            stat_sn: self.take_stat_sn(),
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.exp_cmd_sn + room - 1,
            ..ScsiResponse::default()
        };
        let sense = sense.map_or(Vec::new(), |sense| {
            let bytes = sense.encode();
            [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat()
        });
        self.receive(response.encode(), &sense)
    }

    fn completed(&mut self) -> Option<(u32, Result<(), IoError>)> {
        self.events.completed.pop_front()
    }
}

#[test]
fn unit_attentions_and_a_busy_target_are_tried_again() {
    let mut stage = Stage::new(Wishes::default());
    let mut sent = stage.submit(0, Io::Flush);
    for (status, sense) in [(status::CHECK_CONDITION, Some(Sense::BUS_DEVICE_RESET)), (status::BUSY, None)] {
        let earlier = sent[0].0.itt();
        stage.respond(earlier, status, sense).unwrap();
        assert_eq!(stage.completed(), None);
        sent = stage.sent();
        assert_eq!(sent[0].0.opcode(), ScsiCommand::OPCODE);
        assert_ne!(sent[0].0.itt(), earlier, "a late answer to the first try is told from one to the second");
    }
    stage.respond(sent[0].0.itt(), status::GOOD, None).unwrap();
    assert_eq!(stage.completed(), Some((0, Ok(()))));

    let mut sent = stage.submit(1, Io::Flush);
    for _ in 0..4 {
        assert_eq!(stage.completed(), None);
        stage.respond(sent.first().map_or(TaskTag(0), |(bhs, _)| bhs.itt()), status::BUSY, None).unwrap();
        sent = stage.sent();
    }
    assert_eq!(
        stage.completed(),
        Some((1, Err(IoError::Failed { status: 0x0800_0000, refusal: Refusal::Busy, what: "BUSY" })))
    );
}

/// A command that gets BUSY when the window is used up: it waits. Also returns its ITT.
fn waiting_for_the_window() -> (Stage, TaskTag) {
    let mut stage = Stage::new(Wishes::default());
    let itt = stage.submit(0, Io::Flush)[0].0.itt();
    while stage.session.credits() > 0 {
        let other = stage.submit(1, Io::Flush)[0].0.itt();
        stage.respond_with(other, status::GOOD, None, 0).unwrap();
        assert_eq!(stage.completed(), Some((1, Ok(()))));
    }
    stage.respond_with(itt, status::BUSY, None, 0).unwrap();
    assert!(stage.sent().is_empty() && stage.completed().is_none());
    (stage, itt)
}

#[test]
fn a_command_that_waits_for_the_window_is_sent_once_when_it_opens() {
    let (mut stage, itt) = waiting_for_the_window();
    let (exp_cmd_sn, max_cmd_sn) = (stage.exp_cmd_sn, stage.exp_cmd_sn + 3);
    let opening = NopIn { max_cmd_sn, exp_cmd_sn, ..ping(stage.take_stat_sn()) };
    stage.receive(opening.encode(), &[]).unwrap();
    let commands: Vec<_> = stage.sent().into_iter().filter(|(bhs, _)| bhs.opcode() == ScsiCommand::OPCODE).collect();
    assert_eq!(commands.len(), 1);
    assert_ne!(commands[0].0.itt(), itt);
}

#[test]
fn a_second_answer_to_a_command_that_waits_for_the_window_is_a_violation() {
    let (mut stage, itt) = waiting_for_the_window();
    let violation = stage.respond_with(itt, status::BUSY, None, 0).unwrap_err();
    assert_eq!((violation.kind, violation.at), (ViolationKind::Misbehaved, Some(16)));
}

#[test]
fn an_abort_that_crosses_the_answer_of_a_command_that_waits_for_the_window_completes_it() {
    let (mut stage, itt) = waiting_for_the_window();
    // The request names the task that BUSY has ended; sent before BUSY came, it would look the same.
    assert!(stage.session.abort(Instant(0), 0));
    let (request, _) = stage.sent().pop().expect("an abort");
    assert_ne!(TaskManagement::parse(&request).referenced_itt, itt);
    let response = TaskManagementResponse {
        itt: request.itt(),
        response: function_response::NO_TASK,
        stat_sn: stage.take_stat_sn(),
        ..TaskManagementResponse::default()
    };
    stage.receive(response.encode(), &[]).unwrap();
    assert_eq!(stage.completed(), Some((0, Err(IoError::Aborted))));
}

#[test]
fn failures_say_what_the_target_said() {
    let mut stage = Stage::new(Wishes::default());
    let itt = stage.submit(0, Io::Flush)[0].0.itt();
    stage.respond(itt, status::CHECK_CONDITION, Some(Sense::MEDIUM_ERROR_READ)).unwrap();
    let Some((0, Err(IoError::Failed { status, .. }))) = stage.completed() else { panic!("a failure") };
    assert_eq!(status, 0x03_1100);
    let itt = stage.submit(0, Io::Unmap { offset: 0, len: 512 })[0].0.itt();
    stage.respond(itt, status::CHECK_CONDITION, Some(Sense::INVALID_OPCODE)).unwrap();
    assert_eq!(stage.completed(), Some((0, Err(IoError::Unsupported))));
    let itt = stage.submit(0, Io::Read { offset: 0, len: 512 })[0].0.itt();
    stage.respond(itt, status::GOOD, None).unwrap();
    let Some((0, Err(IoError::Failed { what, .. }))) = stage.completed() else { panic!("a failure") };
    assert_eq!(what, "the target sent less than was asked for");
}

#[test]
fn data_in_out_of_place_are_violations() {
    let good = DataIn { last: true, ..DataIn::default() };
    for (what, data, len) in [
        ("beyond the read", DataIn { buffer_offset: 0, ..good }, 516),
        ("not at the next byte", DataIn { buffer_offset: 4, ..good }, 4),
        ("of another number", DataIn { data_sn: 1, ..good }, 512),
        ("at the end of time", DataIn { buffer_offset: u32::MAX, ..good }, 4),
    ] {
        let mut stage = Stage::new(Wishes::default());
        let itt = stage.submit(0, Io::Read { offset: 0, len: 512 })[0].0.itt();
        let data = DataIn { itt, ..data };
        assert_eq!(
            stage.receive(data.encode(), &pattern(0, len)).unwrap_err().kind,
            ViolationKind::Misbehaved,
            "{what}"
        );
        assert!(stage.events.data.is_empty(), "{what}");
    }
}

#[test]
fn an_r2t_gets_exactly_what_it_asks_for_once() {
    let wishes = Wishes {
        initial_r2t: true,
        immediate_data: false,
        max_recv_segment_len: 1024,
        max_burst_len: 2048,
        ..Wishes::default()
    };
    let mut stage = Stage::new(wishes);
    let data = pattern(5, 4096);
    let sent = stage.submit(0, Io::Write { offset: 0, data: Payload::from_vec(data.clone()), durable: false });
    assert_eq!((sent.len(), sent[0].1.len()), (1, 0));
    let itt = sent[0].0.itt();
    let r2t = R2t { last: true, itt, ttt: TransferTag(7), desired_len: 2048, ..R2t::default() };
    stage.receive(r2t.encode(), &[]).unwrap();
    let sent = stage.sent();
    let outs: Vec<_> = sent.iter().map(|(bhs, _)| DataOut::parse(bhs)).collect();
    let seen: Vec<_> = outs.iter().map(|out| (out.ttt, out.data_sn, out.buffer_offset, out.last)).collect();
    assert_eq!(seen, [(TransferTag(7), 0, 0, false), (TransferTag(7), 1, 1024, true)]);
    assert_eq!([&sent[0].1[..], &sent[1].1].concat(), data[..2048]);
    for wrong in [
        r2t,
        R2t { r2t_sn: 1, ..r2t },
        R2t { r2t_sn: 1, buffer_offset: 2048, desired_len: 2052, ..r2t },
        R2t { r2t_sn: 1, buffer_offset: 2048, desired_len: 0, ..r2t },
        R2t { r2t_sn: 1, buffer_offset: 2048, ttt: TransferTag::RESERVED, ..r2t },
    ] {
        assert_eq!(stage.receive(wrong.encode(), &[]).unwrap_err().kind, ViolationKind::Misbehaved);
        assert!(stage.sent().is_empty());
    }
}

#[test]
fn a_status_that_is_missing_is_a_violation() {
    let mut stage = Stage::new(Wishes::default());
    let itt = stage.submit(0, Io::Flush)[0].0.itt();
    stage.stat_sn += 1;
    assert_eq!(stage.respond(itt, status::GOOD, None).unwrap_err().kind, ViolationKind::Misbehaved);
}

#[test]
fn a_target_that_pings_is_answered() {
    let mut stage = Stage::new(Wishes::default());
    let ping =
        NopIn { last: true, itt: TaskTag::RESERVED, ttt: TransferTag(9), stat_sn: stage.stat_sn, ..NopIn::default() };
    stage.receive(ping.encode(), &[]).unwrap();
    let answer = NopOut::parse(&stage.sent()[0].0);
    assert_eq!((answer.itt, answer.ttt, answer.immediate), (TaskTag::RESERVED, TransferTag(9), true));
}

#[test]
fn a_target_that_pings_and_does_not_read_is_given_up() {
    let mut stage = Stage::new(Wishes::default());
    let ping =
        NopIn { last: true, itt: TaskTag::RESERVED, ttt: TransferTag(9), stat_sn: stage.stat_sn, ..NopIn::default() };
    let pings = (0..100_000).take_while(|_| stage.receive(ping.encode(), &[]).is_ok()).count();
    assert!((10_000..30_000).contains(&pings), "{pings} answers of 48 bytes wait");
    assert!(stage.session.transmit().len() <= 2 << 20);
}

#[test]
fn a_silent_target_is_pinged_and_then_given_up() {
    let mut stage = Stage::new(Wishes::default());
    stage.submit(0, Io::Flush);
    let due = stage.session.poll_timeout().unwrap();
    stage.session.handle_timeout(Instant(due.0 - 1), &mut stage.events).unwrap();
    assert!(stage.sent().is_empty());
    stage.session.handle_timeout(due, &mut stage.events).unwrap();
    assert_eq!(stage.sent()[0].0.opcode(), NopOut::OPCODE);
    let later = stage.session.poll_timeout().unwrap();
    assert!(later > due);
    let late = stage.session.handle_timeout(later, &mut stage.events).unwrap_err();
    assert_eq!(late.kind, ViolationKind::TimedOut);
    stage.session.disconnected(later, &mut stage.events);
    assert_eq!(stage.completed(), Some((0, Err(IoError::ConnectionLost))));
}

#[test]
fn an_abort_completes_its_io() {
    let mut stage = Stage::new(Wishes::default());
    let itt = stage.submit(3, Io::Flush)[0].0.itt();
    assert!(stage.session.abort(Instant(0), 3));
    assert!(!stage.session.abort(Instant(0), 3), "one at a time");
    let request = TaskManagement::parse(&stage.sent()[0].0);
    assert_eq!((request.function, request.referenced_itt, request.immediate), (function::ABORT_TASK, itt, true));
    let response = TaskManagementResponse {
        last: true,
        response: function_response::COMPLETE,
        itt: request.itt,
        stat_sn: stage.take_stat_sn(),
        ..TaskManagementResponse::default()
    };
    stage.receive(response.encode(), &[]).unwrap();
    assert_eq!(stage.completed(), Some((3, Err(IoError::Aborted))));
    assert!(!stage.session.abort(Instant(0), 3), "nothing to abort");
}

/// A NOP-In of a target that requests no answer.
fn ping(stat_sn: u32) -> NopIn {
    NopIn { last: true, itt: TaskTag::RESERVED, ttt: TransferTag::RESERVED, stat_sn, ..NopIn::default() }
}

#[test]
fn command_that_another_initiator_ended_without_a_word_is_aborted_after_its_time_and_sent_again() {
    let minute = Instant(60_000_000_000);
    for response in [function_response::NO_TASK, function_response::COMPLETE] {
        let mut stage = Stage::new(Wishes::default());
        let mut itt = stage.submit(3, Io::Flush)[0].0.itt();
        for again in 1..=4 {
            let now = Instant(again * minute.0);
            stage.receive_at(Instant(now.0 - 1), ping(stage.stat_sn).encode(), &[]).unwrap();
            stage.session.handle_timeout(Instant(now.0 - 1), &mut stage.events).unwrap();
            assert!(stage.sent().is_empty());
            stage.session.handle_timeout(now, &mut stage.events).unwrap();
            let request = TaskManagement::parse(&stage.sent()[0].0);
            assert_eq!((request.function, request.referenced_itt), (function::ABORT_TASK, itt));
            let response = TaskManagementResponse {
                last: true,
                response,
                itt: request.itt,
                stat_sn: stage.take_stat_sn(),
                exp_cmd_sn: request.cmd_sn,
                max_cmd_sn: request.cmd_sn + 31,
            };
            stage.receive_at(now, response.encode(), &[]).unwrap();
            if again == 4 {
                break;
            }
            assert_eq!(stage.completed(), None);
            let sent = stage.sent();
            assert_eq!(sent[0].0.opcode(), ScsiCommand::OPCODE);
            itt = sent[0].0.itt();
        }
        assert_eq!(stage.completed(), Some((3, Err(IoError::Aborted))), "four times in all");
    }
}

#[test]
fn target_that_does_not_answer_an_abort_is_given_up() {
    let mut stage = Stage::new(Wishes::default());
    stage.submit(3, Io::Flush);
    for second in 1..120 {
        let now = Instant(second * 1_000_000_000);
        stage.receive_at(now, ping(stage.stat_sn).encode(), &[]).unwrap();
        stage.session.handle_timeout(now, &mut stage.events).unwrap();
    }
    stage.receive_at(Instant(120_000_000_000), ping(stage.stat_sn).encode(), &[]).unwrap();
    let late = stage.session.handle_timeout(Instant(120_000_000_000), &mut stage.events).unwrap_err();
    assert_eq!(late.kind, ViolationKind::TimedOut);
}

#[test]
fn a_lun_reset_completes_what_was_sent_before_it() {
    let mut stage = Stage::new(Wishes::default());
    stage.submit(0, Io::Flush);
    stage.submit(1, Io::Read { offset: 0, len: 512 });
    assert!(stage.session.reset(Instant(0), function::LOGICAL_UNIT_RESET));
    let request = TaskManagement::parse(&stage.sent()[0].0);
    stage.submit(2, Io::Flush);
    let response =
        TaskManagementResponse { last: true, itt: request.itt, stat_sn: stage.take_stat_sn(), ..Default::default() };
    stage.receive(response.encode(), &[]).unwrap();
    assert_eq!(stage.completed(), Some((0, Err(IoError::Aborted))));
    assert_eq!(stage.completed(), Some((1, Err(IoError::Aborted))));
    assert_eq!(stage.completed(), None);
}

#[test]
fn a_rejected_command_fails_and_a_digest_error_ends_the_session() {
    let mut stage = Stage::new(Wishes::default());
    let (bhs, _) = stage.submit(0, Io::Flush).remove(0);
    let reject = |stage: &mut Stage, reason| {
        let stat_sn = stage.take_stat_sn();
        let reject = Reject { last: true, reason, itt: TaskTag::RESERVED, stat_sn, ..Reject::default() };
        stage.receive(reject.encode(), &bhs.0)
    };
    reject(&mut stage, reject_reason::COMMAND_NOT_SUPPORTED).unwrap();
    let error = IoError::Failed { status: 5, refusal: Refusal::Other, what: "command not supported" };
    assert_eq!(stage.completed(), Some((0, Err(error))));
    assert_eq!(reject(&mut stage, reject_reason::DATA_DIGEST_ERROR).unwrap_err().kind, ViolationKind::Misbehaved);
}

#[test]
fn a_target_that_asks_for_a_logout_gets_it_once_all_is_done() {
    let mut stage = Stage::new(Wishes::default());
    let itt = stage.submit(0, Io::Flush)[0].0.itt();
    let message = AsyncMessage {
        last: true,
        itt: TaskTag::RESERVED,
        stat_sn: stage.take_stat_sn(),
        event: async_event::LOGOUT_REQUESTED,
        ..AsyncMessage::default()
    };
    stage.receive(message.encode(), &[]).unwrap();
    assert!(stage.sent().is_empty());
    assert_eq!(stage.session.submit(Instant(0), 1, Io::Flush), Err(Misuse::NoCredit));
    stage.respond(itt, status::GOOD, None).unwrap();
    assert_eq!(stage.completed(), Some((0, Ok(()))));
    assert_eq!(stage.sent()[0].0.opcode(), LogoutRequest::OPCODE);
}

#[test]
fn a_target_that_drops_the_session_is_believed() {
    for event in [async_event::CONNECTION_DROPPED, async_event::SESSION_DROPPED] {
        let mut stage = Stage::new(Wishes::default());
        let stat_sn = stage.take_stat_sn();
        let message = AsyncMessage { last: true, itt: TaskTag::RESERVED, stat_sn, event, ..AsyncMessage::default() };
        assert_eq!(stage.receive(message.encode(), &[]).unwrap_err().kind, ViolationKind::Refused(Refusal::Other));
    }
}

#[test]
fn misuse_sends_nothing() {
    let mut stage = Stage::new(Wishes::default());
    let mut misuse = |tag, io| stage.session.submit(Instant(0), tag, io).unwrap_err();
    assert_eq!(misuse(99, Io::Flush), Misuse::BadTag);
    assert_eq!(misuse(0, Io::Read { offset: 1, len: 512 }), Misuse::BadRange);
    assert_eq!(misuse(0, Io::Read { offset: 0, len: 0 }), Misuse::BadRange);
    assert_eq!(misuse(0, Io::Read { offset: 1 << 16, len: 512 }), Misuse::BadRange);
    assert_eq!(misuse(0, Io::Read { offset: u64::MAX - 511, len: 512 }), Misuse::BadRange);
    assert_eq!(
        misuse(0, Io::Write { offset: 0, data: Payload::from_vec(vec![0; 100]), durable: false }),
        Misuse::BadRange
    );
    assert!(stage.sent().is_empty());
    stage.submit(0, Io::Flush);
    assert_eq!(stage.session.submit(Instant(0), 0, Io::Flush), Err(Misuse::BadTag));
}

#[test]
fn a_login_without_an_answer_is_given_up() {
    let config = initiator::Config::new("iqn.2026-11.x:i", "iqn.2026-11.x:t", 0);
    let mut events = Recorder::default();
    let mut session = Session::new(Instant(0), config.clone());
    let due = session.poll_timeout().unwrap();
    assert_eq!(due, Instant(0) + config.login_timeout);
    session.handle_timeout(Instant(due.0 - 1), &mut events).unwrap();
    assert_eq!(session.handle_timeout(due, &mut events).unwrap_err().kind, ViolationKind::TimedOut);
}

#[test]
fn wrong_digests_end_the_session_and_tell_no_success() {
    let digests = Wishes { header_digest: DigestWish::Require, data_digest: DigestWish::Require, ..Wishes::default() };
    // One byte in the header, in the data and in the data digest. The answer to the read is one Data-In with the
    // status.
    for at in [9, 60, 48 + 4 + 512] {
        let config = Config { wishes: digests.clone(), ..Config::default() };
        let mut pair = Pair::ready(digests.clone(), config, MemoryBackend::new(1 << 16), Cut::Whole);
        pair.events.completed.clear();
        pair.initiator.submit(Instant(0), 0, Io::Read { offset: 0, len: 512 }).unwrap();
        let command = pair.initiator.transmit().take_bytes();
        pair.target.receive(Instant(0), &command, &mut pair.backend).unwrap();
        let mut bytes = Target::<MemoryBackend>::transmit(&mut pair.target).take_bytes();
        assert_eq!(bytes.len(), 48 + 4 + 512 + 4);
        bytes[at] ^= 1;
        pair.initiator.receive(Instant(0), &bytes, &mut pair.events).unwrap_err();
        assert!(pair.events.completed.is_empty(), "byte {at}");
        pair.initiator.disconnected(Instant(0), &mut pair.events);
        assert_eq!(pair.events.completed.pop_front(), Some((0, Err(IoError::ConnectionLost))), "byte {at}");
    }
}
