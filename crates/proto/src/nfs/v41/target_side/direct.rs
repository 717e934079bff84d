//! The fast path for the COMPOUND of nearly every I/O: SEQUENCE, PUTFH, and READ or WRITE. If nothing prevents it, the
//! COMPOUND is executed in one step, without a `Work`. The interpreter executes all other COMPOUNDs, and those with
//! errors. Both give the same answer.

use alloc::sync::Arc;

use super::{
    Connection,
    io::{Kind, is_checked, open, put_result, read_range, status_of, write_range},
    work::{NO_EXPORT, Reached, put_sequence},
};
use crate::{
    Instant, Started,
    nfs::{
        NfsBackend,
        common::{FileHandle, Handles, Stability},
        v41::{
            MINOR_VERSION, MINOR_VERSIONS,
            codec::{CompoundHead, OpCode, SessionId, StateId},
            operations::{ReadArguments, SequenceArguments, WriteHead},
            sessions::{Session, Turn},
        },
    },
    rpc::{
        Credentials, Server, Xid,
        message::encode_success,
        xdr::{padding, part},
    },
    wire::{Payload, Reader, Transmit},
};

/// A COMPOUND for the fast path. It has no tag and one of our handles, so all fields have fixed offsets.
struct IoRequest<'a> {
    sequence: SequenceArguments,
    handle: &'a [u8],
    io: IoArguments,
}

enum IoArguments {
    Read(ReadArguments),
    Write(WriteHead),
}

impl<'a> IoRequest<'a> {
    /// Decodes a COMPOUND; `None` if it is not one for the fast path. Afterwards `reader` is at the data of a WRITE.
    /// Offsets: tag 0, minor version 4, operations 8; SEQUENCE 12, session 16, sequence number 32, slots 36, cachethis
    /// 44; PUTFH 48, handle 52; READ or WRITE 84, stateid 88, offset 104.
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        let bytes: &[u8; 112] = reader.take(112).ok()?.try_into().ok()?;
        let word = |at| u32::from_be_bytes(part(bytes, at));
        let (tag_len, minor, operations) = (word(0), word(4), word(8));
        if (tag_len, operations, word(12)) != (0, OPERATIONS, OpCode::Sequence as u32)
            || !MINOR_VERSIONS.contains(&minor)
        {
            return None;
        }
        if (word(44), word(48), word(52)) != (0, OpCode::PutFh as u32, Handles::LEN as u32) {
            return None;
        }
        let (session, state) = (part(bytes, 16), StateId { seqid: word(88), other: part(bytes, 92) });
        let sequence = SequenceArguments {
            session: SessionId(session),
            seqid: word(32),
            slot: word(36),
            highest_slot: word(40),
            cache_this: false,
        };
        let offset = u64::from_be_bytes(part(bytes, 104));
        let io = match word(84) {
            number if number == OpCode::Read as u32 => {
                IoArguments::Read(ReadArguments { state, offset, count: reader.u32_be().ok()? })
            }
            number if number == OpCode::Write as u32 => {
                let (stability, len) = (Stability::decode(reader).ok()?, reader.u32_be().ok()?);
                IoArguments::Write(WriteHead { state, offset, stability, len })
            }
            _ => return None,
        };
        Some(Self { sequence, handle: &bytes[56..84], io })
    }
}

/// Number of operations in such a COMPOUND.
const OPERATIONS: u32 = 3;
/// Bytes of a reply after the record's mark, up to the status of the third operation.
const HEAD_LEN: usize = 96;

impl Connection {
    /// Executes an I/O whose record is complete. `None` if the interpreter must process it; then nothing has been done.
    #[inline]
    pub(super) fn take_io<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        xid: Xid,
        who: &Credentials,
        arguments: Reader<'_>,
        backend: &mut B,
    ) -> Option<()> {
        let mut reader = arguments;
        let IoRequest { sequence, handle, io } = IoRequest::decode(&mut reader)?;
        let session = self.session.as_ref().filter(|session| session.id == sequence.session)?;
        session.check(&sequence, OPERATIONS, arguments.remaining()).ok()?;
        let (export, file) = self.config.handles.decode(&FileHandle::new(handle)?).ok()?;
        if export == NO_EXPORT {
            return None;
        }
        let access = self.admissions.admission(export, backend)?;
        let (state, writes, data_len) = match &io {
            IoArguments::Read(asked) => (&asked.state, false, 0),
            IoArguments::Write(asked) => (&asked.state, true, asked.len as usize),
        };
        let data = reader.take(data_len).ok()?;
        if reader.remaining() != padding(data_len) || !is_checked(&self.checked, session, state, (export, file), writes)
        {
            return None;
        }
        let open = open(&Reached { export, file, who: access.squash.apply(*who), access }, writes, backend).ok()?;
        let (kind, operation) = match &io {
            IoArguments::Read(asked) => {
                let room = (session.fore.max_response as usize).saturating_sub(HEAD_LEN);
                read_range(asked, open.attributes.size, room)
            }
            IoArguments::Write(asked) => write_range(asked).ok()?,
        };
        if kind.len() == 0 {
            return None;
        }
        let id = self.ios.begin(kind).ok()?;
        if session.begin(now, sequence.slot, sequence.seqid) != Ok(Turn::New) {
            self.ios.end(id);
            return None;
        }
        if open.is_ordinary && !writes {
            self.rpc.transmit.charge(Transmit::REQUEST + kind.len() as usize);
        }
        let mut started = backend.start(now, id, open.unit, operation);
        if matches!(started, Started::NeedData) {
            backend.place(id, 0, data);
            started = backend.finish(now, id);
        }
        if let Started::Done(Ok(data)) = started {
            self.ios.end(id);
            session.end(sequence.slot, sequence.seqid, false);
            put_reply(&mut self.rpc, xid, session, &sequence, kind, data, backend);
            return Some(());
        }
        let session = Arc::clone(session);
        let head = CompoundHead { tag: b"", minor: MINOR_VERSION, operations: OPERATIONS };
        let mut work = self.begin_work(xid, *who, &head);
        work.begin_result(OpCode::Sequence as u32);
        work.take_slot(session, &sequence);
        work.begin_result(OpCode::PutFh as u32);
        work.begin_result(kind.code() as u32);
        if let Started::Done(result) = started {
            self.ios.end(id);
            work.end_result(result.map(drop).map_err(status_of));
            self.finish(work, backend);
        } else {
            self.ios.park(id, work);
        }
        Some(())
    }
}

/// Encodes the reply to a completed I/O.
#[inline]
fn put_reply<B: NfsBackend + ?Sized>(
    rpc: &mut Server,
    xid: Xid,
    session: &Session,
    sequence: &SequenceArguments,
    kind: Kind,
    data: Option<Payload>,
    backend: &B,
) {
    let Server { reply, transmit, .. } = rpc;
    encode_success(reply.begin_record(), xid);
    reply.words([0, 0, OPERATIONS]);
    reply.words([OpCode::Sequence as u32, 0]);
    put_sequence(reply, session, sequence);
    reply.words([OpCode::PutFh as u32, 0, kind.code() as u32, 0]);
    let data = put_result(reply, kind, data, backend);
    let len = data.as_ref().map_or(0, Payload::len);
    transmit.put(reply.end_record(len + padding(len)));
    if let Some(data) = data {
        transmit.payload(data);
        transmit.zeros(padding(len));
    }
}
