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
    io::{CheckedState, Interrupted, IoTable},
    work::Work,
};
use super::{
    MAX_CONTROL_LEN, MAX_HEAD_LEN, MAX_IO_BYTES, PROC_COMPOUND, PROC_NULL, VERSION,
    codec::{CompoundHead, OpCode, SessionId},
    operations::{SequenceArguments, WriteHead},
    sessions::Session,
};
pub use crate::nfs::file_server::Config;
use crate::{
    Instant, IoId, UnitError, Violation,
    nfs::{
        Admissions, NfsBackend, PROGRAM,
        file_server::{FileServer, Receiving, Rest, WriteUnderway},
    },
    rpc::{Call, Credentials, Encoder, Garbage, RpcError, Server, auth::LastCaller, xdr},
    wire::{Payload, Reader},
};

/// A connection of a client. `file_server` makes it a `Target`.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    rpc: Server,
    receiving: Receiving<Interrupted>,
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

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        let ios = IoTable::new(config.max_outstanding);
        let admissions = Admissions::new(config.peer);
        Self {
            config,
            rpc: Server::new(now, MAX_IO_BYTES + MAX_CONTROL_LEN),
            receiving: Receiving::new(),
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
}

impl FileServer for Connection {
    const WRITE: (u32, u32, u32) = (PROGRAM, VERSION, PROC_COMPOUND);
    const TOO_LONG: fn() -> Violation = || misbehaved!("RFC 8881 §18.36: a request longer than any session's");
    type Write = Interrupted;

    fn rpc(&self) -> &Server {
        &self.rpc
    }

    fn parts(&mut self) -> (&mut Server, &mut Receiving<Interrupted>) {
        (&mut self.rpc, &mut self.receiving)
    }

    /// Only a peer with a session may send more than `MAX_CONTROL_LEN`.
    fn held_max(&self) -> u32 {
        if self.session.is_some() { MAX_IO_BYTES + MAX_CONTROL_LEN } else { MAX_CONTROL_LEN }
    }

    fn execute<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        reader: Reader<'_>,
        _record: &[u8],
        backend: &mut B,
    ) -> Result<(), RpcError> {
        match (call.program, call.version, call.procedure) {
            (PROGRAM, VERSION, PROC_NULL) => {
                self.rpc.reply_null(call.xid);
                Ok(())
            }
            (PROGRAM, VERSION, PROC_COMPOUND) => self.take_compound(now, call, reader, backend),
            (PROGRAM, VERSION, _) => Err(RpcError::ProcedureUnavailable),
            (PROGRAM, ..) => Err(RpcError::ProgramMismatch { low: VERSION, high: VERSION }),
            _ => Err(RpcError::ProgramUnavailable),
        }
    }

    /// Starts a COMPOUND of SEQUENCE, PUTFH and WRITE.
    fn begin_record<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        reader: &mut Reader<'_>,
        bytes: &[u8],
        backend: &mut B,
    ) -> Option<Rest<Interrupted>> {
        // Longer than any head, so there is none to come.
        let unclear = if bytes.len() < MAX_HEAD_LEN { None } else { Some(Rest::Call) };
        let arguments = *reader;
        let Ok(head) = CompoundHead::decode(reader) else { return unclear };
        let operations = *reader;
        let write = match write_in(&head, reader) {
            Ok(Some(write)) if write.len > 0 => write,
            Ok(_) => return Some(Rest::Call),
            Err(Garbage) => return unclear,
        };
        let who = match self.caller(call) {
            Ok(who) => *who,
            Err(error) => {
                self.rpc.reply_error(call.xid, error);
                return Some(Rest::Skip);
            }
        };
        let mut work = self.begin_work(call.xid, who, &head);
        work.pause_after(2);
        let Some(work) = self.run_until_paused(now, work, arguments, operations, backend) else {
            return Some(Rest::Skip);
        };
        match self.begin_write(now, work, &write, backend) {
            Ok(write) => return Some(Rest::WriteData(write)),
            Err(Some(work)) => self.finish(work, backend),
            Err(None) => {}
        }
        Some(Rest::Skip)
    }

    fn write_data<B: NfsBackend + ?Sized>(
        write: &mut WriteUnderway<Interrupted>,
        bytes: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let after = write.place(bytes, backend);
        let len = write.len();
        write.call.hold(len, after)
    }

    fn end_write<B: NfsBackend + ?Sized>(&mut self, now: Instant, write: WriteUnderway<Interrupted>, backend: &mut B) {
        self.finish_write(now, write, backend);
    }

    fn complete_io<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        id: IoId,
        result: Result<Option<Payload>, UnitError>,
        backend: &mut B,
    ) {
        self.continue_work(now, id, result, backend);
    }

    fn abort_all<B: NfsBackend + ?Sized>(&mut self, backend: &mut B) {
        self.give_up_all(backend);
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
