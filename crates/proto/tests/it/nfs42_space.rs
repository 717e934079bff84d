//! Holes and space: SEEK, ALLOCATE and DEALLOCATE of NFSv4.2.
#![allow(clippy::unwrap_used)]

use iotax_proto::{
    Instant, Target, UnitError, UnitOp,
    nfs::{
        common::ExportAccess,
        v41::{
            Operation, SessionId, StateId,
            codec::{OpCode, Status},
            fattr::{Bitmap, RawAttributes, set_values},
            operations::{Content, SeekArguments, SequenceArguments, SpaceArguments},
            target_side::Connection,
        },
    },
};

use crate::nfs_support::{
    Pair, V41, Version, compound_of_minor, give, handle_of,
    server::{HOLE_BYTES, Server},
    session_of, state_of, word,
};

const NOW: Instant = Instant(1);
const FILE_BYTES: usize = 8 * HOLE_BYTES;
const MINOR: u32 = 2;
const SLOT: u32 = 4;
/// Offsets in an answer, without record mark: of the status, and of the result of the third operation.
const STATUS_AT: usize = 24;
const RESULT_AT: usize = 88;

/// A client that has opened the file. The server does operations at once unless a test sets `queues`.
struct Opened {
    connection: Connection,
    server: Server,
    session: SessionId,
    handle: Vec<u8>,
    state: StateId,
    seqid: u32,
}

impl Opened {
    fn new(server: Server) -> Self {
        let Pair { connection, server, to_server, to_client, .. } = V41::pair(server).ready();
        let (session, handle, state) = (session_of(&to_server), handle_of(&to_client), state_of(&to_client));
        Self { connection, server, session, handle, state, seqid: 0 }
    }

    fn send(&mut self, minor: u32, operations: &[Operation<'_>]) {
        self.seqid += 1;
        let sequence = Operation::Sequence(SequenceArguments {
            session: self.session,
            seqid: self.seqid,
            slot: SLOT,
            highest_slot: SLOT,
            cache_this: false,
        });
        let all = [&[sequence, Operation::PutFh(&self.handle)], operations].concat();
        let mut call = compound_of_minor(minor, self.seqid, b"", &all);
        give(&mut self.connection, NOW, call.end_record(0), &mut self.server).unwrap();
    }

    /// The answer without its record mark; `None` if there is none yet.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let bytes = Target::<Server>::transmit(&mut self.connection).take_bytes();
        bytes.get(4..).map(<[u8]>::to_vec)
    }

    fn ask(&mut self, operation: Operation<'_>) -> Result<Vec<u8>, u32> {
        self.send(MINOR, &[operation]);
        let answer = self.answer().unwrap();
        match word(&answer, STATUS_AT) {
            0 => Ok(answer[RESULT_AT + 8..].to_vec()),
            status => Err(status),
        }
    }

    fn space(&self, offset: u64, len: u64) -> SpaceArguments {
        SpaceArguments { state: self.state, offset, len }
    }

    /// The offset that SEEK returns, and its end-of-file flag.
    fn seek(&mut self, offset: u64, what: Content) -> Result<(u64, bool), u32> {
        let found = self.ask(Operation::Seek(SeekArguments { state: self.state, offset, what: Some(what) }))?;
        assert_eq!(found.len(), 12);
        Ok((u64::from_be_bytes(found[4..].try_into().unwrap()), word(&found, 0) == 1))
    }
}

/// A server whose file has eight blocks, with data in the third and the fourth.
fn with_holes() -> Server {
    let mut server = Server::new(FILE_BYTES);
    server.fill(2 * HOLE_BYTES, &[7; 2 * HOLE_BYTES]);
    server
}

fn number(status: Status) -> u32 {
    status as u32
}

#[test]
fn seek_finds_data_and_holes_and_the_hole_behind_the_end() {
    let mut opened = Opened::new(with_holes());
    let block = |count: usize| (count * HOLE_BYTES) as u64;
    let end = FILE_BYTES as u64;
    for (offset, data, hole) in [
        (0, (block(2), false), (0, false)),
        (block(1) + 5, (block(2), false), (block(1) + 5, false)),
        (block(2) + 1, (block(2) + 1, false), (block(4), false)),
        (block(4), (end, true), (block(4), false)),
        (end - 1, (end, true), (end - 1, false)),
    ] {
        assert_eq!(opened.seek(offset, Content::Data), Ok(data), "data from {offset}");
        assert_eq!(opened.seek(offset, Content::Hole), Ok(hole), "a hole from {offset}");
    }
    for what in [Content::Data, Content::Hole] {
        assert_eq!(opened.seek(end, what), Err(number(Status::NoDeviceAddress)));
    }
    opened.server.fill(0, &[1; FILE_BYTES]);
    assert_eq!(opened.seek(9, Content::Hole), Ok((end, true)));
}

#[test]
fn a_volume_is_data_to_its_end() {
    let mut server = with_holes();
    server.is_ordinary = false;
    let mut opened = Opened::new(server);
    assert_eq!(opened.seek(3, Content::Data), Ok((3, false)));
    assert_eq!(opened.seek(3, Content::Hole), Ok((FILE_BYTES as u64, true)));
}

#[test]
fn a_failed_setattr_says_that_it_set_nothing() {
    let mut opened = Opened::new(with_holes());
    let (present, values) = set_values(Some(10), None);
    let set = |state| Operation::SetAttr { state, attributes: RawAttributes { present, values: &values } };
    assert_eq!(opened.ask(set(opened.state)).unwrap(), [0, 0, 0, 1, 0, 0, 0, 0x10], "the size");
    let unknown = StateId { seqid: 1, other: [3; 12] };
    opened.send(MINOR, &[set(unknown)]);
    let answer = opened.answer().unwrap();
    assert_eq!(word(&answer, STATUS_AT), number(Status::StaleStateId));
    assert_eq!(answer[RESULT_AT + 8..], [0; 4], "an empty bitmap behind its status");
}

#[test]
fn seek_of_something_else_is_refused() {
    let mut opened = Opened::new(with_holes());
    let other = Operation::Seek(SeekArguments { state: opened.state, offset: 0, what: None });
    assert_eq!(opened.ask(other), Err(number(Status::UnionNotSupported)));
}

#[test]
fn a_client_of_minor_version_1_has_none_of_these() {
    let mut opened = Opened::new(with_holes());
    let space = opened.space(0, 1);
    let seek = SeekArguments { state: opened.state, offset: 0, what: Some(Content::Data) };
    for operation in [Operation::Allocate(space), Operation::Deallocate(space), Operation::Seek(seek)] {
        opened.send(1, &[operation]);
        let answer = opened.answer().unwrap();
        assert_eq!(word(&answer, STATUS_AT), number(Status::IllegalOperation));
        assert_eq!(word(&answer, RESULT_AT), OpCode::Illegal as u32);
    }
    assert_eq!(opened.server.started, []);
}

#[test]
fn deallocate_leaves_zeros_that_last_and_ends_with_the_file() {
    let mut opened = Opened::new(with_holes());
    let offset = 3 * HOLE_BYTES as u64 + 10;
    assert_eq!(opened.ask(Operation::Deallocate(opened.space(offset, u64::MAX - offset))), Ok(vec![]));
    let left = FILE_BYTES as u64 - offset;
    assert_eq!(opened.server.started, [UnitOp::Unmap { ranges: vec![(offset, left)], durable: true }]);
    let mut expected = vec![0; FILE_BYTES];
    expected[2 * HOLE_BYTES..offset as usize].fill(7);
    assert_eq!(opened.server.volume(), expected);
    // After the end of the file, there is nothing to deallocate.
    assert_eq!(opened.ask(Operation::Deallocate(opened.space(FILE_BYTES as u64, 100))), Ok(vec![]));
    assert_eq!(opened.server.started.len(), 1);
}

#[test]
fn allocate_changes_no_byte_and_says_where_there_is_no_room() {
    let mut opened = Opened::new(with_holes());
    let before = opened.server.volume();
    assert_eq!(opened.ask(Operation::Allocate(opened.space(0, FILE_BYTES as u64))), Ok(vec![]));
    assert_eq!(opened.server.started, [UnitOp::Allocate { offset: 0, len: FILE_BYTES as u64 }]);
    assert_eq!(opened.server.volume(), before);
    let longer = Operation::Allocate(opened.space(FILE_BYTES as u64, 1));
    assert_eq!(opened.ask(longer), Err(number(Status::FileTooBig)));
    opened.server.error = Some(UnitError::NoSpace);
    assert_eq!(opened.ask(Operation::Allocate(opened.space(0, 1))), Err(number(Status::NoSpace)));
}

#[test]
fn ranges_that_are_empty_or_too_far_and_files_that_may_not_be_written_are_refused() {
    let mut opened = Opened::new(with_holes());
    for (offset, len) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let space = opened.space(offset, len);
        for operation in [Operation::Allocate(space), Operation::Deallocate(space)] {
            assert_eq!(opened.ask(operation), Err(number(Status::Invalid)), "{offset} {len}");
        }
    }
    let space = opened.space(0, 1);
    let unknown = SpaceArguments { state: StateId { seqid: 1, other: [3; 12] }, ..space };
    assert_eq!(opened.ask(Operation::Deallocate(unknown)), Err(number(Status::StaleStateId)));
    assert_eq!(opened.server.started, []);

    let mut server = with_holes();
    server.access = server.access.map(|access| ExportAccess { read_only: true, ..access });
    let mut opened = Opened::new(server);
    let space = SpaceArguments { state: StateId::ANONYMOUS, ..space };
    for operation in [Operation::Allocate(space), Operation::Deallocate(space)] {
        assert_eq!(opened.ask(operation), Err(number(Status::ReadOnly)));
    }
    assert_eq!(opened.server.started, []);
}

#[test]
fn what_follows_in_the_compound_waits_for_the_backend() {
    let mut opened = Opened::new(with_holes());
    opened.server.queues = true;
    let space = opened.space(0, FILE_BYTES as u64);
    let size = Bitmap::of(&[4]);
    opened.send(MINOR, &[Operation::Deallocate(space), Operation::GetAttr(size)]);
    assert_eq!(opened.answer(), None);
    for (id, result) in opened.server.finish_queued() {
        opened.connection.complete(NOW, id, result, &mut opened.server);
    }
    let answer = opened.answer().unwrap();
    assert_eq!(word(&answer, STATUS_AT), 0);
    assert_eq!(word(&answer, RESULT_AT + 8), OpCode::GetAttr as u32, "it comes behind the other's status");
}
