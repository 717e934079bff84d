//! What a thread's connections share of their operations: the disk operations that they ask for and wait for, the memory that
//! these go through, and whose turn it is with long work.

use std::collections::VecDeque;

use iotax_proto::{Ending, IoId};
use slab::Slab;

use super::{Buffers, claims::Claim};
use crate::node::{ConnId, DiskId, DiskOp, DiskToken};

/// Pieces of long work that a thread has with its disks at a time: what others ask for waits behind no more.
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
    /// Who waits, by token.
    waiting: Slab<Entry>,
    /// Long work in memory and on disks that waits for its turn. What was aborted meanwhile is passed over.
    in_memory: VecDeque<(ConnId, IoId)>,
    on_disk: VecDeque<(ConnId, IoId)>,
    pieces: usize,
    /// Operations that wait for their claims.
    barred: Vec<(ConnId, IoId)>,
}

#[derive(Debug)]
struct Entry {
    state: Waiting,
    /// It is a piece of long work.
    is_piece: bool,
}

#[derive(Debug)]
enum Waiting {
    For(ConnId, IoId),
    /// The operation was aborted; the disk still works on it, an operation may wait for it, and its blocks are claimed.
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

    /// Whose operation ended, if it is still awaited.
    pub fn done(&mut self, token: DiskToken) -> Option<(ConnId, IoId)> {
        let entry = self.waiting.try_remove(token.0 as usize)?;
        self.pieces -= usize::from(entry.is_piece);
        match entry.state {
            Waiting::For(conn, id) => Some((conn, id)),
            Waiting::Abandoned { .. } => None,
        }
    }

    /// There is long work that may go on: `take_turn` with whom `next_turn` names.
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

    /// Operations that are awaited, or that a disk still works on.
    pub fn under_way(&self) -> usize {
        self.waiting.len() + self.in_memory.len() + self.on_disk.len() + self.barred.len()
    }

    /// Operations that waited for claims when this was asked; those that must wait on say so again.
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

    /// It was aborted.
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
