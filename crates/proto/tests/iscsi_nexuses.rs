//! What one session does to the running commands of another: CLEAR TASK SET, resets, PREEMPT AND ABORT, and what it leaves alone.
#![allow(clippy::unwrap_used)]

mod iscsi_support;

use std::rc::Rc;

use iotax_proto::{
    Target,
    iscsi::{
        pdu::{
            DataOut, R2t, RESERVED_TAG, ScsiCommand, ScsiResponse, TaskManagement, TaskManagementResponse,
            control::{function, function_response},
        },
        target::Config,
    },
    scsi::{Sense, sense, status},
};
use iscsi_support::{MemoryBackend, Peer};

const KEYS: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];

/// Two sessions of one target, each with a backend of its own.
fn sessions() -> (Peer, Peer) {
    let mut one = Peer::logged_in(Config::default(), MemoryBackend::new(1 << 16), &KEYS);
    let mut backend = MemoryBackend::new(1 << 16);
    (backend.device, backend.sessions) = (Rc::clone(&one.backend.device), Rc::clone(&one.backend.sessions));
    let mut other = Peer::new(Config::default(), backend);
    other.isid[5] ^= 1;
    assert_eq!(other.login(&KEYS).0.status, 0);
    one.clear_attentions();
    other.clear_attentions();
    (one, other)
}

/// A read with the backend, and a write that waits for its data: its R2T's TTT.
fn occupy(peer: &mut Peer) -> u32 {
    peer.backend.queues = true;
    let read = peer.read_command(1, 1, 512);
    peer.send(read.encode(), &[]).unwrap();
    let write = peer.write_command(2, 1, 512);
    R2t::parse(&peer.ask(write.encode(), &[]).0).ttt
}

fn manage(peer: &mut Peer, function: u8) -> u8 {
    let request = TaskManagement {
        immediate: true,
        last: true,
        itt: 0x4000,
        cmd_sn: peer.cmd_sn,
        function,
        referenced_itt: RESERVED_TAG,
        ..TaskManagement::default()
    };
    TaskManagementResponse::parse(&peer.ask(request.encode(), &[]).0).response
}

fn data_out(ttt: u32) -> DataOut {
    DataOut { last: true, itt: 2, ttt, ..DataOut::default() }
}

/// The status of TEST UNIT READY, and the unit attention that it brings.
fn ready(peer: &mut Peer) -> Option<u32> {
    let test = ScsiCommand { last: true, itt: 77, cmd_sn: peer.take_cmd_sn(), ..ScsiCommand::default() };
    let (bhs, data) = peer.ask(test.encode(), &[]);
    match ScsiResponse::parse(&bhs).status {
        status::GOOD => None,
        _ => Some(sense::parse(&data[2..]).unwrap().kcq()),
    }
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
        assert_eq!(manage(&mut one, function), function_response::COMPLETE);
        // Data that come late are nobody's, and no status follows.
        other.send(data_out(ttt).encode(), &[9; 512]).unwrap();
        assert!(other.answers().is_empty());
        assert_eq!((other.backend.aborted.len(), other.backend.open_operations()), (2, 0), "{function}");
        assert_eq!(other.backend.bytes[..512], [0; 512]);
        assert_eq!((ready(&mut other), ready(&mut other)), (Some(told.kcq()), None));
        // The window is whole again.
        let read = other.read_command(1, 1, 512);
        other.send(read.encode(), &[]).unwrap();
        assert_eq!(other.backend.open_operations(), 1);
    }
}

#[test]
fn what_a_backend_completes_after_that_is_not_told() {
    let (mut one, mut other) = sessions();
    occupy(&mut other);
    assert_eq!(manage(&mut one, function::CLEAR_TASK_SET), function_response::COMPLETE);
    let (id, result) = other.backend.take_queued().unwrap();
    other.target.complete(other.now, id, result, &mut other.backend);
    assert!(other.answers().is_empty());
}

#[test]
fn quiet_session_notices_by_its_timer() {
    let (mut one, mut other) = sessions();
    occupy(&mut other);
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), function_response::COMPLETE);
    other.now = Target::<MemoryBackend>::poll_timeout(&other.target).unwrap();
    other.target.handle_timeout(other.now, &mut other.backend).unwrap();
    assert_eq!(other.backend.open_operations(), 0);
}

#[test]
fn data_under_way_when_the_task_ends_are_dropped() {
    let (mut one, mut other) = sessions();
    let ttt = occupy(&mut other);
    let mut transmit = iotax_proto::Transmit::default();
    other.sender.bytes(&mut transmit, data_out(ttt).encode(), &[9; 512]);
    let bytes = transmit.take_bytes();
    let (first, second) = bytes.split_at(300);
    other.target.receive(other.now, first, &mut other.backend).unwrap();
    assert_eq!(manage(&mut one, function::LOGICAL_UNIT_RESET), function_response::COMPLETE);
    other.target.receive(other.now, second, &mut other.backend).unwrap();
    assert!(other.answers().is_empty());
    assert_eq!(ready(&mut other), Some(Sense::BUS_DEVICE_RESET.kcq()));
}

#[test]
fn session_without_commands_is_told_of_resets_alone() {
    let (mut one, mut other) = sessions();
    assert_eq!(manage(&mut one, function::CLEAR_TASK_SET), function_response::COMPLETE);
    assert_eq!(ready(&mut other), None);
}

#[test]
fn abort_task_set_and_nexus_reset_leave_other_sessions_alone() {
    for function in [function::ABORT_TASK_SET, function::I_T_NEXUS_RESET] {
        let (mut one, mut other) = sessions();
        let ttt = occupy(&mut other);
        assert_eq!(manage(&mut one, function), function_response::COMPLETE);
        other.send(data_out(ttt).encode(), &[9; 512]).unwrap();
        assert_eq!((other.backend.aborted.len(), other.backend.open_operations()), (0, 2));
    }
}

/// PERSISTENT RESERVE OUT with a key and a service action key.
fn persistent(peer: &mut Peer, action: u8, key: u64, action_key: u64) {
    let mut cdb = [0; 16];
    // Type: write exclusive, registrants only.
    cdb[..10].copy_from_slice(&[0x5f, action, 5, 0, 0, 0, 0, 0, 24, 0]);
    let command = ScsiCommand {
        last: true,
        write: true,
        itt: 50,
        cmd_sn: peer.take_cmd_sn(),
        expected_data_len: 24,
        cdb,
        ..ScsiCommand::default()
    };
    let list = [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0; 8]].concat();
    let ttt = R2t::parse(&peer.ask(command.encode(), &[]).0).ttt;
    let (bhs, _) = peer.ask(DataOut { last: true, itt: 50, ttt, ..DataOut::default() }.encode(), &list);
    assert_eq!(ScsiResponse::parse(&bhs).status, status::GOOD);
}

#[test]
fn preempt_and_abort_ends_the_commands_of_the_preempted_and_preempt_does_not() {
    let (register, preempt, preempt_and_abort) = (0, 4, 5);
    for (action, aborted) in [(preempt, 0), (preempt_and_abort, 2)] {
        let (mut one, mut other) = sessions();
        persistent(&mut one, register, 0, 11);
        persistent(&mut other, register, 0, 22);
        let ttt = occupy(&mut other);
        persistent(&mut one, action, 11, 22);
        other.send(data_out(ttt).encode(), &[9; 512]).unwrap();
        assert_eq!(other.backend.aborted.len(), aborted);
        let told = ready(&mut other);
        assert_eq!(told, Some(Sense::REGISTRATIONS_PREEMPTED.kcq()));
        let cleared = (aborted > 0).then_some(Sense::COMMANDS_CLEARED_BY_OTHER.kcq());
        assert_eq!(ready(&mut other), cleared);
    }
}
