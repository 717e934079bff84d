//! What an operation of a connection is doing, from its first byte to its result.

use iotax_proto::{IoId, Payload, Region, UnitError};

use super::{
    claims::Claim,
    disk::DiskTask,
    long::Long,
    memory,
    model::Access,
    units::{Store, Volume},
};
use crate::node::{DiskOp, DiskToken};

/// Bytes of memory that an operation changes in each turn.
const TURN_BYTES: u64 = 1 << 20;

pub(super) type Finished = Result<Option<Payload>, UnitError>;

/// State of an operation, by its `IoId`.
#[derive(Debug)]
pub(super) enum OperationState {
    Idle,
    /// Data are copied straight to their place in memory, whose blocks are shared with other writes.
    Place {
        volume: usize,
        offset: usize,
        len: u32,
    },
    /// Data are dropped.
    Discard {
        volume: usize,
    },
    /// Data are compared as they arrive; `differs` is the first difference.
    Compare {
        volume: usize,
        offset: usize,
        len: u32,
        differs: Option<u32>,
    },
    /// Data are collected first.
    Stage {
        volume: usize,
        staged: Staged,
        buffer: Payload,
    },
    /// All data have arrived, but another operation has claimed some of the blocks. It gives up at the entry of
    /// `delayed` with this number.
    Barred {
        number: u64,
        waiting: Box<Barred>,
    },
    Disk {
        volume: usize,
        state: DiskState,
        work: Box<OnDisk>,
    },
    /// Works in memory, one piece per turn.
    Long {
        volume: usize,
        work: Box<InMemory>,
    },
    /// Done; completes later, at the entry of `delayed` with this number.
    Delayed {
        volume: usize,
        number: u64,
        result: Finished,
    },
}

#[derive(Debug)]
pub(super) struct Barred {
    pub(super) volume: usize,
    pub(super) staged: Staged,
    pub(super) buffer: Payload,
    pub(super) claim: Claim,
}

#[derive(Debug)]
pub(super) struct OnDisk {
    pub(super) task: DiskTask,
    /// The blocks that it changes now.
    pub(super) claim: Option<Claim>,
    /// The disk operation that follows a flush.
    pub(super) after_flush: Option<DiskOp>,
}

/// Zeros or a pattern over ranges of memory.
#[derive(Debug)]
pub(super) struct InMemory {
    pub(super) left: Long,
    pub(super) pattern: Option<Payload>,
    pub(super) access: Access,
    /// The blocks of its next piece, while it waits for them.
    pub(super) claim: Option<Claim>,
}

/// What an operation on a disk waits for.
#[derive(Debug)]
pub(super) enum DiskState {
    Disk(DiskToken),
    /// The turn of its next piece.
    Turn,
    /// The blocks of its next piece.
    Claim,
}

/// What happens to staged data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Staged {
    Write { offset: u64, durable: bool },
    Compare { offset: u64, durable: bool },
    CompareAndWrite { offset: u64, len: u32, durable: bool },
    OrWrite { offset: u64, durable: bool },
    WriteSame { offset: u64, len: u64, durable: bool },
}

impl Staged {
    /// Its access to modelled media, as one operation with `data` bytes of data.
    pub(super) fn access(self, data: usize) -> Access {
        match self {
            Self::Compare { offset, .. } => Access::Read(offset),
            Self::Write { offset, .. } | Self::OrWrite { offset, .. } => Access::Write(offset, data as u64),
            Self::CompareAndWrite { offset, len, .. } => Access::Write(offset, u64::from(len)),
            Self::WriteSame { offset, len, .. } => Access::Write(offset, len),
        }
    }
}

/// Whether an operation waits for the entry of `delayed` with this number.
pub(super) fn is_due(slots: &[OperationState], due: u64, id: IoId) -> bool {
    let waits_for = match slots.get(id as usize) {
        Some(OperationState::Delayed { number, .. } | OperationState::Barred { number, .. }) => Some(*number),
        _ => None,
    };
    waits_for == Some(due)
}

/// Replaces a state that in nearly all cases holds nothing to be dropped: without this, the compiler would check all
/// states.
#[inline]
pub(super) fn replace_plain(slot: &mut OperationState, state: OperationState) {
    if matches!(slot, OperationState::Idle | OperationState::Place { .. }) {
        std::mem::forget(std::mem::replace(slot, state));
    } else {
        *slot = state;
    }
}

/// Executes on memory a staged operation that has its claim and needs no turns.
pub(super) fn perform_in_memory(region: &dyn Region, staged: Staged, buffer: &Payload) -> Result<(), UnitError> {
    match staged {
        Staged::Write { offset, .. } => memory::copy_in(region, offset as usize, buffer),
        Staged::Compare { offset, .. } => compare_in_memory(region, offset, buffer)?,
        Staged::CompareAndWrite { offset, len, .. } => {
            let (sent, replacement) = halves(buffer, len);
            compare_in_memory(region, offset, &sent)?;
            memory::copy_in(region, offset as usize, &replacement);
        }
        Staged::OrWrite { offset, .. } => memory::or_in(region, offset as usize, buffer),
        Staged::WriteSame { offset, len, .. } => memory::repeat(region, offset, len, buffer),
    }
    Ok(())
}

fn compare_in_memory(region: &dyn Region, offset: u64, sent: &Payload) -> Result<(), UnitError> {
    match memory::first_difference_of(region, offset as usize, sent) {
        Some(at) => Err(UnitError::Miscompare(at as u32)),
        None => Ok(()),
    }
}

impl InMemory {
    /// Does the next piece. Returns false if it must wait for the piece's blocks. Fails with `Busy` if too many claims
    /// wait.
    pub(super) fn piece(&mut self, volume: &Volume) -> Result<bool, UnitError> {
        let most = self.pattern.as_ref().map_or(TURN_BYTES, |pattern| TURN_BYTES - TURN_BYTES % pattern.len() as u64);
        let (Store::Memory(region), Some((offset, len))) = (&volume.store, self.left.peek(most)) else {
            return Ok(true);
        };
        let claim = match self.claim.take() {
            Some(claim) => claim,
            None => volume.claimant.share(offset, len)?,
        };
        if !claim.is_granted() {
            self.claim = Some(claim);
            return Ok(false);
        }
        match &self.pattern {
            Some(pattern) => memory::repeat(region.as_ref(), offset, len, pattern),
            None => memory::write_zeroes(region.as_ref(), offset, len),
        }
        self.left.advance(len);
        Ok(true)
    }
}

/// The expected data and the replacement of a compare-and-write.
pub(super) fn halves(buffer: &Payload, len: u32) -> (Payload, Payload) {
    (buffer.slice(0, len as usize), buffer.slice(len as usize, len as usize))
}
