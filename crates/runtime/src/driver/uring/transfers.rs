//! Disk operations that the kernel has.

use std::collections::VecDeque;

use io_uring::{opcode, types::FsyncFlags};
use iotax_node::DiskToken;

use super::{
    DISK, KIND_SHIFT,
    ring::{Completion, Ring, fd},
};
use crate::disk::{SystemOp, Transfer};

/// Operations under way by slot, which their completions name.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    slots: Vec<Option<(DiskToken, Transfer)>>,
    free: Vec<usize>,
}

impl Transfers {
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn start(&mut self, ring: &mut Ring, token: DiskToken, transfer: Transfer) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let disk = fd(transfer.fd());
        let entry = match transfer.op() {
            SystemOp::Read { offset, address, len } => {
                opcode::Read::new(disk, address as *mut u8, len).offset(offset).build()
            }
            SystemOp::Write { offset, address, len, durable } => opcode::Write::new(disk, address as *const u8, len)
                .offset(offset)
                .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
                .build(),
            SystemOp::Sync => opcode::Fsync::new(disk).flags(FsyncFlags::DATASYNC).build(),
            op @ (SystemOp::Zero { offset, len } | SystemOp::Punch { offset, len }) => {
                opcode::Fallocate::new(disk, len).offset(offset).mode(op.fallocate_mode()).build()
            }
        };
        self.slots[slot] = Some((token, transfer));
        // SAFETY: the transfer keeps the memory and the disk alive, in its slot, until the operation has completed.
        unsafe { ring.push(&entry.user_data((DISK << KIND_SHIFT) | slot as u64)) };
    }

    pub(super) fn take_done(
        &mut self,
        ring: &mut Ring,
        completion: Completion,
        into: &mut VecDeque<(DiskToken, Result<u32, i32>)>,
    ) {
        let slot = (completion.user_data & 0xFFFF_FFFF) as usize;
        let Some((token, mut transfer)) = self.slots[slot].take() else { return };
        self.free.push(slot);
        if transfer.fall_back(-completion.result).is_some() {
            self.start(ring, token, transfer);
        } else {
            into.push_back((token, transfer.finish(completion.result)));
        }
    }
}
