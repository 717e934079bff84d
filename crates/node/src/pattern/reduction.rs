//! Data that storage can reduce: blocks that compress, and blocks that repeat.
//!
//! A pattern block compresses if words of its body are zeros; its header records how many. A block that repeats belongs
//! to one of [`COPIES`] copies and is the same wherever it is written and by whom: its header names the copy in place
//! of an offset. The stamp of a write determines whether it is a copy, so a reader knows what it must find.

use super::{BLOCK_BYTES, Stamp, fold};
use crate::failure::Failure;

/// Number of different copies: few compared with the blocks of a volume, and more than a storage system's cache of its
/// last blocks holds.
pub(crate) const COPIES: u32 = 32;

/// A higher ratio would leave no room for a pattern block's header.
const COMPRESS_MAX: f64 = 8.0;
const DEDUPE_MAX: f64 = 20.0;
/// Compressed size of a pattern block's header, as measured with zlib: its magic and its run repeat, its counts change
/// slowly.
const HEADER_COMPRESSED_BYTES: f64 = 24.0;
const WORD_BYTES: f64 = 8.0;
/// Number of words in a pattern block's body.
const BODY_WORDS: f64 = 58.0;

/// How far data can be reduced; by default not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// Number of 8-byte words at the end of each body that are zeros.
    zero_words: u32,
    /// Number of blocks per 2^32 that are copies.
    copies: u32,
    /// Size of the unit that repeats in a fill, bytes; an I/O repeats as a whole.
    block_bytes: u64,
}

impl Reduction {
    /// `compress` is the compression ratio of the data, `dedupe` their deduplication ratio.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // 512; and none is below 0
    pub fn new(compress: f64, dedupe: f64, block_bytes: u32) -> Result<Self, Failure> {
        for (holds, message, field) in [
            ((1.0..=COMPRESS_MAX).contains(&compress), "must be 1 to 8", "compress"),
            ((1.0..=DEDUPE_MAX).contains(&dedupe), "must be 1 to 20", "dedupe"),
            (
                block_bytes > 0 && (block_bytes as usize).is_multiple_of(BLOCK_BYTES),
                "must be a multiple of 512",
                "block_size_bytes",
            ),
        ] {
            if !holds {
                return Err(Failure::usage(message, format!("data.{field}")));
            }
        }
        let random_words = (BLOCK_BYTES as f64 / compress - HEADER_COMPRESSED_BYTES) / WORD_BYTES;
        let copies = (1.0 - 1.0 / dedupe) * f64::from(u32::MAX);
        Ok(Self {
            zero_words: (BODY_WORDS - random_words.round()).max(0.0) as u32,
            copies: copies.round() as u32,
            block_bytes: u64::from(block_bytes),
        })
    }

    pub(crate) fn zero_words(self) -> u32 {
        self.zero_words
    }

    /// Whether any blocks are copies.
    pub(crate) fn repeats(self) -> bool {
        self.copies > 0
    }

    /// The number of the copy that this write sends, if it sends one.
    pub(crate) fn copy_of(self, stamp: Stamp) -> Option<u32> {
        if self.copies == 0 {
            return None;
        }
        let who = u64::from(stamp.writer) << 32 ^ stamp.sequence;
        let drawn = fold(stamp.run ^ 0x9e37_79b9_7f4a_7c15, who ^ 0xd6e8_feb8_6659_fd93);
        let drawn = fold(drawn ^ 0x8ebc_6af0_9c88_c6e3, 0x5895_0b4d_f8f3_92a5);
        ((drawn as u32) < self.copies).then_some((drawn >> 32) as u32 % COPIES)
    }

    /// For a fill: the copy's pattern block at `offset` of its unit, if there is a copy.
    pub(crate) fn copy_at(self, offset: u64, stamp: Stamp) -> Option<Copied> {
        if self.copies == 0 {
            return None;
        }
        let number = self.copy_of(Stamp { sequence: offset / self.block_bytes, ..stamp })?;
        Some(Copied { number, at: (offset % self.block_bytes / BLOCK_BYTES as u64) as u32 })
    }
}

/// A pattern block of a copy, which has no place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Number of the copy.
    pub number: u32,
    /// Index of the pattern block in the copy.
    pub at: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_writes_are_copies_as_the_ratio_says_and_no_copy_is_rare() {
        let half = Reduction::new(1.0, 3.0, 4096).expect("a ratio");
        let mut counts = [0_u32; COPIES as usize];
        for sequence in 0..90_000 {
            if let Some(copy) = half.copy_of(Stamp { run: 7, writer: 2, sequence }) {
                counts[copy as usize] += 1;
            }
        }
        assert!((59_000..61_000).contains(&counts.iter().sum::<u32>()), "{counts:?}");
        assert!(counts.iter().all(|count| (1_500..2_300).contains(count)), "{counts:?}");
    }

    #[test]
    fn nothing_is_reduced_unless_asked_and_what_cannot_be_is_refused() {
        assert_eq!(
            Reduction::new(1.0, 1.0, 4096).expect("no ratio").copy_of(Stamp { run: 1, writer: 1, sequence: 1 }),
            None
        );
        assert_eq!(Reduction::new(1.0, 1.0, 4096).expect("no ratio").zero_words(), 0);
        for (compress, dedupe, block, field) in [
            (0.5, 1.0, 4096, "data.compress"),
            (121.0, 1.0, 4096, "data.compress"),
            (1.0, f64::NAN, 4096, "data.dedupe"),
            (1.0, 2.0, 100, "data.block_size_bytes"),
        ] {
            assert_eq!(Reduction::new(compress, dedupe, block).expect_err("refused").place, field);
        }
    }
}
