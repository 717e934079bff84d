//! The seams: what a driver, a load generator and a storage server know of a protocol.
//!
//! An initiator turns `Io`s into bytes and bytes into completions; a target turns bytes into calls of a `Backend` and its
//! answers into bytes. Both are driven the same way: mutate (`receive`, `submit`, `complete`, `handle_timeout`), then drain
//! `transmit`, then ask `poll_timeout`. Input from a peer never panics; misuse by the caller is a bug and may.

use core::{
    fmt,
    ops::Add,
    sync::atomic::{Ordering, fence},
    time::Duration,
};

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};

use crate::wire::{Payload, Transmit};

/// Nanoseconds since the run began. Always an argument: nothing in this crate reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

// ---------------------------------------------------------------------------------------------------------------- initiator

/// Names an I/O between caller and initiator. Tags are dense: `0..depth`, so that they index tables.
pub type Tag = u32;

/// An I/O as every protocol can carry it. Offsets and lengths are bytes; block protocols need them aligned to the block size.
#[derive(Clone, Debug)]
pub enum Io {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        data: Payload,
    },
    /// Makes earlier completed writes durable.
    Flush,
    WriteZeroes {
        offset: u64,
        len: u32,
    },
    /// Tells the storage that a range is no longer needed; reads of it may give anything the protocol allows.
    Unmap {
        offset: u64,
        len: u32,
    },
}

/// Why an I/O did not succeed, as the initiator's caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The target answered with an error; `status` is the protocol's own code (NVMe status field, SCSI sense `KKCCQQ`, nfsstat3).
    #[error("{what} (status {status:#x})")]
    Failed { status: u32, what: &'static str },
    #[error("the connection ended before the I/O completed")]
    ConnectionLost,
    #[error("aborted")]
    Aborted,
    /// The protocol has no such operation, or the target declined it at set-up.
    #[error("not supported by this target")]
    Unsupported,
}

/// A call that the caller should not have made; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    #[error("no credit left, or the session is not ready")]
    NoCredit,
    #[error("the tag is in use or beyond the depth")]
    BadTag,
    #[error("the range is unaligned or outside the unit")]
    BadRange,
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

/// One connection of a protocol's client side.
pub trait Initiator {
    /// Bytes arrived. On `Err` the connection is of no more use: flush `transmit`, then close it.
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation>;
    /// How many more `submit`s would be accepted now; 0 until ready.
    fn credits(&self) -> usize;
    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse>;
    /// Bytes to be sent. A driver drains it after every call above.
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    /// Call when `poll_timeout` has passed: keep-alives are queued, overdue peers are given up (`Err`).
    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation>;
    /// Begins an orderly end (logout, disconnect, unmount); `closed` follows.
    fn close(&mut self, now: Instant);
    /// The transport is gone: every I/O outstanding completes with `ConnectionLost`.
    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents);
}

/// What an initiator tells its caller, from inside `receive` and its siblings.
pub trait InitiatorEvents {
    /// The session stands; `submit` may be called after the current call returns.
    fn ready(&mut self, now: Instant, geometry: &Geometry);
    /// Bytes of a read, at `offset` in its buffer, in the order of arrival; valid during the call only.
    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]);
    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>);
    /// The orderly end is done: nothing more will be sent.
    fn closed(&mut self, now: Instant);
}

// ------------------------------------------------------------------------------------------------------------------- target

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
    Unmap {
        ranges: Vec<(u64, u64)>,
        durable: bool,
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
            Self::Read { .. } | Self::Flush | Self::WriteZeroes { .. } | Self::Unmap { .. } => 0,
        }
    }
}

/// Why a backend could not do an operation; each command set maps it to its own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("no such unit")]
    NoUnit,
    #[error("range outside the unit")]
    OutOfRange,
    #[error("the unit is read-only")]
    ReadOnly,
    /// First differing byte of the data sent.
    #[error("data differ at byte {0}")]
    Miscompare(u32),
    #[error("medium error")]
    Medium,
    #[error("no space left")]
    NoSpace,
    #[error("out of resources for now")]
    Busy,
    #[error("aborted")]
    Aborted,
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

/// What somebody who aborted it waits for.
#[derive(Debug, Default)]
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

// ------------------------------------------------------------------------------------------------------------------ errors

/// A peer broke a rule of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: ViolationKind,
    /// The rule with its source, such as `"RFC 7143 §11.8: R2T beyond MaxOutstandingR2T"`.
    pub rule: &'static str,
    /// Bytes into the PDU at fault, where that says something.
    pub at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The bytes are no PDU.
    Malformed,
    /// A PDU that may not come now, or says what may not be said.
    Misbehaved,
    /// Right, but not implemented here.
    Unsupported,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer refused us: login, connect or mount.
    Refused,
}

impl Violation {
    pub fn new(kind: ViolationKind, rule: &'static str) -> Self {
        Self { kind, rule, at: None }
    }

    pub fn malformed(rule: &'static str) -> Self {
        Self::new(ViolationKind::Malformed, rule)
    }

    pub fn misbehaved(rule: &'static str) -> Self {
        Self::new(ViolationKind::Misbehaved, rule)
    }

    #[must_use]
    pub fn at(mut self, byte: u32) -> Self {
        self.at = Some(byte);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.rule)?;
        if let Some(at) = self.at {
            write!(f, " (byte {at})")?;
        }
        Ok(())
    }
}

impl core::error::Error for Violation {}

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
