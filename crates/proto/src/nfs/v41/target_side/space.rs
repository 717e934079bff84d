//! Holes and space of a file: SEEK, ALLOCATE and DEALLOCATE of minor version 2 (RFC 7862 §15).

use super::{
    Connection,
    io::Kind,
    work::{Step, Work},
};
use crate::{
    Instant, UnitId, UnitOp,
    nfs::{
        NfsBackend,
        v41::{
            codec::Status,
            operations::{Content, SeekArguments, SpaceArguments},
        },
    },
};

/// Maximum runs of data or zeros that a SEEK examines.
const SEEK_RUNS_MAX: usize = 64;

impl Connection {
    /// SEEK (RFC 7862 §15.11). What is not known to be a hole counts as data.
    pub(super) fn seek<B: NfsBackend + ?Sized>(
        &mut self,
        work: &mut Work,
        asked: &SeekArguments,
        backend: &mut B,
    ) -> Result<(), Status> {
        let wanted = asked.what.ok_or(Status::UnionNotSupported)?;
        let open = self.open_for_io(work, &asked.state, false, backend)?;
        let size = open.attributes.size;
        if asked.offset >= size {
            return Err(Status::NoDeviceAddress);
        }
        let found = match wanted {
            _ if open.is_ordinary => first_run(backend, open.unit, asked.offset, size, wanted),
            Content::Data => asked.offset,
            Content::Hole => size,
        };
        // Every file has a hole at its end.
        work.reply.boolean(found >= size).u64(found);
        Ok(())
    }

    /// ALLOCATE and DEALLOCATE (RFC 7862 §15.1 and §15.4). ALLOCATE beyond the end of a file extends it. The changes
    /// are durable before the reply, because the results have no verifier that would tell a client of a loss.
    pub(super) fn change_space<B: NfsBackend + ?Sized>(
        &mut self,
        now: Instant,
        work: &mut Work,
        kind: Kind,
        asked: &SpaceArguments,
        backend: &mut B,
    ) -> Result<Step, Status> {
        let SpaceArguments { state, offset, len } = *asked;
        if len == 0 || offset.checked_add(len).is_none() {
            return Err(Status::Invalid);
        }
        let open = self.open_for_io(work, &state, true, backend)?;
        let operation = if matches!(kind, Kind::Allocate) {
            UnitOp::Allocate { offset, len }
        } else {
            let len = len.min(open.attributes.size.saturating_sub(offset));
            if len == 0 {
                return Ok(Step::Done);
            }
            UnitOp::Unmap { ranges: alloc::vec![(offset, len)], durable: true }
        };
        let id = self.ios.begin(kind)?;
        let started = backend.start(now, id, open.unit, operation);
        self.write_finished(id, work, started, backend)
    }
}

/// The start of the first run of the wanted kind; `size` if there is none. After `SEEK_RUNS_MAX` runs the rest counts
/// as data.
fn first_run<B: NfsBackend + ?Sized>(backend: &B, unit: UnitId, offset: u64, size: u64, wanted: Content) -> u64 {
    let mut at = offset;
    for _ in 0..SEEK_RUNS_MAX {
        match backend.allocation(unit, at) {
            Some(run) if run.is_mapped == (wanted == Content::Data) => return at,
            Some(run) if run.len > 0 && at + run.len < size => at += run.len,
            Some(_) => return size,
            None => break,
        }
    }
    if wanted == Content::Data { at } else { size }
}
