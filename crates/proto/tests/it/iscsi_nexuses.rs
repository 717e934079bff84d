//! The effect of one session on the running commands of another: CLEAR TASK SET, resets, PREEMPT AND ABORT. They leave
//! other commands alone, and the target answers them after the affected commands have ended.
#![allow(clippy::unwrap_used)]

use std::{rc::Rc, time::Duration};

use iotax_proto::{
    Instant, Payload, Target,
    iscsi::{
        pdu::{
            DataOut, R2t, Reject, ScsiCommand, ScsiResponse, TaskManagement, TaskManagementResponse, TaskTag,
            TransferTag,
            control::{LoginStatus, function, function_response, reject_reason},
        },
        target_side::{Config, IMMEDIATE_TASKS},
    },
    scsi::{Sense, sense, status},
};

use crate::iscsi_support::{MemoryBackend, Peer};

const KEYS: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];

/// Two sessions of one target. Each has its own backend.
fn sessions() -> (Peer, Peer) {
    let mut one = Peer::logged_in(Config::default(), MemoryBackend::new(1 << 16), &KEYS);
    let mut backend = MemoryBackend::new(1 << 16);
    (backend.device, backend.sessions) = (Rc::clone(&one.backend.device), Rc::clone(&one.backend.sessions));
    let mut other = Peer::new(Config::default(), backend);
    other.isid[5] ^= 1;
    assert_eq!(other.login(&KEYS).0.status, LoginStatus::SUCCESS);
    one.clear_attentions();
    other.clear_attentions();
    (one, other)
}

/// Starts a read that stays with the backend, and a write that waits for its data. Returns the TTT of the write's R2T.
fn occupy(peer: &mut Peer) -> TransferTag {
    peer.backend.queues = true;
    let read = peer.read_command(TaskTag(1), 1, 512);
    peer.send(read.encode(), &[]).unwrap();
    let write = peer.write_command(TaskTag(2), 1, 512);
    R2t::parse(&peer.ask(write.encode(), &[]).0).ttt
}

/// The response to a task management function, if it comes at once.
fn manage(peer: &mut Peer, function: u8) -> Option<u8> {
    let request = TaskManagement {
        immediate: true,
        last: true,
        itt: TaskTag(0x4000),
        cmd_sn: peer.cmd_sn,
        function,
        referenced_itt: TaskTag::RESERVED,
        ..TaskManagement::default()
    };
    peer.send(request.encode(), &[]).unwrap();
    managed(peer)
}

/// The response to a task management function, if it has come.
fn managed(peer: &mut Peer) -> Option<u8> {
    let answers = peer.answers();
    assert!(answers.len() < 2);
    answers.first().map(|(bhs, _)| TaskManagementResponse::parse(bhs).response)
}

/// Handles a notification of the server, as the driver does.
fn handle_notification(peer: &mut Peer) {
    peer.target.handle_notification(peer.now, &mut peer.backend);
}

/// The time of the next timer of the connection.
fn next_timer(peer: &Peer) -> Instant {
    Target::<MemoryBackend>::poll_timeout(&peer.target).unwrap()
}

fn time_out(peer: &mut Peer, at: Instant) {
    peer.now = at;
    peer.target.handle_timeout(peer.now, &mut peer.backend).unwrap();
}

fn data_out(ttt: TransferTag) -> DataOut {
    DataOut { last: true, itt: TaskTag(2), ttt, ..DataOut::default() }
}

/// Sends TEST UNIT READY. Returns the unit attention that it reports, if any.
fn ready(peer: &mut Peer) -> Option<u32> {
    let test = ScsiCommand { last: true, itt: TaskTag(77), cmd_sn: peer.take_cmd_sn(), ..ScsiCommand::default() };
    let (bhs, data) = peer.ask(test.encode(), &[]);
    match ScsiResponse::parse(&bhs).status {
        status::GOOD => None,
        _ => Some(sense::parse(&data[2..]).unwrap().kcq()),
    }
}

#[test]
fn an_immediate_command_that_is_rejected_reserves_nothing() {
    let (mut one, mut other) = sessions();
    one.backend.queues = true;
    for itt in 1..=IMMEDIATE_TASKS.into() {
        let read = ScsiCommand { immediate: true, ..one.read_command(TaskTag(itt), 1, 512) };
        one.send(read.encode(), &[]).unwrap();
        one.cmd_sn -= 1;
    }
    // RESERVE (6)
    let reserve = ScsiCommand { immediate: true, ..one.command(TaskTag(99), &[0x16], 0) };
    let (reject, _) = one.ask(reserve.encode(), &[]);
    assert_eq!(Reject::parse(&reject).reason, reject_reason::TOO_MANY_IMMEDIATE_COMMANDS);
    let test = ScsiCommand { last: true, itt: TaskTag(1), cmd_sn: other.take_cmd_sn(), ..ScsiCommand::default() };
    let (bhs, _) = other.ask(test.encode(), &[]);
    assert_eq!(ScsiResponse::parse(&bhs).status, status::GOOD);
}

#[test]
fn clear_task_set_and_resets_end_the_commands_of_other_sessions() {
    for (function, told) in [
        (function::CLEAR_TASK_SET, Sense::COMMANDS_CLEARED_BY_OTHER),
        (function::LOGICAL_UNIT_RESET, Sense::BUS_DEVICE_RESET),
        (function::TARGET_WARM_RESET, Sense::BUS_DEVICE_RESET),
    ] {
        let (mut one, mut other) = sessions();
        let ttt = occupy(&mut other);
        assert_eq!((manage(&mut one, function), one.backend.notified), (None, 1));
        // Data that arrive late belong to no task, and no status follows.
        other.send(data_out(ttt).encode(), &[9; 512]).unwrap();
        assert!(other.answers().is_empty());
        handle_notification(&mut one);
        assert_eq!(managed(&mut one), Some(function_response::COMPLETE));
        assert_eq!((other.backend.aborted.len(), other.backend.open_operations()), (2, 0), "{function}");
        assert_eq!(other.backend.bytes[..512], [0; 512]);
        assert_eq!((ready(&mut other), ready(&mut other)), (Some(told.kcq()), None));
        // The command window is fully open again.
        let read = other.read_command(TaskTag(1), 1, 512);
        other.send(read.encode(), &[]).unwrap();
        assert_eq!(other.backend.open_operations(), 1);
    }
}

#[test]
fn what_a_backend_completes_after_that_is_not_told() {
    let (mut one, mut other) = sessions();
    occupy(&mut other);
    assert_eq!(manage(&mut one, function::CLEAR_TASK_SET), None);
    let (id, result) = other.backend.take_queued().unwrap();
    other.target.complete(other.now, id, result, &mut other.backend);
    assert!(other.answers().is_empty());
}

#[test]
fn quiet_session_notices_by_its_timer() {
    let (mut one, mut other) = sessions();
    occupy(&mut other);
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    let at = next_timer(&other);
    time_out(&mut other, at);
    assert_eq!(other.backend.open_operations(), 0);
}

#[test]
fn data_under_way_when_the_task_ends_are_dropped() {
    for asks_for_place in [false, true] {
        let (mut one, mut other) = sessions();
        let ttt = occupy(&mut other);
        let mut transmit = iotax_proto::Transmit::default();
        other.sender.bytes(&mut transmit, data_out(ttt).encode(), &[9; 512]);
        let bytes = transmit.take_bytes();
        let (first, second) = bytes.split_at(300);
        other.target.receive(other.now, first, &mut other.backend).unwrap();
        other.backend.in_place = asks_for_place;
        let place = other.target.place(1, &mut other.backend);
        assert_eq!(place.as_ref().map(Payload::len), asks_for_place.then_some(260));
        assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
        if place.is_some() {
            // The other session, on another thread, ended the task while the data were received into their place.
            other.target.placed(other.now, second.len(), &mut other.backend).unwrap();
        } else {
            other.target.receive(other.now, second, &mut other.backend).unwrap();
        }
        assert!(other.answers().is_empty());
        assert_eq!(other.backend.open_operations(), 0);
        assert_eq!(ready(&mut other), Some(Sense::BUS_DEVICE_RESET.kcq()));
    }
}

#[test]
fn data_of_a_task_that_another_session_ended_have_no_place() {
    let (mut one, mut other) = sessions();
    let ttt = occupy(&mut other);
    other.backend.in_place = true;
    let mut transmit = iotax_proto::Transmit::default();
    other.sender.bytes(&mut transmit, data_out(ttt).encode(), &[9; 512]);
    let bytes = transmit.take_bytes();
    other.target.receive(other.now, &bytes[..300], &mut other.backend).unwrap();
    assert!(other.target.place(260, &mut other.backend).is_some());
    assert!(other.target.place(261, &mut other.backend).is_none());
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    assert!(other.target.place(1, &mut other.backend).is_none());
}

#[test]
fn session_without_commands_is_told_of_resets_alone() {
    let (mut one, mut other) = sessions();
    assert_eq!(manage(&mut one, function::CLEAR_TASK_SET), None);
    assert_eq!(ready(&mut other), None);
    handle_notification(&mut one);
    assert_eq!(managed(&mut one), Some(function_response::COMPLETE));
}

#[test]
fn abort_task_set_and_nexus_reset_leave_other_sessions_alone() {
    for function in [function::ABORT_TASK_SET, function::I_T_NEXUS_RESET] {
        let (mut one, mut other) = sessions();
        let ttt = occupy(&mut other);
        assert_eq!((manage(&mut one, function), one.backend.notified), (Some(function_response::COMPLETE), 0));
        other.send(data_out(ttt).encode(), &[9; 512]).unwrap();
        assert_eq!((other.backend.aborted.len(), other.backend.open_operations()), (0, 2));
    }
}

#[test]
fn nexus_reset_frees_what_the_nexus_reserved_and_is_told_of() {
    const NEXUS_LOSS: u32 = 0x06_29_07;
    let (mut one, mut other) = sessions();
    let reserve = one.command(TaskTag(3), &[0x16], 0);
    assert_eq!(ScsiResponse::parse(&one.ask(reserve.encode(), &[]).0).status, status::GOOD);
    let conflict = |other: &mut Peer| {
        let read = other.read_command(TaskTag(4), 1, 512);
        ScsiResponse::parse(&other.ask(read.encode(), &[]).0).status == status::RESERVATION_CONFLICT
    };
    assert!(conflict(&mut other));
    assert_eq!(manage(&mut one, function::I_T_NEXUS_RESET), Some(function_response::COMPLETE));
    assert_eq!((ready(&mut one), ready(&mut other)), (Some(NEXUS_LOSS), None));
    assert!(!conflict(&mut other));
}

#[test]
fn function_is_answered_when_what_disks_have_under_way_has_ended() {
    let (mut one, mut other) = sessions();
    for peer in [&mut one, &mut other] {
        occupy(peer);
        peer.backend.lingering = Some(Vec::new());
    }
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    handle_notification(&mut other);
    // The read was with the backend; the write waited there for its data.
    for peer in [&mut one, &mut other] {
        assert_eq!(peer.backend.lingering.as_ref().unwrap().len(), 2);
    }
    let soon = next_timer(&one);
    assert_eq!(soon.since(one.now), Duration::from_millis(1));
    time_out(&mut one, soon);
    assert_eq!(managed(&mut one), None);
    one.backend.lingering = None;
    let soon = next_timer(&one);
    time_out(&mut one, soon);
    assert_eq!(managed(&mut one), None);
    other.backend.lingering = None;
    let soon = next_timer(&one);
    time_out(&mut one, soon);
    assert_eq!(managed(&mut one), Some(function_response::COMPLETE));
    assert!(next_timer(&one).since(one.now) > Duration::from_millis(500), "nothing waits any more");
}

#[test]
fn function_that_waits_too_long_is_rejected() {
    let (mut one, mut other) = sessions();
    occupy(&mut other);
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    let begun = one.now;
    time_out(&mut one, begun + Duration::from_millis(1999));
    assert_eq!(managed(&mut one), None);
    time_out(&mut one, begun + Duration::from_secs(2));
    assert_eq!(managed(&mut one), Some(function_response::REJECTED));
}

#[test]
fn lost_session_and_sessions_that_reset_each_other_are_waited_for_no_longer() {
    let (mut one, mut other) = sessions();
    occupy(&mut other);
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    other.target.disconnected(other.now, &mut other.backend);
    handle_notification(&mut one);
    assert_eq!(managed(&mut one), Some(function_response::COMPLETE));

    let (mut one, mut other) = sessions();
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    // With this PDU, `other` also handles the reset of `one`, so it only has to wait for `one`.
    assert_eq!(manage(&mut other, function::LOGICAL_UNIT_RESET), None);
    handle_notification(&mut one);
    handle_notification(&mut other);
    for peer in [&mut one, &mut other] {
        assert_eq!(managed(peer), Some(function_response::COMPLETE));
    }
}

#[test]
fn functions_that_wait_are_bounded() {
    let (mut one, _other) = sessions();
    for _ in 0..16 {
        assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), None);
    }
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), Some(function_response::REJECTED));
}

/// Sends PERSISTENT RESERVE OUT with a key and a service action key, and asserts that it succeeds.
fn persistent(peer: &mut Peer, action: u8, key: u64, action_key: u64) {
    begin_persistent(peer, action, key, action_key);
    assert_eq!(persistent_status(peer), Some((status::GOOD, None)));
}

/// Sends PERSISTENT RESERVE OUT and its data.
fn begin_persistent(peer: &mut Peer, action: u8, key: u64, action_key: u64) {
    let mut cdb = [0; 16];
    // Type: write exclusive, registrants only.
    cdb[..10].copy_from_slice(&[0x5f, action, 5, 0, 0, 0, 0, 0, 24, 0]);
    let command = ScsiCommand {
        last: true,
        write: true,
        itt: TaskTag(50),
        cmd_sn: peer.take_cmd_sn(),
        expected_data_len: 24,
        cdb,
        ..ScsiCommand::default()
    };
    let list = [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0; 8]].concat();
    let ttt = R2t::parse(&peer.ask(command.encode(), &[]).0).ttt;
    peer.send(DataOut { last: true, itt: TaskTag(50), ttt, ..DataOut::default() }.encode(), &list).unwrap();
}

/// The status and the sense of the command, once they arrive.
fn persistent_status(peer: &mut Peer) -> Option<(u8, Option<u32>)> {
    let answers = peer.answers();
    assert!(answers.len() < 2);
    let (bhs, data) = answers.first()?;
    let sense = data.get(2..).and_then(sense::parse).map(|sense| sense.kcq());
    Some((ScsiResponse::parse(bhs).status, sense))
}

#[test]
fn preempt_and_abort_ends_the_commands_of_the_preempted_and_preempt_does_not() {
    let (register, preempt, preempt_and_abort) = (0, 4, 5);
    for (action, aborted) in [(preempt, 0), (preempt_and_abort, 2)] {
        let (mut one, mut other) = sessions();
        persistent(&mut one, register, 0, 11);
        persistent(&mut other, register, 0, 22);
        let ttt = occupy(&mut other);
        begin_persistent(&mut one, action, 11, 22);
        let done = Some((status::GOOD, None));
        assert_eq!(persistent_status(&mut one), done.filter(|_| aborted == 0), "it waits for what it aborts");
        other.send(data_out(ttt).encode(), &[9; 512]).unwrap();
        assert_eq!(other.backend.aborted.len(), aborted);
        if aborted > 0 {
            handle_notification(&mut one);
            assert_eq!(persistent_status(&mut one), done);
        }
        let told = ready(&mut other);
        assert_eq!(told, Some(Sense::REGISTRATIONS_PREEMPTED.kcq()));
        let cleared = (aborted > 0).then_some(Sense::COMMANDS_CLEARED_BY_OTHER.kcq());
        assert_eq!(ready(&mut other), cleared);
    }
}

#[test]
fn preempt_and_abort_that_waits_too_long_fails_and_can_be_aborted() {
    let (register, preempt_and_abort) = (0, 5);
    let (mut one, mut other) = sessions();
    persistent(&mut one, register, 0, 11);
    persistent(&mut other, register, 0, 22);
    occupy(&mut other);
    begin_persistent(&mut one, preempt_and_abort, 11, 22);
    let late = one.now + Duration::from_secs(2);
    time_out(&mut one, late);
    let failed = Some(Sense::INTERNAL_TARGET_FAILURE.kcq());
    assert_eq!(persistent_status(&mut one), Some((status::CHECK_CONDITION, failed)));

    other.clear_attentions();
    persistent(&mut other, register, 0, 22);
    begin_persistent(&mut one, preempt_and_abort, 11, 22);
    assert_eq!(persistent_status(&mut one), None);
    assert_eq!(manage(&mut one, function::ABORT_TASK_SET), Some(function_response::COMPLETE));
    handle_notification(&mut other);
    handle_notification(&mut one);
    assert!(one.answers().is_empty(), "nothing more is said of it");
}
