//! The server's side of a connection for NFS, and for MOUNT on the same port: from a record to the called procedure,
//! and the replies of RPC itself (RFC 5531 §9).

mod files;
mod io;

use alloc::vec::Vec;

use self::io::{IoTable, WriteUnderway};
use super::{
    MAX_CONTROL_LEN, MAX_HEAD_LEN, MAX_IO_BYTES, Procedure, VERSION,
    arguments::{Arguments, FileRange, WriteHead},
    results::Failure,
    types::Status,
};
use crate::{
    Instant, IoId, Target, UnitError, Violation,
    nfs::{
        Admissions, NfsBackend, PROGRAM,
        common::{ExportAccess, ExportId, FileHandle, FileId, Handles},
        mount,
    },
    rpc::{
        Call, Credentials, Encoder, Garbage, HeadError, Peer, Piece, RpcError, Server, Xid, auth::LastCaller,
        message::encode_success,
    },
    wire::{Payload, Reader, Transmit},
};

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    pub peer: Peer,
    pub handles: Handles,
    /// Maximum READs, WRITEs and COMMITs queued in the backend. Further ones get `Jukebox`.
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
    /// The entries of a directory listing.
    listing: Encoder,
    ios: IoTable,
    last_caller: LastCaller,
    admissions: Admissions,
}

/// How to process the rest of the current record.
#[derive(Debug)]
enum Incoming {
    /// The head of a call. If it is a WRITE, its data are processed as they arrive.
    Head,
    /// A call that is executed when it is complete.
    Call,
    WriteData(WriteUnderway),
    /// The rest of a WRITE that has been answered.
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
            listing: Encoder::default(),
            ios,
            last_caller: LastCaller::default(),
            admissions,
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
                }
                self.held = held;
                taken?;
            }
            Incoming::WriteData(_) => self.take_data(now, piece, backend),
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

    fn hold(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.held.len() + bytes.len() > MAX_CONTROL_LEN as usize {
            return Err(misbehaved!("RFC 1813 §3.3: a call longer than any procedure's"));
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }
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

    fn complete(&mut self, _now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B) {
        self.complete_io(id, result, backend);
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
        self.ios.abort_all(backend);
        self.incoming = Incoming::Skip;
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
    /// Executes a complete call.
    fn take_call<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        record: &[u8],
        backend: &mut B,
    ) -> Result<(), Violation> {
        let mut reader = Reader::new(record);
        let Some(call) = self.rpc.take_call(&mut reader)? else { return Ok(()) };
        let result = match (call.program, call.version) {
            (PROGRAM, VERSION) => self.nfs_call(now, &call, &mut reader, record, backend),
            (mount::PROGRAM, mount::VERSION) => {
                let handles = self.config.handles;
                mount::serve(now, &call, &mut reader, &mut self.rpc, &mut self.admissions, &handles, backend)
            }
            (PROGRAM, _) => Err(RpcError::ProgramMismatch { low: VERSION, high: VERSION }),
            (mount::PROGRAM, _) => Err(RpcError::ProgramMismatch { low: mount::VERSION, high: mount::VERSION }),
            _ => Err(RpcError::ProgramUnavailable),
        };
        if let Err(error) = result {
            self.rpc.reply_error(call.xid, error);
        }
        Ok(())
    }

    /// Starts a WRITE whose record is incomplete; false if more bytes are needed.
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
        let is_write = (call.program, call.version, call.procedure) == (PROGRAM, VERSION, Procedure::Write as u32);
        if !is_write {
            self.incoming = Incoming::Call;
            return false;
        }
        let who = match self.last_caller.decode(call.credential) {
            Ok(who) => *who,
            Err(status) => {
                self.rpc.reply_error(call.xid, RpcError::Authentication(status as u32));
                self.incoming = Incoming::Skip;
                return true;
            }
        };
        let Ok(head) = WriteHead::decode(&mut reader) else { return false };
        self.incoming = match self.begin_write(now, call.xid, &who, &head, backend) {
            Some(mut write) => {
                write.place(&bytes[reader.position()..], backend);
                Incoming::WriteData(write)
            }
            None => Incoming::Skip,
        };
        true
    }

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
                    self.end_write(now, &write, backend);
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
    fn reach<B: NfsBackend + ?Sized>(
        &mut self,
        handle: &FileHandle,
        who: &Credentials,
        backend: &B,
    ) -> Result<Reached, Status> {
        let (export, file) = self.config.handles.decode(handle).ok_or(Status::BadHandle)?;
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
