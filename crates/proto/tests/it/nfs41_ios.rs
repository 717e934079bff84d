//! The target carries out a COMPOUND of SEQUENCE, PUTFH and READ or WRITE in one step if it has no tag and its fields
//! are valid. Otherwise the interpreter of operations carries it out. The answers are the same.
#![allow(clippy::unwrap_used)]

use arbtest::arbitrary::{Result as Arbitrary, Unstructured};
use iotax_proto::{
    Instant, Target, UnitError,
    nfs::{
        common::Stability,
        v41::{
            Operation, SessionId, StateId,
            operations::{ReadArguments, SequenceArguments, WriteHead},
            target_side::Connection,
        },
    },
    rpc::xdr::padding,
};

use crate::nfs_support::{Pair, V41, Version, compound, give, handle_of, server::Server, session_of, state_of, word};

const NOW: Instant = Instant(1);
const FILE_BYTES: usize = 4096;
/// Offset in a record, record mark included, of the accept status, the last field of the RPC reply header.
const ACCEPTED_AT: usize = 24;
const TAG_AT: usize = 32;
/// Offset in an answer, without record mark, of the status of SEQUENCE.
const SEQUENCE_STATUS_AT: usize = 40;
/// First slot and number of slots of these tests. The initiator has not used these slots.
const FIRST_SLOT: u32 = 4;
const SLOTS: usize = 3;
const PUT_ROOT_FH_LEN: usize = 4;

/// A server and a connection to it. Either all requests of a side have a tag, or none has.
struct Side {
    tag: &'static [u8],
    connection: Connection,
    server: Server,
    session: SessionId,
    handle: Vec<u8>,
    state: StateId,
}

impl Side {
    fn new(tag: &'static [u8]) -> Self {
        let Pair { connection, server, to_server, to_client, .. } = V41::pair(Server::new(FILE_BYTES)).ready();
        let (session, handle, state) = (session_of(&to_server), handle_of(&to_client), state_of(&to_client));
        Self { tag, connection, server, session, handle, state }
    }

    /// All answers of this side. Tags are removed from them.
    fn answers(&mut self) -> Vec<Vec<u8>> {
        let bytes = Target::<Server>::transmit(&mut self.connection).take_bytes();
        let (mut rest, mut answers) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let (record, after) = rest.split_at(4 + (word(rest, 0) & 0x7fff_ffff) as usize);
            let mut answer = record[4..].to_vec();
            if word(record, ACCEPTED_AT) == 0 {
                let tag_at = TAG_AT - 4;
                assert_eq!(answer.drain(tag_at + 4..tag_at + 4 + self.tag.len()).as_slice(), self.tag);
                answer[tag_at..tag_at + 4].fill(0);
            }
            answers.push(answer);
            rest = after;
        }
        answers
    }

    fn finish_queued(&mut self) {
        for (id, result) in self.server.finish_queued() {
            self.connection.complete(NOW, id, result, &mut self.server);
        }
    }
}

/// A request that both sides receive.
struct Request {
    sequence: SequenceArguments,
    handle: Vec<u8>,
    io: Operation<'static>,
    data: Vec<u8>,
    /// Another operation follows the I/O.
    goes_on: bool,
    /// Number of bytes that are missing at the end of the request.
    cut: usize,
    step: usize,
    /// Index of the slot in these tests, and sequence number.
    turn: (usize, u32),
}

impl Request {
    /// A request that is mostly valid, but sometimes has a wrong field.
    fn arbitrary(u: &mut Unstructured<'_>, side: &Side, seqids: &[u32; SLOTS]) -> Arbitrary<Self> {
        let odd = |u: &mut Unstructured<'_>| u.ratio(1, 12);
        let slot = u.choose_index(SLOTS)?;
        let seqid = match u.int_in_range(0..=11)? {
            0 => seqids[slot],
            1 => seqids[slot].wrapping_add(2),
            _ => seqids[slot].wrapping_add(1),
        };
        // The length of a cached reply is limited, and a tag counts towards it. So a cached request is short.
        let cache_this = odd(u)?;
        let sequence = SequenceArguments {
            session: if odd(u)? { SessionId(u.arbitrary()?) } else { side.session },
            seqid,
            slot: if odd(u)? { u.arbitrary()? } else { FIRST_SLOT + slot as u32 },
            highest_slot: if odd(u)? { u.arbitrary()? } else { FIRST_SLOT + SLOTS as u32 },
            cache_this,
        };
        let mut handle = side.handle.clone();
        match u.int_in_range(0..=20)? {
            0 => handle.truncate(u.choose_index(handle.len())?),
            1 => handle[u.choose_index(side.handle.len())?] ^= 1,
            2 => handle.resize(40, 0),
            _ => {}
        }
        let state = match u.int_in_range(0..=7)? {
            0 => StateId::ANONYMOUS,
            1 => StateId::CURRENT,
            2 => StateId { seqid: u.int_in_range(0..=2)?, ..side.state },
            3 => StateId { seqid: 1, other: u.arbitrary()? },
            _ => side.state,
        };
        let offset = if odd(u)? { u.arbitrary()? } else { u.int_in_range(0..=FILE_BYTES as u64 + 8)? };
        let len = u.int_in_range(0..=if cache_this { 100 } else { 600 })?;
        let mut data = Vec::new();
        let io = if u.arbitrary()? {
            Operation::Read(ReadArguments {
                state,
                offset,
                count: if !cache_this && odd(u)? { u.arbitrary()? } else { len },
            })
        } else {
            let stability = *u.choose(&[Stability::Unstable, Stability::DataSync, Stability::FileSync])?;
            let first: u8 = u.arbitrary()?;
            data = (0..len).map(|at| first.wrapping_add(at as u8)).collect();
            data.resize(len as usize + padding(len as usize), 0);
            Operation::Write(WriteHead { state, offset, stability, len })
        };
        let goes_on = odd(u)?;
        let cut = if odd(u)? { u.int_in_range(1..=40)? } else { 0 };
        // Only a complete request is sent in pieces: with bytes missing at its end, a WRITE in pieces starts before the
        // server notices.
        let step = if cut == 0 && odd(u)? { u.int_in_range(1..=300)? } else { usize::MAX };
        Ok(Self { sequence, handle, io, data, goes_on, cut, step, turn: (slot, seqid) })
    }

    fn ask(&self, xid: u32, side: &mut Side) {
        let operations =
            [Operation::Sequence(self.sequence), Operation::PutFh(&self.handle), self.io, Operation::PutRootFh];
        let mut call = compound(xid, side.tag, if self.goes_on { &operations } else { &operations[..3] });
        // The data of a WRITE precede the operation after it.
        let behind = if self.goes_on { PUT_ROOT_FH_LEN } else { 0 };
        call.truncate(call.len() - behind);
        call.raw(&self.data);
        if self.goes_on {
            Operation::PutRootFh.encode(&mut call);
        }
        call.truncate(call.len() - self.cut);
        for piece in call.end_record(0).chunks(self.step) {
            give(&mut side.connection, NOW, piece, &mut side.server).unwrap();
        }
    }
}

#[test]
fn an_io_is_answered_the_same_in_one_step_and_by_the_interpreter() {
    arbtest::arbtest(|u| {
        let mut sides = [Side::new(b""), Side::new(b"has this tag")];
        let (mut seqids, mut xid) = ([0; SLOTS], 0);
        while !u.is_empty() && xid < 60 {
            xid += 1;
            let request = Request::arbitrary(u, &sides[0], &seqids)?;
            let change: u8 = u.int_in_range(0..=40)?;
            let [one, other] = &mut sides;
            for side in [&mut *one, &mut *other] {
                match change {
                    0..=3 => side.server.queues = !side.server.queues,
                    4 => side.server.error = Some(UnitError::Medium),
                    5 => side.server.error = Some(UnitError::NoSpace),
                    6 => side.server.read_limit = Some(100),
                    7 => side.server.read_limit = None,
                    _ => {}
                }
                request.ask(xid, side);
                if change.is_multiple_of(3) {
                    side.finish_queued();
                }
            }
            let answers = one.answers();
            assert_eq!(answers, other.answers(), "{:?} {:?}", request.sequence, request.io);
            // A request that waits for its backend also uses the sequence number of its slot.
            let answer = answers.iter().find(|answer| word(answer, 0) == xid);
            if answer.is_none_or(|answer| answer.len() > SEQUENCE_STATUS_AT && word(answer, SEQUENCE_STATUS_AT) == 0) {
                seqids[request.turn.0] = request.turn.1;
            }
            assert_eq!(one.server.started, other.server.started);
            assert_eq!(one.server.volume(), other.server.volume());
        }
        Ok(())
    })
    .budget_ms(1000);
}
