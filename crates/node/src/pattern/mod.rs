//! The data pattern: every 512 bytes record their place, their writer and its count of writes, and carry a body that
//! cannot be compressed, unless a [`Reduction`] is configured.
//!
//! A pattern block has 512 bytes whatever the size of an I/O. Runs with different block sizes can therefore read each
//! other's data, and both halves of a torn I/O are whole pattern blocks:
//!
//! | bytes | little-endian |
//! |---|---|
//! | 0..8 | magic |
//! | 8..16 | offset of the block in its unit, bytes; for a copy: bit 63, the copy's number, the block's index in it |
//! | 16..24 | run (or fill) that wrote it; 0 for a copy, whose writer and sequence are 0, too |
//! | 24..27 | body: index into the pool, in steps of 8 bytes |
//! | 27 | number of 8-byte words at the body's end that are zeros |
//! | 28..32 | writer: 0 for a fill, 1.. for the workers of a run |
//! | 32..40 | sequence: the writer's count of writes |
//! | 40..48 | checksum of the fields above |
//! | 48..512 | body: 464 bytes of the pool |
//!
//! The pool is the same everywhere, so that a reader can verify what an earlier run or another machine wrote.

mod reduction;

use std::sync::LazyLock;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) use reduction::COPIES;
pub use reduction::{Copied, Reduction};

/// Size of a pattern block, bytes.
pub const BLOCK_BYTES: usize = 512;
/// Size of a pattern block's header, bytes.
pub const HEADER_BYTES: usize = 48;
const BODY_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;
const MAGIC: u64 = u64::from_le_bytes(*b"iotaxPB1");

/// Far larger than the windows within which file systems and arrays compress, small enough for a core's cache.
const POOL_BYTES: usize = 1 << 20;
const POOL_SEED: u64 = 0x696f_7461_7820_3031;
const BODY_STEP: usize = 8;
/// Position of the number of zero words in a header's `body`.
const ZEROS_SHIFT: u32 = 24;
const INDEX_MASK: u32 = (1 << ZEROS_SHIFT) - 1;
const ZERO_WORDS_MAX: u32 = (BODY_BYTES / BODY_STEP) as u32;
/// Flag in place of an offset; no unit is so large.
const COPY: u64 = 1 << 63;
const BODIES: u64 = ((POOL_BYTES - BODY_BYTES) / BODY_STEP) as u64;
/// Consecutive blocks of a buffer use consecutive bodies, this many indices apart.
const BODY_STRIDE: u64 = (BODY_BYTES / BODY_STEP) as u64;
/// Pattern blocks of a fill that use consecutive bodies before it jumps within the pool: 128 KiB, the usual record size
/// of compressing file systems.
const GROUP: u64 = 256;

/// Who wrote a block, and with which write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub run: u64,
    pub writer: u32,
    pub sequence: u64,
}

/// The contents of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub offset: u64,
    pub stamp: Stamp,
    pub(super) body: u32,
}

impl Header {
    /// Returns `None` if the bytes are not a header, or a damaged one.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let header = Self {
            offset: word(1),
            stamp: Stamp { run: word(2), writer: (word(3) >> 32) as u32, sequence: word(4) },
            body: word(3) as u32,
        };
        let right = word(0) == MAGIC && word(5) == header.check() && (is_whole(header.body) || is_reduced(header.body));
        right.then_some(header)
    }

    /// The copy that the block belongs to, if it has no place of its own.
    pub fn copied(&self) -> Option<Copied> {
        let number = (self.offset >> 32) as u32 & !(1 << 31);
        (self.offset & COPY != 0).then_some(Copied { number, at: self.offset as u32 })
    }

    /// The header of a copy's block, the same wherever it is written.
    fn of_copy(copied: Copied, body: u32) -> Self {
        let offset = COPY | u64::from(copied.number) << 32 | u64::from(copied.at);
        Self { offset, stamp: Stamp { run: 0, writer: 0, sequence: 0 }, body }
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let words = [MAGIC, self.offset, self.stamp.run, self.who(), self.stamp.sequence, self.check()];
        let mut bytes = [0; HEADER_BYTES];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    fn who(&self) -> u64 {
        u64::from(self.stamp.writer) << 32 | u64::from(self.body)
    }

    /// Two folded multiplications: a hash of four words in a few cycles.
    fn check(&self) -> u64 {
        let place = fold(self.offset ^ 0x9e37_79b9_7f4a_7c15, self.stamp.run ^ 0xe703_7ed1_a0b4_28db);
        let writer = fold(self.who() ^ 0x8ebc_6af0_9c88_c6e3, self.stamp.sequence ^ 0x5895_0b4d_f8f3_92a5);
        place ^ writer.rotate_left(23)
    }
}

/// The bytes from which bodies are sliced, and how far the data can be reduced.
#[derive(Debug)]
pub struct Pool {
    bytes: &'static [u8],
    reduction: Reduction,
}

/// The same bytes in every process. They exist once per process, because a simulation has thousands of loads.
static BYTES: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut bytes = vec![0; POOL_BYTES].into_boxed_slice();
    Xoshiro256PlusPlus::seed_from_u64(POOL_SEED).fill_bytes(&mut bytes);
    bytes
});

impl Default for Pool {
    fn default() -> Self {
        Self::new(Reduction::default())
    }
}

impl Pool {
    pub fn new(reduction: Reduction) -> Self {
        Self { bytes: &BYTES, reduction }
    }

    /// Whether these are bytes `begin..` of the body.
    #[inline]
    pub(super) fn is_body(&self, body: u32, begin: usize, part: &[u8]) -> bool {
        if is_whole(body) {
            *part == self.random(body)[begin..begin + part.len()]
        } else {
            self.is_reduced_body(body, begin, part)
        }
    }

    #[cold]
    fn is_reduced_body(&self, body: u32, begin: usize, part: &[u8]) -> bool {
        *part == self.body(body)[begin..begin + part.len()]
    }

    pub(super) fn body(&self, body: u32) -> [u8; BODY_BYTES] {
        let mut bytes = [0; BODY_BYTES];
        self.write_body(body, &mut bytes);
        bytes
    }

    /// Writes whole blocks that begin at `offset` of the unit, header and body.
    pub fn fill(&self, blocks: &mut [u8], offset: u64, stamp: Stamp) {
        assert!(blocks.len().is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64));
        let (blocks, _) = blocks.as_chunks_mut::<BLOCK_BYTES>();
        for (offset, block) in (offset..).step_by(BLOCK_BYTES).zip(blocks) {
            if let Some(copied) = self.reduction.copy_at(offset, stamp) {
                self.write_copied(copied, block);
                continue;
            }
            let number = offset / BLOCK_BYTES as u64;
            let body = reduced(self.reduction, body_of(number / GROUP, number % GROUP));
            block[..HEADER_BYTES].copy_from_slice(&Header { offset, stamp, body }.encode());
            self.write_body(body, &mut block[HEADER_BYTES..]);
        }
    }

    /// Writes the bodies of a buffer whose headers are written again for each use. `buffer` is its number.
    pub fn prepare(&self, blocks: &mut [u8], buffer: u64) {
        for (at, block) in blocks.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            self.write_body(reduced(self.reduction, body_of(buffer, at as u64)), &mut block[HEADER_BYTES..]);
        }
    }

    /// The headers that turn a prepared buffer into the data of one write: `(position in the buffer, header)` for each
    /// block.
    #[inline]
    pub fn headers(
        &self,
        buffer: u64,
        len: usize,
        offset: u64,
        stamp: Stamp,
    ) -> impl Iterator<Item = (usize, [u8; HEADER_BYTES])> + use<> {
        let reduction = self.reduction;
        (0..len / BLOCK_BYTES).map(move |block| {
            let at = block * BLOCK_BYTES;
            let body = reduced(reduction, body_of(buffer, block as u64));
            (at, Header { offset: offset + at as u64, stamp, body }.encode())
        })
    }

    /// Writes a copy: data that are the same wherever they are written.
    pub fn copy(&self, number: u32, blocks: &mut [u8]) {
        for (at, block) in (0..).zip(blocks.as_chunks_mut::<BLOCK_BYTES>().0) {
            self.write_copied(Copied { number, at }, block);
        }
    }

    pub fn reduction(&self) -> Reduction {
        self.reduction
    }

    fn write_copied(&self, copied: Copied, block: &mut [u8; BLOCK_BYTES]) {
        let body = reduced(self.reduction, body_of(!u64::from(copied.number), u64::from(copied.at)));
        block[..HEADER_BYTES].copy_from_slice(&Header::of_copy(copied, body).encode());
        self.write_body(body, &mut block[HEADER_BYTES..]);
    }

    fn random(&self, body: u32) -> &[u8] {
        let at = (body & INDEX_MASK) as usize * BODY_STEP;
        &self.bytes[at..at + BODY_BYTES]
    }

    fn write_body(&self, body: u32, to: &mut [u8]) {
        let random_bytes = BODY_BYTES - (body >> ZEROS_SHIFT) as usize * BODY_STEP;
        to[..random_bytes].copy_from_slice(&self.random(body)[..random_bytes]);
        to[random_bytes..].fill(0);
    }
}

/// The body at this index of the pool, with the reduction's number of zero words at its end.
fn reduced(reduction: Reduction, index: u32) -> u32 {
    reduction.zero_words() << ZEROS_SHIFT | index
}

/// Whether a body is a slice of the pool without zero words.
fn is_whole(body: u32) -> bool {
    u64::from(body) < BODIES
}

/// Whether a body can be one that ends in zeros.
#[cold]
fn is_reduced(body: u32) -> bool {
    u64::from(body & INDEX_MASK) < BODIES && body >> ZEROS_SHIFT <= ZERO_WORDS_MAX
}

/// The body of block `at` of a buffer (or of a group of a fill): consecutive slices, starting at the buffer's own
/// index.
fn body_of(buffer: u64, at: u64) -> u32 {
    ((fold(buffer ^ 0x2545_f491_4f6c_dd1d, 0xd6e8_feb8_6659_fd93) % BODIES + at * BODY_STRIDE) % BODIES) as u32
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { run: 77, writer: 3, sequence: 12 };

    #[test]
    fn header_comes_back_as_it_was_written() {
        let pool = Pool::default();
        let mut blocks = vec![0; 4096];
        pool.fill(&mut blocks, 8192, STAMP);
        for (at, block) in blocks.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
            let header = Header::parse(block.first_chunk().expect("a header")).expect("parses");
            assert_eq!((header.offset, header.stamp), (8192 + at as u64 * 512, STAMP));
            assert_eq!(pool.body(header.body), block[HEADER_BYTES..]);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let header = Header { offset: 4096, stamp: STAMP, body: 99 };
        let bytes = header.encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn stamped_buffer_equals_header_and_body() {
        let pool = Pool::default();
        let mut buffer = vec![0; 2048];
        pool.prepare(&mut buffer, 5);
        for (at, header) in pool.headers(5, buffer.len(), 65536, STAMP) {
            buffer[at..at + HEADER_BYTES].copy_from_slice(&header);
        }
        for block in buffer.as_chunks::<BLOCK_BYTES>().0 {
            let header = Header::parse(block.first_chunk().expect("a header")).expect("parses");
            assert_eq!(pool.body(header.body), block[HEADER_BYTES..]);
        }
    }

    /// A simple test that needs no compressor: no 8-byte word occurs twice.
    #[test]
    fn filled_data_has_no_repeats_within_128_kib() {
        let mut blocks = vec![0; 128 << 10];
        Pool::default().fill(&mut blocks, 0, STAMP);
        let mut words: Vec<_> =
            blocks.as_chunks::<512>().0.iter().flat_map(|block| block[48..].as_chunks::<8>().0).collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
