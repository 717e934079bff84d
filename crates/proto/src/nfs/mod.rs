//! NFS over TCP: what all versions share (`common`, `file_server`), the MOUNT protocol, version 3 (`v3`) and version
//! 4.1 (`v41`). See README.md.
//!
//! `NfsBackend` is what an NFS target needs from the server in addition to `Backend`: exports, attributes, a name
//! space. It does not use XDR.

use alloc::vec::Vec;

use self::{
    common::{Attributes, Export, ExportAccess, ExportId, FileError, FileId, NameSpace, OpenFile, Time},
    mount::MountTable,
};
use crate::{
    Backend, Instant,
    rpc::{Credentials, DuplicateCache, Peer},
};

pub mod common;
mod file_server;
pub mod mount;
pub mod v3;
pub mod v41;

/// The RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// The default port of NFS.
pub const PORT: u16 = 2049;

/// A server of NFS exports. Every READ and WRITE calls `open` and `attributes`. For a file that is a volume they take
/// no lock and search nothing.
pub trait NfsBackend: Backend {
    fn exports(&self) -> Vec<Export>;
    /// Whether and how `peer` may use an export. Called once per connection and export.
    fn admit(&self, peer: &Peer, export: ExportId) -> Option<ExportAccess>;
    /// Finds a file for READ, WRITE or COMMIT, and checks the caller's permission.
    fn open(&mut self, export: ExportId, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, FileError>;
    /// Attributes of a file that was just read or written; `None` if it no longer exists.
    fn attributes(&mut self, export: ExportId, file: FileId) -> Option<Attributes>;
    /// Changes whenever unstable data may have been lost, i.e. at every start of the server.
    fn write_verifier(&self) -> [u8; 8];
    /// Calls `use_it` once with the export's files; not at all if the export does not exist. To other connections
    /// everything that `use_it` does happens atomically.
    fn with_files(&mut self, now: Instant, export: ExportId, use_it: &mut dyn FnMut(&mut Files<'_>));
    /// Calls `use_it` once with the state that all connections share.
    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState));
}

/// State that all connections of a server share, apart from the files.
#[derive(Debug, Default)]
pub struct ServerState {
    duplicates: DuplicateCache,
    mounts: MountTable,
    v41: v41::state::Shared,
}

/// An export's files during one call.
pub struct Files<'a> {
    pub names: &'a mut dyn NameSpace,
    pub state: &'a mut ServerState,
    /// Wall-clock time, for the timestamps of files.
    pub time: Time,
}

impl core::fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Files").field("time", &self.time).finish_non_exhaustive()
    }
}

/// Exports to which a connection's peer has been admitted.
#[derive(Debug)]
struct Admissions {
    peer: Peer,
    admitted: Vec<(ExportId, ExportAccess)>,
}

impl Admissions {
    fn new(peer: Peer) -> Self {
        Self { peer, admitted: Vec::new() }
    }

    /// How the peer may use an export; `None` if it may not.
    fn admission<B: NfsBackend + ?Sized>(&mut self, export: ExportId, backend: &B) -> Option<ExportAccess> {
        if let Some((_, access)) = self.admitted.iter().find(|(admitted, _)| *admitted == export) {
            return Some(*access);
        }
        let access = backend.admit(&self.peer, export)?;
        self.admitted.push((export, access));
        Some(access)
    }
}
