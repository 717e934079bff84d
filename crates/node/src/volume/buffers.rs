//! Staging memory, used again once nobody holds it any more.

use std::{collections::VecDeque, rc::Rc};

use iotax_proto::{Payload, Region};

use super::MAX_IO_BYTES;

/// Memory that one thread may have staged at a time. More operations than that are answered `Busy`.
const STAGED_MAX_BYTES: usize = 256 << 20;
const SMALLEST: usize = 4096;
/// Powers of two from `SMALLEST` to twice an I/O: compare-and-write takes two.
const CLASSES: usize = ((2 * MAX_IO_BYTES as usize) / SMALLEST).ilog2() as usize + 1;

/// Pools of buffers by size. A buffer goes out as a payload; it is free again when all clones of that are dropped, which may be
/// after the operation, as a reply is sent from it in place.
pub struct Buffers {
    allocate: Box<dyn FnMut(usize) -> Rc<dyn Region>>,
    /// Every buffer of a class, in the order in which they last went out.
    classes: [VecDeque<Rc<dyn Region>>; CLASSES],
    allocated_bytes: usize,
}

impl Buffers {
    pub fn new(allocate: Box<dyn FnMut(usize) -> Rc<dyn Region>>) -> Self {
        Self { allocate, classes: std::array::from_fn(|_| VecDeque::new()), allocated_bytes: 0 }
    }

    /// At least `len` bytes with any content, cut to `len`; `None` where there is no room now, or never for so many.
    pub(super) fn take(&mut self, len: usize) -> Option<Payload> {
        let size = len.max(SMALLEST).next_power_of_two();
        let class = self.classes.get_mut((size / SMALLEST).ilog2() as usize)?;
        let buffer = match class.pop_front() {
            Some(oldest) if Rc::strong_count(&oldest) == 1 => oldest,
            busy => {
                class.extend(busy);
                if self.allocated_bytes + size > STAGED_MAX_BYTES {
                    return None;
                }
                self.allocated_bytes += size;
                (self.allocate)(size)
            }
        };
        class.push_back(Rc::clone(&buffer));
        Some(Payload::new(buffer, 0, len))
    }
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffers({} bytes)", self.allocated_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn buffer_is_used_again_only_when_nobody_holds_it() {
        let made = Rc::new(Cell::new(0));
        let counter = Rc::clone(&made);
        let mut buffers = Buffers::new(Box::new(move |len| {
            counter.set(counter.get() + 1);
            iotax_proto::HeapRegion::new(len)
        }));
        let first = buffers.take(100).expect("room");
        let second = buffers.take(4096).expect("room");
        assert_eq!((first.len(), second.len(), made.get()), (100, 4096, 2));
        let kept = first.slice(0, 10);
        drop((first, second));
        buffers.take(1).expect("room");
        drop(kept);
        for _ in 0..10 {
            buffers.take(4000).expect("room");
        }
        assert!(made.get() <= 3, "{}", made.get());
    }

    #[test]
    fn pool_has_a_limit_and_so_has_a_buffer() {
        let mut buffers = Buffers::new(Box::new(|len| iotax_proto::HeapRegion::new(len)));
        assert!(buffers.take(2 * MAX_IO_BYTES as usize).is_some());
        assert!(buffers.take(2 * MAX_IO_BYTES as usize + 1).is_none());
        let held: Vec<_> = std::iter::from_fn(|| buffers.take(MAX_IO_BYTES as usize)).take(1000).collect();
        assert!(held.len() < 256, "{}", held.len());
    }
}
