//! Operations on a file or block device: one or several disk operations in turn.

use iotax_proto::{Payload, UnitError};

use super::{MAX_IO_BYTES, buffers::Buffers, long::Long, memory};
use crate::{
    errno,
    node::{ConnId, DiskOp},
};

/// Size of a piece of a long operation.
const PIECE_BYTES: u64 = 16 << 20;

/// An operation under way on a disk, and its current disk operation.
#[derive(Debug)]
pub(super) enum DiskTask {
    /// Reads whole blocks into `buffer`; the result is `skip..skip + len` of it.
    Read { buffer: Payload, skip: usize, len: usize },
    /// A single disk operation that moves this many bytes and returns none.
    Plain { moves: u32 },
    /// Reads into `held` and compares with `sent`. If both are equal, writes `replacement`.
    Compare { offset: u64, sent: Payload, held: Payload, replacement: Option<Payload>, durable: bool },
    /// Reads into `held`, sets the bits that are set in `sent`, and writes it back.
    Or { offset: u64, sent: Payload, held: Payload, durable: bool },
    /// Reads the whole blocks around an unaligned write.
    Merge { begin: u64, whole: Payload, skip: usize, from: Payload, durable: bool },
    /// Works piece by piece; `piece` is the next one if it has been taken already.
    Long { work: Work, left: Long, piece: Option<(u64, u64)>, durable: bool },
}

/// What is done to each piece of a long operation.
#[derive(Debug)]
pub(super) enum Work {
    Zeroes,
    Unmap,
    Allocate,
    /// Writes this payload repeatedly.
    Same(Payload),
}

/// What follows a disk operation that has ended.
pub(super) enum After {
    Next(DiskOp),
    /// The next piece, when the operation has its turn.
    Turn,
    Done(Result<Option<Payload>, UnitError>),
}

type Begun = Result<(DiskTask, DiskOp), UnitError>;

pub(super) fn read(buffers: &mut Buffers, conn: ConnId, block_size: u32, offset: u64, len: u32) -> Begun {
    let (begin, whole_len) = whole_blocks(block_size, offset, len as usize);
    let buffer = buffers.take(conn, whole_len).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset: begin, into: buffer.clone() };
    Ok((DiskTask::Read { buffer, skip: (offset - begin) as usize, len: len as usize }, op))
}

/// The blocks that a write changes (offset and length), and whether it changes all of them completely.
pub(super) fn changed_blocks(block_size: u32, offset: u64, len: usize) -> (u64, u64, bool) {
    let (begin, whole_len) = whole_blocks(block_size, offset, len);
    (begin, whole_len as u64, (begin, whole_len) == (offset, len))
}

pub(super) fn write(
    buffers: &mut Buffers,
    conn: ConnId,
    block_size: u32,
    offset: u64,
    from: Payload,
    durable: bool,
) -> Begun {
    let (begin, whole_len, is_whole) = changed_blocks(block_size, offset, from.len());
    if is_whole {
        let moves = from.len() as u32;
        return Ok((DiskTask::Plain { moves }, DiskOp::Write { offset, from, durable }));
    }
    let whole = buffers.take(conn, whole_len as usize).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset: begin, into: whole.clone() };
    Ok((DiskTask::Merge { begin, whole, skip: (offset - begin) as usize, from, durable }, op))
}

pub(super) fn flush() -> (DiskTask, DiskOp) {
    (DiskTask::Plain { moves: 0 }, DiskOp::Sync)
}

pub(super) fn long(work: Work, ranges: Vec<(u64, u64)>, durable: bool) -> DiskTask {
    DiskTask::Long { work, left: Long::new(ranges), piece: None, durable }
}

pub(super) fn compare(
    buffers: &mut Buffers,
    conn: ConnId,
    offset: u64,
    sent: Payload,
    replacement: Option<Payload>,
    durable: bool,
) -> Begun {
    let held = buffers.take(conn, sent.len()).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset, into: held.clone() };
    Ok((DiskTask::Compare { offset, sent, held, replacement, durable }, op))
}

pub(super) fn or_write(buffers: &mut Buffers, conn: ConnId, offset: u64, sent: Payload, durable: bool) -> Begun {
    let held = buffers.take(conn, sent.len()).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset, into: held.clone() };
    Ok((DiskTask::Or { offset, sent, held, durable }, op))
}

/// The work on each piece of a WRITE SAME: as many patterns as fit in one I/O are written at a time.
pub(super) fn same(buffers: &mut Buffers, conn: ConnId, len: u64, pattern: &Payload) -> Result<Work, UnitError> {
    if memory::is_zero(pattern) {
        return Ok(Work::Zeroes);
    }
    let most = len.min(u64::from(MAX_IO_BYTES)) as usize;
    let chunk = (most - most % pattern.len()).max(pattern.len());
    let chunk = buffers.take(conn, chunk).ok_or(UnitError::Busy)?;
    let bytes = pattern.to_vec();
    for at in (0..chunk.len()).step_by(bytes.len()) {
        chunk.copy_in(at, &bytes);
    }
    Ok(Work::Same(chunk))
}

impl DiskTask {
    /// The disk operation ended. `result` is the number of bytes moved or the system's error number.
    pub(super) fn done(&mut self, result: Result<u32, i32>) -> After {
        let moved = match result {
            Ok(moved) => moved,
            Err(errno) => return After::Done(Err(unit_error(errno))),
        };
        if moved < self.moves() {
            return After::Done(Err(UnitError::Medium));
        }
        match self {
            Self::Read { buffer, skip, len } => After::Done(Ok(Some(buffer.slice(*skip, *len)))),
            Self::Plain { .. } => After::Done(Ok(None)),
            Self::Compare { offset, sent, held, replacement, durable } => {
                match (difference(sent, held), replacement.take()) {
                    (Some(at), _) => After::Done(Err(UnitError::Miscompare(at as u32))),
                    (None, None) => After::Done(Ok(None)),
                    (None, Some(from)) => {
                        let op = DiskOp::Write { offset: *offset, from: from.clone(), durable: *durable };
                        *self = Self::Plain { moves: from.len() as u32 };
                        After::Next(op)
                    }
                }
            }
            Self::Or { offset, sent, held, durable } => {
                let (sent, mut merged) = (sent.to_vec(), held.to_vec());
                merged.iter_mut().zip(sent).for_each(|(held, sent)| *held |= sent);
                held.copy_in(0, &merged);
                let op = DiskOp::Write { offset: *offset, from: held.clone(), durable: *durable };
                *self = Self::Plain { moves: merged.len() as u32 };
                After::Next(op)
            }
            Self::Merge { begin, whole, skip, from, durable } => {
                let mut at = *skip;
                from.for_each_piece(|piece| {
                    whole.copy_in(at, piece);
                    at += piece.len();
                });
                let op = DiskOp::Write { offset: *begin, from: whole.clone(), durable: *durable };
                *self = Self::Plain { moves: whole.len() as u32 };
                After::Next(op)
            }
            Self::Long { left, piece, durable, .. } => {
                *piece = None;
                match (left.is_over(), *durable) {
                    (false, _) => After::Turn,
                    (true, false) => After::Done(Ok(None)),
                    (true, true) => {
                        *self = Self::Plain { moves: 0 };
                        After::Next(DiskOp::Sync)
                    }
                }
            }
        }
    }

    /// Bytes that the current disk operation must move.
    fn moves(&self) -> u32 {
        match self {
            Self::Read { buffer, .. } => buffer.len() as u32,
            Self::Plain { moves } => *moves,
            Self::Compare { held, .. } | Self::Or { held, .. } => held.len() as u32,
            Self::Merge { whole, .. } => whole.len() as u32,
            Self::Long { work: Work::Same(_), piece: Some((_, len)), .. } => *len as u32,
            Self::Long { .. } => 0,
        }
    }

    /// The blocks that the next piece of a long operation changes.
    pub(super) fn next_piece(&mut self) -> Option<(u64, u64)> {
        let Self::Long { work, left, piece, .. } = self else { return None };
        let most = match work {
            Work::Zeroes | Work::Unmap | Work::Allocate => PIECE_BYTES,
            Work::Same(chunk) => chunk.len() as u64,
        };
        if piece.is_none() {
            *piece = left.next(most);
        }
        *piece
    }

    /// The disk operation for the next piece.
    pub(super) fn piece_op(&self) -> Option<DiskOp> {
        let Self::Long { work, piece: Some((offset, len)), .. } = self else { return None };
        let (offset, len) = (*offset, *len);
        Some(match work {
            Work::Zeroes => DiskOp::WriteZeroes { offset, len },
            Work::Unmap => DiskOp::Unmap { offset, len },
            Work::Allocate => DiskOp::Allocate { offset, len },
            Work::Same(chunk) => DiskOp::Write { offset, from: chunk.slice(0, len as usize), durable: false },
        })
    }
}

/// The whole blocks around a range: offset and length.
fn whole_blocks(block_size: u32, offset: u64, len: usize) -> (u64, usize) {
    let block_size = u64::from(block_size.max(1));
    let begin = offset - offset % block_size;
    let end = (offset + len as u64).next_multiple_of(block_size);
    (begin, (end - begin) as usize)
}

fn difference(sent: &Payload, held: &Payload) -> Option<usize> {
    let (sent, held) = (sent.to_vec(), held.to_vec());
    sent.iter().zip(&held).position(|(sent, held)| sent != held)
}

fn unit_error(errno: i32) -> UnitError {
    match errno {
        errno::ENOSPC | errno::EDQUOT => UnitError::NoSpace,
        errno::EROFS => UnitError::ReadOnly,
        errno::EAGAIN | errno::ENOMEM => UnitError::Busy,
        _ => UnitError::Medium,
    }
}
