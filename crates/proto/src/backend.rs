//! The server side of a protocol: bytes become calls of a `Backend`, and its answers bytes.
//!
//! It is driven as an `Initiator` is: mutate (`receive`, `complete`, `handle_timeout`), then drain `transmit`, then ask
//! `poll_timeout`. Input from a peer never panics; misuse by the caller is a bug and may.
//!
//! The shape of what both sides speak of.

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

/// Names an I/O between target and backend, unique within its connection and dense: an index below the connection's depth.
pub type IoId = u32;

/// Names what an I/O is for within the backend: the server's number of a volume (or a file on one), not a LUN or NSID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u64);

/// An operation on a unit. Offsets and lengths are bytes, already checked for alignment by the target, not for range.
/// `durable`: complete only when what it changed is on stable storage (FUA, a write cache that is off, `FILE_SYNC`); of what reads,
/// what it reads is put there first.
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
    /// Ranges that need no room from now on. They read as zeros.
    Unmap {
        ranges: Vec<(u64, u64)>,
        durable: bool,
    },
    /// Has room for these bytes from now on, which stay what they are: no write to them finds none. Always durable.
    Allocate {
        offset: u64,
        len: u64,
    },
    /// Takes `len` bytes of data and compares.
    Compare {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes 2 × `len` bytes: what must be there, then what to write, atomically.
    CompareAndWrite {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes `len` bytes of data and sets the bits that they set, atomically.
    OrWrite {
        offset: u64,
        len: u32,
        durable: bool,
    },
    /// Takes `pattern_len` bytes and repeats them over `len`.
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

/// How an operation stands after `Backend::start` or `Backend::finish`.
#[derive(Debug)]
pub enum Started {
    /// Done: the data of a read (its payload may be sent in place), or nothing.
    Done(Result<Option<Payload>, UnitError>),
    /// Send the operation's data to `place`, then call `finish`.
    NeedData,
    /// `Target::complete` will be called with the result.
    Queued,
}

/// A run of bytes that are all held, or all zeros that need no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub is_mapped: bool,
    pub len: u64,
}

/// Kept by whoever still works at what was aborted, on whatever thread, and dropped when that is over.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<()>);

/// What the one who aborted it waits for.
#[derive(Clone, Debug, Default)]
pub struct Endings(Vec<Weak<()>>);

impl Endings {
    pub fn add(&mut self, ending: &Ending) {
        self.0.push(Arc::downgrade(&ending.0));
    }

    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Nobody works at any of it any more; what they did is visible after that.
    pub fn are_over(&mut self) -> bool {
        self.0.retain(|ending| ending.strong_count() > 0);
        fence(Ordering::Acquire);
        self.0.is_empty()
    }
}

/// What a target asks of the server behind it.
pub trait Backend {
    /// None where there is no such unit, or not any more.
    fn geometry(&self, unit: UnitId) -> Option<Geometry>;
    /// How the blocks from `offset` on are held; `None` where the volume cannot tell. Answered at once, so it need not look far.
    fn allocation(&self, unit: UnitId, offset: u64) -> Option<Allocation> {
        let _ = (unit, offset);
        None
    }
    /// Begins an operation. Range and permission are checked here, before any data is taken.
    fn start(&mut self, now: Instant, id: IoId, unit: UnitId, op: UnitOp) -> Started;
    /// Data of a `NeedData` operation, `offset` bytes into it. Pieces may come in any order and size, each byte once.
    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]);
    /// Memory for `len` bytes of a `NeedData` operation's data, `offset` bytes into it, that may be received there in place of a
    /// `place`; `None` where the backend has to see them.
    fn memory(&self, id: IoId, offset: u32, len: u32) -> Option<Payload> {
        let _ = (id, offset, len);
        None
    }
    /// All data of the operation is placed (and its digests were right).
    fn finish(&mut self, now: Instant, id: IoId) -> Started;
    /// Forgets an operation; no completion follows, and its `IoId` is free. While the medium may still change by it, `ending`
    /// is kept.
    fn abort(&mut self, id: IoId, ending: Option<Ending>);
}

/// One connection of a protocol's server side. Protocols need more of the server than `Backend` (who may log in, what is
/// exported, a name space of files): each says so in a trait `B` of its own that extends `Backend`.
pub trait Target<B: Backend + ?Sized> {
    /// Bytes arrived. Gives how many of them were taken: fewer than came where `transmit` became full, so that a peer which
    /// asks and does not read takes memory for one answer more at most. The rest is to be given again before what comes later,
    /// once there is room. On `Err` what the protocol says to the peer is queued: flush `transmit`, then close.
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut B) -> Result<usize, Violation>;
    /// Memory that the next bytes to come belong in, where they are at least `at_least` bytes of data that this side need not look
    /// at. Whoever receives may put the first of them there, says so with `placed`, and gives what follows to `receive`.
    fn place(&mut self, at_least: usize, backend: &mut B) -> Option<Payload> {
        let _ = (at_least, backend);
        None
    }
    /// The next `len` bytes came and were put where `place` said, which was asked since the last call of any other kind.
    fn placed(&mut self, now: Instant, len: usize, backend: &mut B) -> Result<(), Violation> {
        let _ = (now, len, backend);
        unreachable!("this target names no place")
    }
    /// A `Queued` operation is done.
    fn complete(&mut self, now: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, backend: &mut B);
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    /// Call when `poll_timeout` has passed; `Err` where the peer's time is up.
    fn handle_timeout(&mut self, now: Instant, backend: &mut B) -> Result<(), Violation>;
    /// True when the peer logged out or was refused: close once `transmit` is flushed.
    fn is_closing(&self) -> bool;
    /// The transport is gone: operations outstanding are aborted, session state is given up.
    fn disconnected(&mut self, now: Instant, backend: &mut B);
}

/// State that several connections share (a subsystem's controllers, a target's sessions); the server decides how it is
/// locked. For the control path: no I/O may wait on it.
pub trait Shared<T> {
    fn with(&self, use_it: &mut dyn FnMut(&mut T));
}

/// What is being read and written: a namespace, a LUN, a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size_bytes: u64,
    /// Smallest unit of addressing in bytes; 1 for a file.
    pub block_size: u32,
    /// Most bytes that one `Io` may carry to this target.
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
