//! An initiator of any version: assembles the heads of the replies that it receives, passes a READ's data on as they
//! arrive, and sends the rest of an I/O of which the server did only a part.

use alloc::vec::Vec;

use super::{
    CONTROL_TAG, Calls, MAX_CONTROL_LEN, MAX_HEAD_LEN, MAX_IO_BYTES, ReadUnderway, Stability, Work, Written, reply_head,
};
use crate::{
    InitiatorEvents, Instant, IoError, Refusal, Tag, Violation,
    rpc::{Garbage, Piece, Records, RpcError, Xid},
    wire::Reader,
};

/// The replies of one connection.
#[derive(Debug)]
pub(in crate::nfs) struct Replies {
    records: Records,
    incoming: Incoming,
    /// The first bytes of an incomplete reply.
    held: Vec<u8>,
}

/// How to process the rest of the current record.
#[derive(Debug)]
enum Incoming {
    Head,
    ReadData(ReadUnderway),
    Skip,
}

/// The head of a READ's results: the data follow.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs) struct ReadHead {
    pub(in crate::nfs) count: u32,
    pub(in crate::nfs) eof: bool,
}

/// A version's violations, each with the section of its RFC.
pub(in crate::nfs) struct Violations {
    pub(in crate::nfs) too_long: fn() -> Violation,
    pub(in crate::nfs) malformed: fn(Garbage) -> Violation,
    pub(in crate::nfs) read_too_much: fn() -> Violation,
    pub(in crate::nfs) read_nothing: fn() -> Violation,
    pub(in crate::nfs) write_less_stable: fn() -> Violation,
    pub(in crate::nfs) write_wrong_count: fn() -> Violation,
}

impl Replies {
    pub(in crate::nfs) fn new() -> Self {
        Self { records: Records::new(MAX_IO_BYTES + MAX_CONTROL_LEN), incoming: Incoming::Head, held: Vec::new() }
    }

    /// Drops the rest of the current record.
    pub(in crate::nfs) fn skip_rest(&mut self) {
        self.incoming = Incoming::Skip;
    }
}

/// An initiator of any version. `receive_replies` calls the methods that process a reply.
pub(in crate::nfs) trait FileClient {
    const VIOLATIONS: Violations;
    type SessionSlot: Copy + Default;

    fn calls(&self) -> &Calls<Self::SessionSlot>;
    fn calls_mut(&mut self) -> &mut Calls<Self::SessionSlot>;
    fn replies(&mut self) -> &mut Replies;
    /// Whether a reply to a control call is due.
    fn awaits_control(&self) -> bool;
    /// Processes a reply to an I/O; false if more bytes are needed.
    fn take_io_reply(
        &mut self,
        now: Instant,
        xid: Xid,
        outcome: Result<(), RpcError>,
        reader: &mut Reader<'_>,
        end: bool,
        events: &mut dyn InitiatorEvents,
    ) -> Result<bool, Violation>;
    /// Processes the whole reply to a control call.
    fn take_control_reply(
        &mut self,
        now: Instant,
        outcome: Result<(), RpcError>,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation>;
    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, events: &mut dyn InitiatorEvents);
    /// Sends the call for what is left of an I/O.
    fn send(&mut self, tag: Tag);

    /// Whether any reply is due.
    #[inline]
    fn awaits_something(&self) -> bool {
        self.calls().outstanding > self.calls().delayed || self.awaits_control()
    }

    /// Restarts the timeout before a call if no reply is due.
    #[inline]
    fn begins_to_wait(&mut self, now: Instant) {
        if !self.awaits_something() {
            self.calls_mut().last_progress = now;
        }
    }

    /// Fails all I/Os because the connection is lost.
    fn lose_all(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        self.calls_mut().complete_unsupported(now, events);
        for tag in 0..self.calls().slots.len() {
            if self.calls().slots[tag].work.is_some() {
                self.complete(now, tag as Tag, Err(IoError::ConnectionLost), events);
            }
        }
    }

    fn receive_replies(
        &mut self,
        now: Instant,
        bytes: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let mut input = bytes;
        while let Some(piece) = self.replies().records.next(&mut input)? {
            self.take_piece(now, piece, events)?;
        }
        Ok(())
    }

    fn take_piece(
        &mut self,
        now: Instant,
        piece: Piece<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Replies { incoming, held, .. } = self.replies();
        if matches!(incoming, Incoming::Head) && !held.is_empty() && piece.bytes.len() > MAX_HEAD_LEN {
            // The bytes complete a split head and may also contain data, which must not be buffered.
            let (head, rest) = piece.bytes.split_at(MAX_HEAD_LEN);
            self.take_piece(now, Piece { bytes: head, end: false }, events)?;
            return self.take_piece(now, Piece { bytes: rest, end: piece.end }, events);
        }
        match incoming {
            Incoming::Head if held.is_empty() => {
                if !self.take_head(now, piece.bytes, piece.end, events)? {
                    self.hold(piece.bytes)?;
                }
            }
            Incoming::Head => {
                self.hold(piece.bytes)?;
                let mut held = core::mem::take(&mut self.replies().held);
                let taken = self.take_head(now, &held, piece.end, events);
                if taken != Ok(false) {
                    held.clear();
                }
                self.replies().held = held;
                taken?;
            }
            Incoming::ReadData(read) => {
                read.take(piece.bytes, events);
                if piece.end {
                    let read = *read;
                    self.read_ended(now, read, events)?;
                }
            }
            Incoming::Skip => {}
        }
        if piece.end {
            self.replies().incoming = Incoming::Head;
        }
        Ok(())
    }

    /// Processes the bytes of a reply so far; false if more are needed.
    fn take_head(
        &mut self,
        now: Instant,
        bytes: &[u8],
        end: bool,
        events: &mut dyn InitiatorEvents,
    ) -> Result<bool, Violation> {
        let mut reader = Reader::new(bytes);
        let Some((xid, outcome)) = reply_head(&mut reader, end)? else { return Ok(false) };
        if xid.0 & CONTROL_TAG != CONTROL_TAG {
            return self.take_io_reply(now, xid, outcome, &mut reader, end, events);
        }
        if !end {
            return Ok(false);
        }
        if xid != self.calls().control_xid || !self.awaits_control() {
            return Err(misbehaved!("RFC 5531 §9: a reply to no call"));
        }
        self.take_control_reply(now, outcome, &mut reader, events)?;
        Ok(true)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let held = &mut self.replies().held;
        if held.len() + bytes.len() > MAX_CONTROL_LEN as usize {
            return Err((Self::VIOLATIONS.too_long)());
        }
        held.extend_from_slice(bytes);
        Ok(())
    }

    /// Processes a READ's results after their head: the data that have arrived, and the rest when it arrives.
    fn take_read_data(
        &mut self,
        now: Instant,
        tag: Tag,
        head: ReadHead,
        reader: &mut Reader<'_>,
        end: bool,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Some(Work::Read { len, done, .. }) = &self.calls().slots[tag as usize].work else {
            unreachable!("the I/O is a read")
        };
        if head.count > *len - *done {
            return Err((Self::VIOLATIONS.read_too_much)());
        }
        let mut read = ReadUnderway { tag, at: *done, left: head.count, count: head.count, eof: head.eof };
        read.take(reader.take(reader.remaining()).unwrap_or_default(), events);
        if end {
            return self.read_ended(now, read, events);
        }
        self.replies().incoming = Incoming::ReadData(read);
        Ok(())
    }

    /// Processes the end of a READ's reply.
    fn read_ended(
        &mut self,
        now: Instant,
        read: ReadUnderway,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        if read.left > 0 {
            return Err((Self::VIOLATIONS.malformed)(Garbage));
        }
        let Some(Work::Read { len, done, .. }) = &mut self.calls_mut().slots[read.tag as usize].work else {
            unreachable!("data are taken for a read only")
        };
        *done += read.count;
        if done == len {
            self.complete(now, read.tag, Ok(()), events);
        } else if read.eof {
            let error =
                IoError::Failed { status: 0, refusal: Refusal::Other, what: "the file ended before the range read" };
            self.complete(now, read.tag, Err(error), events);
        } else if read.count == 0 {
            return Err((Self::VIOLATIONS.read_nothing)());
        } else {
            self.send(read.tag);
        }
        Ok(())
    }

    /// Processes the result of a WRITE: completes it, or sends the rest.
    fn take_written(
        &mut self,
        now: Instant,
        tag: Tag,
        written: Written,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Written { count, committed, verifier } = written;
        let calls = self.calls_mut();
        if committed == Stability::Unstable {
            calls.verifier.note(verifier);
        }
        let Some(Work::Write { data, done, stability, .. }) = &mut calls.slots[tag as usize].work else {
            unreachable!("the I/O is a write")
        };
        if committed < *stability {
            return Err((Self::VIOLATIONS.write_less_stable)());
        }
        if count == 0 || count as usize > data.len() - *done as usize {
            return Err((Self::VIOLATIONS.write_wrong_count)());
        }
        *done += count;
        if *done as usize == data.len() {
            self.complete(now, tag, Ok(()), events);
        } else {
            self.send(tag);
        }
        Ok(())
    }
}
