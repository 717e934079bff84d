//! In the steady state, neither side allocates memory on the path of an I/O.
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
    nfs_support::{config, config_41, server::Server},
};

/// A file, and the state that the connections of its server share.
struct Served {
    file: Attributes,
    state: ServerState,
}

impl Served {
    fn new() -> Self {
        Self { file: file(), state: ServerState::default() }
    }
}

impl NfsBackend for Volume<Served> {
    fn exports(&self) -> Vec<Export> {
        Vec::new()
    }

    fn admit(&self, _: &Peer, _: ExportId) -> Option<ExportAccess> {
        Some(ExportAccess { read_only: false, squash: Squash::Root })
    }

    fn open(&mut self, _: ExportId, _: FileId, _: &Credentials, _: bool) -> Result<OpenFile, FileError> {
        Ok(OpenFile { unit: UnitId(0), attributes: self.export.file, is_ordinary: false })
    }

    fn attributes(&mut self, _: ExportId, _: FileId) -> Option<Attributes> {
        Some(self.export.file)
    }

    fn write_verifier(&self) -> [u8; 8] {
        [7; 8]
    }

    fn with_files(&mut self, _: Instant, _: ExportId, _: &mut dyn FnMut(&mut Files<'_>)) {}

    fn with_state(&mut self, use_it: &mut dyn FnMut(&mut ServerState)) {
        use_it(&mut self.export.state);
    }
}

fn file() -> Attributes {
    let time = Time::default();
    Attributes {
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
    }
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let mount = crate::nfs_support::Pair::new(config(), Server::new(1 << 20)).ready().mount;
    Pair::new(mount, Connection::new(NOW, Config::new(Handles::new([9; 32]))), Volume::new(Served::new()))
        .assert_nothing_is_allocated();
}

/// I/O needs the server that created the session, so this test moves that server's state into the counted volume.
#[test]
fn reads_and_writes_of_version_4_1_allocate_nothing() {
    let crate::nfs_support::Pair { mount, connection, mut server, .. } =
        crate::nfs_support::Pair::of_41(config_41(), Server::new(1 << 20)).ready();
    let mut state = None;
    server.with_state(&mut |shared| state = Some(core::mem::take(shared)));
    let volume = Volume::new(Served { file: file(), state: state.expect("a state") });
    Pair::new(mount, connection, volume).assert_nothing_is_allocated();
}
