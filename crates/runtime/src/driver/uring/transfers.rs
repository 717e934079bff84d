//! Disk operations at the kernel.

use std::collections::VecDeque;

use io_uring::{
    opcode, squeue,
    types::{Fd, FsyncFlags},
};
use iotax_node::{DiskId, DiskToken};
use slab::Slab;

use super::{
    DISK, KIND_SHIFT,
    ring::{Completion, Ring},
};
use crate::disk::{SystemOp, Transfer};

/// Operations under way by slot; completions contain the slot.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    slots: Slab<(DiskToken, DiskId, Transfer)>,
}

impl Transfers {
    pub(super) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// `id` is the disk's index among the ring's registered files.
    pub(super) fn start(&mut self, ring: &mut Ring, token: DiskToken, id: DiskId, transfer: Transfer) {
        let slot = self.slots.vacant_key();
        let disk = Fd(id.0.cast_signed());
        let entry = match transfer.op() {
            SystemOp::Read { offset, address, len } => {
                opcode::Read::new(disk, address as *mut u8, len).offset(offset).build()
            }
            SystemOp::Write { offset, address, len, durable } => opcode::Write::new(disk, address as *const u8, len)
                .offset(offset)
                .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
                .build(),
            SystemOp::Sync => opcode::Fsync::new(disk).flags(FsyncFlags::DATASYNC).build(),
            op @ (SystemOp::Zero { offset, len }
            | SystemOp::Punch { offset, len }
            | SystemOp::Allocate { offset, len }) => {
                opcode::Fallocate::new(disk, len).offset(offset).mode(op.fallocate_mode()).build()
            }
        };
        let entry = entry.flags(squeue::Flags::FIXED_FILE).user_data((DISK << KIND_SHIFT) | slot as u64);
        self.slots.insert((token, id, transfer));
        // SAFETY: the transfer keeps the memory and the disk alive, in its slot, until the operation has completed.
        unsafe { ring.push(&entry) };
    }

    pub(super) fn take_done(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
        into: &mut VecDeque<(DiskToken, Result<u32, i32>)>,
    ) {
        let slot = (completion.user_data & 0xFFFF_FFFF) as usize;
        let (token, id, mut transfer) = self.slots.remove(slot);
        if transfer.fall_back(-completion.result).is_some() {
            self.start(ring, token, id, transfer);
        } else {
            into.push_back((token, transfer.finish(completion.result)));
        }
    }
}
