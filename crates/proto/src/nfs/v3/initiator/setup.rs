//! The steps from a new connection to a file ready for I/O, and the steps of closing. Also the templates of I/O calls,
//! which are encoded once.

use alloc::{string::String, vec::Vec};

use super::{Mount, Root};
use crate::{
    InitiatorEvents, Instant, Refusal, Violation,
    nfs::{
        PROGRAM,
        common::{CONTROL_TAG, CreateHow, FileHandle, FileType, SetAttributes, Stability, access},
        mount::{self, MountError, MountProcedure, decode_mounted},
        v3::{
            MAX_IO_BYTES, Procedure, VERSION,
            arguments::{Arguments, FileRange, Place, WriteHead},
            results::{Reply, Results},
            types::Status,
        },
    },
    rpc::{Encoder, Garbage, RpcError, Xid, message::encode_call},
    wire::Reader,
};

/// The state of a mount: the call in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MountStep {
    Mount,
    /// Looks up the part of the file's path that ends before byte `end`.
    Lookup {
        directory: FileHandle,
        end: usize,
    },
    Create,
    /// Queries the server's limits.
    FsInfo {
        file: FileHandle,
    },
    Access {
        file: FileHandle,
    },
    Size {
        file: FileHandle,
    },
    Grow {
        file: FileHandle,
    },
    Ready,
    /// No I/O is accepted any more; outstanding ones are completed.
    Draining,
    /// The last call: UMNT, or NULL if this connection did not mount.
    Leave,
    Closed,
}

impl MountStep {
    /// Whether a control call is in progress.
    pub(super) fn awaits_reply(&self) -> bool {
        !matches!(self, Self::Ready | Self::Draining | Self::Closed)
    }
}

impl Mount {
    pub(super) fn begin_setup(&mut self) {
        match self.config.root {
            Root::MountHere => {
                self.step = MountStep::Mount;
                self.call_mount(MountProcedure::Mnt);
            }
            Root::Handle(root) => self.look_up(root, 0),
        }
    }

    pub(super) fn process_control_reply(
        &mut self,
        now: Instant,
        outcome: Result<(), RpcError>,
        reader: &mut Reader<'_>,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        if core::mem::take(&mut self.calls.pinging) {
            self.end_if_drained();
            return Ok(());
        }
        let step = self.step.clone();
        if step == MountStep::Leave {
            self.step = MountStep::Closed;
            events.closed(now);
            return Ok(());
        }
        if self.closing {
            self.leave();
            return Ok(());
        }
        outcome.map_err(|error| refused_call(error, &step))?;
        match step {
            MountStep::Mount => {
                let root = decode_mounted(reader).map_err(malformed)?.map_err(refused_mount)?;
                self.look_up(root, 0);
            }
            MountStep::Lookup { directory, end } => {
                self.take_lookup(&decode(Procedure::Lookup, reader)?, directory, end)?;
            }
            MountStep::Create => match decode(Procedure::Create, reader)? {
                Ok(Results::Create { object: Some(file), .. }) => self.ask_for_info(file),
                Ok(_) => {
                    return Err(unsupported!("RFC 1813 §3.3.8: a server that gives no handle of the file it made"));
                }
                Err(failure) => return Err(refused("RFC 1813 §3.3.8: the file cannot be made", failure.status)),
            },
            MountStep::FsInfo { file } => {
                let info = match decode(Procedure::FsInfo, reader)? {
                    Ok(Results::FsInfo { info, .. }) => info,
                    Ok(_) => return Err(malformed(Garbage)),
                    Err(failure) => return Err(refused("RFC 1813 §3.3.19: FSINFO failed", failure.status)),
                };
                self.geometry.max_io_bytes = info.read_max.min(info.write_max).min(MAX_IO_BYTES);
                if self.geometry.max_io_bytes == 0 {
                    return Err(misbehaved!("RFC 1813 §3.3.19: rtmax or wtmax is zero"));
                }
                self.info = Some(info);
                self.step = MountStep::Access { file };
                self.call(&Arguments::Access { file, rights: access::READ | access::MODIFY | access::EXTEND });
            }
            MountStep::Access { file } => {
                if let Ok(Results::Access { rights, .. }) = decode(Procedure::Access, reader)? {
                    if rights & access::READ == 0 {
                        return Err(refused("RFC 1813 §3.3.4: the file may not be read", Status::Access));
                    }
                    self.geometry.read_only = rights & access::MODIFY == 0;
                }
                self.step = MountStep::Size { file };
                self.call(&Arguments::GetAttr { file });
            }
            MountStep::Size { file } => {
                let outcome = decode(Procedure::GetAttr, reader)?;
                self.take_size(now, &outcome, file, events)?;
            }
            MountStep::Grow { file } => {
                if let Err(failure) = decode(Procedure::SetAttr, reader)? {
                    return Err(refused("RFC 1813 §3.3.2: the file cannot be made larger", failure.status));
                }
                self.config.create = None;
                self.step = MountStep::Size { file };
                self.call(&Arguments::GetAttr { file });
            }
            MountStep::Ready | MountStep::Draining | MountStep::Leave | MountStep::Closed => {}
        }
        Ok(())
    }

    /// Stops accepting I/O. Outstanding I/Os are completed.
    pub(super) fn begin_close(&mut self) {
        match self.step {
            MountStep::Ready => {
                self.step = MountStep::Draining;
                self.end_if_drained();
            }
            MountStep::Draining | MountStep::Leave | MountStep::Closed => {}
            // The reply to the call in progress will come, so wait for it.
            _ => self.closing = true,
        }
    }

    pub(super) fn end_if_drained(&mut self) {
        if self.step == MountStep::Draining && self.calls.is_drained() {
            self.leave();
        }
    }

    pub(super) fn ping(&mut self, now: Instant) {
        self.calls.pinging = true;
        self.calls.last_progress = now;
        self.call(&Arguments::Null);
    }

    fn leave(&mut self) {
        self.step = MountStep::Leave;
        if self.config.root == Root::MountHere {
            self.call_mount(MountProcedure::Umnt);
        } else {
            self.call(&Arguments::Null);
        }
    }

    /// Looks up the next part of the file's path, from byte `at` on.
    fn look_up(&mut self, directory: FileHandle, at: usize) {
        let path = &self.config.file;
        let start = at + path[at..].bytes().take_while(|byte| *byte == b'/').count();
        let end = path[start..].find('/').map_or(path.len(), |slash| start + slash);
        if start == end {
            return self.ask_for_info(directory);
        }
        self.step = MountStep::Lookup { directory, end };
        let name = String::from(&path[start..end]);
        self.call(&Arguments::Lookup(Place { directory, name: name.as_bytes() }));
    }

    fn take_lookup(&mut self, outcome: &Reply<'_>, directory: FileHandle, end: usize) -> Result<(), Violation> {
        let is_last = self.config.file[end..].bytes().all(|byte| byte == b'/');
        match (outcome, self.config.create) {
            (Ok(Results::Lookup { object, .. }), _) => {
                self.look_up(*object, end);
                Ok(())
            }
            (Err(failure), Some(size)) if failure.status == Status::NoEntry && is_last => {
                self.step = MountStep::Create;
                let name = self.config.file[..end].rsplit('/').next().map(String::from).unwrap_or_default();
                let attributes = SetAttributes { mode: Some(0o644), size: Some(size), ..SetAttributes::default() };
                let how = CreateHow::Unchecked(attributes);
                self.call(&Arguments::Create { place: Place { directory, name: name.as_bytes() }, how });
                Ok(())
            }
            (Err(failure), _) => Err(refused("RFC 1813 §3.3.3: the file cannot be reached", failure.status)),
            (Ok(_), _) => Err(malformed(Garbage)),
        }
    }

    fn ask_for_info(&mut self, file: FileHandle) {
        self.step = MountStep::FsInfo { file };
        self.call(&Arguments::FsInfo { root: file });
    }

    fn take_size(
        &mut self,
        now: Instant,
        outcome: &Reply<'_>,
        file: FileHandle,
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let attributes = match outcome {
            Ok(Results::GetAttr(attributes)) => attributes,
            Ok(_) => return Err(malformed(Garbage)),
            Err(failure) => return Err(refused("RFC 1813 §3.3.1: GETATTR failed", failure.status)),
        };
        if attributes.kind != FileType::Regular {
            return Err(Violation::refused(Refusal::WrongKind, "RFC 1813 §3.3.1: not a regular file"));
        }
        if let Some(size) = self.config.create.filter(|size| *size > attributes.size) {
            self.step = MountStep::Grow { file };
            let attributes = SetAttributes { size: Some(size), ..SetAttributes::default() };
            self.call(&Arguments::SetAttr { file, attributes, guard: None });
            return Ok(());
        }
        self.geometry.size_bytes = attributes.size;
        self.templates = Templates::new(&file, &self.identity, self.config.stability);
        self.step = MountStep::Ready;
        events.ready(now, &self.geometry);
        Ok(())
    }

    fn call(&mut self, arguments: &Arguments<'_>) {
        self.control_call((PROGRAM, VERSION), arguments.procedure() as u32);
        arguments.encode(&mut self.scratch);
        self.transmit.put(self.scratch.end_record(0));
    }

    fn call_mount(&mut self, procedure: MountProcedure) {
        self.control_call((mount::PROGRAM, mount::VERSION), procedure as u32);
        self.scratch.opaque(self.config.export.as_bytes());
        self.transmit.put(self.scratch.end_record(0));
    }

    fn control_call(&mut self, (program, version): (u32, u32), procedure: u32) {
        self.calls.control_xid = self.calls.next_xid(CONTROL_TAG);
        encode_call(self.scratch.begin_record(), self.calls.control_xid, program, version, procedure, &self.identity);
    }
}

fn decode<'a>(procedure: Procedure, reader: &mut Reader<'a>) -> Result<Reply<'a>, Violation> {
    Results::decode(procedure, reader).map_err(malformed)
}

fn malformed(_: Garbage) -> Violation {
    malformed!("RFC 1813 §3.3: results that do not decode")
}

fn refused(rule: &'static str, status: Status) -> Violation {
    // For these statuses the status is more informative than the procedure.
    let rule = match status {
        Status::NoEntry => "RFC 1813 §2.6: no such file or directory",
        Status::Access | Status::NotOwner => "RFC 1813 §2.6: permission denied",
        Status::ReadOnly => "RFC 1813 §2.6: the export is read-only",
        Status::NoSpace => "RFC 1813 §2.6: no space left on the server",
        Status::NotDirectory => "RFC 1813 §2.6: not a directory",
        _ => rule,
    };
    Violation::refused(status.refusal(), rule)
}

fn refused_mount(error: MountError) -> Violation {
    let rule = match error {
        MountError::NoEntry => "RFC 1813 §5.1.5: no such export",
        MountError::Access | MountError::NotOwner => "RFC 1813 §5.1.5: the export may not be mounted from here",
        MountError::NotDirectory => "RFC 1813 §5.1.5: the export is not a directory",
        _ => "RFC 1813 §5.1.5: the server cannot mount the export",
    };
    Violation::refused(error.refusal(), rule)
}

fn refused_call(error: RpcError, step: &MountStep) -> Violation {
    let rule = match error {
        RpcError::Authentication(_) => "RFC 5531 §9: the server refuses the credential",
        RpcError::ProgramUnavailable if *step == MountStep::Mount => {
            "RFC 5531 §9: no MOUNT on this port; the server has it on another"
        }
        RpcError::ProgramUnavailable => "RFC 5531 §9: no NFS on this port",
        RpcError::ProgramMismatch { .. } => "RFC 5531 §9: the server does not speak version 3",
        _ => "RFC 5531 §9: the server could not carry out the call",
    };
    Violation::refused(error.refusal(), rule)
}

/// The text of a status, with a static lifetime for errors.
pub(super) fn text(status: Status) -> &'static str {
    match status {
        Status::NotOwner => "not owner",
        Status::NoEntry => "no such file",
        Status::Access => "permission denied",
        Status::Invalid => "invalid argument",
        Status::FileTooBig => "file too large",
        Status::NoSpace => "no space left",
        Status::ReadOnly => "read-only file system",
        Status::Quota => "quota exceeded",
        Status::Stale => "stale file handle",
        Status::BadHandle => "bad file handle",
        Status::Io => "I/O error",
        Status::ServerFault => "server fault",
        _ => "the server refused the I/O",
    }
}

/// Encoded calls in which only xid, offset and count are missing.
#[derive(Debug, Default)]
pub(super) struct Templates {
    pub(super) read: Vec<u8>,
    pub(super) write: Vec<u8>,
    pub(super) commit: Vec<u8>,
}

impl Templates {
    pub(super) fn new(file: &FileHandle, identity: &[u8], stability: Stability) -> Self {
        let template = |arguments: Arguments<'_>| {
            let mut encoder = Encoder::default();
            let procedure = arguments.procedure() as u32;
            encode_call(encoder.begin_record(), Xid(0), PROGRAM, VERSION, procedure, identity);
            arguments.encode(&mut encoder);
            encoder.end_record(0).to_vec()
        };
        let file = *file;
        let range = FileRange { file, offset: 0, count: 0 };
        Self {
            read: template(Arguments::Read(range)),
            write: template(Arguments::Write(WriteHead { file, offset: 0, count: 0, stability, data_len: 0 })),
            commit: template(Arguments::Commit(range)),
        }
    }
}
