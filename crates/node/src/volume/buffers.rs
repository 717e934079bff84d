//! Staging memory, reused once it is released.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use iotax_proto::{Payload, Region};

use super::MAX_IO_BYTES;
use crate::node::ConnId;

/// Maximum staging memory of one thread. If three connections hold 128 writes of 1 MiB each, as much is left for all
/// others as one of them holds.
const STAGED_MAX_BYTES: usize = 512 << 20;
/// The part of it that may be kept while unused.
const IDLE_MAX_BYTES: usize = 64 << 20;
const SMALLEST: usize = 4096;
/// Powers of two from `SMALLEST` to twice the largest I/O, because compare-and-write takes two.
const CLASSES: usize = ((2 * MAX_IO_BYTES as usize) / SMALLEST).ilog2() as usize + 1;

/// Allocates memory of a length in bytes; `None` if the system has no more.
pub type Allocate = Box<dyn FnMut(usize) -> Option<Rc<dyn Region>>>;

/// Pools of buffers by size. A buffer is handed out as a payload. It is free again when all clones of the payload are
/// dropped. That may be after the operation, because a reply is sent from the buffer in place.
///
/// A connection gets no more than it leaves free, so a new connection always gets some memory.
pub struct Buffers {
    allocate: Allocate,
    pool: Rc<Pool>,
}

#[derive(Default)]
struct Pool {
    /// Free buffers by class.
    idle: RefCell<[Vec<Rc<dyn Region>>; CLASSES]>,
    idle_bytes: Cell<usize>,
    held_bytes: Cell<usize>,
    /// Held bytes by connection.
    held_by: RefCell<Vec<usize>>,
}

/// A buffer in use.
struct Lease {
    buffer: Option<Rc<dyn Region>>,
    class: usize,
    conn: ConnId,
    pool: Rc<Pool>,
}

impl Buffers {
    pub fn new(allocate: Allocate) -> Self {
        Self { allocate, pool: Rc::default() }
    }

    /// Takes `len` bytes with any content for a connection. `None` if the connection has its share, if no memory is
    /// free now, or if `len` exceeds the largest class.
    pub(super) fn take(&mut self, conn: ConnId, len: usize) -> Option<Payload> {
        let (class, pool) = (class_of(len), &self.pool);
        if class >= CLASSES {
            return None;
        }
        let left_bytes = STAGED_MAX_BYTES.saturating_sub(pool.held_bytes.get() + size_of(class));
        if pool.held_by(conn) + size_of(class) > left_bytes {
            return None;
        }
        let buffer = if let Some(buffer) = pool.take_idle(class) {
            buffer
        } else {
            pool.make_room(size_of(class));
            (self.allocate)(size_of(class))?
        };
        pool.count(conn, class, true);
        let lease = Lease { buffer: Some(buffer), class, conn, pool: Rc::clone(pool) };
        Some(Payload::new(Rc::new(lease), 0, len))
    }
}

impl Pool {
    fn held_by(&self, conn: ConnId) -> usize {
        self.held_by.borrow().get(conn.0 as usize).copied().unwrap_or(0)
    }

    fn take_idle(&self, class: usize) -> Option<Rc<dyn Region>> {
        let buffer = self.idle.borrow_mut()[class].pop()?;
        self.idle_bytes.set(self.idle_bytes.get() - size_of(class));
        Some(buffer)
    }

    /// Frees unused buffers of other sizes until `bytes` more fit. `take` has checked that the held bytes leave room
    /// for them.
    fn make_room(&self, bytes: usize) {
        for class in (0..CLASSES).rev() {
            while self.held_bytes.get() + self.idle_bytes.get() + bytes > STAGED_MAX_BYTES {
                if self.take_idle(class).is_none() {
                    break;
                }
            }
        }
    }

    fn give_back(&self, class: usize, buffer: Rc<dyn Region>) {
        let idle_bytes = self.idle_bytes.get() + size_of(class);
        if idle_bytes <= IDLE_MAX_BYTES {
            self.idle_bytes.set(idle_bytes);
            self.idle.borrow_mut()[class].push(buffer);
        }
    }

    fn count(&self, conn: ConnId, class: usize, is_taken: bool) {
        let mut held_by = self.held_by.borrow_mut();
        let (index, size) = (conn.0 as usize, size_of(class));
        if index >= held_by.len() {
            held_by.resize(index + 1, 0);
        }
        let count = |bytes: usize| if is_taken { bytes + size } else { bytes - size };
        held_by[index] = count(held_by[index]);
        self.held_bytes.set(count(self.held_bytes.get()));
    }
}

fn class_of(len: usize) -> usize {
    (len.max(SMALLEST).next_power_of_two() / SMALLEST).ilog2() as usize
}

fn size_of(class: usize) -> usize {
    SMALLEST << class
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.count(self.conn, self.class, false);
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(self.class, buffer);
        }
    }
}

impl Lease {
    fn buffer(&self) -> &dyn Region {
        self.buffer.as_deref().expect("a lease has its buffer until it is dropped")
    }
}

impl Region for Lease {
    fn len(&self) -> usize {
        size_of(self.class)
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.buffer().copy_out(offset, into);
    }

    fn copy_in(&self, offset: usize, from: &[u8]) {
        self.buffer().copy_in(offset, from);
    }

    fn address(&self, offset: usize) -> Option<*const u8> {
        self.buffer().address(offset)
    }
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffers({} bytes held, {} idle)", self.pool.held_bytes.get(), self.pool.idle_bytes.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONN: ConnId = ConnId(0);

    /// Memory that is counted while it exists.
    struct Counted(usize, Rc<Cell<usize>>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.set(self.1.get() - self.0);
        }
    }

    impl Region for Counted {
        fn len(&self) -> usize {
            self.0
        }
        fn copy_out(&self, _: usize, into: &mut [u8]) {
            into.fill(0);
        }
        fn copy_in(&self, _: usize, _: &[u8]) {}
        fn address(&self, _: usize) -> Option<*const u8> {
            None
        }
    }

    /// Buffers, and the number of bytes currently allocated for them.
    fn buffers() -> (Buffers, Rc<Cell<usize>>) {
        let allocated = Rc::new(Cell::new(0));
        let counter = Rc::clone(&allocated);
        let allocate = move |len: usize| {
            counter.set(counter.get() + len);
            Some(Rc::new(Counted(len, Rc::clone(&counter))) as Rc<dyn Region>)
        };
        (Buffers::new(Box::new(allocate)), allocated)
    }

    fn take_all(buffers: &mut Buffers, conn: u32, len: usize) -> Vec<Payload> {
        std::iter::from_fn(|| buffers.take(ConnId(conn), len)).collect()
    }

    #[test]
    fn buffer_is_used_again_only_when_nobody_holds_it() {
        let (mut buffers, allocated) = buffers();
        let first = buffers.take(CONN, 100).expect("room");
        let second = buffers.take(CONN, 4096).expect("room");
        assert_eq!((first.len(), second.len(), allocated.get()), (100, 4096, 2 * 4096));
        let kept = first.slice(0, 10);
        drop((first, second));
        let third = buffers.take(CONN, 1).expect("room");
        assert_eq!(allocated.get(), 2 * 4096, "the second is used again");
        buffers.take(CONN, 1).expect("room");
        assert_eq!(allocated.get(), 3 * 4096, "the first is held still");
        drop((kept, third));
        for _ in 0..10 {
            buffers.take(CONN, 4000).expect("room");
        }
        assert_eq!(allocated.get(), 3 * 4096);
    }

    #[test]
    fn pool_has_a_limit_and_so_has_a_buffer() {
        let (mut buffers, allocated) = buffers();
        assert!(buffers.take(CONN, 2 * MAX_IO_BYTES as usize).is_some());
        assert!(buffers.take(CONN, 2 * MAX_IO_BYTES as usize + 1).is_none());
        let held: Vec<_> = (0..100).map(|conn| take_all(&mut buffers, conn, MAX_IO_BYTES as usize)).collect();
        assert!(allocated.get() <= STAGED_MAX_BYTES);
        drop(held);
        assert!(allocated.get() <= IDLE_MAX_BYTES, "{} kept", allocated.get());
    }

    #[test]
    fn memory_of_one_size_serves_every_other_size_once_it_is_free() {
        let (mut buffers, allocated) = buffers();
        for len in [1 << 20, 4096, 64 << 10, 2 << 20, 4096] {
            for conn in 0..4 {
                let held = take_all(&mut buffers, conn, len);
                assert!(held.len() * len >= STAGED_MAX_BYTES / 2 - len, "{} of {len}", held.len());
                assert!(allocated.get() <= STAGED_MAX_BYTES);
            }
        }
    }

    #[test]
    fn connections_that_hold_all_they_get_leave_as_much_to_others() {
        let (mut buffers, _) = buffers();
        let hogs: Vec<_> = (0..3).map(|conn| take_all(&mut buffers, conn, 1 << 20)).collect();
        assert!(hogs.iter().all(|held| held.len() >= 64), "{:?}", hogs.iter().map(Vec::len).collect::<Vec<_>>());
        assert!(take_all(&mut buffers, 3, 1 << 20).len() >= 32);
        let crowd: Vec<_> = (4..200).map(|conn| take_all(&mut buffers, conn, 1 << 20)).collect();
        assert!(take_all(&mut buffers, 200, 4096).len() >= 16, "a newcomer works still");
        drop((hogs, crowd));
        assert_eq!(take_all(&mut buffers, 0, 1 << 20).len(), 256, "all is free when they are gone");
    }

    #[test]
    fn system_without_memory_is_no_room() {
        let mut buffers = Buffers::new(Box::new(|_| None));
        assert!(buffers.take(CONN, 4096).is_none());
    }
}
