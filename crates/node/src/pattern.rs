//! The data pattern: every 512 bytes say where they belong, who wrote them and when, and carry a body that cannot be compressed.
//!
//! A pattern block is 512 bytes whatever the size of an I/O, so that runs with different block sizes may read each other's data,
//! and so that two halves of a torn I/O are both whole pattern blocks:
//!
//! | bytes | little-endian |
//! |---|---|
//! | 0..8 | magic |
//! | 8..16 | offset of the block in its unit, bytes |
//! | 16..24 | run: names the run (or the fill) that wrote it |
//! | 24..28 | body: index into the pool, in steps of 8 bytes |
//! | 28..32 | writer: 0 for a fill, 1.. for the workers of a run |
//! | 32..40 | sequence: the writer's count of writes |
//! | 40..48 | check over the fields above |
//! | 48..512 | body: 464 bytes of the pool |
//!
//! The pool is the same everywhere, so that a reader can verify what an earlier run or another machine wrote.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Size of a pattern block, bytes.
pub const BLOCK_BYTES: usize = 512;
/// Size of a pattern block's header, bytes.
pub const HEADER_BYTES: usize = 48;
const BODY_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;
const MAGIC: u64 = u64::from_le_bytes(*b"iotaxPB1");

/// Far larger than the windows within which file systems and arrays compress, small enough to stay in a core's cache.
const POOL_BYTES: usize = 1 << 20;
const POOL_SEED: u64 = 0x696f_7461_7820_3031;
const BODY_STEP: usize = 8;
const BODIES: u64 = ((POOL_BYTES - BODY_BYTES) / BODY_STEP) as u64;
/// Consecutive blocks of one buffer take consecutive bodies, this many indices apart.
const BODY_STRIDE: u64 = (BODY_BYTES / BODY_STEP) as u64;
/// Pattern blocks that take consecutive bodies before a fill jumps within the pool: 128 KiB, the usual record of a compressing file system.
const GROUP: u64 = 256;

/// Who wrote a block, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub run: u64,
    pub writer: u32,
    pub sequence: u64,
}

/// What a block's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub offset: u64,
    pub stamp: Stamp,
    pub(super) body: u32,
}

impl Header {
    /// `None` where the bytes are no header, or a damaged one.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let header = Self {
            offset: word(1),
            stamp: Stamp { run: word(2), writer: (word(3) >> 32) as u32, sequence: word(4) },
            body: word(3) as u32,
        };
        let right = word(0) == MAGIC && word(5) == header.check() && u64::from(header.body) < BODIES;
        right.then_some(header)
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

/// The bytes that bodies are slices of.
#[derive(Debug)]
pub struct Pool {
    bytes: Box<[u8]>,
}

impl Default for Pool {
    fn default() -> Self {
        let mut bytes = vec![0; POOL_BYTES].into_boxed_slice();
        Xoshiro256PlusPlus::seed_from_u64(POOL_SEED).fill_bytes(&mut bytes);
        Self { bytes }
    }
}

impl Pool {
    pub(super) fn body(&self, index: u32) -> &[u8] {
        let at = index as usize * BODY_STEP;
        &self.bytes[at..at + BODY_BYTES]
    }

    /// Writes whole blocks that begin at `offset` of the unit, header and body.
    pub fn fill(&self, blocks: &mut [u8], offset: u64, stamp: Stamp) {
        assert!(blocks.len().is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64));
        let (blocks, _) = blocks.as_chunks_mut::<BLOCK_BYTES>();
        for (offset, block) in (offset..).step_by(BLOCK_BYTES).zip(blocks) {
            let number = offset / BLOCK_BYTES as u64;
            let body = body_of(number / GROUP, number % GROUP);
            block[..HEADER_BYTES].copy_from_slice(&Header { offset, stamp, body }.encode());
            block[HEADER_BYTES..].copy_from_slice(self.body(body));
        }
    }

    /// Writes the bodies of a buffer that is stamped again and again; `buffer` tells it from others.
    pub fn prepare(&self, blocks: &mut [u8], buffer: u64) {
        for (at, block) in blocks.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            block[HEADER_BYTES..].copy_from_slice(self.body(body_of(buffer, at as u64)));
        }
    }
}

/// The headers that make a prepared buffer the data of one write: `(position in the buffer, header)` for each block.
pub fn headers(
    buffer: u64,
    len: usize,
    offset: u64,
    stamp: Stamp,
) -> impl Iterator<Item = (usize, [u8; HEADER_BYTES])> {
    (0..len / BLOCK_BYTES).map(move |block| {
        let at = block * BLOCK_BYTES;
        let body = body_of(buffer, block as u64);
        (at, Header { offset: offset + at as u64, stamp, body }.encode())
    })
}

/// The body of block `at` of a buffer (or of a group of a fill): consecutive slices from a place of the buffer's own.
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
            assert_eq!(pool.body(header.body), &block[HEADER_BYTES..]);
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
        for (at, header) in headers(5, buffer.len(), 65536, STAMP) {
            buffer[at..at + HEADER_BYTES].copy_from_slice(&header);
        }
        for block in buffer.as_chunks::<BLOCK_BYTES>().0 {
            let header = Header::parse(block.first_chunk().expect("a header")).expect("parses");
            assert_eq!(pool.body(header.body), &block[HEADER_BYTES..]);
        }
    }

    /// A crude measure that needs no compressor: no 8-byte word comes twice.
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
