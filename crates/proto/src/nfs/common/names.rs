//! A server's exports and name space, as all versions use them.

use alloc::{string::String, vec::Vec};

use super::{Attributes, CreateHow, FileError, NodeKind, PathConf, SetAttributes, Space, Time};
use crate::{
    UnitId,
    rpc::{Credentials, auth::NOBODY},
};

/// The server's number of an export. It is part of every file handle, so it must not change at a restart.
pub type ExportId = u32;

/// Identifies a file within its export while the file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub number: u64,
    /// Distinguishes a file from an earlier one with the same number.
    pub generation: u32,
}

impl FileId {
    /// Generation of files that exist across restarts of the server, in directories that everyone may search.
    pub const LASTING: u32 = 0;
}

/// An export, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub id: ExportId,
    /// Absolute path without a trailing slash.
    pub path: String,
    /// Hosts that may mount it, as EXPORT lists them; empty means everyone.
    pub groups: Vec<String>,
}

/// The access of a client to an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportAccess {
    pub read_only: bool,
    pub squash: Squash,
}

/// Determines with whose rights a caller's operations are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// The caller's own, including root's.
    None,
    /// The caller's own, but root gets the rights of nobody.
    Root,
    /// Everyone gets the rights of nobody.
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
    /// The unit of `Backend::start` that holds its data.
    pub unit: UnitId,
    pub attributes: Attributes,
    /// True: an ordinary file. Its data are copied when they are read, and it may have holes, which
    /// `Backend::allocation` reports. False: a volume. Its data are sent in place, and it has no holes.
    pub is_ordinary: bool,
}

/// The caller of a name-space operation, and the time of the call.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub who: Credentials,
    pub time: Time,
}

/// A directory entry in a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub name: &'a [u8],
    pub file: FileId,
    /// Continues the listing after this entry, even if entries were created or removed meanwhile.
    pub cookie: u64,
}

/// The end of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingEnd {
    /// Cookies are valid in calls with the same verifier.
    pub verifier: [u8; 8],
    /// No entry follows the last one visited.
    pub eof: bool,
}

/// The files and directories of an export, with the permissions of a POSIX file system. The caller has checked names
/// for length, emptiness, `/` and NUL. The name space itself handles `.` and `..`.
pub trait NameSpace {
    fn root(&self) -> FileId;
    fn attributes(&self, file: FileId) -> Result<Attributes, FileError>;
    fn set_attributes(&mut self, caller: &Caller, file: FileId, set: &SetAttributes) -> Result<(), FileError>;
    fn lookup(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<FileId, FileError>;
    /// Returns those of `rights` (bits of `access`) that the caller has.
    fn access(&self, caller: &Caller, file: FileId, rights: u32) -> Result<u32, FileError>;
    fn read_link(&self, link: FileId) -> Result<&[u8], FileError>;
    fn create(&mut self, caller: &Caller, directory: FileId, name: &[u8], how: &CreateHow)
    -> Result<FileId, FileError>;
    fn make_directory(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<FileId, FileError>;
    fn make_link(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        path: &[u8],
    ) -> Result<FileId, FileError>;
    fn make_node(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        kind: NodeKind,
    ) -> Result<FileId, FileError>;
    fn remove(&mut self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<(), FileError>;
    fn remove_directory(&mut self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<(), FileError>;
    fn rename(&mut self, caller: &Caller, from: (FileId, &[u8]), to: (FileId, &[u8])) -> Result<(), FileError>;
    fn link(&mut self, caller: &Caller, file: FileId, directory: FileId, name: &[u8]) -> Result<(), FileError>;
    /// Visits the entries after `cookie` (0: all) until `visit` returns false. The entry for which it returned false
    /// does not count as visited.
    fn list(
        &self,
        caller: &Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        visit: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<ListingEnd, FileError>;
    fn space(&self) -> Space;
    fn limits(&self) -> PathConf;
    /// Maximum size of an ordinary file in bytes.
    fn max_file_size(&self) -> u64;
}
