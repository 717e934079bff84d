//! The server's side of a connection for NFS, and for MOUNT on the same port: from a record to the called procedure,
//! and the replies of RPC itself (RFC 5531 §9).

mod files;
mod io;

use self::io::IoTable;
use super::{
    MAX_CONTROL_LEN, MAX_IO_BYTES, Procedure, VERSION,
    arguments::{Arguments, FileRange, WriteHead},
    results::Failure,
    types::Status,
};
pub use crate::nfs::file_server::Config;
use crate::{
    Instant, IoId, UnitError, Violation,
    nfs::{
        Admissions, NfsBackend, PROGRAM,
        common::{ExportAccess, ExportId, FileHandle, FileId, MAX_HEAD_LEN},
        file_server::{FileServer, Receiving, Rest, WriteUnderway},
        mount,
    },
    rpc::{Call, Credentials, Encoder, Garbage, RpcError, Server, Xid, auth::LastCaller, message::encode_success},
    wire::{Payload, Reader},
};

/// A connection of a client. `file_server` makes it a `Target`.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    rpc: Server,
    /// A WRITE whose data are arriving is answered with its xid.
    receiving: Receiving<Xid>,
    /// The entries of a directory listing.
    listing: Encoder,
    ios: IoTable,
    last_caller: LastCaller,
    admissions: Admissions,
}

impl Connection {
    pub fn new(now: Instant, config: Config) -> Self {
        let ios = IoTable::new(config.max_outstanding);
        let admissions = Admissions::new(config.peer);
        Self {
            config,
            rpc: Server::new(now, MAX_IO_BYTES + MAX_CONTROL_LEN),
            receiving: Receiving::new(),
            listing: Encoder::default(),
            ios,
            last_caller: LastCaller::default(),
            admissions,
        }
    }
}

impl FileServer for Connection {
    const WRITE: (u32, u32, u32) = (PROGRAM, VERSION, Procedure::Write as u32);
    const TOO_LONG: fn() -> Violation = || misbehaved!("RFC 1813 §3.3: a call longer than any procedure's");
    type Write = Xid;

    fn rpc(&self) -> &Server {
        &self.rpc
    }

    fn parts(&mut self) -> (&mut Server, &mut Receiving<Xid>) {
        (&mut self.rpc, &mut self.receiving)
    }

    fn execute<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        mut reader: Reader<'_>,
        record: &[u8],
        backend: &mut B,
    ) -> Result<(), RpcError> {
        match (call.program, call.version) {
            (PROGRAM, VERSION) => self.nfs_call(now, call, &mut reader, record, backend),
            (mount::PROGRAM, mount::VERSION) => {
                let handles = self.config.handles;
                mount::serve(now, call, &mut reader, &mut self.rpc, &mut self.admissions, &handles, backend)
            }
            (PROGRAM, _) => Err(RpcError::ProgramMismatch { low: VERSION, high: VERSION }),
            (mount::PROGRAM, _) => Err(RpcError::ProgramMismatch { low: mount::VERSION, high: mount::VERSION }),
            _ => Err(RpcError::ProgramUnavailable),
        }
    }

    fn begin_record<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        reader: &mut Reader<'_>,
        bytes: &[u8],
        backend: &mut B,
    ) -> Option<Rest<Xid>> {
        let who = match self.last_caller.decode(call.credential) {
            Ok(who) => *who,
            Err(status) => {
                self.rpc.reply_error(call.xid, RpcError::Authentication(status as u32));
                return Some(Rest::Skip);
            }
        };
        let Ok(head) = WriteHead::decode(reader) else {
            // Longer than any head, so there is none to come.
            return (bytes.len() >= MAX_HEAD_LEN).then(|| {
                self.rpc.reply_error(call.xid, RpcError::GarbageArguments);
                Rest::Skip
            });
        };
        let write = self.begin_write(now, call.xid, &who, &head, backend);
        Some(write.map_or(Rest::Skip, Rest::WriteData))
    }

    /// Bytes after the data (padding) are dropped.
    fn write_data<B: NfsBackend + ?Sized>(
        write: &mut WriteUnderway<Xid>,
        bytes: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        write.place(bytes, backend);
        Ok(())
    }

    fn end_write<B: NfsBackend + ?Sized>(&mut self, now: Instant, write: WriteUnderway<Xid>, backend: &mut B) {
        self.finish_write(now, &write, backend);
    }

    fn complete_io<B: NfsBackend + ?Sized>(
        &mut self,
        _now: Instant,
        id: IoId,
        result: Result<Option<Payload>, UnitError>,
        backend: &mut B,
    ) {
        self.answer_io(id, result, backend);
    }

    fn abort_all<B: NfsBackend + ?Sized>(&mut self, backend: &mut B) {
        self.ios.abort_all(backend);
    }
}

/// A file that a caller may access, and with whose rights.
#[derive(Clone, Copy, Debug)]
struct Reached {
    export: ExportId,
    file: FileId,
    who: Credentials,
    access: ExportAccess,
}

impl Connection {
    fn nfs_call<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        reader: &mut Reader<'_>,
        record: &[u8],
        backend: &mut B,
    ) -> Result<(), RpcError> {
        let procedure = Procedure::from_number(call.procedure).ok_or(RpcError::ProcedureUnavailable)?;
        if procedure == Procedure::Null {
            self.rpc.reply_null(call.xid);
            return Ok(());
        }
        let who =
            *self.last_caller.decode(call.credential).map_err(|status| RpcError::Authentication(status as u32))?;
        let garbage = |Garbage| RpcError::GarbageArguments;
        match procedure {
            Procedure::Read => {
                let range = FileRange::decode(reader).map_err(garbage)?;
                self.read(now, call.xid, &who, &range, backend);
            }
            Procedure::Write => {
                let head = WriteHead::decode(reader).map_err(garbage)?;
                let data = &record[reader.position()..];
                if (data.len() as u64) < u64::from(head.data_len) {
                    return Err(RpcError::GarbageArguments);
                }
                if let Some(mut write) = self.begin_write(now, call.xid, &who, &head, backend) {
                    write.place(data, backend);
                    self.finish_write(now, &write, backend);
                }
            }
            Procedure::Commit => {
                let range = FileRange::decode(reader).map_err(garbage)?;
                self.commit(now, call.xid, &who, &range, backend);
            }
            _ => {
                let arguments = Arguments::decode(procedure, reader).map_err(garbage)?;
                self.files_call(now, call.xid, &who, &arguments, record, backend);
            }
        }
        Ok(())
    }

    /// Checks whether the caller may access a file at all: its handle must be ours, and its export must admit the peer.
    #[allow(clippy::inline_always)] // If not inlined, a call costs 25 instructions per I/O.
    #[inline(always)]
    fn reach<B: NfsBackend + ?Sized>(
        &mut self,
        handle: &FileHandle,
        who: &Credentials,
        backend: &B,
    ) -> Result<Reached, Status> {
        let (export, file) = self.config.handles.decode(handle)?;
        let access = self.admissions.admission(export, backend).ok_or(Status::Access)?;
        Ok(Reached { export, file, who: access.squash.apply(*who), access })
    }

    /// Replies with a status, without attributes of the file.
    fn reply_failure(&mut self, xid: Xid, procedure: Procedure, status: Status) {
        encode_success(self.rpc.reply.begin_record(), xid);
        Failure::bare(procedure, status).encode(&mut self.rpc.reply);
        self.rpc.send_reply();
    }
}
