//! NFS over TCP: what every version speaks of (`common`), the MOUNT protocol, version 3 (`v3`) and version 4.1 (`v41`). See README.md.
//!
//! What an NFS target asks of the server behind it, beyond `Backend`: exports, attributes, a name space. No XDR here.

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
pub mod mount;
pub mod v3;
pub mod v41;

/// NFS's RPC program number.
pub const PROGRAM: u32 = 100_003;
/// The port of NFS where nobody names another.
pub const PORT: u16 = 2049;

/// A server of NFS exports. `open` and `attributes` are on the path of every READ and WRITE: for a file that is a volume
/// they take no lock and search nothing.
pub trait NfsBackend: Backend {
    fn exports(&self) -> Vec<Export>;
    /// Whether `peer` may use an export, and how. Asked once a connection and export.
    fn admit(&self, peer: &Peer, export: ExportId) -> Option<ExportAccess>;
    /// Finds a file for READ, WRITE or COMMIT and checks that the caller may.
    fn open(&mut self, export: ExportId, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, FileError>;
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
    duplicates: DuplicateCache,
    mounts: MountTable,
    v41: v41::state::Shared,
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

/// Exports that a connection's peer was admitted to.
#[derive(Debug)]
struct Admissions {
    peer: Peer,
    admitted: Vec<(ExportId, ExportAccess)>,
}

impl Admissions {
    fn new(peer: Peer) -> Self {
        Self { peer, admitted: Vec::new() }
    }

    /// How the peer may use an export, if at all.
    fn admission<B: NfsBackend + ?Sized>(&mut self, export: ExportId, backend: &B) -> Option<ExportAccess> {
        if let Some((_, access)) = self.admitted.iter().find(|(admitted, _)| *admitted == export) {
            return Some(*access);
        }
        let access = backend.admit(&self.peer, export)?;
        self.admitted.push((export, access));
        Some(access)
    }
}
