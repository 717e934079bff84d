//! The I/Os on a file, as the initiators of all versions track them.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    Geometry, InitiatorEvents, Instant, Io, IoError, Misuse, Refusal, Tag, Violation,
    rpc::{Garbage, HeadError, RpcError, Xid, message::decode_reply},
    wire::{Payload, Reader},
};

/// `IoError::Failed::status` of a flush that detected a server restart: writes since the last flush may be lost.
pub const STATUS_VERIFIER_CHANGED: u32 = u32::MAX;

/// `IoError::Failed::status` of a call that RPC rejected. It is outside the range of `nfsstat3` and `nfsstat4`.
const STATUS_RPC_FAILED: u32 = u32::MAX - 1;

/// Lower half of the xid of all calls except I/Os, which have their tag there.
pub(in crate::nfs) const CONTROL_TAG: u32 = 0xffff;

/// Delay before a call is resent that the server asked to repeat later.
pub(in crate::nfs) const PUT_OFF_DELAY: Duration = Duration::from_millis(100);

/// `stable_how`, with the numbers that all versions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stability {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

impl Stability {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(match reader.u32_be()? {
            0 => Self::Unstable,
            1 => Self::DataSync,
            2 => Self::FileSync,
            _ => return Err(Garbage),
        })
    }
}

/// The request of an I/O and its progress.
#[derive(Debug)]
pub(in crate::nfs) enum Work {
    Read { offset: u64, len: u32, done: u32 },
    Write { offset: u64, data: Payload, done: u32, stability: Stability },
    Flush,
}

impl Work {
    /// Converts an I/O; `None` if NFS does not support it. `stability` applies to writes that need not be durable.
    #[inline]
    pub(in crate::nfs) fn of(io: Io, file: &Geometry, stability: Stability) -> Result<Option<Self>, Misuse> {
        Ok(Some(match io {
            Io::Read { offset, len } => {
                check_range(file, offset, len as usize)?;
                Self::Read { offset, len, done: 0 }
            }
            Io::Write { offset, data, durable } => {
                check_range(file, offset, data.len())?;
                Self::Write { offset, data, done: 0, stability: if durable { Stability::FileSync } else { stability } }
            }
            Io::Flush => Self::Flush,
            Io::WriteZeroes { .. } | Io::Unmap { .. } | Io::Reserve(_) => return Ok(None),
        }))
    }
}

#[inline]
fn check_range(file: &Geometry, offset: u64, len: usize) -> Result<(), Misuse> {
    let end = offset.checked_add(len as u64).ok_or(Misuse::BadRange)?;
    let fits = len > 0 && len <= file.max_io_bytes as usize && end <= file.size_bytes;
    if fits { Ok(()) } else { Err(Misuse::BadRange) }
}

/// The calls of one connection: I/Os in the slots of their tags, and one control call. `S` is a slot of a session; `()`
/// in version 3.
#[derive(Debug)]
pub(in crate::nfs) struct Calls<S> {
    pub(in crate::nfs) control_xid: Xid,
    /// A control call that keeps an idle connection open is outstanding.
    pub(in crate::nfs) pinging: bool,
    pub(in crate::nfs) slots: Vec<IoSlot<S>>,
    pub(in crate::nfs) outstanding: usize,
    /// Number of outstanding I/Os whose call the server deferred.
    pub(in crate::nfs) delayed: usize,
    /// Operations that NFS does not support, which must be completed as such.
    unsupported: Vec<Tag>,
    next_generation: u32,
    pub(in crate::nfs) verifier: Verifier,
    pub(in crate::nfs) last_progress: Instant,
}

/// An outstanding I/O, in the slot of its tag.
#[derive(Debug, Default)]
pub(in crate::nfs) struct IoSlot<S> {
    pub(in crate::nfs) xid: Xid,
    pub(in crate::nfs) work: Option<Work>,
    /// When to resend the call, after the server deferred it.
    pub(in crate::nfs) again_at: Option<Instant>,
    pub(in crate::nfs) session_slot: S,
}

impl<S: Copy + Default> Calls<S> {
    /// `verifier` is the write verifier that an earlier connection saw. Of `first_xid` only the upper half is used.
    pub(in crate::nfs) fn new(now: Instant, depth: usize, first_xid: Xid, verifier: Option<[u8; 8]>) -> Self {
        assert!(depth < CONTROL_TAG as usize, "tags and control calls share the xid's lower half");
        Self {
            control_xid: Xid::default(),
            pinging: false,
            slots: (0..depth).map(|_| IoSlot::default()).collect(),
            outstanding: 0,
            delayed: 0,
            unsupported: Vec::with_capacity(depth),
            next_generation: first_xid.0 >> 16,
            verifier: Verifier::new(verifier),
            last_progress: now,
        }
    }

    /// Number of I/Os that `accept` takes.
    #[inline]
    pub(in crate::nfs) fn credits(&self) -> usize {
        self.slots.len() - self.outstanding - self.unsupported.len()
    }

    #[inline]
    pub(in crate::nfs) fn is_idle(&self) -> bool {
        self.outstanding == 0 && !self.pinging
    }

    #[inline]
    pub(in crate::nfs) fn is_drained(&self) -> bool {
        self.is_idle() && self.unsupported.is_empty()
    }

    /// Returns a new xid whose lower half is `low`. The upper half distinguishes calls with the same tag.
    #[inline]
    pub(in crate::nfs) fn next_xid(&mut self, low: u32) -> Xid {
        self.next_generation = self.next_generation.wrapping_add(1);
        Xid(self.next_generation << 16 | low)
    }

    /// Checks an I/O. `None` if NFS does not support it; `complete_unsupported` completes it.
    #[inline]
    pub(in crate::nfs) fn accept(
        &mut self,
        tag: Tag,
        io: Io,
        file: &Geometry,
        stability: Stability,
    ) -> Result<Option<Work>, Misuse> {
        let slot = self.slots.get(tag as usize).ok_or(Misuse::BadTag)?;
        if slot.work.is_some() || (!self.unsupported.is_empty() && self.unsupported.contains(&tag)) {
            return Err(Misuse::BadTag);
        }
        let work = Work::of(io, file, stability)?;
        if work.is_none() {
            self.unsupported.push(tag);
        }
        Ok(work)
    }

    #[inline]
    pub(in crate::nfs) fn begin(&mut self, tag: Tag, work: Work, session_slot: S) {
        let slot = &mut self.slots[tag as usize];
        (slot.work, slot.session_slot) = (Some(work), session_slot);
        self.outstanding += 1;
    }

    #[inline]
    pub(in crate::nfs) fn end(&mut self, tag: Tag) -> S {
        self.resume(tag);
        self.outstanding -= 1;
        let slot = &mut self.slots[tag as usize];
        slot.work = None;
        slot.session_slot
    }

    /// Puts the call of an I/O off.
    pub(in crate::nfs) fn delay(&mut self, tag: Tag, until: Instant) {
        self.slots[tag as usize].again_at = Some(until);
        self.delayed += 1;
    }

    /// The call of an I/O is no longer put off, if it was.
    #[inline]
    pub(in crate::nfs) fn resume(&mut self, tag: Tag) {
        if self.slots[tag as usize].again_at.take().is_some() {
            self.delayed -= 1;
        }
    }

    /// When the first call that was put off is due.
    #[inline]
    pub(in crate::nfs) fn again_at(&self) -> Option<Instant> {
        if self.delayed > 0 { self.slots.iter().filter_map(|slot| slot.again_at).min() } else { None }
    }

    /// Whether `complete_unsupported` is due.
    #[inline]
    pub(in crate::nfs) fn has_unsupported(&self) -> bool {
        !self.unsupported.is_empty()
    }

    pub(in crate::nfs) fn complete_unsupported(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        while let Some(tag) = self.unsupported.pop() {
            events.complete(now, tag, Err(IoError::Unsupported));
        }
    }
}

/// The result of a WRITE.
pub(in crate::nfs) struct Written {
    pub(in crate::nfs) count: u32,
    pub(in crate::nfs) committed: Stability,
    pub(in crate::nfs) verifier: [u8; 8],
}

impl Written {
    pub(in crate::nfs) fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { count: reader.u32_be()?, committed: Stability::decode(reader)?, verifier: reader.array()? })
    }
}

/// A READ whose data are arriving.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs) struct ReadUnderway {
    pub(in crate::nfs) tag: Tag,
    /// Position of the next byte in the I/O's buffer.
    pub(in crate::nfs) at: u32,
    /// Bytes still to come.
    pub(in crate::nfs) left: u32,
    pub(in crate::nfs) count: u32,
    pub(in crate::nfs) eof: bool,
}

impl ReadUnderway {
    /// Passes on data. Bytes after the data (padding) are dropped.
    #[inline]
    pub(in crate::nfs) fn take(&mut self, bytes: &[u8], events: &mut dyn InitiatorEvents) {
        let bytes = &bytes[..bytes.len().min(self.left as usize)];
        if !bytes.is_empty() {
            events.data(self.tag, self.at, bytes);
            self.at += bytes.len() as u32;
            self.left -= bytes.len() as u32;
        }
    }
}

/// The server's write verifier, and whether it has changed since the last COMMIT. If so, unstable data may be lost.
#[derive(Debug)]
pub(in crate::nfs) struct Verifier {
    last: Option<[u8; 8]>,
    has_changed: bool,
}

impl Verifier {
    /// `last` is the verifier that an earlier connection saw.
    pub(in crate::nfs) fn new(last: Option<[u8; 8]>) -> Self {
        Self { last, has_changed: false }
    }

    pub(in crate::nfs) fn last(&self) -> Option<[u8; 8]> {
        self.last
    }

    #[inline]
    pub(in crate::nfs) fn note(&mut self, verifier: [u8; 8]) {
        self.has_changed |= self.last.is_some_and(|earlier| earlier != verifier);
        self.last = Some(verifier);
    }

    /// The result of a flush whose COMMIT returned this verifier.
    pub(in crate::nfs) fn flushed(&mut self, verifier: [u8; 8]) -> Result<(), IoError> {
        self.note(verifier);
        if core::mem::take(&mut self.has_changed) {
            let what = "the server restarted: writes since the last flush may be lost";
            return Err(IoError::Failed { status: STATUS_VERIFIER_CHANGED, refusal: Refusal::Other, what });
        }
        Ok(())
    }
}

/// The error of an I/O whose call RPC rejected.
pub(in crate::nfs) fn rpc_failed(error: RpcError) -> IoError {
    let what = match error {
        RpcError::Authentication(_) => "the server refused the credential",
        RpcError::GarbageArguments => "the server could not decode the call",
        RpcError::SystemError => "the server failed",
        _ => "the server does not serve the call",
    };
    IoError::Failed { status: STATUS_RPC_FAILED, refusal: error.refusal(), what }
}

/// Parses the head of a reply. `end` means that the record is complete. `None` if more bytes are needed.
#[inline]
#[allow(clippy::type_complexity)] // The type that `decode_reply` returns.
pub(in crate::nfs) fn reply_head(
    reader: &mut Reader<'_>,
    end: bool,
) -> Result<Option<(Xid, Result<(), RpcError>)>, Violation> {
    match decode_reply(reader) {
        Ok(reply) => Ok(Some(reply)),
        Err(HeadError::Short) if !end => Ok(None),
        Err(HeadError::WrongDirection) => Err(misbehaved!("RFC 5531 §9: a client is sent replies only")),
        Err(_) => Err(malformed!("RFC 5531 §9: a reply that does not decode")),
    }
}
