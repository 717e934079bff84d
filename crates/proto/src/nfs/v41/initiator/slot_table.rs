//! The slots of a session on the client's side (RFC 8881 §2.10.6.1), and the parts of a reply that concern its slot.

use alloc::vec::Vec;

use crate::{
    Violation,
    nfs::v41::{
        codec::{MAX_TAG_LEN, OpCode, SessionId, Status},
        operations::SequenceArguments,
    },
    rpc::{
        Garbage,
        xdr::{self, part},
    },
    wire::Reader,
};

/// Free slots, and the last sequence number of each slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) session: SessionId,
    seqids: Vec<u32>,
    free: Vec<u32>,
    /// Slots above the server's limit that have become free and are not used again.
    retired: Vec<u32>,
    /// Number of slots that may be used.
    count: u32,
    /// The highest slot that may have an outstanding request.
    highest: u32,
}

impl Slots {
    pub(super) fn new(session: SessionId, count: u32) -> Self {
        Self {
            session,
            seqids: (0..count).map(|_| 0).collect(),
            free: (0..count).rev().collect(),
            retired: Vec::with_capacity(count as usize),
            count,
            highest: count - 1,
        }
    }

    /// Whether there is a session.
    pub(super) fn stand(&self) -> bool {
        !self.seqids.is_empty()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        if slot < self.count {
            self.free.push(slot);
        } else {
            self.retire(slot);
        }
    }

    #[cold]
    fn retire(&mut self, slot: u32) {
        self.retired.push(slot);
        if self.retired.len() as u32 + self.count == self.seqids.len() as u32 {
            self.highest = self.count - 1;
        }
    }

    /// Applies a lower limit of the server (RFC 8881 §2.10.6.1). Slots above it stay unused even if the limit rises
    /// again, because their sequence numbers are then unknown.
    #[cold]
    fn shrink(&mut self, highest: u32) {
        self.count = highest + 1;
        for slot in core::mem::take(&mut self.free) {
            self.give_back(slot);
        }
    }

    /// Returns the sequence number of a slot's next request.
    #[inline]
    pub(super) fn next(&mut self, slot: u32) -> u32 {
        let seqid = &mut self.seqids[slot as usize];
        *seqid = seqid.wrapping_add(1);
        *seqid
    }

    /// Restores the last sequence number, because SEQUENCE itself failed.
    pub(super) fn take_back(&mut self, slot: u32) {
        let seqid = &mut self.seqids[slot as usize];
        *seqid = seqid.wrapping_sub(1);
    }

    #[inline]
    pub(super) fn highest(&self) -> u32 {
        self.highest
    }

    /// The arguments of SEQUENCE for a request whose reply need not be cached.
    pub(super) fn arguments(&mut self, slot: u32) -> SequenceArguments {
        let (session, highest_slot) = (self.session, self.highest());
        SequenceArguments { session, seqid: self.next(slot), slot, highest_slot, cache_this: false }
    }

    /// Checks whether SEQUENCE, PUTFH and operation `code` succeeded for the slot's request, and the server's limit is
    /// unchanged. If so, moves the reader behind all three.
    #[inline]
    pub(super) fn take_done(&self, slot: u32, code: OpCode, reader: &mut Reader<'_>) -> bool {
        let mut behind = *reader;
        let Ok(bytes) = behind.array::<72>() else { return false };
        let word = |at| u32::from_be_bytes(part(&bytes, at));
        // Status, length of the tag, count; result of SEQUENCE; result of PUTFH; number and status of the third
        // operation.
        let is_done = (word(0), word(4), word(8)) == (0, 0, 3)
            && (word(12), word(16), SessionId(part(&bytes, 20))) == (OpCode::Sequence as u32, 0, self.session)
            && (word(36), word(40)) == (self.seqids[slot as usize], slot)
            && word(48) >= self.count - 1
            && (word(56), word(60)) == (OpCode::PutFh as u32, 0)
            && (word(64), word(68)) == (code as u32, 0);
        if is_done {
            *reader = behind;
        }
        is_done
    }

    /// Decodes the result of SEQUENCE for the outstanding request of the slot.
    #[inline]
    pub(super) fn check(&mut self, slot: u32, reader: &mut Reader<'_>) -> Result<Sequenced, Garbage> {
        if let Err(status) = result_of(OpCode::Sequence, reader)? {
            return Ok(Sequenced::Refused(status));
        }
        let (session, seqid, number) = (reader.array()?, reader.u32_be()?, reader.u32_be()?);
        reader.skip(4)?;
        let target_highest = reader.u32_be()?;
        reader.skip(4)?;
        if SessionId(session) != self.session || number != slot || seqid != self.seqids[slot as usize] {
            return Ok(Sequenced::Foreign);
        }
        if target_highest < self.count - 1 {
            self.shrink(target_highest);
        }
        Ok(Sequenced::Done)
    }
}

/// The outcome of SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequenced {
    Done,
    Refused(Status),
    /// The result of another request.
    Foreign,
}

/// The violation if a reply belongs to another slot.
pub(super) fn foreign() -> Violation {
    misbehaved!("RFC 8881 §18.46: SEQUENCE of another session, slot or sequence number")
}

pub(super) fn malformed(_: Garbage) -> Violation {
    malformed!("RFC 8881 §18: results that do not decode")
}

/// Whether the operation may succeed in a new session.
pub(super) fn is_of_lost_session(status: Status) -> bool {
    matches!(status, Status::BadSession | Status::DeadSession)
}

/// The violation if SEQUENCE was rejected permanently.
pub(super) fn lost_session(status: Status) -> Violation {
    Violation::refused(
        status.refusal(),
        match status {
            Status::BadSession | Status::DeadSession => "RFC 8881 §18.46: the server has lost the session",
            _ => "RFC 8881 §18.46: the server refuses the session's request",
        },
    )
}

/// Skips what precedes the results of a reply. Returns an error only if there are no results; otherwise the results
/// contain the status.
#[inline]
pub(super) fn skip_head(reader: &mut Reader<'_>) -> Result<Result<(), Status>, Garbage> {
    let status = Status::decode(reader)?;
    xdr::opaque(reader, MAX_TAG_LEN)?;
    // Without results this is the status of the whole COMPOUND.
    if reader.u32_be()? == 0 && status.is_err() { Ok(status) } else { Ok(Ok(())) }
}

/// Decodes the number and status of the next result, which must be that of `code`.
#[inline]
pub(super) fn result_of(code: OpCode, reader: &mut Reader<'_>) -> Result<Result<(), Status>, Garbage> {
    if reader.u32_be()? != code as u32 {
        return Err(Garbage);
    }
    Status::decode(reader)
}
