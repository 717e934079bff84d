//! The server side of a protocol: turns received bytes into calls of a `Backend`, and its results into bytes to send.
//!
//! It is driven like an `Initiator`: call `receive`, `complete` or `handle_timeout`, then drain `transmit`, then read
//! `poll_timeout`. Input from a peer never causes a panic; misuse by the caller is a bug and may.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{Ordering, fence};

use crate::{
    errors::{UnitError, Violation},
    time::Instant,
    wire::{Payload, Transmit},
};

/// Identifies an I/O between target and backend. It is unique within its connection, and less than the connection's
/// depth.
pub type IoId = u32;

/// Identifies a unit of the backend: the server's number of a volume (or of a file on one), not a LUN or NSID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u64);

/// An operation on a unit. Offsets and lengths are in bytes. The target has checked their alignment, but not their
/// range. An operation with `durable` completes only when what it changed is on stable storage (FUA, a write cache that
/// is off, `FILE_SYNC`). If it reads, the blocks are first put on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitOp {
    Read {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes `len` bytes of data.
    Write {
        offset: u64,
        len: u32,
        durable: bool,
    },
    Flush,
    WriteZeroes {
        offset: u64,
        len: u64,
        durable: bool,
    },
    /// Deallocates ranges. They then read as zeros.
    Unmap {
        ranges: Vec<(u64, u64)>,
        durable: bool,
    },
    /// Reserves space for a range without changing its contents, so that no write to it fails for lack of space. Always
    /// durable.
    Allocate {
        offset: u64,
        len: u64,
    },
    /// Takes `len` bytes of data and compares them with the unit.
    Compare {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes 2 × `len` bytes: the expected data, then the data to write. Atomic.
    CompareAndWrite {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes `len` bytes of data and sets the bits that are set in them. Atomic.
    OrWrite {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes `pattern_len` bytes and writes them repeatedly over `len` bytes.
    WriteSame {
        offset: u64,
        len: u64,
        pattern_len: u32,
        durable: bool,
    },
}

impl UnitOp {
    /// Bytes of data that the operation takes from the initiator.
    pub fn data_len(&self) -> u32 {
        match self {
            Self::Write { len, .. } | Self::Compare { len, .. } | Self::OrWrite { len, .. } => *len,
            Self::CompareAndWrite { len, .. } => 2 * len,
            Self::WriteSame { pattern_len, .. } => *pattern_len,
            Self::Read { .. } | Self::Flush | Self::WriteZeroes { .. } | Self::Unmap { .. } | Self::Allocate { .. } => {
                0
            }
        }
    }
}

/// The state of an operation after `Backend::start` or `Backend::finish`.
#[derive(Debug)]
pub enum Started {
    /// Completed. A read returns its data, whose payload may be sent in place; other operations return nothing.
    Done(Result<Option<Payload>, UnitError>),
    /// The operation needs data: pass them to `place`, then call `finish`.
    NeedData,
    /// Queued. `Target::complete` will be called with the result.
    Queued,
}

/// A run of bytes that are either all allocated, or all deallocated and zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub is_mapped: bool,
    pub len: u64,
}

/// Held by all code that still works on an aborted operation, on any thread, and dropped when that work is over.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<()>);

impl Ending {
    /// Whether nobody else holds it. If so, the effects of all that did are visible to the caller.
    pub fn is_over(&self) -> bool {
        let is_over = Arc::strong_count(&self.0) == 1;
        fence(Ordering::Acquire);
        is_over
    }
}

/// The endings of a set of aborted operations, for the code that waits until all of them are over.
#[derive(Clone, Debug, Default)]
pub struct Endings(Vec<Weak<()>>);

impl Endings {
    pub fn add(&mut self, ending: &Ending) {
        self.0.push(Arc::downgrade(&ending.0));
    }

    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Whether all work on the aborted operations is over. If so, its effects are visible to the caller.
    pub fn are_over(&mut self) -> bool {
        self.0.retain(|ending| ending.strong_count() > 0);
        fence(Ordering::Acquire);
        self.0.is_empty()
    }
}

/// The functions of the server that every target needs.
pub trait Backend {
    /// `None` if the unit does not exist, or not any more.
    fn geometry(&self, unit: UnitId) -> Option<Geometry>;
    /// How the blocks from `offset` on are allocated; `None` if the volume cannot tell. It must return at once, so it
    /// may report a short run.
    fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        let _ = (unit, offset);
        None
    }
    /// Starts an operation. The backend checks range and permission here, before it takes data.
    fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started;
    /// Accepts data of a `NeedData` operation, at `offset`. Pieces may come in any order and size, each byte once.
    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]);
    /// Memory for `len` bytes of a `NeedData` operation's data, at `offset`, into which they may be received instead of
    /// calling `place`. `None` if the backend must examine the data.
    fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        let _ = (id, offset, len);
        None
    }
    /// Continues an operation whose data are complete. If they have digests, these were correct.
    fn finish(&mut self, now: Instant, id: IoId) -> Started;
    /// Drops an operation. No completion follows, and its `IoId` is free at once. The backend holds `ending` while the
    /// operation may still change the medium.
    fn abort(&mut self, id: IoId, ending: Option<Ending>);
}

/// One connection of a protocol's server side. Each protocol needs more of the server than `Backend`, e.g. who may log
/// in, exports, or a name space of files. It defines a trait `B` for this, which extends `Backend`.
pub trait Target<B: Backend + ?Sized> {
    /// Processes received bytes, and returns how many it has accepted. It accepts fewer if `transmit` becomes full, so
    /// that a peer that sends requests but does not read uses memory for at most one more answer. When there is space
    /// again, pass the rest, before later bytes. After `Err`, the protocol's notice to the peer is queued: flush
    /// `transmit`, then close the connection.
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation>;
    /// Memory for the next bytes, if they are at least `at_least` bytes of data that need not be examined here. The
    /// caller may receive the first of them into it. Then it calls `placed`, and passes the bytes that follow to
    /// `receive`.
    fn place(&mut self, at_least: usize, backend: &mut B) -> Option<Payload> {
        let _ = (at_least, backend);
        None
    }
    /// The next `len` bytes are in the memory that `place` returned. No other call may come between `place` and this
    /// one.
    fn placed(&mut self, now: Instant, len: usize, backend: &mut B) -> Result<(), Violation> {
        let _ = (now, len, backend);
        unreachable!("this target names no place")
    }
    /// Completes a `Queued` operation.
    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B);
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    /// Call this when the time of `poll_timeout` has come; `Err` if the peer is too late.
    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation>;
    /// Whether the peer has logged out or was rejected. If so, close the connection once `transmit` is flushed.
    fn is_closing(&self) -> bool;
    /// Applies what other connections did to this one: its tasks or the whole session may have ended, and so may tasks
    /// that it waits for.
    fn handle_notification(&mut self, now: Instant, backend: &mut B) {
        let _ = (now, backend);
    }
    /// Ends the session because the transport is lost. Outstanding operations are aborted.
    fn disconnected(&mut self, now: Instant, backend: &mut B);
}

/// State that several connections share, e.g. a subsystem's controllers or a target's sessions. The server decides how
/// it is locked. Only the control path may use it, because no I/O may wait for a lock.
pub trait Shared<T> {
    fn with(&self, use_it: &mut dyn FnMut(&mut T));
}

/// The size and limits of a namespace, a LUN or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size_bytes: u64,
    /// Smallest addressable unit in bytes; 1 for a file.
    pub block_size: u32,
    /// Maximum bytes of one `Io`.
    pub max_io_bytes: u32,
    pub read_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_over_once_all_clones_of_all_are_gone() {
        let (one, other) = (Ending::default(), Ending::default());
        let mut endings = Endings::default();
        assert!(endings.are_over());
        endings.add(&one);
        let mut more = Endings::default();
        more.add(&other);
        endings.append(more);
        let clone = one.clone();
        drop((one, other));
        assert!(!endings.are_over());
        drop(clone);
        assert!(endings.are_over());
    }
}
