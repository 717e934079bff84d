//! Operations on opens and locks (RFC 8881 §9).

use super::{
    places::{changing, check_directory, check_name, with_files},
    work::{Place, Reached, Work, with_shared},
};
use crate::{
    Instant,
    nfs::{
        Files, NfsBackend,
        common::{Caller, CreateHow, ExportId, FileError, FileId, FileType, SetAttributes, access},
        v41::{
            codec::{ChangeInfo, StateId, Status, share},
            fattr::{Bitmap, change_of, was_set},
            operations::{Claim, Locker, OpenArguments, OpenHow, Operation},
            state::{Denied, LockError},
        },
    },
    rpc::Encoder,
    wire::Reader,
};

/// `OPEN4_RESULT_LOCKTYPE_POSIX`: locks may be split and merged.
const LOCKS_ARE_POSIX: u32 = 4;
/// `open_delegation_type4`: none, without and with a reason.
const DELEGATE_NONE: u32 = 0;
const DELEGATE_NONE_EXT: u32 = 3;
/// `why_no_delegation4`.
const NOT_WANTED: u32 = 0;
const NOT_SUPPORTED: u32 = 3;
const CANCELLED: u32 = 7;

pub(super) fn on_state<B: NfsBackend + ?Sized>(
    now: Instant,
    work: &mut Work,
    operation: &Operation<'_>,
    backend: &mut B,
) -> Result<(), Status> {
    let client = work.client()?;
    match operation {
        Operation::Open(asked) => return open(now, work, client, asked, backend),
        Operation::TestStateId(states) => {
            let mut reader = Reader::new(states);
            work.reply.u32((states.len() / StateId::LEN) as u32);
            return with_shared(backend, |shared| {
                while reader.remaining() > 0 {
                    let found = shared.opens.find(client, &StateId::decode(&mut reader)?);
                    work.reply.u32(found.err().map_or(0, |status| status as u32));
                }
                Ok(())
            });
        }
        Operation::FreeStateId(state) => {
            let state = work.named_state(state)?;
            return with_shared(backend, |shared| {
                shared.opens.free(client, &state)?;
                shared.clients.changed();
                Ok(())
            });
        }
        _ => {}
    }
    let reached = work.file()?;
    let file = (reached.export, reached.file);
    let state = match operation {
        Operation::Close { state } => {
            let state = work.named_state(state)?;
            with_shared(backend, |shared| {
                let open = shared.opens.find_open(client, file, &state)?;
                shared.opens.close(open)?;
                shared.clients.changed();
                Ok(StateId::INVALID)
            })?
        }
        Operation::OpenDowngrade { state, access, deny } => {
            let state = work.named_state(state)?;
            let access = check_share(*access, *deny)?;
            with_shared(backend, |shared| {
                let open = shared.opens.find_open(client, file, &state)?;
                let state = shared.opens.downgrade(open, access, *deny)?;
                shared.clients.changed();
                Ok(state)
            })?
        }
        Operation::LockU { state, range } => {
            let state = work.named_state(state)?;
            with_shared(backend, |shared| {
                let lock = shared.opens.find_lock(client, file, &state)?;
                shared.opens.unlock(lock, *range)
            })?
        }
        _ => {
            check_regular(now, &reached, backend)?;
            let locked = lock(now, work, client, &reached, operation, backend);
            match locked {
                Ok(Some(state)) => state,
                Ok(None) => return Ok(()),
                Err(LockError::Status(status)) => return Err(status),
                Err(LockError::Denied(denied)) => {
                    put_denied(&denied, &mut work.reply);
                    return Err(Status::Denied);
                }
            }
        }
    };
    state.encode(&mut work.reply);
    work.state = state;
    Ok(())
}

/// LOCK and LOCKT (RFC 8881 §18.10 and §18.11).
fn lock<B: NfsBackend + ?Sized>(
    now: Instant,
    work: &Work,
    client: u64,
    reached: &Reached,
    operation: &Operation<'_>,
    backend: &mut B,
) -> Result<Option<StateId>, LockError> {
    let file = (reached.export, reached.file);
    let mut result = Err(LockError::Status(Status::ServerFault));
    match operation {
        Operation::LockT { is_exclusive, range, owner } => {
            backend.with_state(&mut |state| {
                let tested = state.v41.test_lock(now, client, owner.name, file, *range, *is_exclusive);
                result = tested.map(|()| None);
            });
        }
        Operation::Lock { is_exclusive, reclaims, range, locker } => {
            if *reclaims {
                return Err(Status::NoGrace.into());
            }
            let named = work.named_state(match locker {
                Locker::New { open, .. } => open,
                Locker::Known(state) => state,
            })?;
            backend.with_state(&mut |state| {
                let shared = &mut state.v41;
                let found = match locker {
                    Locker::New { owner, .. } => shared
                        .opens
                        .find_open(client, file, &named)
                        .and_then(|open| shared.opens.lock_state(open, *owner)),
                    Locker::Known(_) => shared.opens.find_lock(client, file, &named),
                };
                result = found.map_err(LockError::from).and_then(|lock| {
                    let locked = shared.lock(now, client, lock, *range, *is_exclusive);
                    if locked.is_err() {
                        shared.opens.drop_unused(lock);
                    }
                    locked.map(Some)
                });
            });
        }
        _ => unreachable!("all other operations are carried out elsewhere"),
    }
    result
}

fn put_denied(denied: &Denied, encoder: &mut Encoder) {
    encoder.u64(denied.range.offset).u64(denied.range.len).u32(1 + u32::from(denied.is_exclusive));
    encoder.u64(denied.client).opaque(&denied.owner);
}

/// Checks that a file is a regular file, because others cannot be locked.
fn check_regular<B: NfsBackend + ?Sized>(now: Instant, reached: &Reached, backend: &mut B) -> Result<(), Status> {
    let kind = with_files(now, reached, backend, |files, _| Ok(files.names.attributes(reached.file)?.kind))?;
    check_kind(kind)
}

fn check_kind(kind: FileType) -> Result<(), Status> {
    match kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Status::IsDirectory),
        FileType::Symlink => Err(Status::Symlink),
        _ => Err(Status::WrongType),
    }
}

/// Checks access and deny, and returns the access without the wishes about delegations.
fn check_share(access: u32, deny: u32) -> Result<u32, Status> {
    let share = access & share::BOTH;
    let is_known = access & !(share::BOTH | share::WANTS) == 0 && deny <= share::BOTH;
    if is_known && share != 0 { Ok(share) } else { Err(Status::Invalid) }
}

/// The result of an OPEN.
struct Opened {
    file: FileId,
    state: StateId,
    change: ChangeInfo,
    was_set: Bitmap,
}

/// OPEN (RFC 8881 §18.16).
fn open<B: NfsBackend + ?Sized>(
    now: Instant,
    work: &mut Work,
    client: u64,
    asked: &OpenArguments<'_>,
    backend: &mut B,
) -> Result<(), Status> {
    let access = check_share(asked.access, asked.deny)?;
    match asked.claim {
        Claim::Previous => return Err(Status::NoGrace),
        Claim::Delegation => return Err(Status::NotSupported),
        Claim::Name(name) => check_name(name)?,
        Claim::File if asked.how != OpenHow::NoCreate => return Err(Status::Invalid),
        Claim::File => {}
    }
    let reached = match work.place()? {
        Place::File(reached) => reached,
        // There are only the exports, which are directories.
        Place::Roots if asked.how == OpenHow::NoCreate => return Err(Status::IsDirectory),
        Place::Roots => return Err(Status::ReadOnly),
    };
    if access & share::WRITE != 0 || asked.how != OpenHow::NoCreate {
        reached.check_writable()?;
    }
    let minor = work.minor;
    let opened = with_files(now, &reached, backend, |files, caller| {
        let opening = Opening { now, client, minor, access, asked, export: reached.export, directory: reached.file };
        opening.open(files, caller)
    })?;
    opened.state.encode(&mut work.reply);
    opened.change.encode(&mut work.reply);
    work.reply.u32(LOCKS_ARE_POSIX);
    opened.was_set.encode(&mut work.reply);
    put_no_delegation(asked.access & share::WANTS, &mut work.reply);
    work.current = Some(Place::File(Reached { file: opened.file, ..reached }));
    work.state = opened.state;
    Ok(())
}

/// The parameters of an OPEN while it uses the export's files.
struct Opening<'a> {
    now: Instant,
    client: u64,
    minor: u32,
    access: u32,
    asked: &'a OpenArguments<'a>,
    export: ExportId,
    directory: FileId,
}

impl Opening<'_> {
    fn open(&self, files: &mut Files<'_>, caller: &Caller) -> Result<Opened, Status> {
        // RFC 8881 §18.51.3: a client must not open anything new before RECLAIM_COMPLETE.
        if !files.state.v41.clients.is_reclaimed(self.client) {
            return Err(Status::Grace);
        }
        files.state.v41.opens.check_room(self.client)?;
        let Claim::Name(name) = self.asked.claim else {
            let change = ChangeInfo::default();
            return self.open_existing(files, caller, self.directory, change, SetAttributes::default());
        };
        check_directory(files.names, self.directory)?;
        let before = files.names.attributes(self.directory)?;
        let change = ChangeInfo { before: change_of(&before), after: change_of(&before) };
        match files.names.lookup(caller, self.directory, name) {
            Ok(file) => match &self.asked.how {
                OpenHow::NoCreate => self.open_existing(files, caller, file, change, SetAttributes::default()),
                OpenHow::Guarded(_) => Err(Status::Exists),
                OpenHow::Unchecked(raw) => {
                    // The only attribute that applies to an existing file is a size of 0.
                    let size = raw.to_set(self.minor)?.size.filter(|size| *size == 0);
                    let set = SetAttributes { size, ..SetAttributes::default() };
                    self.open_existing(files, caller, file, change, set)
                }
                OpenHow::Exclusive { verifier, .. } => {
                    let how = CreateHow::Exclusive(*verifier);
                    let file = files.names.create(caller, self.directory, name, &how)?;
                    self.opened(files, file, change, Bitmap::default())
                }
            },
            Err(FileError::NoEntry) => self.create(files, caller, name),
            Err(error) => Err(error.into()),
        }
    }

    fn create(&self, files: &mut Files<'_>, caller: &Caller, name: &[u8]) -> Result<Opened, Status> {
        let (how, set) = match &self.asked.how {
            OpenHow::NoCreate => return Err(Status::NoEntry),
            OpenHow::Unchecked(raw) => {
                let set = raw.to_set(self.minor)?;
                (CreateHow::Unchecked(set), set)
            }
            OpenHow::Guarded(raw) => {
                let set = raw.to_set(self.minor)?;
                (CreateHow::Guarded(set), set)
            }
            OpenHow::Exclusive { verifier, attributes } => {
                (CreateHow::Exclusive(*verifier), attributes.to_set(self.minor)?)
            }
        };
        let directory = self.directory;
        let (file, change) = changing(files.names, directory, |names| {
            let file = names.create(caller, directory, name, &how)?;
            if matches!(how, CreateHow::Exclusive(_)) {
                names.set_attributes(caller, file, &set)?;
            }
            Ok(file)
        })?;
        self.opened(files, file, change, was_set(&set))
    }

    /// Opens an existing file; `set` may contain a size.
    fn open_existing(
        &self,
        files: &mut Files<'_>,
        caller: &Caller,
        file: FileId,
        change: ChangeInfo,
        set: SetAttributes,
    ) -> Result<Opened, Status> {
        let attributes = files.names.attributes(file)?;
        check_kind(attributes.kind)?;
        // An owner that reopens its file by handle has been granted access before (RFC 8881 §18.16.3).
        let is_reopened = self.asked.claim == Claim::File && caller.who.uid == attributes.uid;
        if !is_reopened {
            let granted = files.names.access(caller, file, access::READ | access::MODIFY | access::EXECUTE)?;
            let may_read = granted & (access::READ | access::EXECUTE) != 0;
            let may_write = granted & access::MODIFY != 0;
            if self.access & share::READ != 0 && !may_read || self.access & share::WRITE != 0 && !may_write {
                return Err(Status::Access);
            }
        }
        let (owner, shares) = (self.asked.owner.name, (self.access, self.asked.deny));
        files.state.v41.check_share(self.now, self.client, owner, (self.export, file), shares)?;
        if set.size.is_some() {
            files.names.set_attributes(caller, file, &set)?;
        }
        self.opened(files, file, change, was_set(&set))
    }

    fn opened(
        &self,
        files: &mut Files<'_>,
        file: FileId,
        change: ChangeInfo,
        was_set: Bitmap,
    ) -> Result<Opened, Status> {
        let (owner, shares) = (self.asked.owner.name, (self.access, self.asked.deny));
        let state = files.state.v41.open(self.now, self.client, owner, (self.export, file), shares)?;
        Ok(Opened { file, state, change, was_set })
    }
}

/// RFC 8881 §18.16.3: a client that stated its wishes gets the reason why there is no delegation.
fn put_no_delegation(wants: u32, encoder: &mut Encoder) {
    match wants & 0xff00 {
        0 => drop(encoder.u32(DELEGATE_NONE)),
        share::WANT_NO_DELEGATION => drop(encoder.u32(DELEGATE_NONE_EXT).u32(NOT_WANTED)),
        0x0500 => drop(encoder.u32(DELEGATE_NONE_EXT).u32(CANCELLED)),
        _ => drop(encoder.u32(DELEGATE_NONE_EXT).u32(NOT_SUPPORTED)),
    }
}
