//! Helpers for tests of allocation: an allocator that counts, a cell for one thread, a volume, and a pair of initiator
//! and target.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "shared by several test binaries")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::{Cell, RefCell},
    rc::Rc,
};

use iotax_proto::{
    Backend, Ending, Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, IoId, Payload, Shared, Started, Tag,
    Target, Transmit, UnitId, UnitOp, wire::Chunk,
};

pub const NOW: Instant = Instant(0);

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
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

pub struct Local<T>(RefCell<T>);

impl<T> Local<T> {
    pub fn new(value: T) -> Rc<Self> {
        Rc::new(Self(RefCell::new(value)))
    }
}

impl<T> Shared<T> for Local<T> {
    fn with(&self, use_it: &mut dyn FnMut(&mut T)) {
        use_it(&mut self.0.borrow_mut());
    }
}

/// A volume that is one payload. The offset of each operation is stored at its ID. `export` is the protocol's view of
/// it.
pub struct Volume<E> {
    bytes: Payload,
    offsets: [u64; 512],
    pub export: E,
}

impl<E> Volume<E> {
    pub fn new(export: E) -> Self {
        Self { bytes: Payload::from_vec(vec![0; 1 << 20]), offsets: [0; 512], export }
    }
}

impl<E> Backend for Volume<E> {
    fn geometry(&self, _unit: UnitId) -> Option<Geometry> {
        let size_bytes = self.bytes.len() as u64;
        Some(Geometry { size_bytes, block_size: 512, max_io_bytes: 1 << 20, read_only: false })
    }

    fn start(&mut self, _now: Instant, id: IoId, _unit: UnitId, op: UnitOp) -> Started {
        match op {
            UnitOp::Read { offset, len, .. } => {
                Started::Done(Ok(Some(self.bytes.slice(offset as usize, len as usize))))
            }
            UnitOp::Write { offset, .. } => {
                self.offsets[id as usize] = offset;
                Started::NeedData
            }
            _ => Started::Done(Ok(None)),
        }
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        self.bytes.copy_in(self.offsets[id as usize] as usize + offset as usize, bytes);
    }

    fn finish(&mut self, _now: Instant, _id: IoId) -> Started {
        Started::Done(Ok(None))
    }

    fn abort(&mut self, _id: IoId, _: Option<Ending>) {}
}

#[derive(Default)]
struct Events {
    ready: bool,
    completed: usize,
    bytes: usize,
}

impl InitiatorEvents for Events {
    fn ready(&mut self, _now: Instant, _geometry: &Geometry) {
        self.ready = true;
    }

    fn data(&mut self, _tag: Tag, _offset: u32, bytes: &[u8]) {
        self.bytes += bytes.len();
    }

    fn complete(&mut self, _now: Instant, _tag: Tag, result: Result<(), IoError>) {
        assert_eq!(result, Ok(()));
        self.completed += 1;
    }

    fn closed(&mut self, _now: Instant) {}
}

/// An initiator and a target, and the bytes between them.
pub struct Pair<I, T, E> {
    initiator: I,
    target: T,
    volume: Volume<E>,
    events: Events,
    wire: Vec<u8>,
}

impl<I: Initiator, T: Target<Volume<E>>, E> Pair<I, T, E> {
    pub fn new(initiator: I, target: T, volume: Volume<E>) -> Self {
        Self { initiator, target, volume, events: Events::default(), wire: Vec::new() }
    }

    /// Lets the initiator log in.
    pub fn ready(mut self) -> Self {
        self.turn();
        assert!(self.events.ready);
        self
    }

    /// Carries bytes until neither side sends any. It delivers them in pieces, as a socket does; most pieces end within
    /// a message.
    fn turn(&mut self) {
        const PIECE: usize = 5000;
        while !self.initiator.transmit().is_empty() {
            carry(self.initiator.transmit(), &mut self.wire);
            for piece in self.wire.chunks(PIECE) {
                self.target.receive(NOW, piece, &mut self.volume).unwrap();
            }
            carry(self.target.transmit(), &mut self.wire);
            for piece in self.wire.chunks(PIECE) {
                self.initiator.receive(NOW, piece, &mut self.events).unwrap();
            }
        }
    }

    /// Asserts that reads, writes and flushes allocate nothing after the first rounds, in which queues and buffers grow
    /// to their final size.
    pub fn assert_nothing_is_allocated(mut self) {
        let data = Payload::from_vec(vec![7; 65536]);
        let depth = self.initiator.credits().min(32) as u32;
        let mut before = 0;
        for round in 0..20 {
            if round == 10 {
                before = ALLOCATIONS.get();
            }
            for tag in 0..depth {
                let offset = u64::from(tag) * 4096;
                let len = if tag % 8 == 0 { 65536 } else { 4096 };
                let io = match (round + tag) % 3 {
                    0 => Io::Write { offset, data: data.slice(0, len), durable: false },
                    1 => Io::Read { offset, len: len as u32 },
                    _ => Io::Flush,
                };
                self.initiator.submit(NOW, tag, io).unwrap();
            }
            self.turn();
        }
        assert_eq!(ALLOCATIONS.get() - before, 0);
        assert_eq!(self.events.completed, 20 * depth as usize);
        assert!(self.events.bytes > 0);
    }
}

/// Moves the queued bytes into `wire`, whose memory is reused.
fn carry(transmit: &mut Transmit, wire: &mut Vec<u8>) {
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
