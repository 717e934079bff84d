//! Data of an ordinary file: chunks on the heap, and holes that were never written.

use std::collections::BTreeMap;

use iotax_proto::{Allocation, UnitId, nfs::common::ExportId};

/// Large enough for few chunks in a large file, small enough that holes save memory.
const CHUNK: u64 = 64 << 10;
/// Memory of a chunk is allocated in multiples of this size, so that a file that grows byte by byte is rarely moved.
const GRAIN: u64 = 512;
/// Number of chunks in a stretch, 256 MiB of a file. Truncated data are set aside stretch by stretch; no file has many
/// of these.
const STRETCH_CHUNKS: u64 = 4096;
const STRETCH: u64 = STRETCH_CHUNKS * CHUNK;
/// Maximum number of chunks that are searched for the end of a run of data.
const RUN_CHUNKS_MAX: u64 = 256;
/// Heap that a stretch takes in addition to its chunks.
pub(super) const STRETCH_COST: u64 = 512;
/// Heap that is freed at once when a file is removed or truncated.
const LITTLE: u64 = 4 * CHUNK;
/// Heap that a chunk takes in addition to its bytes: its map entry (nodes are half full at worst) and the allocator's
/// header.
pub(super) const CHUNK_COST: u64 = 128;

#[derive(Debug, Default)]
pub(super) struct Data {
    size: u64,
    /// By number, none of them empty. Missing data are zeros.
    stretches: BTreeMap<u64, Stretch>,
    used: u64,
}

#[derive(Debug, Default)]
struct Stretch {
    /// By number within the file. Each is as long as its written part, rounded up to `GRAIN`, at most `CHUNK`.
    chunks: BTreeMap<u64, Vec<u8>>,
    /// Bytes of heap of its chunks and of itself.
    used: u64,
}

/// Data cut off from files, which are freed gradually.
#[derive(Debug, Default)]
pub(super) struct Unfreed {
    /// What was cut off, by file.
    cuts: Vec<Vec<Stretch>>,
    used: u64,
}

impl Data {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of heap, including the bookkeeping.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// How many more bytes of heap a write to `offset..end` takes.
    pub(super) fn growth(&self, offset: u64, end: u64) -> u64 {
        let growth = |(number, _, to): (u64, usize, usize)| {
            let stretch = self.stretches.get(&(number / STRETCH_CHUNKS));
            let is_first = number == offset / CHUNK || number.is_multiple_of(STRETCH_CHUNKS);
            let begun = if stretch.is_none() && is_first { STRETCH_COST } else { 0 };
            let held = stretch.and_then(|stretch| stretch.chunks.get(&number)).map_or(0, |chunk| cost(chunk.len()));
            begun + cost(to).saturating_sub(held)
        };
        pieces(offset, end).map(growth).sum()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        self.hold(offset, end, |chunk, from, to| {
            let (piece, after) = rest.split_at(to - from);
            rest = after;
            chunk[from..to].copy_from_slice(piece);
        });
    }

    /// Allocates heap for `offset..end`, whose contents stay the same.
    pub(super) fn allocate(&mut self, offset: u64, end: u64) {
        self.hold(offset, end, |_, _, _| {});
    }

    /// Calls `change` with each chunk of `offset..end` and the range's start and end in it.
    fn hold(&mut self, offset: u64, end: u64, mut change: impl FnMut(&mut [u8], usize, usize)) {
        for (number, from, to) in pieces(offset, end) {
            let stretch = self.stretches.entry(number / STRETCH_CHUNKS).or_default();
            let before = stretch.used;
            stretch.used = before.max(STRETCH_COST);
            let chunk = stretch.chunks.entry(number).or_default();
            if chunk.len() < to {
                stretch.used += cost(to) - cost(chunk.len());
                let len = room(to) as usize;
                chunk.reserve_exact(len - chunk.len());
                chunk.resize(len, 0);
            }
            change(chunk, from, to);
            self.used += stretch.used - before;
        }
        self.size = self.size.max(end);
    }

    /// Up to `len` bytes; fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(u64::from(len)));
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        for (number, from, to) in pieces(offset, end) {
            let start = bytes.len();
            let stretch = self.stretches.get(&(number / STRETCH_CHUNKS));
            if let Some(chunk) = stretch.and_then(|stretch| stretch.chunks.get(&number)) {
                bytes.extend_from_slice(&chunk[from.min(chunk.len())..to.min(chunk.len())]);
            }
            bytes.resize(start + to - from, 0);
        }
        bytes
    }

    /// Zeroes `offset..end`. Returns the whole chunks that were cut out.
    pub(super) fn punch(&mut self, offset: u64, end: u64) -> Unfreed {
        let end = end.min(self.size);
        let (first, last) = (offset.div_ceil(CHUNK), end / CHUNK);
        let edges =
            if first <= last { [(offset, first * CHUNK), (last * CHUNK, end)] } else { [(offset, end), (end, end)] };
        for (number, from, to) in edges.into_iter().flat_map(|(from, to)| pieces(from, to.min(end))) {
            let stretch = self.stretches.get_mut(&(number / STRETCH_CHUNKS));
            if let Some(chunk) = stretch.and_then(|stretch| stretch.chunks.get_mut(&number)) {
                let len = chunk.len();
                chunk[from.min(len)..to.min(len)].fill(0);
            }
        }
        let mut cuts = Vec::new();
        if first < last {
            let whole = self.stretches.range_mut(first / STRETCH_CHUNKS..=(last - 1) / STRETCH_CHUNKS);
            cuts.extend(whole.map(|(_, stretch)| stretch.cut_out(first, last)));
            self.stretches.retain(|_, stretch| !stretch.chunks.is_empty());
        }
        self.used = used(self.stretches.values());
        Unfreed::new(used(cuts.iter()), cuts)
    }

    /// Whether the bytes from `offset` on are allocated, and how far this holds within the file.
    pub(super) fn allocation(&self, offset: u64) -> Allocation {
        let has = |number: u64| {
            let stretch = self.stretches.get(&(number / STRETCH_CHUNKS));
            stretch.is_some_and(|stretch| stretch.chunks.contains_key(&number))
        };
        let first = offset / CHUNK;
        let is_mapped = has(first);
        let end = if is_mapped {
            (first + 1..first + RUN_CHUNKS_MAX).find(|number| !has(*number)).unwrap_or(first + RUN_CHUNKS_MAX)
        } else {
            let here = self.stretches.get(&(first / STRETCH_CHUNKS));
            let next = here.and_then(|stretch| stretch.chunks.range(first..).next().map(|(number, _)| *number));
            let later = || {
                let (_, stretch) = self.stretches.range(first / STRETCH_CHUNKS + 1..).next()?;
                stretch.chunks.first_key_value().map(|(number, _)| *number)
            };
            next.or_else(later).unwrap_or(u64::MAX / CHUNK)
        };
        Allocation { is_mapped, len: (end * CHUNK).min(self.size).saturating_sub(offset) }
    }

    /// Truncates the file, or extends it by a hole. Returns the chunks that were cut off.
    pub(super) fn set_size(&mut self, size: u64) -> Unfreed {
        self.size = size;
        let first = size.div_ceil(CHUNK);
        let beyond = self.stretches.split_off(&first.div_ceil(STRETCH_CHUNKS));
        let mut stretches: Vec<_> = beyond.into_values().collect();
        let parted = size / STRETCH;
        if let Some(stretch) = self.stretches.get_mut(&parted) {
            stretches.push(stretch.cut(first));
            stretch.shorten(size);
            if stretch.chunks.is_empty() {
                self.stretches.remove(&parted);
            }
        }
        self.used = used(self.stretches.values());
        Unfreed::new(used(stretches.iter()), stretches)
    }

    /// Its data, to be freed.
    pub(super) fn into_unfreed(self) -> Unfreed {
        Unfreed::new(self.used, self.stretches.into_values().collect())
    }
}

impl Stretch {
    /// Removes and returns the chunks from `first` on.
    fn cut(&mut self, first: u64) -> Self {
        let chunks = self.chunks.split_off(&first);
        let used = chunks.values().map(|chunk| cost(chunk.len())).sum();
        self.used -= used;
        Self { chunks, used }
    }

    /// Removes and returns the chunks `first..last`.
    fn cut_out(&mut self, first: u64, last: u64) -> Self {
        let mut out = self.cut(first);
        let mut after = out.cut(last);
        self.used += after.used;
        self.chunks.append(&mut after.chunks);
        out
    }

    /// Shortens the chunk that contains `size`.
    fn shorten(&mut self, size: u64) {
        let Some(last) = self.chunks.get_mut(&(size / CHUNK)) else { return };
        let kept = (size % CHUNK) as usize;
        if kept < last.len() {
            self.used -= cost(last.len()) - cost(kept);
            last[kept..].fill(0);
            last.truncate(room(kept) as usize);
            last.shrink_to_fit();
        }
    }
}

impl Unfreed {
    fn new(used: u64, cut: Vec<Stretch>) -> Self {
        Self { used, cuts: if used > 0 { vec![cut] } else { Vec::new() } }
    }

    /// Adds data cut off from a file. Small amounts are freed at once.
    pub(super) fn add(&mut self, mut others: Self) {
        if others.used <= LITTLE {
            others.cuts.clear();
            others.used = 0;
        }
        self.cuts.append(&mut others.cuts);
        self.used += others.used;
    }

    /// Bytes of heap that are still used.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Frees one chunk, or the bookkeeping of some.
    pub(super) fn free_one(&mut self) {
        let Some(cut) = self.cuts.last_mut() else { return };
        let Some(stretch) = cut.last_mut() else {
            self.cuts.pop();
            return;
        };
        let freed = match stretch.chunks.pop_first() {
            Some((_, chunk)) => cost(chunk.len()),
            None => stretch.used,
        };
        stretch.used -= freed;
        self.used -= freed;
        if stretch.chunks.is_empty() && stretch.used == 0 {
            cut.pop();
        }
        if cut.is_empty() {
            self.cuts.pop();
        }
    }
}

fn used<'a>(stretches: impl Iterator<Item = &'a Stretch>) -> u64 {
    stretches.map(|stretch| stretch.used).sum()
}

/// Bytes allocated for a chunk that is written up to `len`.
fn room(len: usize) -> u64 {
    (len as u64).next_multiple_of(GRAIN)
}

/// Total heap of such a chunk; 0 if it is empty.
fn cost(len: usize) -> u64 {
    if len == 0 { 0 } else { room(len) + CHUNK_COST }
}

/// Splits `offset..end` into chunks: number, and first byte and end within the chunk.
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

/// Set in the `UnitId` of every ordinary file; volumes have small numbers.
const TREE: u64 = 1 << 63;

/// The data of an ordinary file, as the `Backend` trait identifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeUnit {
    pub export: ExportId,
    pub number: u32,
}

impl From<TreeUnit> for UnitId {
    fn from(unit: TreeUnit) -> Self {
        assert!(unit.export < 1 << 31, "exports are numbered from zero up");
        Self(TREE | u64::from(unit.export) << 32 | u64::from(unit.number))
    }
}

impl TreeUnit {
    /// `None` for a volume.
    pub fn from_unit(unit: UnitId) -> Option<Self> {
        let export = (unit.0 & !TREE) >> 32;
        (unit.0 & TREE != 0).then_some(Self { export: export as ExportId, number: unit.0 as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeros_and_take_no_heap() {
        let mut data = Data::default();
        let far = 10 * CHUNK - 2;
        let cost = CHUNK + GRAIN + 2 * CHUNK_COST + STRETCH_COST;
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
        let kept = CHUNK + GRAIN + 2 * CHUNK_COST + STRETCH_COST;
        assert_eq!(data.set_size(CHUNK + 5).used(), CHUNK + CHUNK_COST);
        assert_eq!(data.set_size(2 * CHUNK).used(), 0);
        assert_eq!(data.used(), kept);
        let read = data.read(CHUNK, CHUNK as u32);
        assert_eq!(read[..5], [7; 5]);
        assert!(read[5..].iter().all(|byte| *byte == 0));
        assert_eq!(data.set_size(0).used(), kept);
        assert_eq!(data.read(0, 10), b"");
    }

    #[test]
    fn cutting_puts_aside_stretches_and_the_chunks_of_one_and_frees_none() {
        let mut data = Data::default();
        for chunk in 0..5 * STRETCH_CHUNKS {
            data.write(chunk * CHUNK, b"x");
        }
        let used = data.used();
        let mut unfreed = data.set_size(STRETCH + 7 * CHUNK);
        assert_eq!(unfreed.cuts[0].len(), 4, "three, and a part of one");
        assert_eq!(data.used() + unfreed.used(), used, "all of it is still there");
        assert_eq!(data.stretches.values().map(|stretch| stretch.chunks.len()).sum::<usize>(), 4096 + 7);
        let mut steps = 0;
        while !unfreed.is_empty() {
            let before = unfreed.used();
            unfreed.free_one();
            assert!(before - unfreed.used() <= CHUNK + CHUNK_COST, "a chunk at a time");
            steps += 1;
        }
        assert!(steps >= 4 * STRETCH_CHUNKS - 7);
        assert_eq!(unfreed.used(), 0);
        assert_eq!(data.into_unfreed().cuts[0].len(), 2);
    }

    #[test]
    fn a_byte_in_each_chunk_is_charged_with_the_heap_that_it_takes() {
        let mut data = Data::default();
        for chunk in 0..1000 {
            data.write(chunk * CHUNK, b"x");
        }
        let held: usize = data.stretches[&0].chunks.values().map(Vec::capacity).sum();
        assert!(data.used() >= held as u64 + 1000 * CHUNK_COST, "{} for {held} bytes of data", data.used());
    }

    #[test]
    fn a_chunk_that_grows_byte_by_byte_takes_no_more_heap_than_it_is_charged_with() {
        let mut data = Data::default();
        for at in 0..5000 {
            data.write(at, b"x");
            assert!(data.stretches[&0].chunks[&0].capacity() as u64 + CHUNK_COST <= data.used());
        }
    }

    fn free_all(mut unfreed: Unfreed) {
        while !unfreed.is_empty() {
            unfreed.free_one();
        }
        assert_eq!(unfreed.used(), 0);
    }

    #[test]
    fn a_hole_takes_away_whole_chunks_of_all_stretches_between_its_ends() {
        let mut data = Data::default();
        for chunk in 0..3 * STRETCH_CHUNKS {
            data.write(chunk * CHUNK, b"xy");
        }
        let (begin, end) = (5 * CHUNK + 1, 2 * STRETCH + 7 * CHUNK + 1);
        assert!(data.allocation(0).is_mapped);
        free_all(data.punch(begin, end));
        assert_eq!(data.stretches.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(data.read(5 * CHUNK, 3), b"x\0\0");
        assert_eq!(data.read(2 * STRETCH + 7 * CHUNK, 3), b"\0y\0");
        assert_eq!(data.allocation(6 * CHUNK), Allocation { is_mapped: false, len: 2 * STRETCH + CHUNK });
        assert_eq!(data.allocation(5 * CHUNK + 9), Allocation { is_mapped: true, len: CHUNK - 9 });
        assert_eq!(data.size(), (3 * STRETCH_CHUNKS - 1) * CHUNK + 2);
    }

    #[test]
    fn random_operations_give_what_a_plain_vector_gives() {
        arbtest::arbtest(|u| {
            let (mut data, mut plain) = (Data::default(), Vec::new());
            for _ in 0..u.int_in_range(1..=20)? {
                let at = u.int_in_range(0..=3 * CHUNK)?;
                let len = u.int_in_range(0..=CHUNK + 9)? as usize;
                let (used, end) = (data.used(), at + len as u64);
                match u.int_in_range(0..=3)? {
                    0 => {
                        let bytes = vec![u.arbitrary::<u8>()?; len];
                        let growth = data.growth(at, end);
                        data.write(at, &bytes);
                        assert_eq!(data.used(), used + growth);
                        plain.resize(plain.len().max(end as usize), 0);
                        plain[at as usize..end as usize].copy_from_slice(&bytes);
                    }
                    1 => {
                        let growth = data.growth(at, end);
                        data.allocate(at, end);
                        assert_eq!(data.used(), used + growth);
                        assert_eq!(data.growth(at, end), 0, "there is room now");
                        plain.resize(plain.len().max(end as usize), 0);
                    }
                    2 => {
                        let unfreed = data.punch(at, end);
                        let after = data.used() + unfreed.used();
                        assert!([0, STRETCH_COST].contains(&(used - after)), "all but the stretch itself");
                        free_all(unfreed);
                        let end = plain.len().min(end as usize);
                        plain[end.min(at as usize)..end].fill(0);
                    }
                    _ => {
                        let unfreed = data.set_size(at);
                        let after = data.used() + unfreed.used();
                        assert!(after <= used && after + CHUNK >= used, "all but the end of a chunk");
                        free_all(unfreed);
                        plain.resize(at as usize, 0);
                    }
                }
                assert_eq!(data.size(), plain.len() as u64);
                assert_eq!(data.used(), super::used(data.stretches.values()));
            }
            assert!(data.read(0, u32::MAX) == plain);
            let mut at = 0;
            while at < data.size() {
                let run = data.allocation(at);
                assert!(run.len > 0 && at + run.len <= data.size());
                let bytes = &plain[at as usize..(at + run.len) as usize];
                assert!(run.is_mapped || bytes.iter().all(|byte| *byte == 0), "a hole at {at}");
                at += run.len;
            }
            Ok(())
        })
        .size_max(1 << 12);
    }
}
