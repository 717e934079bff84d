//! The target against single PDUs: windows, residuals, data out of order, task management, and refused commands.
#![allow(clippy::unwrap_used)]

use iotax_proto::{
    Instant, Target, ViolationKind,
    iscsi::{
        Wishes,
        pdu::{
            ConnectionId, DataIn, DataOut, LogoutRequest, LogoutResponse, NopIn, NopOut, R2t, Reject, ScsiCommand,
            ScsiResponse, Snack, TaskManagement, TaskManagementResponse, TaskTag, TextRequest, TextResponse,
            TransferTag,
            control::{function, function_response, logout_response, reject_reason},
        },
        target_side::Config,
    },
    scsi::{sense, status},
};

use crate::iscsi_support::{MemoryBackend, Peer, pattern};

fn peer(keys: &[(&str, &str)]) -> Peer {
    let mut peer = Peer::logged_in(Config::default(), MemoryBackend::new(1 << 16), keys);
    peer.clear_attentions();
    peer
}

fn solicited_peer() -> Peer {
    peer(&[("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxBurstLength", "1024"), ("MaxOutstandingR2T", "1")])
}

fn sense_of(data: &[u8]) -> u32 {
    sense::parse(&data[2..]).unwrap().kcq()
}

#[test]
fn commands_outside_the_window_are_silently_ignored() {
    let mut peer = Peer::logged_in(Config { command_window: 4, ..Config::default() }, MemoryBackend::new(8192), &[]);
    peer.clear_attentions();
    for cmd_sn in [peer.cmd_sn - 1, peer.cmd_sn + 4] {
        let test = ScsiCommand { last: true, itt: TaskTag(1), cmd_sn, ..ScsiCommand::default() };
        peer.send(test.encode(), &[]).unwrap();
        assert!(peer.answers().is_empty());
    }
    let test = ScsiCommand { last: true, itt: TaskTag(1), cmd_sn: peer.cmd_sn, ..ScsiCommand::default() };
    let (bhs, _) = peer.ask(test.encode(), &[]);
    let response = ScsiResponse::parse(&bhs);
    assert_eq!((response.status, response.exp_cmd_sn), (status::GOOD, peer.cmd_sn + 1));
    assert_eq!(response.max_cmd_sn, peer.cmd_sn + 4);
}

#[test]
fn a_gap_in_the_window_ends_the_connection() {
    let mut peer = peer(&[]);
    let test = ScsiCommand { last: true, itt: TaskTag(1), cmd_sn: peer.cmd_sn + 1, ..ScsiCommand::default() };
    assert_eq!(peer.send(test.encode(), &[]).unwrap_err().kind, ViolationKind::Misbehaved);
    assert!(peer.answers().is_empty());
}

#[test]
fn the_window_narrows_with_each_command_outstanding() {
    let mut peer = peer(&[]);
    peer.backend.queues = true;
    for itt in 0..256 {
        let read = peer.read_command(TaskTag(itt), 1, 512);
        peer.send(read.encode(), &[]).unwrap();
    }
    let beyond = peer.read_command(TaskTag(999), 1, 512);
    peer.send(beyond.encode(), &[]).unwrap();
    assert!(peer.answers().is_empty());
    let (id, result) = peer.backend.take_queued().unwrap();
    peer.target.complete(peer.now, id, result, &mut peer.backend);
    let data = DataIn::parse(&peer.answers()[0].0);
    assert_eq!(data.max_cmd_sn, data.exp_cmd_sn, "one command may follow");
    assert_eq!(data.itt, TaskTag(0));
}

#[test]
fn immediate_commands_are_taken_beside_the_window_and_bounded() {
    let mut peer = peer(&[]);
    peer.backend.queues = true;
    let mut rejected = 0;
    for itt in 0..20 {
        let read = ScsiCommand { immediate: true, ..peer.read_command(TaskTag(itt), 1, 512) };
        peer.send(read.encode(), &[]).unwrap();
        rejected += peer
            .answers()
            .iter()
            .filter(|(bhs, _)| {
                bhs.opcode() == Reject::OPCODE
                    && Reject::parse(bhs).reason == reject_reason::TOO_MANY_IMMEDIATE_COMMANDS
            })
            .count();
    }
    assert_eq!(rejected, 4);
}

#[test]
fn an_itt_in_use_is_rejected() {
    let mut peer = peer(&[]);
    peer.backend.queues = true;
    let read = peer.read_command(TaskTag(5), 1, 512);
    peer.send(read.encode(), &[]).unwrap();
    let again = peer.read_command(TaskTag(5), 1, 512);
    let (bhs, data) = peer.ask(again.encode(), &[]);
    assert_eq!(Reject::parse(&bhs).reason, reject_reason::TASK_IN_PROGRESS);
    assert_eq!(data, again.encode().0);
}

#[test]
fn a_read_ends_with_its_status_in_the_last_data_in() {
    let mut peer = peer(&[("MaxRecvDataSegmentLength", "512"), ("MaxBurstLength", "1024")]);
    peer.backend.bytes[..2048].copy_from_slice(&pattern(1, 2048));
    let read = peer.read_command(TaskTag(1), 3, 1536);
    peer.send(read.encode(), &[]).unwrap();
    let answers = peer.answers();
    let pdus: Vec<_> = answers.iter().map(|(bhs, _)| DataIn::parse(bhs)).collect();
    let seen: Vec<_> = pdus.iter().map(|pdu| (pdu.data_sn, pdu.buffer_offset, pdu.last, pdu.status_here)).collect();
    assert_eq!(seen, [(0, 0, false, false), (1, 512, true, false), (2, 1024, true, true)]);
    let data: Vec<u8> = answers.iter().flat_map(|(_, data)| data.clone()).collect();
    assert_eq!(data, pattern(1, 2048)[..1536]);
}

#[test]
fn residuals_tell_how_announced_and_moved_bytes_differ() {
    let mut peer = peer(&[]);
    // (blocks, announced, overflow, underflow, residual)
    for (blocks, announced, overflow, underflow, residual) in
        [(1, 512, false, false, 0), (2, 512, true, false, 512), (1, 1000, false, true, 488), (1, 0, true, false, 512)]
    {
        let read = peer.read_command(TaskTag(1), blocks, announced);
        let (bhs, data) = peer.ask(read.encode(), &[]);
        if announced == 0 {
            let response = ScsiResponse::parse(&bhs);
            assert_eq!((response.overflow, response.underflow, response.residual), (overflow, underflow, residual));
        } else {
            let response = DataIn::parse(&bhs);
            assert!(response.status_here);
            assert_eq!((response.overflow, response.underflow, response.residual), (overflow, underflow, residual));
        }
        assert_eq!(data.len() as u32, announced.min(u32::from(blocks) * 512));
    }
    for (blocks, announced, overflow, underflow, residual) in
        [(1, 512, false, false, 0), (2, 512, true, false, 512), (1, 1000, false, true, 488), (1, 0, true, false, 512)]
    {
        peer.backend.bytes.fill(0);
        let write = peer.write_command(TaskTag(1), blocks, announced);
        let data = pattern(9, announced as usize);
        let (bhs, _) = peer.ask(write.encode(), &data);
        let response = ScsiResponse::parse(&bhs);
        assert_eq!(response.status, status::GOOD);
        assert_eq!((response.overflow, response.underflow, response.residual), (overflow, underflow, residual));
        let written = data.len().min(512);
        assert_eq!(peer.backend.bytes[..written], data[..written]);
        assert!(peer.backend.bytes[written..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn solicited_data_are_asked_for_burst_by_burst() {
    let mut peer = solicited_peer();
    let write = peer.write_command(TaskTag(3), 5, 2560);
    let data = pattern(2, 2560);
    let (bhs, _) = peer.ask(write.encode(), &[]);
    let mut r2t = R2t::parse(&bhs);
    for (r2t_sn, offset, len) in [(0, 0, 1024), (1, 1024, 1024), (2, 2048, 512)] {
        assert_eq!((r2t.r2t_sn, r2t.buffer_offset, r2t.desired_len), (r2t_sn, offset, len));
        let out = DataOut { last: true, itt: TaskTag(3), ttt: r2t.ttt, buffer_offset: offset, ..DataOut::default() };
        let (bhs, _) = peer.ask(out.encode(), &data[offset as usize..(offset + len) as usize]);
        if bhs.opcode() == ScsiResponse::OPCODE {
            let response = ScsiResponse::parse(&bhs);
            assert_eq!((response.status, response.exp_data_sn), (status::GOOD, 3));
        } else {
            r2t = R2t::parse(&bhs);
        }
    }
    assert_eq!(peer.backend.bytes[..2560], data);
}

#[test]
fn wrong_data_outs_fail_their_command_and_nothing_else() {
    // The wrong field, and the sense that reports it.
    let cases: [(&str, DataOut, usize, u32); 5] = [
        ("DataSN", DataOut { last: true, data_sn: 27, ..DataOut::default() }, 1024, 0x0b_4705),
        ("offset", DataOut { last: true, buffer_offset: 4, ..DataOut::default() }, 1020, 0x0b_4705),
        ("too little", DataOut { last: true, ..DataOut::default() }, 1000, 0x0b_0c0d),
        ("too much", DataOut { last: true, ..DataOut::default() }, 1028, 0x0b_0c0d),
        (
            "offset at the end of time",
            DataOut { last: true, buffer_offset: u32::MAX, ..DataOut::default() },
            9,
            0x0b_4705,
        ),
    ];
    for (what, out, len, sense) in cases {
        let mut peer = solicited_peer();
        let write = peer.write_command(TaskTag(3), 2, 1024);
        let (bhs, _) = peer.ask(write.encode(), &[]);
        let out = DataOut { itt: TaskTag(3), ttt: R2t::parse(&bhs).ttt, ..out };
        peer.backend.in_place = true;
        let (bhs, data) = peer.ask(out.encode(), &pattern(1, len));
        assert_eq!(ScsiResponse::parse(&bhs).status, status::CHECK_CONDITION, "{what}");
        assert_eq!(sense_of(&data), sense, "{what}");
        assert_eq!(peer.backend.bytes[..1024], [0; 1024], "{what}");
        assert_eq!(peer.backend.open_operations(), 0, "{what}");
        let read = peer.read_command(TaskTag(4), 1, 512);
        assert!(DataIn::parse(&peer.ask(read.encode(), &[]).0).status_here, "{what}");
    }
}

#[test]
fn data_that_were_not_agreed_fail_their_command() {
    let mut peer = solicited_peer();
    let write = peer.write_command(TaskTag(3), 1, 512);
    let (bhs, data) = peer.ask(write.encode(), &pattern(1, 512));
    assert_eq!(ScsiResponse::parse(&bhs).status, status::CHECK_CONDITION);
    assert_eq!(sense_of(&data), 0x0b_0c0c);
    assert_eq!(peer.backend.open_operations(), 0);
}

#[test]
fn data_for_no_task_are_dropped_or_rejected() {
    let mut peer = solicited_peer();
    let out = DataOut { last: true, itt: TaskTag(99), ttt: TransferTag::RESERVED, ..DataOut::default() };
    peer.send(out.encode(), &[0; 512]).unwrap();
    assert!(peer.answers().is_empty(), "as of a command that was ignored");
    let write = peer.write_command(TaskTag(3), 1, 512);
    let (bhs, _) = peer.ask(write.encode(), &[]);
    let ttt = R2t::parse(&bhs).ttt;
    let out = DataOut { last: true, itt: TaskTag(3), ttt: TransferTag(ttt.0 ^ 0x10000), ..DataOut::default() };
    let (bhs, _) = peer.ask(out.encode(), &[0; 512]);
    assert_eq!(Reject::parse(&bhs).reason, reject_reason::INVALID_PDU_FIELD);
    let out = DataOut { last: true, itt: TaskTag(3), ttt: TransferTag::RESERVED, ..DataOut::default() };
    let (bhs, _) = peer.ask(out.encode(), &[0; 512]);
    assert_eq!(Reject::parse(&bhs).reason, reject_reason::PROTOCOL_ERROR);
    let out = DataOut { last: true, itt: TaskTag(3), ttt, ..DataOut::default() };
    let (bhs, _) = peer.ask(out.encode(), &[1; 512]);
    assert_eq!(ScsiResponse::parse(&bhs).status, status::GOOD);
}

#[test]
fn pings_are_echoed_and_answered_to() {
    let mut peer = peer(&[("MaxRecvDataSegmentLength", "512")]);
    let nop = NopOut { immediate: true, last: true, itt: TaskTag(1), ttt: TransferTag::RESERVED, ..NopOut::default() };
    let (bhs, data) = peer.ask(nop.encode(), &pattern(0, 600));
    assert_eq!((NopIn::parse(&bhs).itt, NopIn::parse(&bhs).ttt), (TaskTag(1), TransferTag::RESERVED));
    assert_eq!(data, pattern(0, 600)[..512]);
    let quiet =
        NopOut { immediate: true, last: true, itt: TaskTag::RESERVED, ttt: TransferTag::RESERVED, ..NopOut::default() };
    peer.send(quiet.encode(), &[]).unwrap();
    assert!(peer.answers().is_empty());
}

#[test]
fn a_silent_initiator_is_pinged_and_then_given_up() {
    let mut peer = peer(&[]);
    let at = |seconds: u64| Instant(seconds * 1_000_000_000);
    peer.target.handle_timeout(at(29), &mut peer.backend).unwrap();
    assert!(peer.answers().is_empty());
    peer.target.handle_timeout(at(30), &mut peer.backend).unwrap();
    let answers = peer.answers();
    let ping = NopIn::parse(&answers[0].0);
    assert_eq!((answers.len(), ping.itt), (1, TaskTag::RESERVED));
    peer.now = at(31);
    let answer = NopOut { immediate: true, last: true, itt: TaskTag::RESERVED, ttt: ping.ttt, ..NopOut::default() };
    peer.send(answer.encode(), &[]).unwrap();
    peer.target.handle_timeout(at(60), &mut peer.backend).unwrap();
    assert!(peer.answers().is_empty());
    let late = peer.target.handle_timeout(at(91), &mut peer.backend).unwrap_err();
    assert_eq!(late.kind, ViolationKind::TimedOut);
}

#[test]
fn a_login_that_takes_too_long_is_given_up() {
    let mut peer = Peer::new(Config::default(), MemoryBackend::new(512));
    let due = Target::<MemoryBackend>::poll_timeout(&peer.target).unwrap();
    assert!(peer.target.handle_timeout(Instant(due.0 - 1), &mut peer.backend).is_ok());
    assert_eq!(peer.target.handle_timeout(due, &mut peer.backend).unwrap_err().kind, ViolationKind::TimedOut);
}

fn manage(peer: &mut Peer, request: TaskManagement) -> u8 {
    let request = TaskManagement { immediate: true, last: true, itt: TaskTag(0x4000), cmd_sn: peer.cmd_sn, ..request };
    let (bhs, _) = peer.ask(request.encode(), &[]);
    TaskManagementResponse::parse(&bhs).response
}

#[test]
fn task_management_aborts_what_it_names() {
    let mut peer = peer(&[]);
    peer.backend.queues = true;
    for itt in 1..=3 {
        let read = peer.read_command(TaskTag(itt), 1, 512);
        peer.send(read.encode(), &[]).unwrap();
    }
    let abort =
        |itt| TaskManagement { function: function::ABORT_TASK, referenced_itt: itt, ..TaskManagement::default() };
    let query =
        |itt| TaskManagement { function: function::QUERY_TASK, referenced_itt: itt, ..TaskManagement::default() };
    let whole = |function| TaskManagement { function, referenced_itt: TaskTag::RESERVED, ..TaskManagement::default() };
    assert_eq!(manage(&mut peer, query(TaskTag(2))), function_response::SUCCEEDED);
    assert_eq!(manage(&mut peer, abort(TaskTag(2))), function_response::COMPLETE);
    assert_eq!(peer.backend.aborted.len(), 1);
    assert_eq!(manage(&mut peer, query(TaskTag(2))), function_response::COMPLETE);
    assert_eq!(manage(&mut peer, abort(TaskTag(2))), function_response::NO_TASK);
    assert_eq!(manage(&mut peer, abort(TaskTag::RESERVED)), function_response::NO_TASK);
    let elsewhere = TaskManagement { lun: 9 << 48, ..whole(function::LOGICAL_UNIT_RESET) };
    assert_eq!(manage(&mut peer, elsewhere), function_response::NO_LUN);
    let elsewhere = TaskManagement { lun: 9 << 48, ..abort(TaskTag(1)) };
    assert_eq!(manage(&mut peer, elsewhere), function_response::NO_LUN, "and the task goes on");
    let to_come = |ahead: u32, ref_cmd_sn: u32| TaskManagement { cmd_sn: ahead, ref_cmd_sn, ..abort(TaskTag(0x77)) };
    let cmd_sn = peer.cmd_sn;
    let asked = |peer: &mut Peer, request: TaskManagement| {
        let request = TaskManagement { immediate: true, last: true, itt: TaskTag(0x4000), ..request };
        TaskManagementResponse::parse(&peer.ask(request.encode(), &[]).0).response
    };
    assert_eq!(asked(&mut peer, to_come(cmd_sn + 2, cmd_sn + 1)), function_response::COMPLETE, "it may still come");
    assert_eq!(asked(&mut peer, to_come(cmd_sn, cmd_sn + 1000)), function_response::NO_TASK, "it was never sent");
    assert_eq!(peer.backend.aborted.len(), 1);
    // The same logical unit, by flat space addressing.
    let flat = TaskManagement { lun: 0x4000 << 48, ..whole(function::QUERY_TASK_SET) };
    assert_eq!(manage(&mut peer, flat), function_response::SUCCEEDED);
    let flat = TaskManagement { lun: 0x4000 << 48, ..whole(function::LOGICAL_UNIT_RESET) };
    assert_eq!(manage(&mut peer, flat), function_response::COMPLETE);
    assert_eq!(peer.backend.aborted.len(), 3);
    assert_eq!(peer.backend.open_operations(), 0);
    assert_eq!(manage(&mut peer, whole(function::CLEAR_ACA)), function_response::NOT_SUPPORTED);
    assert_eq!(manage(&mut peer, whole(function::TASK_REASSIGN)), function_response::REASSIGN_NOT_SUPPORTED);
    assert_eq!(manage(&mut peer, whole(99)), function_response::REJECTED);
    assert_eq!(manage(&mut peer, whole(function::TARGET_WARM_RESET)), function_response::COMPLETE);
    assert!(!Target::<MemoryBackend>::is_closing(&peer.target));
    assert_eq!(manage(&mut peer, whole(function::TARGET_COLD_RESET)), function_response::COMPLETE);
    assert!(Target::<MemoryBackend>::is_closing(&peer.target));
}

#[test]
fn data_of_an_aborted_write_are_dropped() {
    let mut peer = solicited_peer();
    let write = peer.write_command(TaskTag(3), 1, 512);
    let (bhs, _) = peer.ask(write.encode(), &[]);
    let ttt = R2t::parse(&bhs).ttt;
    let abort =
        TaskManagement { function: function::ABORT_TASK, referenced_itt: TaskTag(3), ..TaskManagement::default() };
    assert_eq!(manage(&mut peer, abort), function_response::COMPLETE);
    let out = DataOut { last: true, itt: TaskTag(3), ttt, ..DataOut::default() };
    peer.send(out.encode(), &[1; 512]).unwrap();
    assert!(peer.answers().is_empty());
    assert_eq!(peer.backend.bytes[..512], [0; 512]);
}

#[test]
fn text_is_answered_key_by_key_and_in_pieces() {
    let mut peer = peer(&[("MaxRecvDataSegmentLength", "512")]);
    let mut request = TextRequest {
        immediate: true,
        last: true,
        itt: TaskTag(8),
        ttt: TransferTag::RESERVED,
        ..TextRequest::default()
    };
    let (bhs, text) = peer.ask(request.encode(), b"SendTargets=\0MaxBurstLength=512\0SendTargets=All\0X-a=b\0");
    assert!(TextResponse::parse(&bhs).last);
    let wanted = "TargetName=iqn.2026-11.io.iotax:volume\0TargetAddress=127.0.0.1:3260,1\0MaxBurstLength=Reject\0SendTargets=Reject\0X-a=NotUnderstood\0";
    assert_eq!(text, wanted.as_bytes());

    peer.backend.targets[0].portals = (0..40).map(|port| format!("192.0.2.1:{port},1")).collect();
    let (bhs, mut text) = peer.ask(request.encode(), b"SendTargets=\0");
    let mut response = TextResponse::parse(&bhs);
    while !response.last {
        assert!(response.continued && text.len().is_multiple_of(512));
        request.ttt = response.ttt;
        let (bhs, more) = peer.ask(request.encode(), &[]);
        response = TextResponse::parse(&bhs);
        text.extend(more);
    }
    assert_eq!(text.split(|byte| *byte == 0).filter(|pair| pair.starts_with(b"TargetAddress=")).count(), 40);

    request.ttt = TransferTag(77);
    let (bhs, _) = peer.ask(request.encode(), &[]);
    assert_eq!(Reject::parse(&bhs).reason, reject_reason::INVALID_PDU_FIELD);
}

#[test]
fn text_without_end_is_reset() {
    let mut peer = peer(&[]);
    let mut request = TextRequest {
        immediate: true,
        continued: true,
        itt: TaskTag(8),
        ttt: TransferTag::RESERVED,
        ..TextRequest::default()
    };
    for _ in 0..2 {
        let (bhs, _) = peer.ask(request.encode(), &[b'x'; 8192]);
        request.ttt = TextResponse::parse(&bhs).ttt;
        assert_ne!(request.ttt, TransferTag::RESERVED);
    }
    let (bhs, _) = peer.ask(request.encode(), b"x");
    assert_eq!(Reject::parse(&bhs).reason, reject_reason::NEGOTIATION_RESET);
}

#[test]
fn snack_login_and_unknown_opcodes_are_rejected() {
    let mut peer = peer(&[]);
    let snack = Snack { last: true, itt: TaskTag(1), ..Snack::default() }.encode();
    let login = peer.login_request(1, 3).encode();
    let mut unknown = snack;
    unknown.0[0] = 0x1d;
    for (bhs, reason) in [
        (snack, reject_reason::SNACK_REJECT),
        (login, reject_reason::COMMAND_NOT_SUPPORTED),
        (unknown, reject_reason::COMMAND_NOT_SUPPORTED),
    ] {
        let (reject, data) = peer.ask(bhs, &[]);
        assert_eq!(Reject::parse(&reject).reason, reason);
        assert_eq!(data, bhs.0);
    }
}

#[test]
fn logout_is_answered_and_ends_the_session() {
    let mut peer = peer(&[]);
    let logout = |reason, cid| LogoutRequest {
        immediate: true,
        last: true,
        reason,
        itt: TaskTag(2),
        cid,
        ..LogoutRequest::default()
    };
    let response =
        |peer: &mut Peer, request: LogoutRequest| LogoutResponse::parse(&peer.ask(request.encode(), &[]).0).response;
    assert_eq!(response(&mut peer, logout(1, ConnectionId(99))), logout_response::CID_NOT_FOUND);
    assert_eq!(response(&mut peer, logout(2, ConnectionId(0))), logout_response::RECOVERY_NOT_SUPPORTED);
    assert!(!Target::<MemoryBackend>::is_closing(&peer.target));
    peer.backend.queues = true;
    let read = peer.read_command(TaskTag(1), 1, 512);
    peer.send(read.encode(), &[]).unwrap();
    assert_eq!(response(&mut peer, logout(1, ConnectionId(0))), logout_response::CLOSED);
    assert!(Target::<MemoryBackend>::is_closing(&peer.target));
    assert_eq!(peer.backend.open_operations(), 0);
}

#[test]
fn a_wrong_data_digest_fails_the_write_before_it_is_done() {
    let wishes = Wishes::default();
    let mut peer = Peer::logged_in(
        Config { wishes, ..Config::default() },
        MemoryBackend::new(8192),
        &[("DataDigest", "CRC32C"), ("InitialR2T", "Yes"), ("ImmediateData", "No")],
    );
    peer.sender.data_digest = true;
    peer.framer.set_negotiated(false, true, 1 << 20);
    peer.clear_attentions();
    let write = peer.write_command(TaskTag(3), 1, 512);
    let (bhs, _) = peer.ask(write.encode(), &[]);
    let out = DataOut { last: true, itt: TaskTag(3), ttt: R2t::parse(&bhs).ttt, ..DataOut::default() };
    let mut transmit = iotax_proto::Transmit::default();
    peer.sender.bytes(&mut transmit, out.encode(), &[7; 512]);
    let mut bytes = transmit.take_bytes();
    bytes[60] ^= 1;
    peer.target.receive(peer.now, &bytes, &mut peer.backend).unwrap();
    let answers = peer.answers();
    assert_eq!(Reject::parse(&answers[0].0).reason, reject_reason::DATA_DIGEST_ERROR);
    assert_eq!(ScsiResponse::parse(&answers[1].0).status, status::CHECK_CONDITION);
    assert_eq!(sense_of(&answers[1].1), 0x0b_4705);
    assert_eq!(peer.backend.bytes[..512], [0; 512]);
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let mut peer = Peer::logged_in(Config::default(), MemoryBackend::new(8192), &[("HeaderDigest", "CRC32C")]);
    peer.sender.header_digest = true;
    let mut transmit = iotax_proto::Transmit::default();
    let write = peer.write_command(TaskTag(3), 1, 512);
    peer.sender.bytes(&mut transmit, write.encode(), &[7; 512]);
    let mut bytes = transmit.take_bytes();
    bytes[35] ^= 1;
    let violation = peer.target.receive(peer.now, &bytes, &mut peer.backend).unwrap_err();
    assert_eq!(violation.kind, ViolationKind::Malformed);
    assert_eq!(peer.backend.bytes[..512], [0; 512]);
}
