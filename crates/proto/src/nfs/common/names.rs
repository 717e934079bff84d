//! A server of files as every version sees it: exports and a name space.

use alloc::{string::String, vec::Vec};

use super::{Attributes, CreateHow, FileError, NodeKind, PathConf, SetAttributes, Space, Time};
use crate::{
    UnitId,
    rpc::{Credentials, auth::NOBODY},
};

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
    /// Its data are copied when they are read, and it has holes, of which `Backend::allocation` tells. A volume's data are
    /// sent from where they are, and it has none.
    pub is_ordinary: bool,
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
    fn attributes(&self, file: FileId) -> Result<Attributes, FileError>;
    fn set_attributes(&mut self, caller: &Caller, file: FileId, set: &SetAttributes) -> Result<(), FileError>;
    fn lookup(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<FileId, FileError>;
    /// Those of `rights` (bits of `access`) that the caller has.
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
    /// Visits the entries after `cookie` (0: all) until `visit` says false; the entry it refused is not passed.
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
    /// Largest size of an ordinary file in bytes.
    fn max_file_size(&self) -> u64;
}
