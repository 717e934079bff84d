//! The server's side of a connection: from a record to its COMPOUND, and the replies of RPC itself (RFC 5531 §9).

mod direct;
mod interpreter;
mod io;
mod opening;
mod places;
mod space;
mod work;

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use self::{
    io::{CheckedState, IoTable, WriteUnderway},
    work::Work,
};
use super::{
    MAX_CONTROL_LEN, MAX_HEAD_LEN, MAX_IO_BYTES, PROC_COMPOUND, PROC_NULL, VERSION,
    codec::{CompoundHead, OpCode, SessionId},
    operations::{SequenceArguments, WriteHead},
    sessions::Session,
};
use crate::{
    Instant, IoId, Target, UnitError, Violation,
    nfs::{Admissions, NfsBackend, PROGRAM, common::Handles},
    rpc::{Call, Credentials, Encoder, Garbage, HeadError, Peer, Piece, RpcError, Server, auth::LastCaller, xdr},
    wire::{Payload, Reader, Transmit},
};

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    pub peer: Peer,
    pub handles: Handles,
    /// Maximum READs, WRITEs and COMMITs queued in the backend. Further ones get `Delay`.
    pub max_outstanding: u32,
}

impl Config {
    /// `handles` contains the server's key, which no peer must be able to guess.
    pub fn new(handles: Handles) -> Self {
        Self { peer: Peer::default(), handles, max_outstanding: 4096 }
    }
}

/// A connection of a client.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    rpc: Server,
    incoming: Incoming,
    /// The first bytes of an incomplete record.
    held: Vec<u8>,
    /// The entries of a directory listing, or attributes to compare.
    scratch: Encoder,
    ios: IoTable,
    /// Completed COMPOUNDs, to be reused.
    #[allow(clippy::vec_box)] // Boxed, so that moving one copies only a pointer.
    spare: Vec<Box<Work>>,
    last_caller: LastCaller,
    admissions: Admissions,
    /// The session of the last SEQUENCE.
    session: Option<Arc<Session>>,
    /// Sessions that the connection is bound to; the newest is last.
    bound: Vec<SessionId>,
    checked: [CheckedState; CHECKED],
}

/// Maximum sessions that a connection is bound to. Beyond it the oldest is forgotten. A client usually has one.
const BOUND_MAX: usize = 256;
/// Number of stateids whose check is cached.
const CHECKED: usize = 8;

/// How to process the rest of the current record.
#[derive(Debug)]
enum Incoming {
    /// The head of a call. If it is a WRITE, its data are processed as they arrive.
    Head,
    /// A call that is executed when it is complete.
    Call,
    WriteData(WriteUnderway),
    /// The rest of a call that has been answered.
    Skip,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        let ios = IoTable::new(config.max_outstanding);
        let admissions = Admissions::new(config.peer);
        Self {
            config,
            rpc: Server::new(now, MAX_IO_BYTES + MAX_CONTROL_LEN),
            incoming: Incoming::Head,
            held: Vec::new(),
            scratch: Encoder::default(),
            ios,
            spare: Vec::new(),
            last_caller: LastCaller::default(),
            admissions,
            session: None,
            bound: Vec::new(),
            checked: Default::default(),
        }
    }

    fn take_piece<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        piece: Piece<'_>,
        backend: &mut B,
    ) -> Result<(), Violation> {
        if matches!(self.incoming, Incoming::Head) && !self.held.is_empty() && piece.bytes.len() > MAX_HEAD_LEN {
            // The bytes complete a split head and may also contain data, which must not be buffered.
            let (head, rest) = piece.bytes.split_at(MAX_HEAD_LEN);
            self.take_piece(now, Piece { bytes: head, end: false }, backend)?;
            return self.take_piece(now, Piece { bytes: rest, end: piece.end }, backend);
        }
        match &self.incoming {
            Incoming::Head | Incoming::Call if self.held.is_empty() => {
                if !self.take_head(now, piece.bytes, piece.end, backend)? {
                    self.hold(piece.bytes)?;
                }
            }
            Incoming::Head | Incoming::Call => {
                self.hold(piece.bytes)?;
                let mut held = core::mem::take(&mut self.held);
                let taken = self.take_head(now, &held, piece.end, backend);
                if taken != Ok(false) {
                    held.clear();
                    held.shrink_to(MAX_CONTROL_LEN as usize);
                }
                self.held = held;
                taken?;
            }
            Incoming::WriteData(_) => self.take_data(now, piece, backend)?,
            Incoming::Skip => {}
        }
        if piece.end {
            self.incoming = Incoming::Head;
        }
        Ok(())
    }

    /// Processes the bytes of a record so far; false if more are needed.
    fn take_head<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        bytes: &[u8],
        end: bool,
        backend: &mut B,
    ) -> Result<bool, Violation> {
        if end {
            self.take_call(now, bytes, backend)?;
            return Ok(true);
        }
        match self.incoming {
            Incoming::Head => Ok(self.take_write_head(now, bytes, backend)),
            _ => Ok(false),
        }
    }

    /// Buffers bytes. Only a peer with a session may send more than `MAX_CONTROL_LEN`.
    fn hold(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let longest = if self.session.is_some() { MAX_IO_BYTES + MAX_CONTROL_LEN } else { MAX_CONTROL_LEN };
        if self.held.len() + bytes.len() > longest as usize {
            return Err(misbehaved!("RFC 8881 §18.36: a request longer than any session's"));
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// Executes a complete call.
    fn take_call<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        record: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let mut reader = Reader::new(record);
        let Some(call) = self.rpc.take_call(&mut reader)? else { return Ok(()) };
        let result = match (call.program, call.version, call.procedure) {
            (PROGRAM, VERSION, PROC_NULL) => {
                self.rpc.reply_null(call.xid);
                Ok(())
            }
            (PROGRAM, VERSION, PROC_COMPOUND) => self.take_compound(now, &call, reader, backend),
            (PROGRAM, VERSION, _) => Err(RpcError::ProcedureUnavailable),
            (PROGRAM, ..) => Err(RpcError::ProgramMismatch { low: VERSION, high: VERSION }),
            _ => Err(RpcError::ProgramUnavailable),
        };
        if let Err(error) = result {
            self.rpc.reply_error(call.xid, error);
        }
        Ok(())
    }

    #[inline]
    fn take_compound<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        mut reader: Reader<'_>,
        backend: &mut B,
    ) -> Result<(), RpcError> {
        let who = *self.caller(call)?;
        let arguments = reader;
        if self.take_io(now, call.xid, &who, arguments, backend).is_some() {
            return Ok(());
        }
        let head = CompoundHead::decode(&mut reader).map_err(|Garbage| RpcError::GarbageArguments)?;
        let work = self.begin_work(call.xid, who, &head);
        self.run(now, work, arguments, reader, backend);
        Ok(())
    }

    fn caller(&mut self, call: &Call<'_>) -> Result<&Credentials, RpcError> {
        self.last_caller.decode(call.credential).map_err(|status| RpcError::Authentication(status as u32))
    }

    /// Starts a COMPOUND of SEQUENCE, PUTFH and WRITE whose record is incomplete; false if more bytes are needed.
    fn take_write_head<B: NfsBackend + ?Sized>(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> bool {
        let mut reader = Reader::new(bytes);
        let call = match Call::decode(&mut reader) {
            Ok(call) => call,
            Err(HeadError::Short) => return false,
            Err(_) => {
                self.incoming = Incoming::Call;
                return false;
            }
        };
        if (call.program, call.version, call.procedure) != (PROGRAM, VERSION, PROC_COMPOUND) {
            self.incoming = Incoming::Call;
            return false;
        }
        let arguments = reader;
        let Ok(head) = CompoundHead::decode(&mut reader) else { return self.is_no_write(bytes) };
        let operations = reader;
        let write = match write_in(&head, &mut reader) {
            Ok(Some(write)) if write.len > 0 => write,
            Ok(_) => {
                self.incoming = Incoming::Call;
                return false;
            }
            Err(Garbage) => return self.is_no_write(bytes),
        };
        let who = match self.caller(&call) {
            Ok(who) => *who,
            Err(error) => {
                self.rpc.reply_error(call.xid, error);
                self.incoming = Incoming::Skip;
                return true;
            }
        };
        let mut work = self.begin_work(call.xid, who, &head);
        work.pause_after(2);
        let Some(work) = self.run_until_paused(now, work, arguments, operations, backend) else {
            self.incoming = Incoming::Skip;
            return true;
        };
        self.incoming = match self.begin_write(now, work, &write, backend) {
            Ok(mut write) => {
                write.place(&bytes[reader.position()..], backend);
                Incoming::WriteData(write)
            }
            Err(Some(work)) => {
                self.finish(work, backend);
                Incoming::Skip
            }
            Err(None) => Incoming::Skip,
        };
        true
    }

    /// Returns false because the bytes are not the head of a WRITE. If they are longer than any head, stops looking for
    /// one.
    fn is_no_write(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() >= MAX_HEAD_LEN {
            self.incoming = Incoming::Call;
        }
        false
    }
}

/// The WRITE of a COMPOUND that starts with SEQUENCE, PUTFH, WRITE; `None` for any other COMPOUND. A request whose
/// reply must be cached is always executed as a whole.
fn write_in(head: &CompoundHead<'_>, reader: &mut Reader<'_>) -> Result<Option<WriteHead>, Garbage> {
    if head.operations < 3 || reader.u32_be()? != OpCode::Sequence as u32 {
        return Ok(None);
    }
    if SequenceArguments::decode(reader)?.cache_this || reader.u32_be()? != OpCode::PutFh as u32 {
        return Ok(None);
    }
    xdr::opaque(reader, super::codec::MAX_HANDLE_LEN)?;
    if reader.u32_be()? != OpCode::Write as u32 {
        return Ok(None);
    }
    WriteHead::decode(reader).map(Some)
}

impl<B: NfsBackend + ?Sized> Target<B> for Connection {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation> {
        self.rpc.heard(now);
        let mut input = bytes;
        while !input.is_empty()
            && !self.rpc.transmit.is_full()
            && let Some(piece) = self.rpc.records.next(&mut input)?
        {
            self.take_piece(now, piece, backend)?;
        }
        Ok(bytes.len() - input.len())
    }

    #[inline]
    fn place(&mut self, at_least: usize, backend: &mut B) -> Option<Payload> {
        let left = self.rpc.records.plain_data();
        let Incoming::WriteData(write) = &self.incoming else { return None };
        if (left as usize) < at_least {
            return None;
        }
        write.memory(left, backend).filter(|place| place.len() >= at_least)
    }

    fn placed(&mut self, now: Instant, len: usize, backend: &mut B) -> Result<(), Violation> {
        self.rpc.heard(now);
        let end = self.rpc.records.skip(len as u32);
        if let Incoming::WriteData(write) = &mut self.incoming {
            write.on_placed(len as u32);
        }
        self.take_piece(now, Piece { bytes: &[], end }, backend)
    }

    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.complete_io(now, id, result, backend);
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.rpc.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.rpc.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant, _backend: &mut B) -> Result<(), Violation> {
        self.rpc.handle_timeout(now)
    }

    fn is_closing(&self) -> bool {
        false // NFS clients close the connection without notice.
    }

    fn disconnected(&mut self, _now: Instant, backend: &mut B) {
        self.abort_all(backend);
        self.incoming = Incoming::Skip;
    }
}
