//! Data of an ordinary file: chunks on the heap, holes where nothing was written.

use std::collections::BTreeMap;

/// Large enough for few chunks in a large file, small enough for holes to save something.
const CHUNK: u64 = 64 << 10;
/// Heap of a chunk comes in pieces of this size, so that a file that grows byte by byte is seldom moved.
const GRAIN: u64 = 512;
/// Heap that a chunk takes beside its bytes: its entry in the map, whose nodes are half full at worst, and the allocator's header.
pub(super) const CHUNK_COST: u64 = 128;

#[derive(Debug, Default)]
pub(super) struct Data {
    size: u64,
    /// By number; each as long as what was written in it reaches, rounded up to `GRAIN`, at most `CHUNK`. What is missing is zeros.
    chunks: BTreeMap<u64, Vec<u8>>,
    used: u64,
}

impl Data {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of heap, those of keeping account of them too.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// How many more bytes of heap a write of `offset..end` takes.
    pub(super) fn growth(&self, offset: u64, end: u64) -> u64 {
        let growth = |(number, _, to): (u64, usize, usize)| {
            let held = self.chunks.get(&number).map_or(0, |chunk| cost(chunk.len()));
            cost(to).saturating_sub(held)
        };
        pieces(offset, end).map(growth).sum()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        for (number, from, to) in pieces(offset, end) {
            let (piece, after) = rest.split_at(to - from);
            rest = after;
            let chunk = self.chunks.entry(number).or_default();
            if chunk.len() < to {
                self.used += cost(to) - cost(chunk.len());
                let len = room(to) as usize;
                chunk.reserve_exact(len - chunk.len());
                chunk.resize(len, 0);
            }
            chunk[from..to].copy_from_slice(piece);
        }
        self.size = self.size.max(end);
    }

    /// Up to `len` bytes; fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(u64::from(len)));
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        for (number, from, to) in pieces(offset, end) {
            let start = bytes.len();
            if let Some(chunk) = self.chunks.get(&number) {
                bytes.extend_from_slice(&chunk[from.min(chunk.len())..to.min(chunk.len())]);
            }
            bytes.resize(start + to - from, 0);
        }
        bytes
    }

    /// Cuts the file, or adds a hole to its end; bytes of heap that became free.
    pub(super) fn set_size(&mut self, size: u64) -> u64 {
        self.size = size;
        let before = self.used;
        let beyond = self.chunks.split_off(&size.div_ceil(CHUNK));
        self.used -= beyond.values().map(|chunk| cost(chunk.len())).sum::<u64>();
        if let Some(last) = self.chunks.get_mut(&(size / CHUNK)) {
            let kept = (size % CHUNK) as usize;
            if kept < last.len() {
                self.used -= cost(last.len()) - cost(kept);
                last[kept..].fill(0);
                last.truncate(room(kept) as usize);
                last.shrink_to_fit();
            }
        }
        before - self.used
    }
}

/// Bytes allocated for a chunk that is written up to `len`.
fn room(len: usize) -> u64 {
    (len as u64).next_multiple_of(GRAIN)
}

/// Heap that such a chunk takes in all; nothing where there is none.
fn cost(len: usize) -> u64 {
    if len == 0 { 0 } else { room(len) + CHUNK_COST }
}

/// Cuts `offset..end` into chunks: number, first byte and end within it.
fn pieces(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let number = at / CHUNK;
        let from = at % CHUNK;
        let to = CHUNK.min(from + (end - at));
        at += to - from;
        Some((number, from as usize, to as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeros_and_take_no_heap() {
        let mut data = Data::default();
        let far = 10 * CHUNK - 2;
        let cost = CHUNK + GRAIN + 2 * CHUNK_COST;
        assert_eq!(data.growth(far, far + 4), cost);
        data.write(far, b"abcd");
        assert_eq!((data.size(), data.used()), (far + 4, cost));
        assert_eq!(data.read(far - 3, 100), b"\0\0\0abcd");
        assert_eq!(data.read(0, 70_000), vec![0; 70_000]);
        assert_eq!(data.read(far + 4, 5), b"");
        assert_eq!(data.growth(far, far + 4), 0);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut data = Data::default();
        data.write(0, &vec![7; 3 * CHUNK as usize]);
        let kept = CHUNK + GRAIN + 2 * CHUNK_COST;
        assert_eq!(data.set_size(CHUNK + 5), 3 * (CHUNK + CHUNK_COST) - kept);
        assert_eq!(data.set_size(2 * CHUNK), 0);
        assert_eq!(data.used(), kept);
        let read = data.read(CHUNK, CHUNK as u32);
        assert_eq!(read[..5], [7; 5]);
        assert!(read[5..].iter().all(|byte| *byte == 0));
        assert_eq!(data.set_size(0), kept);
        assert_eq!(data.read(0, 10), b"");
    }

    #[test]
    fn a_byte_in_each_chunk_is_charged_with_the_heap_that_it_takes() {
        let mut data = Data::default();
        for chunk in 0..1000 {
            data.write(chunk * CHUNK, b"x");
        }
        let held: usize = data.chunks.values().map(Vec::capacity).sum();
        assert!(data.used() >= held as u64 + 1000 * CHUNK_COST, "{} for {held} bytes of data", data.used());
    }

    #[test]
    fn a_chunk_that_grows_byte_by_byte_takes_no_more_heap_than_it_is_charged_with() {
        let mut data = Data::default();
        for at in 0..5000 {
            data.write(at, b"x");
            assert!(data.chunks[&0].capacity() as u64 + CHUNK_COST <= data.used());
        }
    }

    #[test]
    fn random_operations_give_what_a_plain_vector_gives() {
        arbtest::arbtest(|u| {
            let (mut data, mut plain) = (Data::default(), Vec::new());
            for _ in 0..u.int_in_range(1..=20)? {
                let at = u.int_in_range(0..=3 * CHUNK)?;
                let len = u.int_in_range(0..=CHUNK + 9)? as usize;
                if u.arbitrary()? {
                    let bytes = vec![u.arbitrary::<u8>()?; len];
                    let growth = data.growth(at, at + len as u64);
                    let used = data.used();
                    data.write(at, &bytes);
                    assert_eq!(data.used(), used + growth);
                    plain.resize(plain.len().max(at as usize + len), 0);
                    plain[at as usize..at as usize + len].copy_from_slice(&bytes);
                } else {
                    let used = data.used();
                    let freed = data.set_size(at);
                    assert_eq!(data.used(), used - freed);
                    plain.resize(at as usize, 0);
                }
                assert_eq!(data.size(), plain.len() as u64);
            }
            assert!(data.read(0, u32::MAX) == plain);
            Ok(())
        })
        .size_max(1 << 12);
    }
}
