//! An I/O on a file, as every version's initiator has it under way.

use crate::{
    Geometry, InitiatorEvents, Io, IoError, Misuse, Refusal, Tag, Violation,
    rpc::{Garbage, HeadError, RpcError, Xid, message::decode_reply},
    wire::{Payload, Reader},
};
use core::time::Duration;

/// `IoError::Failed::status` of a flush that found the server restarted: writes since the last flush may be lost.
pub const STATUS_VERIFIER_CHANGED: u32 = u32::MAX;

/// How long to wait before a call that the server put off is sent again.
pub(in crate::nfs) const PUT_OFF_DELAY: Duration = Duration::from_millis(100);

/// `stable_how`, with the numbers of every version.
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

/// What an I/O asks for, and how much of it is done.
#[derive(Debug)]
pub(in crate::nfs) enum Work {
    Read { offset: u64, len: u32, done: u32 },
    Write { offset: u64, data: Payload, done: u32, stability: Stability },
    Flush,
}

impl Work {
    /// Of an I/O on a file; `None` for what NFS does not have. `stability` is of writes that need not be durable.
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

/// A READ whose data are arriving.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs) struct ReadUnderway {
    pub(in crate::nfs) tag: Tag,
    /// Where the next byte goes in the I/O's buffer, and how many are to come.
    pub(in crate::nfs) at: u32,
    pub(in crate::nfs) left: u32,
    pub(in crate::nfs) count: u32,
    pub(in crate::nfs) eof: bool,
}

impl ReadUnderway {
    /// Hands on data; what follows them (padding) is dropped.
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

/// The server's write verifier, and whether it changed since the last COMMIT: then unstable data may be gone.
#[derive(Debug)]
pub(in crate::nfs) struct Verifier {
    last: Option<[u8; 8]>,
    has_changed: bool,
}

impl Verifier {
    /// `last` is what an earlier connection saw.
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

    /// What a flush comes to whose COMMIT had this verifier.
    pub(in crate::nfs) fn flushed(&mut self, verifier: [u8; 8]) -> Result<(), IoError> {
        self.note(verifier);
        if core::mem::take(&mut self.has_changed) {
            let what = "the server restarted: writes since the last flush may be lost";
            return Err(IoError::Failed { status: STATUS_VERIFIER_CHANGED, refusal: Refusal::Other, what });
        }
        Ok(())
    }
}

/// The head of a reply, of whose record there may be more to come unless it is at its `end`; `None` until all of the head is there.
#[inline]
#[allow(clippy::type_complexity)] // What `decode_reply` gives.
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
