//! One disk operation while the system executes it.

use std::{os::fd::RawFd, rc::Rc, sync::Arc};

use iotax_node::DiskOp;
use iotax_proto::Payload;

use super::{Disk, DiskKind};
use crate::memory::SharedRegion;

/// An operation for the system. The address is valid as long as the `Transfer` from which it came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SystemOp {
    Read {
        offset: u64,
        address: usize,
        len: u32,
    },
    Write {
        offset: u64,
        address: usize,
        len: u32,
        durable: bool,
    },
    Sync,
    /// `fallocate` that leaves zeros.
    Zero {
        offset: u64,
        len: u64,
    },
    Punch {
        offset: u64,
        len: u64,
    },
    /// `fallocate` that changes no bytes.
    Allocate {
        offset: u64,
        len: u64,
    },
}

/// A driver's own reference to a shared disk, so that its reference counting does not interfere with other processors.
pub(crate) type DriversDisk = Rc<Arc<Disk>>;

/// An operation under way: keeps the memory alive that the system reads or writes.
#[derive(Debug)]
pub(crate) struct Transfer {
    disk: DriversDisk,
    op: SystemOp,
    /// The payload that is used in place, or that a read's bytes are copied to; and the aligned memory between, if any.
    payload: Option<Payload>,
    bounce: Option<SharedRegion>,
}

impl Transfer {
    /// Fails with an error number of the system if there is no memory for a bounce buffer, or if no disk has such an
    /// offset.
    pub(crate) fn new(disk: DriversDisk, op: DiskOp) -> Result<Self, i32> {
        if let DiskOp::Read { offset, .. }
        | DiskOp::Write { offset, .. }
        | DiskOp::WriteZeroes { offset, .. }
        | DiskOp::Unmap { offset, .. }
        | DiskOp::Allocate { offset, .. } = op
            && i64::try_from(offset).is_err()
        {
            // For io_uring, the highest offset would be the file's current position.
            return Err(libc::EINVAL);
        }
        let (op, payload, bounce) = match op {
            DiskOp::Read { offset, into } => {
                let (address, bounce) = place(&disk, &into)?;
                (SystemOp::Read { offset, address, len: len(&into)? }, Some(into), bounce)
            }
            DiskOp::Write { offset, from, durable } => {
                let (address, bounce) = place(&disk, &from)?;
                if bounce.is_some() {
                    copy(&from, address);
                }
                (SystemOp::Write { offset, address, len: len(&from)?, durable }, Some(from), bounce)
            }
            DiskOp::Sync => (SystemOp::Sync, None, None),
            DiskOp::WriteZeroes { offset, len } => (SystemOp::Zero { offset, len }, None, None),
            DiskOp::Unmap { offset, len } => (SystemOp::Punch { offset, len }, None, None),
            // A device has its space, and the system refuses the request.
            DiskOp::Allocate { .. } if disk.kind() == DiskKind::BlockDevice => (SystemOp::Sync, None, None),
            DiskOp::Allocate { offset, len } => (SystemOp::Allocate { offset, len }, None, None),
        };
        Ok(Self { disk, op, payload, bounce })
    }

    pub(crate) fn op(&self) -> SystemOp {
        self.op
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.disk.raw_fd()
    }

    /// Whether it is only a copy of memory: handing it to a thread would cost more, and io_uring gives writes and
    /// flushes to threads.
    pub(crate) fn never_waits(&self) -> bool {
        self.disk.is_in_memory() && matches!(self.op, SystemOp::Read { .. } | SystemOp::Write { .. } | SystemOp::Sync)
    }

    /// Executes the whole operation on this thread.
    pub(crate) fn perform(self) -> Result<u32, i32> {
        let answer = self.op.perform(self.fd());
        self.finish(answer)
    }

    /// The operation to try instead after an error: some file systems can punch holes, which read as zeros, but cannot
    /// zero a range.
    pub(crate) fn fall_back(&mut self, error: i32) -> Option<SystemOp> {
        let SystemOp::Zero { offset, len } = self.op else { return None };
        if error != libc::EOPNOTSUPP {
            return None;
        }
        self.op = SystemOp::Punch { offset, len };
        Some(self.op)
    }

    /// Takes the system's result (bytes, or a negative error number) and copies a read's bytes to their payload.
    pub(crate) fn finish(self, answer: i32) -> Result<u32, i32> {
        let moved = u32::try_from(answer).map_err(|_| -answer)?;
        match self.op {
            SystemOp::Read { address, .. } => {
                if let (Some(payload), Some(bounce)) = (&self.payload, &self.bounce) {
                    copy_back(payload, bounce, address, moved as usize);
                }
                Ok(moved)
            }
            SystemOp::Write { .. } | SystemOp::Sync => Ok(moved),
            SystemOp::Zero { len, .. } | SystemOp::Punch { len, .. } | SystemOp::Allocate { len, .. } => {
                Ok(u32::try_from(len).unwrap_or(u32::MAX))
            }
        }
    }
}

impl SystemOp {
    /// Executes the operation on this thread.
    pub(crate) fn perform(self, fd: RawFd) -> i32 {
        let answer = match self {
            Self::Read { offset, address, len } => {
                let iovec = vector(address, len);
                // SAFETY: the address is that of `len` bytes kept alive by the operation's `Transfer` until it is
                // finished.
                unsafe { libc::preadv(fd, &raw const iovec, 1, signed(offset)) }
            }
            Self::Write { offset, address, len, durable } => {
                let iovec = vector(address, len);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: as above; the system only reads.
                unsafe { libc::pwritev2(fd, &raw const iovec, 1, signed(offset), flags) }
            }
            // SAFETY: touches no memory of ours.
            Self::Sync => unsafe { libc::fdatasync(fd) as isize },
            Self::Zero { offset, len } | Self::Punch { offset, len } | Self::Allocate { offset, len } => {
                // SAFETY: touches no memory of ours.
                unsafe { libc::fallocate(fd, self.fallocate_mode(), signed(offset), signed(len)) as isize }
            }
        };
        if answer < 0 { -last_error() } else { i32::try_from(answer).unwrap_or(i32::MAX) }
    }

    /// The `mode` of `fallocate`.
    pub(crate) fn fallocate_mode(self) -> i32 {
        libc::FALLOC_FL_KEEP_SIZE
            | match self {
                Self::Zero { .. } => libc::FALLOC_FL_ZERO_RANGE,
                Self::Punch { .. } => libc::FALLOC_FL_PUNCH_HOLE,
                _ => 0,
            }
    }
}

/// The address for the system: that of the payload, or aligned memory if the payload's address is unsuitable.
fn place(disk: &Disk, payload: &Payload) -> Result<(usize, Option<SharedRegion>), i32> {
    let align = disk.memory_align();
    if let Some(address) = payload.address()
        && (address as usize).is_multiple_of(align)
    {
        return Ok((address as usize, None));
    }
    let bounce = SharedRegion::anonymous(payload.len().max(1), false).map_err(|_| libc::ENOMEM)?;
    let region = bounce.region();
    let address = region.address(0).ok_or(libc::ENOMEM)? as usize;
    Ok((address, Some(bounce)))
}

fn len(payload: &Payload) -> Result<u32, i32> {
    u32::try_from(payload.len()).map_err(|_| libc::EINVAL)
}

fn copy(from: &Payload, address: usize) {
    // SAFETY: the address is that of a bounce region of the payload's length, which was just created and is not shared
    // yet.
    let into = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, from.len()) };
    from.copy_out(0, into);
}

fn copy_back(into: &Payload, bounce: &SharedRegion, address: usize, count: usize) {
    debug_assert_eq!(bounce.region().address(0).map(|base| base as usize), Some(address));
    // SAFETY: the address is that of the bounce region, alive here and no longer written: the operation has ended.
    let from = unsafe { std::slice::from_raw_parts(address as *const u8, count.min(into.len())) };
    into.copy_in(0, from);
}

fn vector(address: usize, len: u32) -> libc::iovec {
    libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len as usize }
}

/// A length beyond the system's limit causes `EINVAL`; offsets were checked before.
fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(-1)
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
