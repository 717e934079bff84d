//! Receive buffers from which the kernel picks when bytes arrive: one set for all connections of a thread.

use std::{
    io,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::types::BufRingEntry;
use iotax_proto::Region;

use super::{super::port::MAX_RECEIVE_BYTES, ring::Ring};
use crate::memory::SharedRegion;

/// Number of buffers, a power of two. Few, so that they stay in the processor's cache. If all are in use, receives wait
/// for one.
const BUFFERS: u16 = 16;

/// Number of the group in the ring.
pub(super) const GROUP: u16 = 0;

/// Buffers lent to the kernel in a shared ring.
pub(super) struct Buffers {
    /// The ring of entries; page-aligned, as the kernel requires.
    entries: SharedRegion,
    memory: SharedRegion,
    tail: u16,
}

impl Buffers {
    /// Registers the buffers. They must be dropped after the ring.
    pub(super) fn new(ring: &Ring) -> io::Result<Self> {
        let entries = SharedRegion::anonymous(usize::from(BUFFERS) * size_of::<BufRingEntry>(), true)
            .map_err(io::Error::other)?;
        let memory =
            SharedRegion::anonymous(usize::from(BUFFERS) * MAX_RECEIVE_BYTES, true).map_err(io::Error::other)?;
        let mut buffers = Self { entries, memory, tail: 0 };
        let address = buffers.entry(0) as u64;
        // SAFETY: the entries are page-aligned, long enough, and outlive the ring as the caller promises.
        unsafe { ring.ring().submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0) }?;
        for buffer in 0..BUFFERS {
            buffers.give_back(buffer);
        }
        Ok(buffers)
    }

    /// The memory stays for as long as the process.
    pub(super) fn leak(&self) {
        std::mem::forget((self.entries.clone(), self.memory.clone()));
    }

    /// The bytes that the kernel put into a buffer, which belongs to us until it is given back.
    pub(super) fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < BUFFERS && len <= MAX_RECEIVE_BYTES, "a completion names a buffer of the group");
        let address = self.address(buffer);
        // SAFETY: the range lies inside the memory; the kernel wrote it before the completion and does not touch it
        // until `give_back`, which needs `&mut self`.
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
