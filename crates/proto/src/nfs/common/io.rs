//! An I/O on a file, as the initiators of all versions track it.

use crate::{
    Geometry, InitiatorEvents, Io, IoError, Misuse, Refusal, Tag, Violation,
    rpc::{Garbage, HeadError, RpcError, Xid, message::decode_reply},
    wire::{Payload, Reader},
};
use core::time::Duration;

/// `IoError::Failed::status` of a flush that detected a server restart: writes since the last flush may be lost.
pub const STATUS_VERIFIER_CHANGED: u32 = u32::MAX;

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
