//! I/Os: READ, WRITE and COMMIT, each after SEQUENCE and PUTFH. Nothing here allocates or searches in the steady state.

use alloc::vec::Vec;

use super::{
    Client, StateId, failed,
    slot_table::{Sequenced, Slots, foreign, is_of_lost_session, lost_session, malformed, result_of, skip_head},
};
use crate::{
    InitiatorEvents, Instant, Io, IoError, Misuse, Tag, Violation,
    nfs::{
        PROGRAM,
        common::{
            CONTROL_TAG, Calls, FileClient, IoSlot, PUT_OFF_DELAY, ReadHead, Replies, Stability, Violations, Work,
            Written, rpc_failed,
        },
        v41::{
            MINOR_VERSION, PROC_COMPOUND, VERSION,
            codec::{CompoundHead, OpCode, Status},
            operations::{Operation, ReadArguments, SequenceArguments, WriteHead},
        },
    },
    rpc::{
        Encoder, Garbage, RpcError, Xid,
        message::encode_call,
        xdr::{self, LAST_FRAGMENT, padding},
    },
    wire::Reader,
};

/// The session slot of an I/O that waits for a slot of a new session.
const NO_SLOT: u32 = u32::MAX;

/// The results of an I/O's COMPOUND that precede those of its own operation.
enum Results {
    Done,
    Failed(Failed),
    /// The results of another request.
    Foreign,
}

/// Why the I/O has no result.
#[derive(Clone, Copy)]
struct Failed {
    status: Status,
    /// SEQUENCE failed, so the slot's sequence number has not advanced.
    by_sequence: bool,
}

impl FileClient for Client {
    const VIOLATIONS: Violations = Violations {
        too_long: || misbehaved!("RFC 8881 §18: a reply longer than any that was asked for"),
        malformed,
        read_too_much: || misbehaved!("RFC 8881 §18.22: READ gave more than was asked for"),
        read_nothing: || misbehaved!("RFC 8881 §18.22: READ gave nothing before the end of the file"),
        write_less_stable: || misbehaved!("RFC 8881 §18.32: WRITE less stable than was asked for"),
        write_wrong_count: || misbehaved!("RFC 8881 §18.32: WRITE of nothing, or of more than was sent"),
    };
    type SessionSlot = u32;

    fn calls(&self) -> &Calls<u32> {
        &self.calls
    }

    fn calls_mut(&mut self) -> &mut Calls<u32> {
        &mut self.calls
    }

    fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }

    fn awaits_control(&self) -> bool {
        self.calls.pinging || self.step.awaits_reply() && self.step_again_at.is_none()
    }

    fn take_control_reply(
        &mut self,
        now: Instant,
        outcome: Result<(), RpcError>,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        self.process_control_reply(now, outcome, reader, events)
    }

    /// Processes a reply to an I/O; false if more bytes are needed.
    fn take_io_reply(
        &mut self,
        now: Instant,
        xid: Xid,
        outcome: Result<(), RpcError>,
        reader: &mut Reader<'_>,
        end: bool,
        events: &mut dyn InitiatorEvents,
    ) -> Result<bool, Violation> {
        let tag = xid.0 & CONTROL_TAG;
        let (slot, work) = match self.calls.slots.get(tag as usize) {
            Some(IoSlot { xid: sent, session_slot, work: Some(work), again_at: None }) if *sent == xid => {
                (*session_slot, work)
            }
            _ => return Err(misbehaved!("RFC 5531 §9: a reply to no call")),
        };
        if let Err(error) = outcome {
            if !end {
                return Ok(false);
            }
            // It is unknown whether the slot's sequence number has advanced, so the slot is not used again.
            self.complete(now, tag, Err(rpc_failed(error)), events);
            return Err(Violation::refused(
                error.refusal(),
                "RFC 5531 §9: the server could not carry out an I/O's call",
            ));
        }
        let code = match work {
            Work::Read { .. } => OpCode::Read,
            Work::Write { .. } => OpCode::Write,
            Work::Flush => OpCode::Commit,
        };
        let results = match self.read_results(slot, code, reader) {
            Ok(results) => results,
            Err(Garbage) if !end => return Ok(false),
            Err(garbage) => return Err(malformed(garbage)),
        };
        match results {
            Results::Foreign => Err(foreign()),
            Results::Failed(refused) => {
                if !end {
                    self.replies.skip_rest();
                }
                self.fail(now, tag, refused, events)?;
                Ok(true)
            }
            Results::Done if code == OpCode::Read => self.take_read_reply(now, tag, reader, end, events),
            Results::Done if !end => Ok(false),
            Results::Done if code == OpCode::Commit => {
                let verifier = reader.array().map_err(|short| malformed(short.into()))?;
                let flushed = self.calls.verifier.flushed(verifier);
                self.complete(now, tag, flushed, events);
                Ok(true)
            }
            Results::Done => {
                let written = Written::decode(reader).map_err(malformed)?;
                self.take_written(now, tag, written, events).map(|()| true)
            }
        }
    }

    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, events: &mut dyn InitiatorEvents) {
        let slot = self.calls.end(tag);
        if slot != NO_SLOT {
            self.slots.give_back(slot);
        }
        self.new_sessions = 0;
        events.complete(now, tag, result);
        self.renew_if_answered(now);
        self.leave_if_drained(now);
    }

    /// Sends a call for the rest of an I/O.
    fn send(&mut self, tag: Tag) {
        let xid = self.calls.next_xid(tag);
        let io = &mut self.calls.slots[tag as usize];
        io.xid = xid;
        let slot = io.session_slot;
        let (seqid, highest) = (self.slots.next(slot), self.slots.highest());
        let sequence_at = self.templates.sequence_at;
        let put = |call: &mut [u8]| {
            call[4..8].copy_from_slice(&xid.0.to_be_bytes());
            let sequence = u64::from(seqid) << 32 | u64::from(slot);
            call[sequence_at..sequence_at + 8].copy_from_slice(&sequence.to_be_bytes());
            call[sequence_at + 8..sequence_at + 12].copy_from_slice(&highest.to_be_bytes());
        };
        match io.work.as_ref().expect("a slot with work") {
            Work::Read { offset, len, done } => {
                let (offset, count) = (offset + u64::from(*done), len - done);
                let size = self.templates.read.len();
                self.transmit.put(&self.templates.read);
                let call = self.transmit.tail_mut(size);
                put(call);
                call[size - 12..size - 4].copy_from_slice(&offset.to_be_bytes());
                call[size - 4..].copy_from_slice(&count.to_be_bytes());
            }
            Work::Write { offset, data, done, stability } => {
                let offset = offset + u64::from(*done);
                let data = data.slice(*done as usize, data.len() - *done as usize);
                let size = self.templates.write.len();
                let mark = LAST_FRAGMENT | (size - 4 + data.len() + padding(data.len())) as u32;
                self.transmit.put(&self.templates.write);
                let call = self.transmit.tail_mut(size);
                put(call);
                call[..4].copy_from_slice(&mark.to_be_bytes());
                call[size - 16..size - 8].copy_from_slice(&offset.to_be_bytes());
                let how = (*stability as u64) << 32 | data.len() as u64;
                call[size - 8..].copy_from_slice(&how.to_be_bytes());
                let pad = padding(data.len());
                self.transmit.payload(data);
                self.transmit.zeros(pad);
            }
            Work::Flush => {
                let size = self.templates.commit.len();
                self.transmit.put(&self.templates.commit);
                put(self.transmit.tail_mut(size));
            }
        }
    }
}

impl Client {
    pub(super) fn submit_io(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        if !self.is_ready() {
            return Err(Misuse::NoCredit);
        }
        if let Some(work) = self.calls.accept(tag, io, &self.geometry, self.config.stability)? {
            let slot = self.slots.take().ok_or(Misuse::NoCredit)?;
            self.begins_to_wait(now);
            self.calls.begin(tag, work, slot);
            self.send(tag);
        }
        Ok(())
    }

    /// Decodes the results that precede those of the I/O's own operation, and its status.
    #[inline]
    fn read_results(&mut self, slot: u32, code: OpCode, reader: &mut Reader<'_>) -> Result<Results, Garbage> {
        if self.slots.take_done(slot, code, reader) {
            return Ok(Results::Done);
        }
        if let Err(status) = skip_head(reader)? {
            return Ok(Results::Failed(Failed { status, by_sequence: true }));
        }
        match self.slots.check(slot, reader)? {
            Sequenced::Done => {}
            Sequenced::Foreign => return Ok(Results::Foreign),
            Sequenced::Refused(status) => return Ok(Results::Failed(Failed { status, by_sequence: true })),
        }
        for code in [OpCode::PutFh, code] {
            if let Err(status) = result_of(code, reader)? {
                return Ok(Results::Failed(Failed { status, by_sequence: false }));
            }
        }
        Ok(Results::Done)
    }

    /// Resends the calls that the server deferred and that are due.
    pub(super) fn send_delayed(&mut self, now: Instant) {
        if self.calls.delayed == 0 || !self.has_file() {
            return;
        }
        for tag in 0..self.calls.slots.len() {
            let io = &mut self.calls.slots[tag];
            if io.again_at.is_none_or(|at| at > now) {
                continue;
            }
            if io.session_slot == NO_SLOT {
                let Some(slot) = self.slots.take() else {
                    io.again_at = Some(now + PUT_OFF_DELAY);
                    continue;
                };
                io.session_slot = slot;
            }
            self.begins_to_wait(now);
            self.calls.resume(tag as Tag);
            self.send(tag as Tag);
        }
    }

    /// Releases the slots of outstanding I/Os, whose session no longer exists.
    pub(super) fn give_up_slots(&mut self) {
        for io in self.calls.slots.iter_mut().filter(|io| io.work.is_some()) {
            io.session_slot = NO_SLOT;
        }
    }

    fn take_read_reply(
        &mut self,
        now: Instant,
        tag: Tag,
        reader: &mut Reader<'_>,
        end: bool,
        events: &mut dyn InitiatorEvents,
    ) -> Result<bool, Violation> {
        let head = xdr::boolean(reader).and_then(|eof| Ok((eof, reader.u32_be()?)));
        let (eof, count) = match head {
            Ok(head) => head,
            Err(Garbage) if !end => return Ok(false),
            Err(garbage) => return Err(malformed(garbage)),
        };
        self.take_read_data(now, tag, ReadHead { count, eof }, reader, end, events).map(|()| true)
    }

    fn fail(
        &mut self,
        now: Instant,
        tag: Tag,
        refused: Failed,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Failed { status, by_sequence } = refused;
        let is_lost = by_sequence && is_of_lost_session(status);
        if by_sequence {
            self.slots.take_back(self.calls.slots[tag as usize].session_slot);
            if status != Status::Delay && !is_lost {
                return Err(lost_session(status));
            }
        }
        if status != Status::Delay && !is_lost {
            self.complete(now, tag, Err(failed(status)), events);
            return Ok(());
        }
        self.calls.delay(tag, if is_lost { now } else { now + PUT_OFF_DELAY });
        if is_lost {
            return self.lose_session(now, status);
        }
        self.renew_if_answered(now);
        Ok(())
    }
}

/// Encoded calls in which only xid, slots, sequence number, offset and count are missing.
#[derive(Debug, Default)]
pub(super) struct Templates {
    read: Vec<u8>,
    write: Vec<u8>,
    commit: Vec<u8>,
    /// Position of sequence number, slot and highest slot in all of them.
    sequence_at: usize,
}

impl Templates {
    pub(super) fn new(handle: &[u8], state: StateId, identity: &[u8], slots: &Slots, stability: Stability) -> Self {
        let mut sequence_at = 0;
        let mut template = |operation: Operation<'_>| {
            let mut encoder = Encoder::default();
            encode_call(encoder.begin_record(), Xid(0), PROGRAM, VERSION, PROC_COMPOUND, identity);
            CompoundHead { tag: b"", minor: MINOR_VERSION, operations: 3 }.encode(&mut encoder);
            // After the operation number and the session.
            sequence_at = encoder.len() + 4 + slots.session.0.len();
            let (session, highest_slot) = (slots.session, slots.highest());
            let sequence = SequenceArguments { session, seqid: 0, slot: 0, highest_slot, cache_this: false };
            Operation::Sequence(sequence).encode(&mut encoder);
            Operation::PutFh(handle).encode(&mut encoder);
            operation.encode(&mut encoder);
            encoder.end_record(0).to_vec()
        };
        let read = template(Operation::Read(ReadArguments { state, offset: 0, count: 0 }));
        let write = template(Operation::Write(WriteHead { state, offset: 0, stability, len: 0 }));
        let commit = template(Operation::Commit { offset: 0, count: 0 });
        Self { read, write, commit, sequence_at }
    }
}
