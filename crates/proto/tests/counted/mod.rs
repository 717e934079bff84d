//! What tests of allocation share: an allocator that counts, a cell for one thread, events, and the wire between two machines.
#![allow(unreachable_pub, reason = "shared by several test binaries")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::{Cell, RefCell},
};

use iotax_proto::{Geometry, InitiatorEvents, Instant, IoError, Shared, Tag, Transmit, wire::Chunk};

struct Counting;

thread_local! {
    pub static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub struct Local<T>(pub RefCell<T>);

impl<T> Shared<T> for Local<T> {
    fn with(&self, use_it: &mut dyn FnMut(&mut T)) {
        use_it(&mut self.0.borrow_mut());
    }
}

#[derive(Default)]
pub struct Events {
    pub ready: bool,
    pub completed: usize,
}

impl InitiatorEvents for Events {
    fn ready(&mut self, _now: Instant, _geometry: &Geometry) {
        self.ready = true;
    }

    fn data(&mut self, _tag: Tag, _offset: u32, _bytes: &[u8]) {}

    fn complete(&mut self, _now: Instant, _tag: Tag, result: Result<(), IoError>) {
        assert_eq!(result, Ok(()));
        self.completed += 1;
    }

    fn closed(&mut self, _now: Instant) {}
}

/// Takes what is queued into `wire`, whose memory is kept.
pub fn carry(transmit: &mut Transmit, wire: &mut Vec<u8>) {
    wire.clear();
    for chunk in transmit.chunks() {
        match chunk {
            Chunk::Bytes(bytes) => wire.extend_from_slice(bytes),
            Chunk::Payload(payload) => {
                let at = wire.len();
                wire.resize(at + payload.len(), 0);
                payload.copy_out(0, &mut wire[at..]);
            }
        }
    }
    transmit.clear();
}
