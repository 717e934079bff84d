//! What the operations of a thread's connections share: requested and pending disk operations, staging memory, and the
//! turns of long work.

use std::collections::VecDeque;

use iotax_proto::{Ending, IoId};
use slab::Slab;

use super::{Buffers, claims::Claim};
use crate::node::{ConnId, DiskId, DiskOp, DiskToken};

/// Pieces of long work that a thread has on its disks at a time: other requests wait behind no more than these.
const PIECES_MAX: usize = 2;

#[derive(Debug)]
pub struct DiskRequest {
    pub token: DiskToken,
    pub disk: DiskId,
    pub op: DiskOp,
}

#[derive(Debug)]
pub struct Disks {
    pub(super) buffers: Buffers,
    requests: VecDeque<DiskRequest>,
    /// The waiting operation, by token.
    waiting: Slab<Entry>,
    /// Long work in memory and on disks that waits for its turn. Operations that were aborted meanwhile are skipped.
    in_memory: VecDeque<(ConnId, IoId)>,
    on_disk: VecDeque<(ConnId, IoId)>,
    pieces: usize,
    /// Operations that wait for their claims.
    barred: Vec<(ConnId, IoId)>,
}

#[derive(Debug)]
struct Entry {
    state: Waiting,
    /// Whether this is a piece of long work.
    is_piece: bool,
}

#[derive(Debug)]
enum Waiting {
    For(ConnId, IoId),
    /// The operation was aborted, but the disk still works on it: another operation may wait for its end, and its
    /// blocks stay claimed.
    Abandoned {
        _ending: Option<Ending>,
        _claim: Option<Claim>,
    },
}

/// Where long work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    Disk,
}

impl Disks {
    pub fn new(buffers: Buffers) -> Self {
        Self {
            buffers,
            requests: VecDeque::new(),
            waiting: Slab::new(),
            in_memory: VecDeque::new(),
            on_disk: VecDeque::new(),
            pieces: 0,
            barred: Vec::new(),
        }
    }

    pub fn poll(&mut self) -> Option<DiskRequest> {
        self.requests.pop_front()
    }

    /// Ends a disk operation. Returns the operation that it belongs to, unless that was aborted.
    pub fn done(&mut self, token: DiskToken) -> Option<(ConnId, IoId)> {
        let entry = self.waiting.try_remove(token.0 as usize)?;
        self.pieces -= usize::from(entry.is_piece);
        match entry.state {
            Waiting::For(conn, id) => Some((conn, id)),
            Waiting::Abandoned { .. } => None,
        }
    }

    /// Whether long work may continue: then call `take_turn` for the operation that `next_turn` returns.
    pub fn has_turn(&self) -> bool {
        !self.in_memory.is_empty() || (!self.on_disk.is_empty() && self.pieces < PIECES_MAX)
    }

    pub fn next_turn(&mut self) -> Option<(ConnId, IoId)> {
        if self.pieces < PIECES_MAX
            && let Some(next) = self.on_disk.pop_front()
        {
            return Some(next);
        }
        self.in_memory.pop_front()
    }

    /// Number of operations that are awaited, or that a disk still works on.
    pub fn under_way(&self) -> usize {
        self.waiting.len() + self.in_memory.len() + self.on_disk.len() + self.barred.len()
    }

    /// Takes the operations that wait for claims; those that must wait longer register again.
    pub fn take_barred(&mut self) -> Vec<(ConnId, IoId)> {
        std::mem::take(&mut self.barred)
    }

    pub(super) fn wait_for_turn(&mut self, place: Place, conn: ConnId, id: IoId) {
        match place {
            Place::Memory => self.in_memory.push_back((conn, id)),
            Place::Disk => self.on_disk.push_back((conn, id)),
        }
    }

    pub(super) fn wait_for_claim(&mut self, conn: ConnId, id: IoId) {
        self.barred.push((conn, id));
    }

    /// Removes an aborted operation from those that wait for claims.
    pub(super) fn forget_claim(&mut self, conn: ConnId, id: IoId) {
        self.barred.retain(|waiting| *waiting != (conn, id));
    }

    pub(super) fn ask(&mut self, conn: ConnId, id: IoId, disk: DiskId, op: DiskOp, is_piece: bool) -> DiskToken {
        self.pieces += usize::from(is_piece);
        let token = DiskToken(self.waiting.insert(Entry { state: Waiting::For(conn, id), is_piece }) as u64);
        self.requests.push_back(DiskRequest { token, disk, op });
        token
    }

    pub(super) fn abandon(&mut self, token: DiskToken, ending: Option<Ending>, claim: Option<Claim>) {
        if let Some(entry) = self.waiting.get_mut(token.0 as usize) {
            entry.state = Waiting::Abandoned { _ending: ending, _claim: claim.map(Claim::abandoned) };
        }
    }
}
