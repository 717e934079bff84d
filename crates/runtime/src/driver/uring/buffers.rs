//! Buffers that the kernel picks from when bytes arrive: one set for all connections of a thread.

use std::{
    io,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::types::BufRingEntry;
use iotax_proto::Region;

use super::{super::run::MAX_RECEIVE_BYTES, ring::Ring};
use crate::memory::SharedRegion;

/// Buffers, a power of two; when all are in use, receiving waits for one.
const BUFFERS: u16 = 16;

/// Lent at first. The kernel takes them in turn: of fewer, each is used again while the processor's cache still holds it. A thread
/// with more connections at once than these soon needs the others, and gets them.
const FEW: u16 = 4;

/// The group's number in the ring.
pub(super) const GROUP: u16 = 0;

/// Buffers lent to the kernel in a ring that both know.
pub(super) struct Buffers {
    /// The ring of entries; page-aligned, as the kernel wants it.
    entries: SharedRegion,
    memory: SharedRegion,
    tail: u16,
    /// The buffers that the kernel has been given so far, by number from 0.
    lent: u16,
}

impl Buffers {
    /// Registers the buffers and lends a few, or all. They must be dropped after the ring.
    pub(super) fn new(ring: &Ring, few: bool) -> io::Result<Self> {
        let entries = SharedRegion::anonymous(usize::from(BUFFERS) * size_of::<BufRingEntry>(), true)
            .map_err(io::Error::other)?;
        let memory =
            SharedRegion::anonymous(usize::from(BUFFERS) * MAX_RECEIVE_BYTES, true).map_err(io::Error::other)?;
        let mut buffers = Self { entries, memory, tail: 0, lent: 0 };
        let address = buffers.entry(0) as u64;
        // SAFETY: the entries are page-aligned, long enough, and outlive the ring as the caller promises.
        unsafe { ring.ring().submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0) }?;
        buffers.lend(if few { FEW } else { BUFFERS });
        Ok(buffers)
    }

    /// The kernel found none: lends more, if there are any.
    pub(super) fn lend_more(&mut self) {
        self.lend(2 * self.lent);
    }

    fn lend(&mut self, count: u16) {
        for buffer in self.lent..count.min(BUFFERS) {
            self.give_back(buffer);
            self.lent += 1;
        }
    }

    /// The bytes that the kernel put into a buffer, which is ours until it is given back.
    pub(super) fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < self.lent && len <= MAX_RECEIVE_BYTES, "a completion names a buffer of the group");
        let address = self.address(buffer);
        // SAFETY: the range lies inside the memory; the kernel wrote it before the completion and does not touch it until
        // `give_back`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(address, len) }
    }

    /// Lends a buffer to the kernel.
    pub(super) fn give_back(&mut self, buffer: u16) {
        let entry = self.entry(self.tail % BUFFERS);
        // SAFETY: the entry lies inside the ring, and the kernel reads it only once the tail has passed it.
        unsafe {
            (*entry).set_addr(self.address(buffer) as u64);
            (*entry).set_len(MAX_RECEIVE_BYTES as u32);
            (*entry).set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the first entry holds the tail in a field that buffers do not use; the kernel reads it atomically.
        let tail = unsafe { &*BufRingEntry::tail(self.entry(0)).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    fn address(&self, buffer: u16) -> *const u8 {
        match self.memory.address(usize::from(buffer) * MAX_RECEIVE_BYTES) {
            Some(address) => address,
            None => unreachable!("mapped memory has addresses"),
        }
    }

    fn entry(&self, index: u16) -> *mut BufRingEntry {
        match self.entries.address(usize::from(index) * size_of::<BufRingEntry>()) {
            Some(address) => address.cast_mut().cast(),
            None => unreachable!("mapped memory has addresses"),
        }
    }
}
