//! Procedures on names and attributes, and directory listings (READDIR, READDIRPLUS).

use super::Connection;
use crate::{
    Instant,
    nfs::{
        Files, NfsBackend,
        common::{
            Attributes, Caller, CreateHow, ExportId, FileError, FileHandle, FileId, Handles, MAX_NAME_LEN, NameSpace,
            SetAttributes, Time, access,
        },
        v3::{
            MAX_IO_BYTES, MAX_LISTING_LEN, Procedure,
            arguments::{Arguments, Place},
            results::{
                Entries, Entry, Failure, FailureContext, FsInfo, PostOp, PreOp, Reply, Results, Wcc, properties,
            },
            types::Status,
        },
    },
    rpc::{Credentials, Encoder, RequestKey, Xid, message::encode_success},
    wire::Transmit,
};

impl Connection {
    /// Executes all procedures except READ, WRITE and COMMIT.
    pub(super) fn files_call<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        xid: Xid,
        who: &Credentials,
        arguments: &Arguments<'_>,
        record: &[u8],
        backend: &mut B,
    ) {
        let procedure = arguments.procedure();
        let reached = match self.reach(&first_handle(arguments), who, backend) {
            Ok(reached) if reached.access.read_only && procedure.changes() => {
                return self.reply_failure(xid, procedure, Status::ReadOnly);
            }
            Ok(reached) => reached,
            Err(status) => return self.reply_failure(xid, procedure, status),
        };
        let key = (!procedure.is_idempotent()).then(|| RequestKey::new(self.config.peer, xid, record));
        let (reply, listing, transmit) = (&mut self.rpc.reply, &mut self.listing, &mut self.rpc.transmit);
        let handles = self.config.handles;
        let mut served = false;
        backend.with_files(now, reached.export, &mut |files| {
            served = true;
            if let Some(earlier) = key.and_then(|key| files.state.duplicates.recall(&key)) {
                transmit.put(earlier);
                return;
            }
            encode_success(reply.begin_record(), xid);
            let caller = Caller { who: reached.who, time: files.time };
            let allowed = if reached.access.read_only { access::READING } else { u32::MAX };
            let export = reached.export;
            let mut operation = Operation { export, handles, caller, allowed, files, listing: &mut *listing };
            match operation.carry_out(reached.file, arguments) {
                Ok(results) => results.encode(reply),
                Err(failure) => failure.encode(reply),
            }
            transmit.put(reply.end_record(0));
            if let Some(key) = key {
                files.state.duplicates.remember(key, reply.bytes());
            }
        });
        self.rpc.transmit.charge(cost(procedure, self.listing.len()));
        if !served {
            self.reply_failure(xid, procedure, Status::Stale);
        }
    }
}

/// The maximum cost of a call, in units of `Transmit::charge`. `listed` is the length of a listing's entries.
fn cost(procedure: Procedure, listed: usize) -> usize {
    match procedure {
        // May encode hundreds of entries, each with attributes and a handle.
        Procedure::ReadDir | Procedure::ReadDirPlus => Transmit::REQUEST + 4 * listed,
        // May check all parent directories.
        Procedure::Rename | Procedure::MkDir => Transmit::TURN / 2,
        // May truncate a file and free what it had reserved.
        Procedure::SetAttr | Procedure::Create | Procedure::Remove => Transmit::TURN / 8,
        _ => Transmit::REQUEST,
    }
}

/// The handle that determines the export of a call.
fn first_handle(arguments: &Arguments<'_>) -> FileHandle {
    match arguments {
        Arguments::Null => FileHandle::new(&[]).expect("no bytes are not too many"),
        Arguments::GetAttr { file }
        | Arguments::SetAttr { file, .. }
        | Arguments::Access { file, .. }
        | Arguments::ReadLink { link: file }
        | Arguments::Link { file, .. }
        | Arguments::ReadDir { directory: file, .. }
        | Arguments::ReadDirPlus { directory: file, .. }
        | Arguments::FsStat { root: file }
        | Arguments::FsInfo { root: file }
        | Arguments::PathConf { file } => *file,
        Arguments::Read(range) | Arguments::Commit(range) => range.file,
        Arguments::Write(head) => head.file,
        Arguments::Lookup(place)
        | Arguments::Remove(place)
        | Arguments::RmDir(place)
        | Arguments::Create { place, .. }
        | Arguments::MkDir { place, .. }
        | Arguments::SymLink { place, .. }
        | Arguments::MkNod { place, .. }
        | Arguments::Rename { from: place, .. } => place.directory,
    }
}

/// One call on an export's files. `file` is always the file of the call's first handle.
struct Operation<'a, 'f> {
    export: ExportId,
    handles: Handles,
    caller: Caller,
    /// The rights that the export may grant.
    allowed: u32,
    files: &'a mut Files<'f>,
    listing: &'a mut Encoder,
}

impl Operation<'_, '_> {
    fn carry_out<'r>(&'r mut self, file: FileId, arguments: &Arguments<'_>) -> Reply<'r> {
        match arguments {
            Arguments::GetAttr { .. } => self
                .files
                .names
                .attributes(file)
                .map(Results::GetAttr)
                .map_err(|error| Failure::bare(Procedure::GetAttr, error.into())),
            Arguments::SetAttr { attributes, guard, .. } => self.set_attributes(file, attributes, *guard),
            Arguments::Lookup(place) => self.lookup(file, place),
            Arguments::Access { rights, .. } => {
                let rights = self.files.names.access(&self.caller, file, *rights & self.allowed);
                self.answer(file, rights, |attributes, rights| Results::Access { attributes, rights })
            }
            Arguments::ReadLink { .. } => {
                let attributes = self.post_op(file);
                let path = self.files.names.read_link(file).map_err(|status| post_op_failure(status, attributes))?;
                Ok(Results::ReadLink { attributes, path })
            }
            Arguments::Create { place, how } => self.create(file, place, how),
            Arguments::MkDir { place, attributes } => self
                .make(file, place, |op, caller| Ok(op.names.make_directory(caller, file, place.name, attributes)?)),
            Arguments::SymLink { place, attributes, path } => self
                .make(file, place, |op, caller| Ok(op.names.make_link(caller, file, place.name, attributes, path)?)),
            Arguments::MkNod { place, kind, attributes } => self.make(file, place, |op, caller| {
                let kind = kind.ok_or(Status::BadType)?;
                Ok(op.names.make_node(caller, file, place.name, attributes, kind)?)
            }),
            Arguments::Remove(place) => self.remove(file, place, false),
            Arguments::RmDir(place) => self.remove(file, place, true),
            Arguments::Rename { from, to } => self.rename(file, from, to),
            Arguments::Link { link, .. } => self.link(file, link),
            Arguments::ReadDir { cookie, verifier, count, .. } => {
                let wanted = Listing { plus: false, cookie: *cookie, verifier: *verifier, names: *count, all: *count };
                list((self.export, self.handles), &self.caller, &*self.files.names, file, &wanted, self.listing)
            }
            Arguments::ReadDirPlus { cookie, verifier, name_bytes, max_bytes, .. } => {
                let wanted =
                    Listing { plus: true, cookie: *cookie, verifier: *verifier, names: *name_bytes, all: *max_bytes };
                list((self.export, self.handles), &self.caller, &*self.files.names, file, &wanted, self.listing)
            }
            Arguments::FsStat { .. } => {
                let space = self.files.names.attributes(file).map(|_| self.files.names.space());
                self.answer(file, space, |attributes, space| Results::FsStat { attributes, space })
            }
            Arguments::FsInfo { .. } => {
                let info = self.files.names.attributes(file).map(|_| fs_info(self.files.names.max_file_size()));
                self.answer(file, info, |attributes, info| Results::FsInfo { attributes, info })
            }
            Arguments::PathConf { .. } => {
                let limits = self.files.names.attributes(file).map(|_| self.files.names.limits());
                self.answer(file, limits, |attributes, limits| Results::PathConf { attributes, limits })
            }
            Arguments::Null | Arguments::Read(_) | Arguments::Write(_) | Arguments::Commit(_) => {
                unreachable!("carried out without the name space")
            }
        }
    }

    fn set_attributes(&mut self, file: FileId, set: &SetAttributes, guard: Option<Time>) -> Reply<'static> {
        let before = self.post_op(file);
        let in_step = match (guard, &before) {
            (Some(guard), Some(before)) if before.changed != guard => Err(Status::NotSynchronized),
            _ => Ok(()),
        };
        let result =
            in_step.and_then(|()| self.files.names.set_attributes(&self.caller, file, set).map_err(Status::from));
        let wcc = self.wcc(file, &before);
        result.map(|()| Results::SetAttr(wcc)).map_err(|status| wcc_failure(status, wcc))
    }

    fn lookup(&mut self, directory: FileId, place: &Place<'_>) -> Reply<'static> {
        let found = check_name(place.name).and_then(|()| self.files.names.lookup(&self.caller, directory, place.name));
        let attributes = self.post_op(directory);
        let object = found.map_err(|status| post_op_failure(status, attributes))?;
        Ok(Results::Lookup {
            object: self.handles.encode(self.export, object),
            attributes: self.post_op(object),
            directory: attributes,
        })
    }

    fn create(&mut self, directory: FileId, place: &Place<'_>, how: &CreateHow) -> Reply<'static> {
        self.make(directory, place, |files, caller| Ok(files.names.create(caller, directory, place.name, how)?))
    }

    fn make(
        &mut self,
        directory: FileId,
        place: &Place<'_>,
        how: impl FnOnce(&mut Files<'_>, &Caller) -> Result<FileId, Status>,
    ) -> Reply<'static> {
        let before = self.post_op(directory);
        let made = check_name(place.name).map_err(Status::from).and_then(|()| how(self.files, &self.caller));
        let directory = self.wcc(directory, &before);
        let made = made.map_err(|status| wcc_failure(status, directory))?;
        Ok(Results::Create {
            object: Some(self.handles.encode(self.export, made)),
            attributes: self.post_op(made),
            directory,
        })
    }

    fn remove(&mut self, directory: FileId, place: &Place<'_>, is_directory: bool) -> Reply<'static> {
        let before = self.post_op(directory);
        let removed = check_name(place.name).and_then(|()| {
            if is_directory {
                self.files.names.remove_directory(&self.caller, directory, place.name)
            } else {
                self.files.names.remove(&self.caller, directory, place.name)
            }
        });
        let directory = self.wcc(directory, &before);
        removed.map(|()| Results::Remove { directory }).map_err(|status| wcc_failure(status, directory))
    }

    fn rename(&mut self, from_directory: FileId, from: &Place<'_>, to: &Place<'_>) -> Reply<'static> {
        let to_directory = match self.same_export(&to.directory) {
            Ok(directory) => directory,
            Err(status) => return Err(Failure::bare(Procedure::Rename, status)),
        };
        let before = (self.post_op(from_directory), self.post_op(to_directory));
        let renamed = check_name(from.name)
            .and_then(|()| check_name(to.name))
            .and_then(|()| self.files.names.rename(&self.caller, (from_directory, from.name), (to_directory, to.name)));
        let from = self.wcc(from_directory, &before.0);
        let to = self.wcc(to_directory, &before.1);
        let context = FailureContext::Rename { from, to };
        renamed.map(|()| Results::Rename { from, to }).map_err(|error| Failure { status: error.into(), context })
    }

    fn link(&mut self, file: FileId, link: &Place<'_>) -> Reply<'static> {
        let directory = match self.same_export(&link.directory) {
            Ok(directory) => directory,
            Err(status) => return Err(Failure::bare(Procedure::Link, status)),
        };
        let before = self.post_op(directory);
        let linked =
            check_name(link.name).and_then(|()| self.files.names.link(&self.caller, file, directory, link.name));
        let attributes = self.post_op(file);
        let directory = self.wcc(directory, &before);
        let context = FailureContext::Link { attributes, directory };
        linked
            .map(|()| Results::Link { attributes, directory })
            .map_err(|error| Failure { status: error.into(), context })
    }

    /// The file of a call's second handle, which must belong to the same export as the first.
    fn same_export(&self, handle: &FileHandle) -> Result<FileId, Status> {
        match self.handles.decode(handle) {
            Ok((export, file)) if export == self.export => Ok(file),
            Ok(_) => Err(Status::CrossDevice),
            Err(error) => Err(error.into()),
        }
    }

    fn answer<T>(
        &self,
        file: FileId,
        result: Result<T, FileError>,
        results: impl FnOnce(PostOp, T) -> Results<'static>,
    ) -> Reply<'static> {
        let attributes = self.post_op(file);
        result.map(|value| results(attributes, value)).map_err(|status| post_op_failure(status, attributes))
    }

    fn post_op(&self, file: FileId) -> PostOp {
        self.files.names.attributes(file).ok()
    }

    fn wcc(&self, file: FileId, before: &PostOp) -> Wcc {
        Wcc { before: before.as_ref().map(PreOp::from), after: self.post_op(file) }
    }
}

fn post_op_failure(status: impl Into<Status>, attributes: PostOp) -> Failure {
    Failure { status: status.into(), context: FailureContext::PostOp(attributes) }
}

fn wcc_failure(status: impl Into<Status>, wcc: Wcc) -> Failure {
    Failure { status: status.into(), context: FailureContext::Wcc(wcc) }
}

fn check_name(name: &[u8]) -> Result<(), FileError> {
    if name.len() > MAX_NAME_LEN {
        Err(FileError::NameTooLong)
    } else if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        Err(FileError::Invalid)
    } else {
        Ok(())
    }
}

fn fs_info(max_file_size: u64) -> FsInfo {
    FsInfo {
        read_max: MAX_IO_BYTES,
        read_preferred: MAX_IO_BYTES,
        read_multiple: 4096,
        write_max: MAX_IO_BYTES,
        write_preferred: MAX_IO_BYTES,
        write_multiple: 4096,
        listing_preferred: MAX_LISTING_LEN,
        max_file_size,
        time_delta: Time { seconds: 0, nanoseconds: 1 },
        properties: properties::LINK | properties::SYMLINK | properties::HOMOGENEOUS | properties::CAN_SET_TIME,
    }
}

/// Length of a listing without its entries: status, attributes, verifier, end of list, eof.
const FRAME_LEN: usize = 4 + 4 + Attributes::ENCODED_LEN + 8 + 4 + 4;

/// The parameters of a listing.
pub(super) struct Listing {
    /// Include attributes and handles.
    pub(super) plus: bool,
    pub(super) cookie: u64,
    pub(super) verifier: [u8; 8],
    /// Maximum bytes of names, numbers and cookies.
    pub(super) names: u32,
    /// Maximum bytes of the whole reply.
    pub(super) all: u32,
}

pub(super) fn list<'r>(
    (export, handles): (ExportId, Handles),
    caller: &Caller,
    names: &dyn NameSpace,
    directory: FileId,
    wanted: &Listing,
    entries: &'r mut Encoder,
) -> Reply<'r> {
    let attributes = names.attributes(directory).ok();
    let failure = |status| Failure { status, context: FailureContext::PostOp(attributes) };
    let room = (wanted.all.min(MAX_LISTING_LEN) as usize).saturating_sub(FRAME_LEN);
    let room_for_names = wanted.names as usize;
    let mut names_len = 0;
    entries.truncate(0);
    let end = names.list(caller, directory, wanted.cookie, wanted.verifier, &mut |listed| {
        let mut entry = Entry {
            number: listed.file.number,
            name: listed.name,
            cookie: listed.cookie,
            attributes: None,
            handle: None,
        };
        let before = entries.len();
        names_len += 24 + listed.name.len().next_multiple_of(4);
        if wanted.plus {
            entry.attributes = names.attributes(listed.file).ok();
            entry.handle = Some(handles.encode(export, listed.file));
        }
        entry.encode(wanted.plus, entries);
        // RFC 1813 §3.3.17: the limit on names is a hint, so one entry is always returned.
        let fits = entries.len() <= room && (before == 0 || names_len <= room_for_names);
        if !fits {
            entries.truncate(before);
        }
        fits
    });
    let end = end.map_err(|error| failure(error.into()))?;
    if entries.is_empty() && !end.eof {
        return Err(failure(Status::TooSmall));
    }
    let entries = Entries::new(wanted.plus, entries.bytes());
    Ok(Results::ReadDir { attributes, verifier: end.verifier, entries, eof: end.eof })
}
