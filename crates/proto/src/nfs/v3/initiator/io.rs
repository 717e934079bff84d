//! I/Os: READ, WRITE and COMMIT. Nothing here allocates or searches in the steady state.

use super::{Mount, failed, setup::MountStep};
use crate::{
    InitiatorEvents, Instant, Io, IoError, Misuse, Tag, Violation,
    nfs::{
        common::{
            Attributes, CONTROL_TAG, Calls, FileClient, IoSlot, PUT_OFF_DELAY, ReadHead, Replies, Violations, Work,
            Written, rpc_failed,
        },
        v3::{
            Procedure,
            results::{PreOp, Results},
            types::Status,
        },
    },
    rpc::{
        Garbage, RpcError, Xid,
        xdr::{self, LAST_FRAGMENT, padding},
    },
    wire::Reader,
};

impl FileClient for Mount {
    const VIOLATIONS: Violations = Violations {
        too_long: || misbehaved!("RFC 1813 §3.3: a reply longer than any that was asked for"),
        malformed,
        read_too_much: || misbehaved!("RFC 1813 §3.3.6: READ gave more than was asked for"),
        read_nothing: || misbehaved!("RFC 1813 §3.3.6: READ gave nothing before the end of the file"),
        write_less_stable: || misbehaved!("RFC 1813 §3.3.7: WRITE less stable than was asked for"),
        write_wrong_count: || misbehaved!("RFC 1813 §3.3.7: WRITE of nothing, or of more than was sent"),
    };
    type SessionSlot = ();

    fn calls(&self) -> &Calls<()> {
        &self.calls
    }

    fn calls_mut(&mut self) -> &mut Calls<()> {
        &mut self.calls
    }

    fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }

    fn awaits_control(&self) -> bool {
        self.calls.pinging || self.step.awaits_reply()
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
        let work = match self.calls.slots.get(tag as usize) {
            Some(IoSlot { xid: sent, work: Some(work), again_at: None, .. }) if *sent == xid => work,
            _ => return Err(misbehaved!("RFC 5531 §9: a reply to no call")),
        };
        if let (Work::Read { .. }, Ok(())) = (work, outcome) {
            return self.take_read_reply(now, tag, reader, end, events);
        }
        if !end {
            return Ok(false);
        }
        if let Err(error) = outcome {
            self.complete(now, tag, Err(rpc_failed(error)), events);
            return Ok(true);
        }
        if matches!(work, Work::Flush) {
            self.take_commit_reply(now, tag, reader, events)?;
        } else {
            self.take_write_reply(now, tag, reader, events)?;
        }
        Ok(true)
    }

    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>, events: &mut dyn InitiatorEvents) {
        self.calls.end(tag);
        events.complete(now, tag, result);
        self.end_if_drained();
    }

    /// Sends a call for the rest of an I/O.
    fn send(&mut self, tag: Tag) {
        let xid = self.calls.next_xid(tag);
        let slot = &mut self.calls.slots[tag as usize];
        slot.xid = xid;
        match slot.work.as_ref().expect("a slot with work") {
            Work::Read { offset, len, done } => {
                let (offset, count) = (offset + u64::from(*done), len - done);
                let size = self.templates.read.len();
                self.transmit.put(&self.templates.read);
                let call = self.transmit.tail_mut(size);
                call[4..8].copy_from_slice(&xid.0.to_be_bytes());
                call[size - 12..size - 4].copy_from_slice(&offset.to_be_bytes());
                call[size - 4..].copy_from_slice(&count.to_be_bytes());
            }
            Work::Write { offset, data, done, stability } => {
                let offset = offset + u64::from(*done);
                let data = data.slice(*done as usize, data.len() - *done as usize);
                let count = data.len() as u32;
                let size = self.templates.write.len();
                let mark = LAST_FRAGMENT | (size - 4 + data.len() + padding(data.len())) as u32;
                self.transmit.put(&self.templates.write);
                let call = self.transmit.tail_mut(size);
                call[..4].copy_from_slice(&mark.to_be_bytes());
                call[4..8].copy_from_slice(&xid.0.to_be_bytes());
                call[size - 20..size - 12].copy_from_slice(&offset.to_be_bytes());
                let how = u64::from(count) << 32 | *stability as u64;
                call[size - 12..size - 4].copy_from_slice(&how.to_be_bytes());
                call[size - 4..].copy_from_slice(&count.to_be_bytes());
                let pad = padding(data.len());
                self.transmit.payload(data);
                self.transmit.zeros(pad);
            }
            Work::Flush => {
                let size = self.templates.commit.len();
                self.transmit.put(&self.templates.commit);
                self.transmit.tail_mut(size)[4..8].copy_from_slice(&xid.0.to_be_bytes());
            }
        }
    }
}

impl Mount {
    pub(super) fn submit_io(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        if self.step != MountStep::Ready {
            return Err(Misuse::NoCredit);
        }
        if let Some(work) = self.calls.accept(tag, io, &self.geometry, self.config.stability)? {
            self.begins_to_wait(now);
            self.calls.begin(tag, work, ());
            self.send(tag);
        }
        Ok(())
    }

    /// Resends the calls that the server deferred and that are due.
    pub(super) fn send_delayed(&mut self, now: Instant) {
        if self.calls.delayed == 0 {
            return;
        }
        for tag in 0..self.calls.slots.len() {
            if self.calls.slots[tag].again_at.is_some_and(|at| at <= now) {
                self.begins_to_wait(now);
                self.calls.resume(tag as Tag);
                self.send(tag as Tag);
            }
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
        let head = match read_head(reader) {
            Ok(head) => head,
            Err(Garbage) if !end => return Ok(false),
            Err(garbage) => return Err(malformed(garbage)),
        };
        match head {
            Ok((count, eof)) => {
                self.take_read_data(now, tag, ReadHead { count, eof }, reader, end, events)?;
            }
            Err(status) => {
                self.fail(now, tag, status, events);
                if !end {
                    self.replies.skip_rest();
                }
            }
        }
        Ok(true)
    }

    fn take_write_reply(
        &mut self,
        now: Instant,
        tag: Tag,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        match written(reader).map_err(malformed)? {
            Ok(written) => self.take_written(now, tag, written, events),
            Err(status) => {
                self.fail(now, tag, status, events);
                Ok(())
            }
        }
    }

    fn take_commit_reply(
        &mut self,
        now: Instant,
        tag: Tag,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        match Results::decode(Procedure::Commit, reader).map_err(malformed)? {
            Ok(Results::Commit { verifier, .. }) => {
                let result = self.calls.verifier.flushed(verifier);
                self.complete(now, tag, result, events);
                Ok(())
            }
            Ok(_) => Err(malformed(Garbage)),
            Err(failure) => {
                self.fail(now, tag, failure.status, events);
                Ok(())
            }
        }
    }

    fn fail(&mut self, now: Instant, tag: Tag, status: Status, events: &mut dyn InitiatorEvents) {
        if status == Status::Jukebox {
            self.calls.delay(tag, now + PUT_OFF_DELAY);
        } else {
            self.complete(now, tag, Err(failed(status)), events);
        }
    }
}

/// Status, count and eof of a READ's results; skips the attributes.
fn read_head(reader: &mut Reader<'_>) -> Result<Result<(u32, bool), Status>, Garbage> {
    if let Err(status) = Status::decode(reader)? {
        return Ok(Err(status));
    }
    if xdr::boolean(reader)? {
        reader.skip(Attributes::ENCODED_LEN)?;
    }
    let (count, eof, data_len) = (reader.u32_be()?, xdr::boolean(reader)?, reader.u32_be()?);
    // If length and count differed, the end of the data in the record would be unknown.
    if count == data_len { Ok(Ok((count, eof))) } else { Err(Garbage) }
}

/// What is needed of a WRITE's results.
fn written(reader: &mut Reader<'_>) -> Result<Result<Written, Status>, Garbage> {
    if let Err(status) = Status::decode(reader)? {
        return Ok(Err(status));
    }
    if xdr::boolean(reader)? {
        reader.skip(PreOp::ENCODED_LEN)?;
    }
    if xdr::boolean(reader)? {
        reader.skip(Attributes::ENCODED_LEN)?;
    }
    Written::decode(reader).map(Ok)
}

fn malformed(_: Garbage) -> Violation {
    malformed!("RFC 1813 §3.3: results that do not decode")
}
