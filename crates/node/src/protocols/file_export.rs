//! An export over NFS of any version: its view of the server, and the identity of a load.

use std::sync::Arc;

use iotax_proto::{
    Instant,
    nfs::{
        Files, NfsBackend, ServerState,
        common::{
            Attributes, Export, ExportAccess, ExportId, FileError, FileId, Handles, NameSpace as _, OpenFile, Time,
        },
    },
    rpc::{Credentials, Peer, auth::Identity},
};

use super::{Exported as Any, ExportedUnit, Protocol};
use crate::{
    fs::{Limits, Tree, VolumeFile},
    load::settings::Settings,
    random::Unpredictable,
    server::{Group, Guarded, ServerBackend, ServerConfig, Service},
    volume::unit_of,
};

/// Name of the file that is an export's volume.
const VOLUME_FILE: &str = "data";

/// State that all exports of a version share.
#[derive(Debug)]
pub struct FileCommon {
    state: Guarded<ServerState>,
    /// Key of file handles.
    handle_key: [u8; 32],
}

#[derive(Clone, Debug)]
pub struct FileExport {
    path: String,
    tree: Guarded<Tree>,
    file: Arc<VolumeFile>,
    file_id: FileId,
}

impl FileCommon {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let mut handle_key = [0; 32];
        Unpredictable::new(&config.secret, "file handles", 0).fill(&mut handle_key);
        Self { state: Guarded::new(ServerState::default()), handle_key }
    }

    pub(super) fn handles(&self) -> Handles {
        Handles::new(self.handle_key)
    }
}

impl ExportedUnit for FileExport {
    fn new(config: &ServerConfig, index: usize) -> Self {
        let export = &config.exports[index];
        let volume = &config.volumes[export.volume];
        let time = Time::from_nanos(config.started_unix_ns);
        let generation = generation(config.started_unix_ns);
        let mut tree = Tree::new(index as u32, generation, Limits::default(), time);
        let unit = unit_of(export.volume, export.read_only);
        let file = tree.add_volume(VOLUME_FILE, unit, volume.size_bytes, export.read_only, time);
        debug_assert!(tree.attributes(file.id()).is_ok(), "the volume's file is there");
        let file_id = file.id();
        Self { path: format!("/{}", volume.name), tree: Guarded::new(tree), file, file_id }
    }

    fn path(&self) -> String {
        format!("{}/{VOLUME_FILE}", self.path)
    }

    fn tree(&self) -> Option<&Guarded<Tree>> {
        Some(&self.tree)
    }
}

/// A number that differs from one start of the server to the next, and is not 0. The lives of one process differ by a
/// nanosecond.
fn generation(started_unix_ns: u64) -> u32 {
    let folded = started_unix_ns as u32 ^ (started_unix_ns >> 32) as u32;
    folded.max(1)
}

impl ServerBackend {
    #[inline]
    fn nfs(&self, export: ExportId) -> Option<&FileExport> {
        match self.state.server.exported.get(export as usize)? {
            Any::Nfs3(export) | Any::Nfs41(export) => Some(export),
            _ => None,
        }
    }

    /// State that all connections of this connection's NFS version share.
    fn nfs_common(&self) -> &FileCommon {
        let common = &self.state.server.common;
        if self.portal().service == Service::Protocol(Protocol::Nfs41) { &common.nfs41 } else { &common.nfs3 }
    }
}

impl NfsBackend for ServerBackend {
    fn exports(&self) -> Vec<Export> {
        let here = self.portal().exports.iter().filter_map(|index| Some((*index, self.nfs(*index as ExportId)?)));
        let shown = here.map(|(index, export)| {
            let groups = self.export(index).groups.iter().flatten();
            let groups = groups.flat_map(Group::networks).collect();
            Export { id: index as ExportId, path: export.path.clone(), groups }
        });
        shown.collect()
    }

    fn admit(&self, peer: &Peer, export: ExportId) -> Option<ExportAccess> {
        self.nfs(export)?;
        let index = export as usize;
        let export = self.export(index);
        let may = self.portal().exports.contains(&index) && export.admits(None, peer.address);
        may.then_some(ExportAccess { read_only: export.read_only, squash: export.squash })
    }

    #[allow(clippy::inline_always)] // For both versions of NFS: with `take_call` 93 instructions of a READ.
    #[inline(always)]
    fn open(&mut self, export: ExportId, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, FileError> {
        let now = self.now;
        let export = self.nfs(export).ok_or(FileError::Stale)?;
        if file == export.file_id {
            let open = export.file.open(who, write)?;
            if write {
                export.file.touch(self.state.server.time(now));
            }
            return Ok(open);
        }
        export.tree.lock().open(file, who, write)
    }

    #[allow(clippy::inline_always)] // As `open`.
    #[inline(always)]
    fn attributes(&mut self, export: ExportId, file: FileId) -> Option<Attributes> {
        let export = self.nfs(export)?;
        if file == export.file_id { Some(export.file.attributes()) } else { export.tree.lock().attributes(file).ok() }
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.state.server.config.started_unix_ns.to_be_bytes()
    }

    fn with_files(&mut self, now: Instant, export: ExportId, use_it: &mut dyn FnMut(&mut Files<'_>)) {
        let Some(FileExport { tree, .. }) = self.nfs(export) else { return };
        let server = &self.state.server;
        let (mut tree, mut state) = (tree.lock(), self.nfs_common().state.lock());
        use_it(&mut Files { names: &mut *tree, state: &mut state, time: server.time(now) });
        if tree.has_remains() {
            self.state.has_remains(export as usize);
        }
    }

    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState)) {
        use_it(&mut self.nfs_common().state.lock());
    }
}

/// The identity of a load on a file server.
pub(super) fn identity(settings: &Settings) -> Identity {
    let credentials = Credentials::new(settings.uid.unwrap_or(0), settings.gid.unwrap_or(0), &[]);
    Identity::Sys { machine: "iotax".to_owned(), credentials }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_the_server_have_different_generations() {
        let start = 1_764_598_000_123_456_789;
        let apart = |ns: u64| generation(start) != generation(start + ns);
        assert!([1, 2, 3, 1 << 20, 1 << 32, 3_600_000_000_000].into_iter().all(apart));
        assert_ne!(generation(5 << 32 | 5), 0);
    }
}
