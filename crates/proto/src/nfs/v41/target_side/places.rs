//! Operations on handles, names and attributes.

use super::{
    Connection,
    work::{NO_EXPORT, Place, ROOTS_NUMBER, Reached, Work},
};
use crate::{
    Instant,
    nfs::{
        Files, NfsBackend,
        common::{
            Attributes, Caller, Export, ExportId, FileHandle, FileId, FileType, MAX_NAME_LEN, NameSpace, Time, access,
        },
        v41::{
            MAX_LISTING_LEN,
            codec::{ChangeInfo, MAX_HANDLE_LEN, StateId, Status},
            fattr::{Bitmap, FileSystem, RawAttributes, Shown, attribute, change_of, was_set},
            operations::{Made, Operation, ReadDirArguments},
        },
    },
    rpc::{
        Encoder,
        auth::{AUTH_NONE, AUTH_SYS},
        xdr,
    },
    wire::Reader,
};

/// Number of the first export in the directory above all exports.
const FIRST_EXPORT: u64 = 3;
/// Length of a listing without its entries: verifier, end of list, eof.
const LISTING_FRAME_LEN: usize = 8 + 4 + 4;
/// All rights that ACCESS may query (RFC 8881 §18.1).
const ALL_RIGHTS: u32 = 0x3f;
/// Cookies that are never assigned (RFC 8881 §18.23.3).
const RESERVED_COOKIES: core::ops::RangeInclusive<u64> = 1..=2;

/// Uses the files of an export. To other connections everything that happens in one call is atomic.
pub(super) fn with_files<B: NfsBackend + ?Sized, T>(
    now: Instant,
    reached: &Reached,
    backend: &mut B,
    use_it: impl FnOnce(&mut Files<'_>, &Caller) -> Result<T, Status>,
) -> Result<T, Status> {
    let (mut use_it, mut result) = (Some(use_it), Err(Status::Stale));
    backend.with_files(now, reached.export, &mut |files| {
        if let Some(use_it) = use_it.take() {
            let caller = Caller { who: reached.who, time: files.time };
            result = use_it(files, &caller);
        }
    });
    result
}

impl Connection {
    /// PUTFH (RFC 8881 §18.19).
    #[inline]
    pub(super) fn put_handle<B: NfsBackend + ?Sized>(
        &mut self,
        work: &Work,
        reader: &mut Reader<'_>,
        backend: &B,
    ) -> Result<Place, Status> {
        let bytes = xdr::opaque(reader, MAX_HANDLE_LEN)?;
        let handle = FileHandle::new(bytes).ok_or(Status::BadHandle)?;
        match self.config.handles.decode(&handle)? {
            (NO_EXPORT, _) => Ok(Place::Roots),
            (export, file) => {
                let access = self.admissions.admission(export, backend).ok_or(Status::Stale)?;
                Ok(Place::File(Reached { export, file, who: access.squash.apply(work.who), access }))
            }
        }
    }

    pub(super) fn on_place<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        operation: &Operation<'_>,
        backend: &mut B,
    ) -> Result<(), Status> {
        match operation {
            Operation::PutRootFh | Operation::PutPubFh => work.go_to(Place::Roots),
            Operation::GetFh => work.place()?.handle(&self.config.handles).encode(&mut work.reply),
            Operation::SaveFh => {
                work.saved = Some(work.place()?);
                work.saved_state = work.state;
            }
            Operation::RestoreFh => {
                work.current = Some(work.saved.ok_or(Status::NoSavedHandle)?);
                work.state = work.saved_state;
            }
            Operation::GetAttr(wanted) => {
                wanted.check_readable()?;
                self.put_attributes(now, work, *wanted, backend)?;
            }
            Operation::Verify(raw) => {
                if !self.is_same(now, work, raw, backend)? {
                    return Err(Status::NotSame);
                }
            }
            Operation::NVerify(raw) => {
                if self.is_same(now, work, raw, backend)? {
                    return Err(Status::Same);
                }
            }
            Operation::Access { rights } => {
                let rights = rights & ALL_RIGHTS;
                let granted = match work.place()? {
                    Place::Roots => rights & access::READING,
                    Place::File(reached) => {
                        let allowed = if reached.access.read_only { access::READING } else { u32::MAX };
                        with_files(now, &reached, backend, |files, caller| {
                            Ok(files.names.access(caller, reached.file, rights & allowed)?)
                        })?
                    }
                };
                work.reply.u32(rights).u32(granted);
            }
            Operation::Lookup { name } => {
                let found = self.look_up(now, work, name, backend)?;
                work.go_to(found);
            }
            Operation::LookupP => {
                let parent = parent(now, work, backend)?;
                work.go_to(parent);
            }
            Operation::SecInfo { name } => {
                self.look_up(now, work, name, backend)?;
                put_flavors(work);
            }
            Operation::SecInfoNoName { of_parent } => {
                if *of_parent {
                    parent(now, work, backend)?;
                }
                work.place()?;
                put_flavors(work);
            }
            Operation::ReadDir(listing) => self.list(now, work, listing, backend)?,
            Operation::ReadLink => {
                let reached = match work.place()? {
                    Place::Roots => return Err(Status::WrongType),
                    Place::File(reached) => reached,
                };
                with_files(now, &reached, backend, |files, _| {
                    if files.names.attributes(reached.file)?.kind != FileType::Symlink {
                        return Err(Status::WrongType);
                    }
                    work.reply.opaque(files.names.read_link(reached.file)?);
                    Ok(())
                })?;
            }
            Operation::SetAttr { state, attributes } => {
                self.set_attributes(now, work, state, attributes, backend)?.encode(&mut work.reply);
            }
            _ => on_names(now, work, operation, backend)?,
        }
        Ok(())
    }

    /// Looks up a name in the current directory.
    fn look_up<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &Work,
        name: &[u8],
        backend: &mut B,
    ) -> Result<Place, Status> {
        check_name(name)?;
        match work.place()? {
            Place::Roots => self.look_up_export(now, work, name, backend),
            Place::File(reached) => with_files(now, &reached, backend, |files, caller| {
                check_directory(files.names, reached.file)?;
                Ok(reached.at(files.names.lookup(caller, reached.file, name)?))
            }),
        }
    }

    fn look_up_export<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &Work,
        name: &[u8],
        backend: &mut B,
    ) -> Result<Place, Status> {
        let exports = backend.exports();
        let export = exports.iter().find(|export| name_of(export) == name).ok_or(Status::NoEntry)?.id;
        let access = self.admissions.admission(export, backend).ok_or(Status::Access)?;
        let file = FileId { number: 0, generation: 0 };
        let reached = Reached { export, file, who: access.squash.apply(work.who), access };
        with_files(now, &reached, backend, |files, _| Ok(reached.at(files.names.root())))
    }

    fn put_attributes<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        wanted: Bitmap,
        backend: &mut B,
    ) -> Result<(), Status> {
        let place = work.place()?;
        let handle = place.handle(&self.config.handles);
        let mut shown = Shown {
            attributes: roots_attributes(),
            handle: &handle,
            fsid: (0, 0),
            mounted_on: ROOTS_NUMBER,
            file_system: None,
            minor: work.minor,
        };
        if let Place::File(reached) = place {
            let needs_tree = wanted.asks_for_file_system() || wanted.has(attribute::MOUNTED_ON);
            if needs_tree {
                with_files(now, &reached, backend, |files, _| {
                    show(&mut shown, reached.export, files.names, reached.file)
                })?;
            } else {
                shown.attributes = backend.attributes(reached.export, reached.file).ok_or(Status::Stale)?;
                shown.fsid = fsid(reached.export);
            }
        }
        shown.encode(wanted, &mut work.reply);
        Ok(())
    }

    /// Whether attributes have the values that a client sent.
    fn is_same<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        raw: &RawAttributes<'_>,
        backend: &mut B,
    ) -> Result<bool, Status> {
        raw.present.check_readable()?;
        if raw.present.has(attribute::READ_ERROR) {
            return Err(Status::Invalid);
        }
        if !raw.present.without(Bitmap::supported(work.minor)).is_empty() {
            return Err(Status::AttributeNotSupported);
        }
        let mut expected = core::mem::take(&mut self.scratch);
        expected.truncate(0);
        raw.encode(&mut expected);
        let at = work.reply.len();
        let put = self.put_attributes(now, work, raw.present, backend);
        let is_same = work.reply.bytes().get(at..) == Some(expected.bytes());
        work.reply.truncate(at);
        self.scratch = expected;
        put.map(|()| is_same)
    }

    /// SETATTR (RFC 8881 §18.30).
    fn set_attributes<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        state: &StateId,
        raw: &RawAttributes<'_>,
        backend: &mut B,
    ) -> Result<Bitmap, Status> {
        let reached = match work.place()? {
            Place::Roots => return Err(Status::ReadOnly),
            Place::File(reached) => reached,
        };
        let set = raw.to_set(work.minor)?;
        reached.check_writable()?;
        if set.size.is_some() {
            self.check_state(work, state, (reached.export, reached.file), true, backend)?;
        }
        with_files(now, &reached, backend, |files, caller| {
            let kind = files.names.attributes(reached.file)?.kind;
            match kind {
                FileType::Directory if set.size.is_some() => return Err(Status::IsDirectory),
                kind if kind != FileType::Regular && set.size.is_some() => return Err(Status::Invalid),
                _ => {}
            }
            files.names.set_attributes(caller, reached.file, &set)?;
            Ok(was_set(&set))
        })
    }

    /// READDIR (RFC 8881 §18.23).
    fn list<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        listing: &ReadDirArguments,
        backend: &mut B,
    ) -> Result<(), Status> {
        listing.wanted.check_readable()?;
        if RESERVED_COOKIES.contains(&listing.cookie) {
            return Err(Status::BadCookie);
        }
        let place = work.place()?;
        let room = (listing.all.min(MAX_LISTING_LEN) as usize).min(work.room());
        let room = room.checked_sub(LISTING_FRAME_LEN).ok_or(Status::TooSmall)?;
        let (verifier_at, minor) = (work.reply.len(), work.minor);
        work.reply.u64(0);
        let mut entries =
            Entries { begin: work.reply.len(), room, names: listing.names as usize, names_len: 0, refused: false };
        let handles = self.config.handles;
        let end = match place {
            Place::File(reached) => with_files(now, &reached, backend, |files, caller| {
                let names = &*files.names;
                check_directory(names, reached.file)?;
                let end = names.list(caller, reached.file, listing.cookie, listing.verifier, &mut |listed| {
                    if listed.name == b"." || listed.name == b".." {
                        return true;
                    }
                    entries.put(&mut work.reply, listed.cookie, listed.name, |encoder| {
                        let handle = handles.encode(reached.export, listed.file);
                        put_entry(&handle, reached.export, names, listed.file, minor, listing.wanted, encoder);
                    })
                })?;
                Ok((end.verifier, end.eof))
            })?,
            Place::Roots => (backend.write_verifier(), self.list_exports(now, work, listing, &mut entries, backend)),
        };
        if entries.is_empty(&work.reply) && entries.refused {
            return Err(Status::TooSmall);
        }
        let (verifier, eof) = end;
        work.reply.patch(verifier_at, u32::from_be_bytes([verifier[0], verifier[1], verifier[2], verifier[3]]));
        work.reply.patch(verifier_at + 4, u32::from_be_bytes([verifier[4], verifier[5], verifier[6], verifier[7]]));
        work.reply.boolean(false).boolean(eof);
        Ok(())
    }

    fn list_exports<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        listing: &ReadDirArguments,
        entries: &mut Entries,
        backend: &mut B,
    ) -> bool {
        let (minor, handles) = (work.minor, self.config.handles);
        let cookie = |export: &Export| u64::from(export.id) + FIRST_EXPORT;
        let mut exports = backend.exports();
        exports.sort_by_key(|export| export.id);
        for export in exports.iter().filter(|export| cookie(export) > listing.cookie) {
            let Some(access) = self.admissions.admission(export.id, backend) else { continue };
            let file = FileId { number: 0, generation: 0 };
            let reached = Reached { export: export.id, file, who: access.squash.apply(work.who), access };
            let fits = with_files(now, &reached, backend, |files, _| {
                let (names, root) = (&*files.names, files.names.root());
                let handle = handles.encode(export.id, root);
                Ok(entries.put(&mut work.reply, cookie(export), name_of(export), |encoder| {
                    put_entry(&handle, export.id, names, root, minor, listing.wanted, encoder);
                }))
            });
            if fits == Ok(false) {
                return false;
            }
        }
        true
    }
}

/// The entries of a listing under construction.
struct Entries {
    begin: usize,
    room: usize,
    names: usize,
    names_len: usize,
    /// Whether an entry did not fit.
    refused: bool,
}

impl Entries {
    fn is_empty(&self, reply: &Encoder) -> bool {
        reply.len() == self.begin
    }

    /// Encodes an entry; false if it does not fit. The limit on names is a hint, so one entry is always returned.
    fn put(
        &mut self,
        reply: &mut Encoder,
        cookie: u64,
        name: &[u8],
        put_attributes: impl FnOnce(&mut Encoder),
    ) -> bool {
        let before = reply.len();
        reply.boolean(true).u64(cookie).opaque(name);
        self.names_len += reply.len() - before;
        put_attributes(reply);
        let is_first = before == self.begin;
        let fits =
            reply.len() - self.begin <= self.room && (is_first || self.names == 0 || self.names_len <= self.names);
        if !fits {
            reply.truncate(before);
            self.refused = true;
        }
        fits
    }
}

fn put_entry(
    handle: &FileHandle,
    export: ExportId,
    names: &dyn NameSpace,
    file: FileId,
    minor: u32,
    wanted: Bitmap,
    encoder: &mut Encoder,
) {
    let attributes = roots_attributes();
    let mut shown = Shown { attributes, handle, fsid: (0, 0), mounted_on: 0, file_system: None, minor };
    match show(&mut shown, export, names, file) {
        Ok(()) => shown.encode(wanted, encoder),
        // The entry exists, so it is listed even without attributes.
        Err(_) => shown.encode(Bitmap::default(), encoder),
    }
}

/// Fills in the attributes of an export's file.
fn show(shown: &mut Shown<'_>, export: ExportId, names: &dyn NameSpace, file: FileId) -> Result<(), Status> {
    shown.attributes = names.attributes(file)?;
    shown.fsid = fsid(export);
    shown.mounted_on = if file == names.root() { u64::from(export) + FIRST_EXPORT } else { shown.attributes.number };
    shown.file_system = Some(FileSystem::of(names));
    Ok(())
}

/// CREATE, REMOVE, RENAME and LINK.
fn on_names<B: NfsBackend + ?Sized>(
    now: Instant,
    work: &mut Work,
    operation: &Operation<'_>,
    backend: &mut B,
) -> Result<(), Status> {
    let place = work.place()?;
    let Place::File(reached) = place else { return Err(Status::ReadOnly) };
    match operation {
        Operation::Create { made, name, attributes } => {
            if *made == Made::Other {
                return Err(Status::BadType);
            }
            let set = attributes.to_set(work.minor)?;
            check_name(name)?;
            reached.check_writable()?;
            let (file, change) = with_files(now, &reached, backend, |files, caller| {
                check_directory(files.names, reached.file)?;
                changing(files.names, reached.file, |names| {
                    Ok(match *made {
                        Made::Directory => names.make_directory(caller, reached.file, name, &set)?,
                        Made::Link(path) => names.make_link(caller, reached.file, name, &set, path)?,
                        Made::Node(kind) => names.make_node(caller, reached.file, name, &set, kind)?,
                        Made::Other => return Err(Status::BadType),
                    })
                })
            })?;
            change.encode(&mut work.reply);
            was_set(&set).encode(&mut work.reply);
            work.go_to(reached.at(file));
        }
        Operation::Remove { name } => {
            check_name(name)?;
            reached.check_writable()?;
            let ((), change) = with_files(now, &reached, backend, |files, caller| {
                check_directory(files.names, reached.file)?;
                changing(files.names, reached.file, |names| {
                    let file = names.lookup(caller, reached.file, name)?;
                    if names.attributes(file)?.kind == FileType::Directory {
                        Ok(names.remove_directory(caller, reached.file, name)?)
                    } else {
                        Ok(names.remove(caller, reached.file, name)?)
                    }
                })
            })?;
            change.encode(&mut work.reply);
        }
        Operation::Rename { from, to } => {
            let source = work.saved_file(&reached)?;
            check_name(from)?;
            check_name(to)?;
            reached.check_writable()?;
            let (source_change, change) = with_files(now, &reached, backend, |files, caller| {
                check_directory(files.names, source)?;
                check_directory(files.names, reached.file)?;
                let before = change_of(&files.names.attributes(source)?);
                let ((), change) = changing(files.names, reached.file, |names| {
                    Ok(names.rename(caller, (source, from), (reached.file, to))?)
                })?;
                let after = change_of(&files.names.attributes(source)?);
                Ok((ChangeInfo { before, after }, change))
            })?;
            source_change.encode(&mut work.reply);
            change.encode(&mut work.reply);
        }
        Operation::Link { name } => {
            let file = work.saved_file(&reached)?;
            check_name(name)?;
            reached.check_writable()?;
            let ((), change) = with_files(now, &reached, backend, |files, caller| {
                check_directory(files.names, reached.file)?;
                changing(files.names, reached.file, |names| Ok(names.link(caller, file, reached.file, name)?))
            })?;
            change.encode(&mut work.reply);
        }
        _ => unreachable!("all other operations are carried out elsewhere"),
    }
    Ok(())
}

/// Changes names in a directory, and returns the directory's change attribute before and after.
pub(super) fn changing<T>(
    names: &mut dyn NameSpace,
    directory: FileId,
    change: impl FnOnce(&mut dyn NameSpace) -> Result<T, Status>,
) -> Result<(T, ChangeInfo), Status> {
    let before = change_of(&names.attributes(directory)?);
    let changed = change(names)?;
    let after = change_of(&names.attributes(directory)?);
    Ok((changed, ChangeInfo { before, after }))
}

/// The parent of the current directory.
fn parent<B: NfsBackend + ?Sized>(now: Instant, work: &Work, backend: &mut B) -> Result<Place, Status> {
    match work.place()? {
        Place::Roots => Err(Status::NoEntry),
        Place::File(reached) => with_files(now, &reached, backend, |files, caller| {
            check_directory(files.names, reached.file)?;
            if reached.file == files.names.root() {
                return Ok(Place::Roots);
            }
            Ok(reached.at(files.names.lookup(caller, reached.file, b"..")?))
        }),
    }
}

/// Encodes the authentication flavors in order of preference. The current file handle is consumed (RFC 8881 §18.29.3
/// and §18.45.3).
fn put_flavors(work: &mut Work) {
    work.reply.u32(2).u32(AUTH_SYS).u32(AUTH_NONE);
    work.current = None;
    work.state = StateId::ANONYMOUS;
}

pub(super) fn check_directory(names: &dyn NameSpace, file: FileId) -> Result<(), Status> {
    match names.attributes(file)?.kind {
        FileType::Directory => Ok(()),
        FileType::Symlink => Err(Status::Symlink),
        _ => Err(Status::NotDirectory),
    }
}

/// RFC 8881 §14.5 and §18.13.4: `.` and `..` are not valid names.
pub(super) fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.len() > MAX_NAME_LEN {
        Err(Status::NameTooLong)
    } else if name.is_empty() {
        Err(Status::Invalid)
    } else if name.contains(&b'/') || name.contains(&0) {
        Err(Status::BadCharacter)
    } else if name == b"." || name == b".." {
        Err(Status::BadName)
    } else {
        Ok(())
    }
}

/// The name of an export in the root directory: its path without the leading slash.
fn name_of(export: &Export) -> &[u8] {
    export.path.trim_start_matches('/').as_bytes()
}

fn fsid(export: ExportId) -> (u64, u64) {
    (u64::from(export) + 1, 0)
}

/// Attributes of the directory above all exports.
fn roots_attributes() -> Attributes {
    let time = Time::default();
    Attributes {
        kind: FileType::Directory,
        mode: 0o555,
        links: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 4096,
        device: (0, 0),
        file_system: 0,
        number: ROOTS_NUMBER,
        accessed: time,
        modified: time,
        changed: time,
    }
}
