//! From a record to the procedure that it calls, and every answer that is RPC's own (RFC 5531 §9).

use super::{Connection, Incoming, NfsBackend, backend::ExportAccess, backend::ExportId, backend::FileId};
use crate::{
    Instant, Violation,
    nfs3::{
        MOUNT_PROGRAM, PROGRAM, Procedure, VERSION,
        arguments::{Arguments, FileRange, WriteHead},
        results::Failure,
        types::{FileHandle, Status},
    },
    rpc::{
        Call, Credentials, Garbage, HeadError, RpcError,
        message::{encode_error, encode_success},
        portmap,
    },
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
        let call = match Call::decode(&mut reader) {
            Ok(call) => call,
            Err(HeadError::Answer { xid, error }) => {
                self.reply_error(xid, error);
                return Ok(());
            }
            Err(HeadError::Short) => return Err(Violation::malformed("RFC 5531 §9: a record too short for a call")),
            Err(HeadError::WrongDirection | HeadError::Malformed) => {
                return Err(Violation::misbehaved("RFC 5531 §9: a server is sent calls only"));
            }
        };
        let is_portmapper = self.config.portmapper.is_some();
        let result = match (call.program, call.version) {
            (PROGRAM, VERSION) if !is_portmapper => self.nfs_call(now, &call, &mut reader, record, backend),
            (MOUNT_PROGRAM, VERSION) if !is_portmapper => self.mount_call(now, &call, &mut reader, backend),
            (PROGRAM | MOUNT_PROGRAM, _) if !is_portmapper => {
                Err(RpcError::ProgramMismatch { low: VERSION, high: VERSION })
            }
            (portmap::PROGRAM, portmap::VERSION) if is_portmapper => self.portmap_call(&call, &mut reader),
            (portmap::PROGRAM, _) if is_portmapper => {
                Err(RpcError::ProgramMismatch { low: portmap::VERSION, high: portmap::VERSION })
            }
            _ => Err(RpcError::ProgramUnavailable),
        };
        if let Err(error) = result {
            self.reply_error(call.xid, error);
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
        if !is_write || self.config.portmapper.is_some() {
            self.incoming = Incoming::Call;
            return false;
        }
        let who = match self.last_caller.decode(call.credential) {
            Ok(who) => *who,
            Err(status) => {
                self.reply_error(call.xid, RpcError::Authentication(status as u32));
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
            self.reply_null(call.xid);
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

    fn portmap_call(&mut self, call: &Call<'_>, reader: &mut Reader<'_>) -> Result<(), RpcError> {
        encode_success(self.reply.begin_record(), call.xid);
        let mappings = self.config.portmapper.as_deref().unwrap_or_default();
        portmap::serve(call.procedure, reader, mappings, &mut self.reply)?;
        self.send_reply();
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
        let access = self.admission(export, backend).ok_or(Status::Access)?;
        Ok(Reached { export, file, who: access.squash.apply(*who), access })
    }

    /// How the peer may use an export, if at all.
    pub(super) fn admission<B: NfsBackend + ?Sized>(&mut self, export: ExportId, backend: &B) -> Option<ExportAccess> {
        if let Some((_, access)) = self.admitted.iter().find(|(admitted, _)| *admitted == export) {
            return Some(*access);
        }
        let access = backend.admit(&self.config.peer, export)?;
        self.admitted.push((export, access));
        Some(access)
    }

    pub(super) fn reply_null(&mut self, xid: u32) {
        encode_success(self.reply.begin_record(), xid);
        self.send_reply();
    }

    pub(super) fn reply_error(&mut self, xid: u32, error: RpcError) {
        encode_error(self.reply.begin_record(), xid, error);
        self.send_reply();
    }

    /// Answers with a status and nothing that would need the file.
    pub(super) fn reply_failure(&mut self, xid: u32, procedure: Procedure, status: Status) {
        encode_success(self.reply.begin_record(), xid);
        Failure::bare(procedure, status).encode(&mut self.reply);
        self.send_reply();
    }

    /// Sends the reply as it stands.
    pub(super) fn send_reply(&mut self) {
        self.transmit.put(self.reply.end_record(0));
    }
}
