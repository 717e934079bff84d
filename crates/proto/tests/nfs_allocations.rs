//! On the path of an I/O nothing is allocated once it is warm.
#![allow(clippy::unwrap_used, unsafe_code)]

mod nfs_support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    rc::Rc,
};

use iotax_proto::{
    Backend, Ending, Geometry, HeapRegion, Initiator, InitiatorEvents, Instant, Io, IoError, IoId, Payload, Region,
    Started, Tag, Target, Transmit, UnitId, UnitOp,
    nfs::{
        backend::{Files, NfsBackend, ServerState},
        common::{Attributes, Export, ExportAccess, ExportId, FileError, FileId, FileType, OpenFile, Squash, Time},
        v3::target_side::{Config, Connection},
    },
    rpc::{Credentials, Peer},
    wire::Chunk,
};
use nfs_support::{Pair, config, server::Server};

const NOW: Instant = Instant(0);
const DEPTH: u32 = 8;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A server whose one file is memory, written in place.
struct InPlace {
    memory: Rc<HeapRegion>,
    attributes: Attributes,
    offsets: [u64; DEPTH as usize],
}

impl Backend for InPlace {
    fn geometry(&self, _: UnitId) -> Option<Geometry> {
        None
    }

    fn start(&mut self, _: Instant, id: IoId, _: UnitId, op: UnitOp) -> Started {
        match op {
            UnitOp::Read { offset, len, .. } => {
                Started::Done(Ok(Some(Payload::new(self.memory.clone(), offset as usize, len as usize))))
            }
            UnitOp::Write { offset, .. } => {
                self.offsets[id as usize] = offset;
                Started::NeedData
            }
            _ => Started::Done(Ok(None)),
        }
    }

    fn place(&mut self, id: IoId, offset: u32, bytes: &[u8]) {
        let at = self.offsets[id as usize] as usize + offset as usize;
        self.memory.copy_in(at, bytes);
    }

    fn finish(&mut self, _: Instant, _: IoId) -> Started {
        Started::Done(Ok(None))
    }

    fn abort(&mut self, _: IoId, _: Option<Ending>) {}
}

impl NfsBackend for InPlace {
    fn exports(&self) -> Vec<Export> {
        Vec::new()
    }

    fn admit(&self, _: &Peer, _: ExportId) -> Option<ExportAccess> {
        Some(ExportAccess { read_only: false, squash: Squash::Root })
    }

    fn open(&mut self, _: ExportId, _: FileId, _: &Credentials, _: bool) -> Result<OpenFile, FileError> {
        Ok(OpenFile { unit: UnitId(0), attributes: self.attributes, is_copied: false })
    }

    fn attributes(&mut self, _: ExportId, _: FileId) -> Option<Attributes> {
        Some(self.attributes)
    }

    fn write_verifier(&self) -> [u8; 8] {
        [7; 8]
    }

    fn with_files(&mut self, _: Instant, _: ExportId, _: &mut dyn FnMut(&mut Files<'_>)) {}

    fn with_state(&mut self, _: &mut dyn FnMut(&mut ServerState)) {}
}

#[derive(Default)]
struct Counter {
    completed: u32,
    bytes: usize,
}

impl InitiatorEvents for Counter {
    fn ready(&mut self, _: Instant, _: &Geometry) {}

    fn data(&mut self, _: Tag, _: u32, bytes: &[u8]) {
        self.bytes += bytes.len();
    }

    fn complete(&mut self, _: Instant, _: Tag, result: Result<(), IoError>) {
        result.unwrap();
        self.completed += 1;
    }

    fn closed(&mut self, _: Instant) {}
}

/// What a driver does: copies the chunks into one buffer and takes them off the queue.
fn send(transmit: &mut Transmit, buffer: &mut [u8]) -> usize {
    let mut at = 0;
    for chunk in transmit.chunks() {
        match chunk {
            Chunk::Bytes(bytes) => {
                buffer[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            }
            Chunk::Payload(payload) => {
                payload.copy_out(0, &mut buffer[at..at + payload.len()]);
                at += payload.len();
            }
        }
    }
    transmit.advance(at);
    at
}

#[test]
fn reads_writes_and_flushes_allocate_nothing() {
    let time = Time::default();
    let mut server = InPlace {
        memory: HeapRegion::new(1 << 20),
        attributes: Attributes {
            kind: FileType::Regular,
            mode: 0o666,
            links: 1,
            uid: 0,
            gid: 0,
            size: 1 << 20,
            used: 1 << 20,
            device: (0, 0),
            file_system: 7,
            number: 2,
            accessed: time,
            modified: time,
            changed: time,
        },
        offsets: [0; DEPTH as usize],
    };
    let mut mount = Pair::new(config(), Server::new(1 << 20)).ready().mount;
    let mut connection = Connection::new(NOW, Config::default());
    let mut counter = Counter::default();
    let mut buffer = vec![0; 1 << 20];
    let data = Payload::new(server.memory.clone(), 0, 4096);
    let mut warm = 0;
    for round in 0..20 {
        if round == 10 {
            warm = ALLOCATIONS.with(Cell::get);
        }
        for tag in 0..DEPTH {
            let offset = u64::from(tag) * 4096;
            let io = match (round + tag) % 3 {
                0 => Io::Read { offset, len: 4096 },
                1 => Io::Write { offset, data: data.clone() },
                _ => Io::Flush,
            };
            mount.submit(NOW, tag, io).unwrap();
        }
        let count = send(mount.transmit(), &mut buffer);
        // In pieces as a socket gives them, most of which end within a call.
        for piece in buffer[..count].chunks(5000) {
            connection.receive(NOW, piece, &mut server).unwrap();
        }
        let count = send(Target::<InPlace>::transmit(&mut connection), &mut buffer);
        for piece in buffer[..count].chunks(5000) {
            mount.receive(NOW, piece, &mut counter).unwrap();
        }
    }
    assert_eq!(counter.completed, 20 * DEPTH);
    assert!(counter.bytes > 0);
    assert_eq!(ALLOCATIONS.with(Cell::get), warm);
}
