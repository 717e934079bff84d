//! Data of ordinary files in exports with files: what clients write beside a volume, on the heap.

use iotax_proto::{Allocation, Instant, IoId, Payload, Started, UnitError, UnitOp};

use super::shared::Server;
use crate::{
    fs::{Tree, TreeUnit},
    protocols::Exported,
    volume::MAX_IO_BYTES,
};

/// Writes under way of one connection, by `IoId`.
#[derive(Debug, Default)]
pub(super) struct FileWrites {
    writes: Vec<Option<FileWrite>>,
}

#[derive(Debug)]
struct FileWrite {
    unit: TreeUnit,
    offset: u64,
    data: Vec<u8>,
}

impl FileWrites {
    pub(super) fn start(&mut self, server: &Server, now: Instant, id: IoId, unit: TreeUnit, op: &UnitOp) -> Started {
        Started::Done(match *op {
            UnitOp::Read { offset, len, .. } => with_tree(server, unit, |tree| {
                tree.read(unit.number, offset, len, server.time(now)).map(|bytes| Some(Payload::from_vec(bytes)))
            }),
            UnitOp::Write { offset, len, .. } if len <= MAX_IO_BYTES => {
                let index = id as usize;
                if index >= self.writes.len() {
                    self.writes.resize_with(index + 1, || None);
                }
                self.writes[index] = Some(FileWrite { unit, offset, data: vec![0; len as usize] });
                return Started::NeedData;
            }
            UnitOp::Flush => Ok(None),
            UnitOp::Allocate { offset, len } => {
                with_tree(server, unit, |tree| tree.allocate(unit.number, offset, len, server.time(now)).map(|()| None))
            }
            UnitOp::Unmap { ref ranges, .. } => with_tree(server, unit, |tree| {
                ranges
                    .iter()
                    .try_for_each(|(offset, len)| tree.punch(unit.number, *offset, *len, server.time(now)))
                    .map(|()| None)
            }),
            _ => Err(UnitError::OutOfRange),
        })
    }

    /// Whether `id` is a write to a file.
    pub(super) fn has(&self, id: IoId) -> bool {
        matches!(self.writes.get(id as usize), Some(Some(_)))
    }

    /// Returns false if `id` is not a write to a file.
    pub(super) fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) -> bool {
        let Some(Some(write)) = self.writes.get_mut(id as usize) else { return false };
        let begin = offset as usize;
        write.data[begin..begin + bytes.len()].copy_from_slice(bytes);
        true
    }

    /// Returns `None` if `id` is not a write to a file.
    pub(super) fn finish(&mut self, server: &Server, now: Instant, id: IoId) -> Option<Started> {
        let write = self.writes.get_mut(id as usize)?.take()?;
        let result = with_tree(server, write.unit, |tree| {
            tree.write(write.unit.number, write.offset, &write.data, server.time(now)).map(|()| None)
        });
        Some(Started::Done(result))
    }

    pub(super) fn abort(&mut self, id: IoId) {
        if let Some(write) = self.writes.get_mut(id as usize) {
            *write = None;
        }
    }
}

/// Whether the bytes of an ordinary file from `offset` on are allocated.
pub(super) fn allocation(server: &Server, unit: TreeUnit, offset: u64) -> Option<Allocation> {
    with_tree(server, unit, |tree| tree.allocation(unit.number, offset).ok_or(UnitError::NoUnit)).ok()
}

pub(super) fn with_tree<R>(
    server: &Server,
    unit: TreeUnit,
    use_it: impl FnOnce(&mut Tree) -> Result<R, UnitError>,
) -> Result<R, UnitError> {
    let tree = server.exported.get(unit.export as usize).and_then(Exported::tree).ok_or(UnitError::NoUnit)?;
    use_it(&mut tree.lock())
}
