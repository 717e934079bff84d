//! What NFS asks of the server.

use iotax_proto::{
    Instant,
    nfs3::{
        Attributes, Status,
        target_side::{
            Export, ExportAccess, ExportId, FileId, Files, NameSpace as _, NfsBackend, OpenFile, ServerState,
        },
    },
    rpc::{Credentials, Peer},
};

use super::{
    desk::{Counter, Desk},
    shared::{NfsExport, Target},
};

impl Desk {
    fn nfs(&self, export: ExportId) -> Option<&NfsExport> {
        match self.counter.server.targets.get(export as usize)? {
            Target::Nfs(export) => Some(export),
            Target::Iscsi { .. } | Target::Nvme { .. } => None,
        }
    }
}

impl Counter {
    /// Some of an export's files were removed or cut.
    fn has_remains(&self, export: ExportId) {
        let mut remains = self.remains.borrow_mut();
        if !remains.contains(&export) {
            remains.push_back(export);
        }
    }

    /// Frees a part of what remains of files, of one export after the other.
    pub(super) fn free_some(&self) {
        let next = self.remains.borrow_mut().pop_front();
        if let Some((number, Target::Nfs(export))) =
            next.and_then(|number| Some((number, self.server.targets.get(number as usize)?)))
        {
            let mut tree = export.tree.lock();
            tree.free_some();
            if tree.has_remains() {
                self.remains.borrow_mut().push_back(number);
            }
        }
    }
}

impl NfsBackend for Desk {
    fn exports(&self) -> Vec<Export> {
        let here = self.portal().exports.iter().filter_map(|index| Some((*index, self.nfs(*index as ExportId)?)));
        let shown = here.map(|(index, export)| {
            let groups = self.export(index).groups.iter().flatten();
            let groups = groups.flat_map(super::Group::networks).collect();
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

    #[inline]
    fn open(&mut self, export: ExportId, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, Status> {
        let now = self.now;
        let export = self.nfs(export).ok_or(Status::Stale)?;
        if file == export.file_id {
            let open = export.file.open(who, write)?;
            if write {
                export.file.touch(self.counter.server.time(now));
            }
            return Ok(open);
        }
        export.tree.lock().open(file, who, write)
    }

    #[inline]
    fn attributes(&mut self, export: ExportId, file: FileId) -> Option<Attributes> {
        let export = self.nfs(export)?;
        if file == export.file_id { Some(export.file.attributes()) } else { export.tree.lock().attributes(file).ok() }
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.counter.server.config.started_unix_ns.to_be_bytes()
    }

    fn with_files(&mut self, now: Instant, export: ExportId, use_it: &mut dyn FnMut(&mut Files<'_>)) {
        let Some(NfsExport { tree, .. }) = self.nfs(export) else { return };
        let server = &self.counter.server;
        let (mut tree, mut state) = (tree.lock(), server.nfs.lock());
        use_it(&mut Files { names: &mut *tree, state: &mut state, time: server.time(now) });
        if tree.has_remains() {
            self.counter.has_remains(export);
        }
    }

    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState)) {
        use_it(&mut self.counter.server.nfs.lock());
    }
}
