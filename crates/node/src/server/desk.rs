//! What a connection's protocol finds behind it: volumes, files, and who may have them.

use std::{
    cell::RefCell,
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use iotax_proto::{
    Allocation, Backend, Ending, Geometry, Instant, IoId, Started, UnitError, UnitId, UnitOp,
    nfs3::target_side::ExportId,
};

use super::{
    arithmetic::Asker,
    files::{FileWrites, with_tree},
    portals::{Export, Portal},
    shared::Server,
};
use crate::{
    fs::TreeUnit,
    random::Unpredictable,
    volume::{Disks, Operations, Volumes},
};

/// What the connections of one thread share.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) server: Arc<Server>,
    pub(super) volumes: Rc<Volumes>,
    pub(super) disks: Rc<RefCell<Disks>>,
    pub(super) random: RefCell<Unpredictable>,
    /// Exports whose trees have something to free, see `Tree::free_some`.
    pub(super) remains: RefCell<VecDeque<ExportId>>,
}

/// One connection's place at the counter.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) counter: Rc<Counter>,
    pub(super) operations: Operations,
    pub(super) files: FileWrites,
    pub(super) peer: SocketAddr,
    portal: usize,
    pub(super) asker: Asker,
    /// Of the call under way.
    pub(super) now: Instant,
}

impl Desk {
    pub(super) fn new(counter: Rc<Counter>, asker: Asker, peer: SocketAddr, portal: usize) -> Self {
        let operations = Operations::new(asker.conn, Rc::clone(&counter.volumes), Rc::clone(&counter.disks));
        Self { counter, operations, files: FileWrites::default(), peer, portal, asker, now: Instant(0) }
    }

    pub(super) fn portal(&self) -> &Portal {
        &self.counter.server.config.portals[self.portal]
    }

    pub(super) fn address(&self) -> IpAddr {
        self.peer.ip()
    }

    pub(super) fn export(&self, index: usize) -> &Export {
        &self.counter.server.config.exports[index]
    }
}

impl Backend for Desk {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        match TreeUnit::from_unit(unit) {
            None => self.operations.geometry(unit),
            Some(unit) => {
                let geometry = |tree: &mut crate::fs::Tree| tree.geometry(unit.number).ok_or(UnitError::NoUnit);
                with_tree(&self.counter.server, unit, geometry).ok()
            }
        }
    }

    fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        TreeUnit::from_unit(unit).is_none().then(|| self.operations.allocation(self.now, unit, offset))?
    }

    #[inline]
    fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        match TreeUnit::from_unit(unit) {
            None => self.operations.start(now, id, unit, op),
            Some(unit) => self.files.start(&self.counter.server, now, id, unit, &op),
        }
    }

    #[inline]
    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        if !self.files.place(id, offset, bytes) {
            self.operations.place(id, offset, bytes);
        }
    }

    #[inline]
    fn finish(&mut self, now: Instant, id: IoId) -> Started {
        match self.files.finish(&self.counter.server, now, id) {
            Some(started) => started,
            None => self.operations.finish(now, id),
        }
    }

    fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        self.files.abort(id);
        self.operations.abort(id, ending);
    }
}
