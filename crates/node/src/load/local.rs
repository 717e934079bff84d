//! Initiators without a protocol: the baseline from which a protocol's tax is measured.

use std::{ops::Range, rc::Rc};

use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Payload, Refusal, Region, Tag, Transmit,
    Violation,
};

use crate::{
    errno,
    node::{DiskId, DiskOp},
};

/// Volumes begin on such a boundary, too.
const PAGE_BYTES: usize = 4096;

/// Accesses memory by copying. An I/O is done in `submit` and completes at the driver's next turn, whose clock is read
/// after the copies, so the latency includes all of them.
pub struct MemoryInitiator {
    unit: Rc<dyn Region>,
    geometry: Geometry,
    /// Memory for reads: `io_bytes` for each tag, from the first page boundary on. If source and destination of a copy
    /// differ by a few bytes within the page, the copy takes some processors four times as long: apparently each load
    /// waits for the store before it.
    buffers: Vec<u8>,
    page: usize,
    io_bytes: usize,
    depth: usize,
    opened: bool,
    closing: bool,
    /// I/Os done since the last turn: tag and bytes read.
    done: Vec<(Tag, u32)>,
    turn: Instant,
    transmit: Transmit,
}

impl MemoryInitiator {
    pub fn new(unit: Rc<dyn Region>, depth: u32, io_bytes: u32) -> Self {
        let geometry =
            Geometry { size_bytes: unit.len() as u64, block_size: 512, max_io_bytes: io_bytes, read_only: false };
        let buffers = vec![0; depth as usize * io_bytes as usize + PAGE_BYTES];
        let page = buffers.as_ptr().align_offset(PAGE_BYTES);
        Self {
            unit,
            geometry,
            buffers,
            page,
            io_bytes: io_bytes as usize,
            depth: depth as usize,
            opened: false,
            closing: false,
            done: Vec::with_capacity(depth as usize),
            turn: Instant(0),
            transmit: Transmit::default(),
        }
    }

    fn buffer(&self, tag: Tag, len: u32) -> Range<usize> {
        let begin = self.page + tag as usize * self.io_bytes;
        begin..begin + len as usize
    }

    fn range(&self, offset: u64, len: usize) -> Result<usize, Misuse> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.geometry.size_bytes);
        end.map(|_| offset as usize).ok_or(Misuse::BadRange)
    }
}

impl Initiator for MemoryInitiator {
    fn receive(&mut self, _: Instant, _: &[u8], _: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        Ok(())
    }

    fn credits(&self) -> usize {
        if self.opened { self.depth - self.done.len() } else { 0 }
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        let mut read = 0;
        match io {
            Io::Read { offset, len } => {
                let from = self.range(offset, len as usize)?;
                if len as usize > self.io_bytes {
                    return Err(Misuse::BadRange);
                }
                let buffer = self.buffer(tag, len);
                self.unit.copy_out(from, &mut self.buffers[buffer]);
                read = len;
            }
            Io::Write { offset, data, .. } => {
                let to = self.range(offset, data.len())?;
                let mut done = 0;
                data.for_each_piece(|piece| {
                    self.unit.copy_in(to + done, piece);
                    done += piece.len();
                });
            }
            Io::WriteZeroes { offset, len } | Io::Unmap { offset, len } => {
                let to = self.range(offset, len as usize)?;
                for at in (0..len as usize).step_by(ZEROS.len()) {
                    self.unit.copy_in(to + at, &ZEROS[..ZEROS.len().min(len as usize - at)]);
                }
            }
            Io::Flush => {}
            Io::Reserve(_) => return Err(Misuse::BadRange),
        }
        self.turn = now;
        self.done.push((tag, read));
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.opened || self.closing || !self.done.is_empty()).then_some(self.turn)
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if !self.opened {
            self.opened = true;
            events.ready(now, &self.geometry);
        }
        for (tag, read) in &self.done {
            if *read > 0 {
                events.data(*tag, 0, &self.buffers[self.buffer(*tag, *read)]);
            }
            events.complete(now, *tag, Ok(()));
        }
        self.done.clear();
        if self.closing {
            self.closing = false;
            events.closed(now);
        }
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        self.turn = now;
        self.closing = true;
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        for (tag, _) in self.done.drain(..) {
            events.complete(now, tag, Err(IoError::ConnectionLost));
        }
    }
}

static ZEROS: [u8; 4096] = [0; 4096];

/// Accesses a file or a block device through the driver's disk operations.
pub struct DiskInitiator {
    disk: DiskId,
    geometry: Geometry,
    depth: usize,
    opened: bool,
    closing: bool,
    /// Memory for reads, by tag.
    buffers: Vec<Payload>,
    /// I/Os under way, by tag; `None` if there is none.
    under_way: Vec<Option<Pending>>,
    outstanding: usize,
    asked: Vec<(Tag, DiskOp)>,
    /// Buffer through which data that were read are shown; empty if they are not shown.
    piece: Vec<u8>,
    turn: Instant,
    transmit: Transmit,
}

#[derive(Clone, Copy)]
struct Pending {
    len: u32,
    is_read: bool,
}

impl DiskInitiator {
    /// `buffers` holds a payload for each tag. Bytes read are reported only with `shows_data`.
    pub fn new(disk: DiskId, geometry: Geometry, buffers: Vec<Payload>, shows_data: bool) -> Self {
        let depth = buffers.len();
        let io_bytes = buffers.first().filter(|_| shows_data).map_or(0, Payload::len);
        Self {
            disk,
            geometry,
            depth,
            opened: false,
            closing: false,
            buffers,
            under_way: vec![None; depth],
            outstanding: 0,
            asked: Vec::with_capacity(depth),
            piece: vec![0; io_bytes],
            turn: Instant(0),
            transmit: Transmit::default(),
        }
    }

    /// The next operation for the driver, and its tag.
    pub fn poll_disk(&mut self) -> Option<(Tag, DiskId, DiskOp)> {
        self.asked.pop().map(|(tag, op)| (tag, self.disk, op))
    }

    pub fn disk_done(&mut self, now: Instant, tag: Tag, result: Result<u32, i32>, events: &mut dyn InitiatorEvents) {
        let pending = self.under_way[tag as usize].take().expect("what was asked of the disk");
        self.outstanding -= 1;
        let result = match result {
            Ok(moved) if moved < pending.len => {
                Err(IoError::Failed { status: moved, refusal: Refusal::Other, what: "the file ended early" })
            }
            Ok(_) => Ok(()),
            Err(errno) => {
                let (status, refusal) = (errno.unsigned_abs(), errno::refusal(errno.abs()));
                Err(IoError::Failed { status, refusal, what: "the system refused the I/O (errno)" })
            }
        };
        if result.is_ok()
            && pending.is_read
            && let Some(piece) = self.piece.get_mut(..pending.len as usize)
        {
            self.buffers[tag as usize].copy_out(0, piece);
            events.data(tag, 0, piece);
        }
        events.complete(now, tag, result);
    }
}

impl Initiator for DiskInitiator {
    fn receive(&mut self, _: Instant, _: &[u8], _: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        Ok(())
    }

    fn credits(&self) -> usize {
        if self.opened { self.depth - self.outstanding } else { 0 }
    }

    fn submit(&mut self, _: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        let place = self.under_way.get_mut(tag as usize).filter(|pending| pending.is_none()).ok_or(Misuse::BadTag)?;
        let (op, pending) = match io {
            Io::Read { offset, len } => {
                let buffer = &self.buffers[tag as usize];
                if len as usize > buffer.len() {
                    return Err(Misuse::BadRange);
                }
                (DiskOp::Read { offset, into: buffer.slice(0, len as usize) }, Pending { len, is_read: true })
            }
            Io::Write { offset, data, durable } => {
                let len = data.len() as u32;
                (DiskOp::Write { offset, from: data, durable }, Pending { len, is_read: false })
            }
            Io::Flush => (DiskOp::Sync, Pending { len: 0, is_read: false }),
            Io::WriteZeroes { offset, len } => {
                (DiskOp::WriteZeroes { offset, len: u64::from(len) }, Pending { len: 0, is_read: false })
            }
            Io::Unmap { offset, len } => {
                (DiskOp::Unmap { offset, len: u64::from(len) }, Pending { len: 0, is_read: false })
            }
            Io::Reserve(_) => return Err(Misuse::BadRange),
        };
        *place = Some(pending);
        self.outstanding += 1;
        self.asked.push((tag, op));
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.opened || self.closing).then_some(self.turn)
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if !self.opened {
            self.opened = true;
            events.ready(now, &self.geometry);
        }
        if self.closing && self.outstanding == 0 {
            self.closing = false;
            events.closed(now);
        }
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        self.turn = now;
        self.closing = true;
    }

    fn disconnected(&mut self, _: Instant, _: &mut dyn InitiatorEvents) {}
}

impl std::fmt::Debug for MemoryInitiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryInitiator({} bytes, {} done)", self.geometry.size_bytes, self.done.len())
    }
}

impl std::fmt::Debug for DiskInitiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DiskInitiator({:?}, {} outstanding)", self.disk, self.outstanding)
    }
}
