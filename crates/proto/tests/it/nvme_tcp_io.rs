//! The target's answers to correct and wrong I/O commands and data PDUs.

use crate::nvme_support::{
    Answers, BLOCK, BLOCKS, Server,
    raw::{Raw, capsule, h2c_data},
};
use iotax_proto::{
    Target, UnitError, ViolationKind,
    nvme::{
        CommandId, ControllerId, QueueId, Sqe, Status,
        command::{Sgl, fabrics, nvm},
        io::{encode_range, set_deallocate_one},
    },
    nvme_tcp::{
        TargetConfig,
        pdu::{Fes, TransferTag},
    },
};

fn config() -> TargetConfig {
    TargetConfig {
        in_capsule_bytes: BLOCK as u32,
        max_h2c_data_bytes: 4096,
        max_transfer_bytes: 8192,
        ..TargetConfig::default()
    }
}

/// A server, an admin queue that keeps the controller alive, and an I/O queue.
fn queue() -> (Server, Raw, Raw) {
    let mut server = Server::new();
    let (admin, cntlid) = Raw::admin(&mut server, &config());
    let io = Raw::io(&mut server, &config(), cntlid, QueueId(1));
    (server, admin, io)
}

fn transfer(opcode: u8, cid: CommandId, lba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, 1);
    sqe.set_range(lba, blocks);
    sqe.set_sgl(Sgl::Transport { len: blocks * BLOCK as u32 });
    sqe
}

fn in_capsule(opcode: u8, cid: CommandId, lba: u64) -> Sqe {
    let mut sqe = transfer(opcode, cid, lba, 1);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: BLOCK as u32 });
    sqe
}

#[test]
fn read_gives_its_data_and_success_in_one_pdu() {
    let (mut server, _admin, mut io) = queue();
    let answer = io.one(&mut server, &transfer(nvm::READ, CommandId(0xabcd), 2, 3), &[]);
    let data = answer.data_header();
    assert!(data.is_last && data.is_success);
    assert_eq!((data.cid, data.offset, data.len), (CommandId(0xabcd), 0, 3 * BLOCK as u32));
    assert_eq!(answer.data, server.volume[2 * BLOCK..5 * BLOCK]);
}

#[test]
fn compare_tells_equal_from_different() {
    let (mut server, _admin, mut io) = queue();
    let equal = server.volume[4 * BLOCK..5 * BLOCK].to_vec();
    let sqe = in_capsule(nvm::COMPARE, CommandId(1), 4);
    assert_eq!(io.one(&mut server, &sqe, &equal).status(), 0);
    let mut different = equal;
    different[100] ^= 1;
    assert_eq!(io.one(&mut server, &sqe, &different).status(), Status::COMPARE_FAILURE.code());
}

#[test]
fn r2t_asks_for_a_write_and_data_complete_it() {
    let (mut server, _admin, mut io) = queue();
    let r2t = io.one(&mut server, &transfer(nvm::WRITE, CommandId(77), 8, 9), &[]).r2t();
    assert_eq!((r2t.cid, r2t.offset, r2t.len), (CommandId(77), 0, 9 * BLOCK as u32));
    let data = vec![0x5a; 9 * BLOCK];
    assert!(
        io.send(&mut server, &h2c_data(CommandId(77), r2t.ttag, 0, false, &data[..4096])).expect("stands").is_empty()
    );
    let answers = io.send(&mut server, &h2c_data(CommandId(77), r2t.ttag, 4096, true, &data[4096..])).expect("stands");
    assert_eq!((answers.len(), answers[0].status()), (1, 0));
    assert_eq!(server.volume[8 * BLOCK..17 * BLOCK], data);
}

#[test]
fn forced_unit_access_reaches_the_backend() {
    let (mut server, _admin, mut io) = queue();
    let mut sqe = in_capsule(nvm::WRITE, CommandId(1), 4);
    sqe.0[51] |= 0x40;
    assert_eq!(io.one(&mut server, &sqe, &[1; BLOCK]).status(), 0);
    assert_eq!(server.durable_ops, 1);
    for (byte, durable) in [(0, 1), (0x40, 2)] {
        let mut sqe = Sqe::new(nvm::WRITE_ZEROES, CommandId(5), 1);
        sqe.set_range(4, 2);
        sqe.0[51] |= byte;
        assert_eq!(io.one(&mut server, &sqe, &[]).status(), 0);
        assert_eq!(server.durable_ops, durable, "Write Zeroes");
    }
    for (byte, durable) in [(0, 2), (0x40, 3)] {
        let mut sqe = transfer(nvm::READ, CommandId(6), 8, 1);
        sqe.0[51] |= byte;
        io.send(&mut server, &capsule(&sqe, &[])).expect("stands");
        assert_eq!(server.durable_ops, durable, "Read");
    }
    for (byte, durable) in [(0, 3), (0x40, 4)] {
        let mut sqe = in_capsule(nvm::COMPARE, CommandId(7), 4);
        sqe.0[51] |= byte;
        io.one(&mut server, &sqe, &[0; BLOCK]);
        assert_eq!(server.durable_ops, durable, "Compare");
    }
}

#[test]
fn dataset_management_deallocates_only_where_asked_to() {
    let (mut server, _admin, mut io) = queue();
    let mut sqe = Sqe::new(nvm::DATASET_MANAGEMENT, CommandId(5), 1);
    let ranges = [encode_range(1, 2), encode_range(9, 1)].concat();
    sqe.set_cdw(10, 1);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: 32 });
    assert_eq!(io.one(&mut server, &sqe, &ranges).status(), 0);
    assert_eq!(server.volume[BLOCK], 1, "hints change nothing");
    set_deallocate_one(&mut sqe);
    sqe.set_cdw(10, 1);
    assert_eq!(io.one(&mut server, &sqe, &ranges).status(), 0);
    assert_eq!(server.volume[BLOCK..3 * BLOCK], [0xdd; 2 * BLOCK]);
    assert_eq!(server.volume[9 * BLOCK..10 * BLOCK], [0xdd; BLOCK]);

    sqe.set_sgl(Sgl::Transport { len: 32 });
    let r2t = io.one(&mut server, &sqe, &[]).r2t();
    let answers = io.send(&mut server, &h2c_data(CommandId(5), r2t.ttag, 0, true, &ranges)).expect("stands");
    assert_eq!(answers[0].status(), 0);
}

#[test]
fn dataset_management_takes_the_ranges_it_counts_out_of_a_larger_buffer() {
    let (mut server, _admin, mut io) = queue();
    let mut sqe = Sqe::new(nvm::DATASET_MANAGEMENT, CommandId(5), 1);
    set_deallocate_one(&mut sqe);
    let mut buffer = vec![0; 4096];
    buffer[..32].copy_from_slice(&[encode_range(1, 2), encode_range(9, 1)].concat());
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: 512 });
    assert_eq!(io.one(&mut server, &sqe, &buffer[..512]).status(), 0);
    assert_eq!(server.volume[BLOCK..3 * BLOCK], [0xdd; 2 * BLOCK]);
    assert_ne!(server.volume[9 * BLOCK..10 * BLOCK], [0xdd; BLOCK], "one range is counted");

    sqe.set_sgl(Sgl::Transport { len: 4096 });
    let r2t = io.one(&mut server, &sqe, &[]).r2t();
    assert_eq!(r2t.len, 4096);
    let answers = io.send(&mut server, &h2c_data(CommandId(5), r2t.ttag, 0, true, &buffer)).expect("stands");
    assert_eq!(answers[0].status(), 0);

    for len in [8, 4112] {
        sqe.set_sgl(Sgl::Transport { len });
        assert_eq!(io.one(&mut server, &sqe, &[]).status(), Status::SGL_LENGTH_INVALID.do_not_retry().code());
    }
}

#[test]
fn wrong_commands_get_the_status_of_the_specification() {
    let (mut server, _admin, mut io) = queue();
    let read = transfer(nvm::READ, CommandId(1), 0, 1);
    let with = |change: fn(&mut Sqe)| {
        let mut sqe = read;
        change(&mut sqe);
        sqe
    };
    let cases = [
        ("opcode", with(|sqe| sqe.0[0] = 0x7e), Status::INVALID_OPCODE),
        ("namespace 0", with(|sqe| sqe.put_u32(4, 0)), Status::INVALID_NAMESPACE),
        ("namespace 2", with(|sqe| sqe.put_u32(4, 2)), Status::INVALID_NAMESPACE),
        ("every namespace", with(|sqe| sqe.put_u32(4, 0xffff_ffff)), Status::INVALID_NAMESPACE),
        ("PSDT of PRPs", with(|sqe| sqe.0[1] = 0), Status::INVALID_FIELD),
        ("fused", with(|sqe| sqe.0[1] |= 1), Status::INVALID_FIELD),
        ("SGL too short", with(|sqe| sqe.set_sgl(Sgl::Transport { len: 256 })), Status::SGL_LENGTH_INVALID),
        (
            "SGL of a read in the capsule",
            with(|sqe| sqe.set_sgl(Sgl::InCapsule { offset: 0, len: 512 })),
            Status::SGL_TYPE_INVALID,
        ),
        ("SGL type", with(|sqe| sqe.0[39] = 0x40), Status::SGL_TYPE_INVALID),
        ("beyond the end", with(|sqe| sqe.set_range(BLOCKS as u64, 1)), Status::LBA_OUT_OF_RANGE),
        ("LBA that overflows", with(|sqe| sqe.set_range(u64::MAX, 1)), Status::LBA_OUT_OF_RANGE),
        ("more than MDTS", transfer(nvm::READ, CommandId(1), 0, 17), Status::INVALID_FIELD),
        ("Connect again", Sqe::fabrics(fabrics::CONNECT, CommandId(1)), Status::SEQUENCE_ERROR),
        ("property on an I/O queue", Sqe::fabrics(fabrics::PROPERTY_GET, CommandId(1)), Status::INVALID_OPCODE),
    ];
    for (what, sqe, status) in cases {
        assert_eq!(io.status(&mut server, &sqe).code(), status.code(), "{what}");
    }
    // The queue still works.
    assert_eq!(io.one(&mut server, &read, &[]).data.len(), BLOCK);
}

#[test]
fn in_capsule_data_must_be_what_the_command_says() {
    let (mut server, _admin, mut io) = queue();
    let mut offset = in_capsule(nvm::WRITE, CommandId(1), 0);
    offset.set_sgl(Sgl::InCapsule { offset: 8, len: BLOCK as u32 });
    assert_eq!(io.one(&mut server, &offset, &[0; BLOCK]).status(), Status::SGL_OFFSET_INVALID.code());
    let write = in_capsule(nvm::WRITE, CommandId(1), 0);
    assert_eq!(io.one(&mut server, &write, &[0; BLOCK - 4]).status(), Status::SGL_LENGTH_INVALID.code());
    assert_eq!(io.one(&mut server, &write, &[]).status(), Status::SGL_LENGTH_INVALID.code());
    let transport = transfer(nvm::WRITE, CommandId(1), 0, 1);
    assert_eq!(io.one(&mut server, &transport, &[0; BLOCK]).status(), Status::SGL_LENGTH_INVALID.code());
    assert_eq!((server.volume[0], server.outstanding()), (0, 0));
    assert_eq!(io.one(&mut server, &write, &[7; BLOCK]).status(), 0);
    assert_eq!(server.volume[..BLOCK], [7; BLOCK]);
}

#[test]
fn errors_of_the_backend_become_statuses() {
    let (mut server, _admin, mut io) = queue();
    let cases = [
        (UnitError::ReadOnly, nvm::WRITE, Status::WRITE_PROTECTED),
        (UnitError::Medium, nvm::WRITE, Status::WRITE_FAULT),
        (UnitError::Medium, nvm::READ, Status::UNRECOVERED_READ_ERROR),
        (UnitError::NoSpace, nvm::WRITE, Status::CAPACITY_EXCEEDED),
        (UnitError::NoUnit, nvm::READ, Status::INVALID_NAMESPACE),
        (UnitError::Busy, nvm::READ, Status::COMMAND_INTERRUPTED),
    ];
    for (error, opcode, status) in cases {
        server.fails_with = Some(error);
        let sqe = transfer(opcode, CommandId(1), 0, 2);
        assert_eq!(io.status(&mut server, &sqe).code(), status.code(), "{error:?}");
    }
}

#[test]
fn command_identifier_in_use_is_a_conflict() {
    let (mut server, _admin, mut io) = queue();
    server.answers = Answers::Later;
    assert!(io.send(&mut server, &capsule(&transfer(nvm::READ, CommandId(9), 0, 1), &[])).expect("stands").is_empty());
    let answer = io.one(&mut server, &transfer(nvm::READ, CommandId(9), 0, 1), &[]);
    assert_eq!(answer.status(), Status::ID_CONFLICT.code());
    server.complete_all(io.now, &mut io.target);
    assert_eq!(io.answers()[0].data_header().cid, CommandId(9));
    assert!(io.send(&mut server, &capsule(&transfer(nvm::READ, CommandId(9), 0, 1), &[])).expect("stands").is_empty());
}

#[test]
fn more_commands_than_entries_end_the_connection() {
    let (mut server, _admin, mut io) = queue();
    server.answers = Answers::Later;
    for cid in 0..8 {
        assert!(
            io.send(&mut server, &capsule(&transfer(nvm::READ, CommandId(cid), 0, 1), &[])).expect("stands").is_empty()
        );
    }
    let (term, violation) = io.send_fatal(&mut server, &capsule(&transfer(nvm::READ, CommandId(8), 0, 1), &[]));
    assert_eq!((term.status, violation.kind), (Fes::SequenceError as u16, ViolationKind::Misbehaved));
    assert_eq!((server.outstanding(), server.aborted.len()), (0, 8));
}

#[test]
fn data_pdus_that_no_r2t_asked_for_end_the_connection() {
    // Amounts added to the correct CID and TTAG; offset, last flag and length; status and information of the terminate
    // request.
    let cases: [(u16, u16, u32, bool, usize, Fes, u32); 7] = [
        (1, 0, 0, false, 4096, Fes::InvalidHeaderField, 8),
        (0, 1, 0, false, 4096, Fes::InvalidHeaderField, 10),
        (0, 500, 0, false, 4096, Fes::InvalidHeaderField, 10),
        (0, 0, 512, false, 1024, Fes::DataOutOfRange, 0),
        (0, 0, 0, true, 4096, Fes::InvalidHeaderField, 1),
        (0, 0, 0, false, 4100, Fes::LimitExceeded, 0),
        (0, 0, u32::MAX, false, 512, Fes::DataOutOfRange, 0),
    ];
    for (cid, ttag, offset, is_last, len, status, information) in cases {
        let (mut server, _admin, mut io) = queue();
        let r2t = io.one(&mut server, &transfer(nvm::WRITE, CommandId(77), 8, 9), &[]).r2t();
        let bytes = h2c_data(CommandId(77 + cid), TransferTag(r2t.ttag.0 + ttag), offset, is_last, &vec![0; len]);
        let (term, _) = io.send_fatal(&mut server, &bytes);
        assert_eq!((term.status, term.information), (status as u16, information), "{cid} {ttag} {offset} {len}");
        assert_eq!((server.outstanding(), server.aborted.len()), (0, 1));
    }
    // The data of a write that needs only in-capsule data, and more data than the R2T requested.
    let (mut server, _admin, mut io) = queue();
    let r2t = io.one(&mut server, &transfer(nvm::WRITE, CommandId(77), 8, 2), &[]).r2t();
    let (term, _) = io.send_fatal(&mut server, &h2c_data(CommandId(77), r2t.ttag, 0, true, &[0; 1028]));
    assert_eq!(term.status, Fes::DataOutOfRange as u16);
}

#[test]
fn wrong_common_headers_end_the_connection_and_are_sent_back() {
    let read = capsule(&transfer(nvm::READ, CommandId(1), 0, 1), &[]);
    let with = |at: usize, byte: u8| {
        let mut bytes = read.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (with(0, 0x08), Fes::InvalidHeaderField, 0),
        (with(0, 0xff), Fes::InvalidHeaderField, 0),
        (with(0, 0x05), Fes::InvalidHeaderField, 0),
        (with(0, 0x00), Fes::SequenceError, 0),
        (with(1, 0x01), Fes::InvalidHeaderField, 1),
        (with(2, 71), Fes::InvalidHeaderField, 2),
        (with(4, 71), Fes::InvalidHeaderField, 4),
        (with(4, 76), Fes::InvalidHeaderField, 3),
        (with(5, 0x10), Fes::InvalidHeaderField, 3),
    ];
    for (bytes, status, information) in cases {
        for is_split in [false, true] {
            let (mut server, _admin, mut io) = queue();
            if is_split {
                io.send(&mut server, &bytes[..5]).expect("not a header yet");
            }
            let rest = if is_split { &bytes[5..] } else { &bytes[..] };
            let violation = io.target.receive(io.now, rest, &mut server).expect_err("the connection ends");
            let answers = io.answers();
            let term = answers.last().expect("a terminate request");
            assert_eq!((term.term().status, term.term().information), (status as u16, information), "{violation}");
            assert!(!term.data.is_empty() && bytes.starts_with(&term.data), "the PDU at fault is sent back");
        }
    }
}

#[test]
fn in_capsule_data_beyond_the_capsule_size_end_the_connection() {
    let (mut server, _admin, mut io) = queue();
    let mut sqe = transfer(nvm::WRITE, CommandId(1), 0, 2);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: 512 });
    let (term, _) = io.send_fatal(&mut server, &capsule(&sqe, &[0; 1024]));
    assert_eq!(term.status, Fes::LimitExceeded as u16);
}

#[test]
fn disconnect_ends_the_queue_and_frees_its_identifier() {
    let (mut server, _admin, mut io) = queue();
    assert!(io.status(&mut server, &Sqe::fabrics(fabrics::DISCONNECT, CommandId(3))).is_success());
    assert!(Target::<Server>::is_closing(&io.target));
    Raw::io(&mut server, &config(), ControllerId(1), QueueId(1));
}

#[test]
fn queue_ends_with_its_controller() {
    let (mut server, mut admin, mut io) = queue();
    admin.target.disconnected(admin.now, &mut server);
    let (term, _) = io.send_fatal(&mut server, &capsule(&transfer(nvm::READ, CommandId(1), 0, 1), &[]));
    assert_eq!(term.status, Fes::SequenceError as u16);

    let (mut server, mut admin, mut io) = queue();
    admin.target.disconnected(admin.now, &mut server);
    let due = Target::<Server>::poll_timeout(&io.target).expect("an idle queue looks too");
    assert!(io.target.handle_timeout(due, &mut server).is_err());
}

#[test]
fn new_namespaces_are_seen_at_once() {
    let (mut server, _admin, mut io) = queue();
    let mut sqe = transfer(nvm::READ, CommandId(1), 0, 1);
    sqe.put_u32(4, 900);
    assert_eq!(io.status(&mut server, &sqe).code(), Status::INVALID_NAMESPACE.code());
    let mut namespace = server.subsystem.0.borrow().namespaces()[0].clone();
    namespace.nsid = 900;
    server.subsystem.0.borrow_mut().put_namespace(namespace);
    assert_eq!(io.one(&mut server, &sqe, &[]).data.len(), BLOCK);
}
