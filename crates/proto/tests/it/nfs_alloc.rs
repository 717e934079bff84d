//! The path of an I/O allocates nothing in the steady state, on neither side.
#![allow(clippy::unwrap_used)]

use iotax_proto::{
    Instant, UnitId,
    nfs::{
        Files, NfsBackend, ServerState,
        common::{
            Attributes, Export, ExportAccess, ExportId, FileError, FileId, FileType, Handles, OpenFile, Squash, Time,
        },
        v3::target_side::{Config, Connection},
    },
    rpc::{Credentials, Peer},
};

use crate::{
    counted::{NOW, Pair, Volume},
    nfs_support::{config, server::Server},
};

impl NfsBackend for Volume<Attributes> {
    fn exports(&self) -> Vec<Export> {
        Vec::new()
    }

    fn admit(&self, _: &Peer, _: ExportId) -> Option<ExportAccess> {
        Some(ExportAccess { read_only: false, squash: Squash::Root })
    }

    fn open(&mut self, _: ExportId, _: FileId, _: &Credentials, _: bool) -> Result<OpenFile, FileError> {
        Ok(OpenFile { unit: UnitId(0), attributes: self.export, is_copied: false })
    }

    fn attributes(&mut self, _: ExportId, _: FileId) -> Option<Attributes> {
        Some(self.export)
    }

    fn write_verifier(&self) -> [u8; 8] {
        [7; 8]
    }

    fn with_files(&mut self, _: Instant, _: ExportId, _: &mut dyn FnMut(&mut Files<'_>)) {}

    fn with_state(&mut self, _: &mut dyn FnMut(&mut ServerState)) {}
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let time = Time::default();
    let file = Attributes {
        kind: FileType::Regular,
        mode: 0o666,
        links: 1,
        uid: 0,
        gid: 0,
        size: 1 << 20,
        used: 1 << 20,
        device: (0, 0),
        file_system: 7,
        number: 2,
        accessed: time,
        modified: time,
        changed: time,
    };
    let mount = crate::nfs_support::Pair::new(config(), Server::new(1 << 20)).ready().mount;
    Pair::new(mount, Connection::new(NOW, Config::new(Handles::new([9; 32]))), Volume::new(file))
        .assert_nothing_is_allocated();
}
