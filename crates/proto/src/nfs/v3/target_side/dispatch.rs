//! From a record to the procedure that it calls, and every answer that is RPC's own (RFC 5531 §9).

use super::{Connection, Incoming};
use crate::{
    Instant, Violation,
    nfs::{
        PROGRAM,
        backend::NfsBackend,
        common::{ExportAccess, ExportId, FileHandle, FileId},
        mount,
        v3::{
            Procedure, VERSION,
            arguments::{Arguments, FileRange, WriteHead},
            results::Failure,
            types::Status,
        },
    },
    rpc::{Call, Credentials, Garbage, HeadError, RpcError, Xid, message::encode_success},
    wire::Reader,
};

/// A file that a caller may reach, and as whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) export: ExportId,
    pub(super) file: FileId,
    pub(super) who: Credentials,
    pub(super) access: ExportAccess,
}

impl Connection {
    /// Carries out a call of which all bytes are there.
    pub(super) fn take_call<B: NfsBackend + ?Sized>(
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

    /// Looks whether a record that is not all there is a WRITE, and begins it; false when it has to wait for more bytes.
    pub(super) fn take_write_head<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        bytes: &[u8],
        backend: &mut B,
    ) -> bool {
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

    /// Whether the caller may reach a file at all: its handle is ours, and its export admits the peer.
    pub(super) fn reach<B: NfsBackend + ?Sized>(
        &mut self,
        handle: &FileHandle,
        who: &Credentials,
        backend: &B,
    ) -> Result<Reached, Status> {
        let (export, file) = self.config.handles.decode(handle).ok_or(Status::BadHandle)?;
        let access = self.admissions.admission(export, backend).ok_or(Status::Access)?;
        Ok(Reached { export, file, who: access.squash.apply(*who), access })
    }

    /// Answers with a status and nothing that would need the file.
    pub(super) fn reply_failure(&mut self, xid: Xid, procedure: Procedure, status: Status) {
        encode_success(self.rpc.reply.begin_record(), xid);
        Failure::bare(procedure, status).encode(&mut self.rpc.reply);
        self.rpc.send_reply();
    }
}
