//! Operations on a file or block device: one or several disk operations in turn.

use iotax_proto::{Payload, UnitError};

use super::{MAX_IO_BYTES, buffers::Buffers, memory};
use crate::{errno, node::DiskOp};

/// An operation under way on a disk, and what the disk does for it now.
#[derive(Debug)]
pub(super) enum DiskTask {
    /// Reads whole blocks into `buffer`; the answer is `skip..skip + len` of it.
    Read {
        buffer: Payload,
        skip: usize,
        len: usize,
    },
    /// One operation that moves so many bytes and gives none.
    Plain {
        moves: u32,
    },
    Unmap {
        ranges: Vec<(u64, u64)>,
    },
    /// Reads into `held`, to be compared with the data sent, and written over by what follows those where it is equal.
    Compare {
        offset: u64,
        sent: Payload,
        held: Payload,
        replacement: Option<Payload>,
    },
    /// Reads into `held`, which is written back with the bits set that the data sent set.
    Or {
        offset: u64,
        sent: Payload,
        held: Payload,
        durable: bool,
    },
    /// Reads whole blocks around an unaligned write.
    Merge {
        begin: u64,
        whole: Payload,
        skip: usize,
        from: Payload,
        durable: bool,
    },
    /// Writes `chunk` again and again.
    Same {
        chunk: Payload,
        next: u64,
        end: u64,
    },
}

/// What follows a disk operation that ended.
pub(super) enum After {
    Next(DiskOp),
    Done(Result<Option<Payload>, UnitError>),
}

type Begun = Result<(DiskTask, DiskOp), UnitError>;

pub(super) fn read(buffers: &mut Buffers, block_size: u32, offset: u64, len: u32) -> Begun {
    let (begin, whole_len) = whole_blocks(block_size, offset, len as usize);
    let buffer = buffers.take(whole_len).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset: begin, into: buffer.clone() };
    Ok((DiskTask::Read { buffer, skip: (offset - begin) as usize, len: len as usize }, op))
}

pub(super) fn write(buffers: &mut Buffers, block_size: u32, offset: u64, from: Payload, durable: bool) -> Begun {
    let (begin, whole_len) = whole_blocks(block_size, offset, from.len());
    if (begin, whole_len) == (offset, from.len()) {
        let moves = from.len() as u32;
        return Ok((DiskTask::Plain { moves }, DiskOp::Write { offset, from, durable }));
    }
    let whole = buffers.take(whole_len).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset: begin, into: whole.clone() };
    Ok((DiskTask::Merge { begin, whole, skip: (offset - begin) as usize, from, durable }, op))
}

pub(super) fn flush() -> (DiskTask, DiskOp) {
    (DiskTask::Plain { moves: 0 }, DiskOp::Sync)
}

pub(super) fn write_zeroes(offset: u64, len: u64) -> (DiskTask, DiskOp) {
    (DiskTask::Plain { moves: 0 }, DiskOp::WriteZeroes { offset, len })
}

/// `None` where there is nothing to unmap.
pub(super) fn unmap(mut ranges: Vec<(u64, u64)>) -> Option<(DiskTask, DiskOp)> {
    ranges.retain(|(_, len)| *len > 0);
    let (offset, len) = ranges.pop()?;
    Some((DiskTask::Unmap { ranges }, DiskOp::Unmap { offset, len }))
}

pub(super) fn compare(buffers: &mut Buffers, offset: u64, sent: Payload, replacement: Option<Payload>) -> Begun {
    let held = buffers.take(sent.len()).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset, into: held.clone() };
    Ok((DiskTask::Compare { offset, sent, held, replacement }, op))
}

pub(super) fn or_write(buffers: &mut Buffers, offset: u64, sent: Payload, durable: bool) -> Begun {
    let held = buffers.take(sent.len()).ok_or(UnitError::Busy)?;
    let op = DiskOp::Read { offset, into: held.clone() };
    Ok((DiskTask::Or { offset, sent, held, durable }, op))
}

pub(super) fn write_same(buffers: &mut Buffers, offset: u64, len: u64, pattern: &Payload) -> Begun {
    if memory::is_zero(pattern) {
        return Ok(write_zeroes(offset, len));
    }
    let most = len.min(u64::from(MAX_IO_BYTES)) as usize;
    let chunk = buffers.take((most - most % pattern.len()).max(pattern.len())).ok_or(UnitError::Busy)?;
    let bytes = pattern.to_vec();
    for at in (0..chunk.len()).step_by(bytes.len()) {
        chunk.copy_in(at, &bytes);
    }
    let mut task = DiskTask::Same { chunk, next: offset, end: offset + len };
    let op = task.next_same().ok_or(UnitError::OutOfRange)?;
    Ok((task, op))
}

impl DiskTask {
    /// The disk operation ended, in bytes moved or the system's error number.
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
            Self::Unmap { ranges } => match ranges.pop() {
                Some((offset, len)) => After::Next(DiskOp::Unmap { offset, len }),
                None => After::Done(Ok(None)),
            },
            Self::Compare { offset, sent, held, replacement } => match (difference(sent, held), replacement.take()) {
                (Some(at), _) => After::Done(Err(UnitError::Miscompare(at as u32))),
                (None, None) => After::Done(Ok(None)),
                (None, Some(from)) => {
                    let op = DiskOp::Write { offset: *offset, from: from.clone(), durable: false };
                    *self = Self::Plain { moves: from.len() as u32 };
                    After::Next(op)
                }
            },
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
            Self::Same { .. } => self.next_same().map_or(After::Done(Ok(None)), After::Next),
        }
    }

    /// Bytes that the disk operation under way must move.
    fn moves(&self) -> u32 {
        match self {
            Self::Read { buffer, .. } => buffer.len() as u32,
            Self::Plain { moves } => *moves,
            Self::Compare { held, .. } | Self::Or { held, .. } => held.len() as u32,
            Self::Merge { whole, .. } => whole.len() as u32,
            // The last write of a row may be shorter than the chunk; a disk that writes less than asked fails the next.
            Self::Same { .. } | Self::Unmap { .. } => 0,
        }
    }

    fn next_same(&mut self) -> Option<DiskOp> {
        let Self::Same { chunk, next, end } = self else { return None };
        let offset = *next;
        let len = (chunk.len() as u64).min(*end - offset) as usize;
        *next += len as u64;
        (len > 0).then(|| DiskOp::Write { offset, from: chunk.slice(0, len), durable: false })
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
