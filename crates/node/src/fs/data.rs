//! Data of an ordinary file: chunks on the heap, holes where nothing was written.

use std::collections::BTreeMap;

/// Large enough for few chunks in a large file, small enough for holes to save something.
const CHUNK: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Data {
    size: u64,
    /// By number; each as long as what was written in it reaches, at most `CHUNK`. What is missing is zeros.
    chunks: BTreeMap<u64, Vec<u8>>,
    used: u64,
}

impl Data {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes on the heap.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// How many more bytes of heap a write of `offset..end` takes.
    pub(super) fn growth(&self, offset: u64, end: u64) -> u64 {
        pieces(offset, end)
            .map(|(number, _, to)| {
                (to as u64).saturating_sub(self.chunks.get(&number).map_or(0, |chunk| chunk.len() as u64))
            })
            .sum()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        for (number, from, to) in pieces(offset, end) {
            let (piece, after) = rest.split_at(to - from);
            rest = after;
            let chunk = self.chunks.entry(number).or_default();
            if chunk.len() < to {
                self.used += (to - chunk.len()) as u64;
                chunk.resize(to, 0);
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
        self.used -= beyond.values().map(|chunk| chunk.len() as u64).sum::<u64>();
        if let Some(last) = self.chunks.get_mut(&(size / CHUNK)) {
            let kept = last.len().min((size % CHUNK) as usize);
            self.used -= (last.len() - kept) as u64;
            last.truncate(kept);
            last.shrink_to_fit();
        }
        before - self.used
    }
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
        assert_eq!(data.growth(far, far + 4), CHUNK + 2);
        data.write(far, b"abcd");
        assert_eq!((data.size(), data.used()), (far + 4, CHUNK + 2));
        assert_eq!(data.read(far - 3, 100), b"\0\0\0abcd");
        assert_eq!(data.read(0, 70_000), vec![0; 70_000]);
        assert_eq!(data.read(far + 4, 5), b"");
        assert_eq!(data.growth(far, far + 4), 0);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut data = Data::default();
        data.write(0, &vec![7; 3 * CHUNK as usize]);
        assert_eq!(data.set_size(CHUNK + 5), 2 * CHUNK - 5);
        assert_eq!(data.set_size(2 * CHUNK), 0);
        assert_eq!(data.used(), CHUNK + 5);
        let read = data.read(CHUNK, CHUNK as u32);
        assert_eq!(read[..5], [7; 5]);
        assert!(read[5..].iter().all(|byte| *byte == 0));
        assert_eq!(data.set_size(0), CHUNK + 5);
        assert_eq!(data.read(0, 10), b"");
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
