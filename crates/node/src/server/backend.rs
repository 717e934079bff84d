//! What is behind a connection's protocol: volumes, files, and access control.

use std::{
    cell::RefCell,
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use iotax_proto::{Allocation, Backend, Ending, Geometry, Instant, IoId, Payload, Started, UnitError, UnitId, UnitOp};

use super::{
    arithmetic::Requester,
    files::{self, FileWrites, with_tree},
    portals::{Export, Portal},
    shared::{Server, port_id},
};
use crate::{
    fs::TreeUnit,
    random::Unpredictable,
    volume::{Disks, Operations, Volumes},
};

/// State that the connections of one thread share.
#[derive(Debug)]
pub(crate) struct ThreadState {
    pub(crate) server: Arc<Server>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) disks: Rc<RefCell<Disks>>,
    pub(crate) random: RefCell<Unpredictable>,
    /// Exports whose trees have something to free; see `Tree::free_some`.
    pub(crate) unfreed: RefCell<VecDeque<usize>>,
}

impl ThreadState {
    /// Some of an export's files were removed or truncated.
    pub(crate) fn has_remains(&self, export: usize) {
        let mut unfreed = self.unfreed.borrow_mut();
        if !unfreed.contains(&export) {
            unfreed.push_back(export);
        }
    }

    /// Frees part of the data of removed files; exports take turns.
    pub(super) fn free_some(&self) {
        let next = self.unfreed.borrow_mut().pop_front();
        if let Some((export, tree)) = next.and_then(|export| Some((export, self.server.exported.get(export)?.tree()?)))
        {
            let mut tree = tree.lock();
            tree.free_some();
            if tree.has_remains() {
                self.unfreed.borrow_mut().push_back(export);
            }
        }
    }
}

/// The server behind one connection's target; each protocol implements its own `Backend` in its folder.
#[derive(Debug)]
pub struct ServerBackend {
    pub(crate) state: Rc<ThreadState>,
    pub(crate) operations: Operations,
    pub(super) files: FileWrites,
    pub(crate) peer: SocketAddr,
    portal: usize,
    pub(crate) requester: Requester,
    /// Time of the current call.
    pub(crate) now: Instant,
    /// Kept by disk operations that continue after their operation was aborted without an ending of its own.
    pub(super) ending: Option<Ending>,
}

impl ServerBackend {
    pub(crate) fn new(state: Rc<ThreadState>, requester: Requester, peer: SocketAddr, portal: usize) -> Self {
        let operations = Operations::new(requester.conn, Rc::clone(&state.volumes), Rc::clone(&state.disks));
        Self { state, operations, files: FileWrites::default(), peer, portal, requester, now: Instant(0), ending: None }
    }

    pub(crate) fn portal(&self) -> &Portal {
        &self.state.server.config.portals[self.portal]
    }

    /// Its number, from 1 on.
    pub(crate) fn port(&self) -> u16 {
        port_id(self.portal)
    }

    #[cold]
    pub(super) fn has_silent_portal(&self) -> bool {
        self.state.server.is_silent(self.portal)
    }

    /// Identifies the peer among all peers of this listener; see [`Server`].
    pub(super) fn peer_key(&self) -> (usize, SocketAddr) {
        (self.portal, self.peer)
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.peer.ip()
    }

    pub(crate) fn export(&self, index: usize) -> &Export {
        &self.state.server.config.exports[index]
    }
}

impl Backend for ServerBackend {
    fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        match TreeUnit::from_unit(unit) {
            None => self.operations.geometry(unit),
            Some(unit) => {
                let geometry = |tree: &mut crate::fs::Tree| tree.geometry(unit.number).ok_or(UnitError::NoUnit);
                with_tree(&self.state.server, unit, geometry).ok()
            }
        }
    }

    fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        match TreeUnit::from_unit(unit) {
            None => self.operations.allocation(self.now, unit, offset),
            Some(unit) => files::allocation(&self.state.server, unit, offset),
        }
    }

    #[inline]
    fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started {
        match TreeUnit::from_unit(unit) {
            None => self.operations.start(now, id, unit, op),
            Some(unit) => {
                let started = self.files.start(&self.state.server, now, id, unit, &op);
                if matches!(op, UnitOp::Unmap { .. }) {
                    self.state.has_remains(unit.export as usize);
                }
                started
            }
        }
    }

    #[inline]
    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        if !self.files.place(id, offset, bytes) {
            self.operations.place(id, offset, bytes);
        }
    }

    fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        if self.files.has(id) { None } else { self.operations.memory(id, offset, len) }
    }

    #[inline]
    fn finish(&mut self, now: Instant, id: IoId) -> Started {
        match self.files.finish(&self.state.server, now, id) {
            Some(started) => started,
            None => self.operations.finish(now, id),
        }
    }

    fn abort(&mut self, id: IoId, ending: Option<Ending>) {
        self.files.abort(id);
        self.operations.abort(id, ending.or_else(|| self.ending.clone()));
    }
}
