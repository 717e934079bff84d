//! What an NFS target asks of the server behind it, beyond `Backend`: exports, attributes, a name space. No XDR here.

use alloc::{string::String, vec::Vec};

use crate::{
    Backend, Instant, UnitId,
    nfs3::{
        arguments::{CreateHow, NodeKind, SetAttributes},
        results::{PathConf, Space},
        types::{Attributes, Status, Time},
    },
    rpc::{Credentials, DuplicateCache, Peer, auth::NOBODY},
};

use super::mount::MountTable;

/// The server's number of an export; part of every file handle, so it stays the same over restarts.
pub type ExportId = u32;

/// Names a file within its export, for as long as the file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub number: u64,
    /// Tells a file from an earlier one of the same number.
    pub generation: u32,
}

impl FileId {
    /// Generation of files that are the same after a restart of the server, in directories that everybody may search.
    pub const LASTING: u32 = 0;
}

/// An export as clients may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub id: ExportId,
    /// Absolute, without a slash at its end.
    pub path: String,
    /// Hosts that may mount it, as EXPORT lists them; none: everybody.
    pub groups: Vec<String>,
}

/// What a client may do with an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportAccess {
    pub read_only: bool,
    pub squash: Squash,
}

/// Whose rights a caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// The caller's own, root's too.
    None,
    /// The caller's own, but root's become nobody's.
    Root,
    /// Everybody's become nobody's.
    All,
}

impl Squash {
    pub fn apply(self, who: Credentials) -> Credentials {
        match self {
            Self::None => who,
            Self::Root => who.squash_root(NOBODY, NOBODY),
            Self::All => Credentials::nobody(),
        }
    }
}

/// A file whose data may be read or written.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// Where its data are: the unit of `Backend::start`.
    pub unit: UnitId,
    pub attributes: Attributes,
    /// Its data are copied when they are read; a volume's are named.
    pub is_copied: bool,
}

/// A server of NFS exports. `open` and `attributes` are on the path of every READ and WRITE: for a file that is a volume
/// they take no lock and search nothing.
pub trait NfsBackend: Backend {
    fn exports(&self) -> Vec<Export>;
    /// Whether `peer` may use an export, and how. Asked once a connection and export.
    fn admit(&self, peer: &Peer, export: ExportId) -> Option<ExportAccess>;
    /// Finds a file for READ, WRITE or COMMIT and checks that the caller may.
    fn open(&mut self, export: ExportId, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, Status>;
    /// Attributes of a file just read or written; `None` where it is gone.
    fn attributes(&mut self, export: ExportId, file: FileId) -> Option<Attributes>;
    /// Changes whenever data written unstably may have been lost: at every start of the server.
    fn write_verifier(&self) -> [u8; 8];
    /// Calls `use_it` once with the export's files; what it does is one step to every other connection. Not called where
    /// there is no such export.
    fn with_files(&mut self, now: Instant, export: ExportId, use_it: &mut dyn FnMut(&mut Files<'_>));
    /// Calls `use_it` once with what all connections share.
    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState));
}

/// What all connections to a server share besides the files themselves.
#[derive(Debug, Default)]
pub struct ServerState {
    pub(super) duplicates: DuplicateCache,
    pub(super) mounts: MountTable,
}

/// An export's files for the time of one call.
pub struct Files<'a> {
    pub names: &'a mut dyn NameSpace,
    pub state: &'a mut ServerState,
    /// Wall time, for the times of files.
    pub time: Time,
}

impl core::fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Files").field("time", &self.time).finish_non_exhaustive()
    }
}

/// A caller of a name-space operation, and when it calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub who: Credentials,
    pub time: Time,
}

/// A directory entry as a name space lists it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub name: &'a [u8],
    pub file: FileId,
    /// Continues the listing after this entry, whatever was created or removed meanwhile.
    pub cookie: u64,
}

/// How a listing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingEnd {
    /// Cookies are good for calls that give the same verifier.
    pub verifier: [u8; 8],
    /// No entry follows the last one visited.
    pub eof: bool,
}

/// Files and directories of an export, with the rights of a POSIX file system. Names were checked for their length and
/// for `/`, NUL and emptiness; `.` and `..` are the name space's to judge.
pub trait NameSpace {
    fn root(&self) -> FileId;
    fn attributes(&self, file: FileId) -> Result<Attributes, Status>;
    fn set_attributes(&mut self, caller: &Caller, file: FileId, set: &SetAttributes) -> Result<(), Status>;
    fn lookup(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<FileId, Status>;
    /// Those of `rights` (bits of `types::access`) that the caller has.
    fn access(&self, caller: &Caller, file: FileId, rights: u32) -> Result<u32, Status>;
    fn read_link(&self, link: FileId) -> Result<&[u8], Status>;
    fn create(&mut self, caller: &Caller, directory: FileId, name: &[u8], how: &CreateHow) -> Result<FileId, Status>;
    fn make_directory(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<FileId, Status>;
    fn make_link(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        path: &[u8],
    ) -> Result<FileId, Status>;
    fn make_node(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        kind: NodeKind,
    ) -> Result<FileId, Status>;
    fn remove(&mut self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<(), Status>;
    fn remove_directory(&mut self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<(), Status>;
    fn rename(&mut self, caller: &Caller, from: (FileId, &[u8]), to: (FileId, &[u8])) -> Result<(), Status>;
    fn link(&mut self, caller: &Caller, file: FileId, directory: FileId, name: &[u8]) -> Result<(), Status>;
    /// Visits the entries after `cookie` (0: all) until `visit` says false; the entry it refused is not passed.
    fn list(
        &self,
        caller: &Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        visit: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<ListingEnd, Status>;
    fn space(&self) -> Space;
    fn limits(&self) -> PathConf;
    /// Largest size of an ordinary file in bytes.
    fn max_file_size(&self) -> u64;
}
