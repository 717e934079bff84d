//! Checks the data of reads: block by block, as the bytes arrive, in pieces of any size.

use std::fmt::Write as _;

use super::{
    ledger::{Ledger, Verdict, Wrong, describe_copy, describe_stamp},
    signature,
};
use crate::pattern::{BLOCK_BYTES, Copied, HEADER_BYTES, Header, Pool};

/// Counts of blocks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pattern blocks (512 bytes) compared, including those counted below.
    pub checked_blocks: u64,
    pub never_written_blocks: u64,
    /// Of the compared ones, those that were read after the run.
    pub read_back_blocks: u64,
    pub wrong_blocks: u64,
}

impl Tally {
    pub fn merge(&mut self, other: Self) {
        self.checked_blocks += other.checked_blocks;
        self.read_back_blocks += other.read_back_blocks;
        self.never_written_blocks += other.never_written_blocks;
        self.wrong_blocks += other.wrong_blocks;
    }
}

/// Checks one whole block that was read from `offset`: its form, its place and its body.
pub fn check_block(pool: &Pool, block: &[u8; BLOCK_BYTES], offset: u64) -> Result<Verdict, Wrong> {
    let mut head = [0; HEADER_BYTES];
    head.copy_from_slice(&block[..HEADER_BYTES]);
    let expected = expect(&head, offset).ok_or_else(|| wrong_header(&head, offset))?;
    match expected {
        Body::Zeros if block[HEADER_BYTES..].iter().all(|byte| *byte == 0) => Ok(Verdict::NeverWritten),
        Body::Of(header) if pool.is_body(header.body, 0, &block[HEADER_BYTES..]) => Ok(Verdict::Ours(header.stamp)),
        Body::Copy(copied, body) if pool.is_body(body, 0, &block[HEADER_BYTES..]) => Ok(Verdict::Copy(copied)),
        _ => Err(wrong_body(pool, expected, 0, &block[HEADER_BYTES..], offset)),
    }
}

/// The bytes of one read as they arrive.
#[derive(Clone, Debug)]
pub struct ReadCheck {
    /// Offset of the read in its unit, bytes.
    offset: u64,
    len: u32,
    /// Bytes that have arrived.
    arrived: u32,
    head: [u8; HEADER_BYTES],
    /// What the rest of the current block must be, once its header has arrived.
    body: Body,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    Zeros,
    Of(Header),
    /// The second value is the number of its body.
    Copy(Copied, u32),
}

impl Default for ReadCheck {
    fn default() -> Self {
        Self { offset: 0, len: 0, arrived: 0, head: [0; HEADER_BYTES], body: Body::Zeros }
    }
}

impl ReadCheck {
    /// Restarts for a read of `len` bytes at `offset`, both multiples of the pattern block.
    pub fn begin(&mut self, offset: u64, len: u32) {
        self.offset = offset;
        self.len = len;
        self.arrived = 0;
    }

    /// The same read is sent again.
    pub fn begin_again(&mut self) {
        self.arrived = 0;
    }

    /// Checks bytes of the read, from `at` on.
    pub fn feed(
        &mut self,
        pool: &Pool,
        ledger: &Ledger,
        tally: &mut Tally,
        at: u32,
        mut bytes: &[u8],
    ) -> Result<(), Wrong> {
        if at != self.arrived || bytes.len() > (self.len - self.arrived) as usize {
            return Err(self.misplaced(at, bytes.len()));
        }
        while !bytes.is_empty() {
            let within = self.arrived as usize % BLOCK_BYTES;
            let offset = self.offset + (self.arrived as usize - within) as u64;
            let taken = match bytes.first_chunk::<BLOCK_BYTES>() {
                Some(block) if within == 0 => {
                    let verdict = check_block(pool, block, offset)?;
                    accept(ledger, tally, offset, verdict)?;
                    BLOCK_BYTES
                }
                _ if within < HEADER_BYTES => self.feed_header(within, offset, bytes)?,
                _ => self.feed_body(pool, ledger, tally, within, offset, bytes)?,
            };
            bytes = &bytes[taken..];
            self.arrived += taken as u32;
        }
        Ok(())
    }

    /// The read completed: checks that all of it arrived.
    pub fn finish(&self) -> Result<(), Wrong> {
        if self.arrived == self.len { Ok(()) } else { Err(self.misplaced(self.len, 0)) }
    }

    fn feed_header(&mut self, within: usize, offset: u64, bytes: &[u8]) -> Result<usize, Wrong> {
        let taken = bytes.len().min(HEADER_BYTES - within);
        self.head[within..within + taken].copy_from_slice(&bytes[..taken]);
        if within + taken == HEADER_BYTES {
            self.body = expect(&self.head, offset).ok_or_else(|| wrong_header(&self.head, offset))?;
        }
        Ok(taken)
    }

    fn feed_body(
        &mut self,
        pool: &Pool,
        ledger: &Ledger,
        tally: &mut Tally,
        within: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Wrong> {
        let taken = bytes.len().min(BLOCK_BYTES - within);
        let (part, begin) = (&bytes[..taken], within - HEADER_BYTES);
        let (right, verdict) = match self.body {
            Body::Zeros => (part.iter().all(|byte| *byte == 0), Verdict::NeverWritten),
            Body::Of(header) => (pool.is_body(header.body, begin, part), Verdict::Ours(header.stamp)),
            Body::Copy(copied, body) => (pool.is_body(body, begin, part), Verdict::Copy(copied)),
        };
        if !right {
            return Err(wrong_body(pool, self.body, begin, part, offset));
        }
        if within + taken == BLOCK_BYTES {
            accept(ledger, tally, offset, verdict)?;
        }
        Ok(taken)
    }

    fn misplaced(&self, at: u32, len: usize) -> Wrong {
        Wrong {
            at: self.offset + u64::from(self.arrived),
            expected: format!("byte {} of a read of {} bytes", self.arrived, self.len),
            found: if len == 0 { "the end of the read".to_owned() } else { format!("{len} bytes for byte {at}") },
            of_later_run: false,
        }
    }
}

fn accept(ledger: &Ledger, tally: &mut Tally, offset: u64, verdict: Verdict) -> Result<(), Wrong> {
    ledger.judge(offset, verdict)?;
    tally.checked_blocks += 1;
    if matches!(verdict, Verdict::NeverWritten) {
        tally.never_written_blocks += 1;
    }
    Ok(())
}

#[inline]
fn expect(head: &[u8; HEADER_BYTES], offset: u64) -> Option<Body> {
    match Header::parse(head) {
        Some(header) if header.offset == offset => Some(Body::Of(header)),
        Some(header) => elsewhere(header),
        None => (*head == [0; HEADER_BYTES]).then_some(Body::Zeros),
    }
}

/// The expected body of a block whose header names another place: it may be a copy.
#[cold]
fn elsewhere(header: Header) -> Option<Body> {
    header.copied().map(|copied| Body::Copy(copied, header.body))
}

#[cold]
fn wrong_header(head: &[u8; HEADER_BYTES], at: u64) -> Wrong {
    let found = match Header::parse(head) {
        Some(header) => format!("the block of byte {} ({})", header.offset, describe_stamp(header.stamp)),
        None => format!("{} (no pattern of ours)", hex(&head[..16])),
    };
    Wrong { at, expected: format!("a pattern block of byte {at}, or zeros"), found, of_later_run: false }
}

#[cold]
fn wrong_body(pool: &Pool, body: Body, begin: usize, found: &[u8], at: u64) -> Wrong {
    let (who, right) = match body {
        Body::Zeros => ("zeros, as the block's header".to_owned(), [0; BLOCK_BYTES - HEADER_BYTES]),
        Body::Of(header) => (format!("the body of {}", describe_stamp(header.stamp)), pool.body(header.body)),
        Body::Copy(copied, body) => (format!("the body of {}", describe_copy(copied.number)), pool.body(body)),
    };
    let right = &right[begin..begin + found.len()];
    let differs = right.iter().zip(found).position(|(right, found)| right != found).unwrap_or(0);
    let window = |bytes: &[u8]| hex(&bytes[differs..bytes.len().min(differs + 16)]);
    Wrong {
        at,
        expected: format!("{who}: {} at byte {} of the block", window(right), HEADER_BYTES + begin + differs),
        found: window(found),
        of_later_run: false,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whose data a range contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Zeros,
    /// Blocks of iotax, whole and in place, and perhaps zeros.
    Pattern,
    /// Foreign data, first found at this offset of the unit.
    Foreign {
        at: u64,
        what: String,
    },
}

impl Content {
    /// The content of two consecutive ranges together.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        match (self, later) {
            (foreign @ Self::Foreign { .. }, _) | (_, foreign @ Self::Foreign { .. }) => foreign,
            (Self::Zeros, Self::Zeros) => Self::Zeros,
            _ => Self::Pattern,
        }
    }
}

/// Determines whose data `bytes` are, read from `offset`, a multiple of the pattern block.
pub fn classify(pool: &Pool, bytes: &[u8], offset: u64) -> Content {
    let mut content = Content::Zeros;
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    for (at, block) in (offset..).step_by(BLOCK_BYTES).zip(blocks) {
        match check_block(pool, block, at) {
            Ok(Verdict::NeverWritten) => {}
            Ok(Verdict::Ours(_) | Verdict::Copy(_)) => content = Content::Pattern,
            Err(wrong) => {
                let what = signature::name(bytes, offset)
                    .map(|(_, name)| name)
                    .or_else(|| signature::name_of_block(block))
                    .map_or_else(|| format!("unknown data ({})", wrong.found), str::to_owned);
                return Content::Foreign { at: first_foreign(block, at), what };
            }
        }
    }
    if let Some(at) = rest.iter().position(|byte| *byte != 0) {
        let at = offset + (bytes.len() - rest.len() + at) as u64;
        return Content::Foreign { at, what: "unknown data".to_owned() };
    }
    content
}

/// The first byte of a foreign block that is not zero.
fn first_foreign(block: &[u8; BLOCK_BYTES], at: u64) -> u64 {
    at + block.iter().position(|byte| *byte != 0).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Reduction, Stamp};

    const STAMP: Stamp = Stamp { run: 1, writer: 0, sequence: 0 };

    fn filled(len: usize, offset: u64) -> (Pool, Vec<u8>) {
        let pool = Pool::default();
        let mut bytes = vec![0; len];
        pool.fill(&mut bytes, offset, STAMP);
        (pool, bytes)
    }

    fn feed_in_pieces(pool: &Pool, bytes: &[u8], offset: u64, piece: usize) -> Result<Tally, Wrong> {
        let (mut check, mut tally) = (ReadCheck::default(), Tally::default());
        check.begin(offset, bytes.len() as u32);
        for (at, part) in bytes.chunks(piece).enumerate() {
            check.feed(pool, &Ledger::permissive(), &mut tally, (at * piece) as u32, part)?;
        }
        check.finish().map(|()| tally)
    }

    fn reduced(len: usize) -> (Pool, Vec<u8>) {
        let pool = Pool::new(Reduction::new(2.0, 3.0, 4096).expect("ratios"));
        let mut bytes = vec![0; len];
        pool.fill(&mut bytes, 65536, STAMP);
        (pool, bytes)
    }

    #[test]
    fn reduced_data_pass_at_every_split_and_are_ours() {
        let (pool, bytes) = reduced(64 << 10);
        let ours = Pool::default();
        assert_eq!(classify(&ours, &bytes, 65536), Content::Pattern, "by whoever reads it");
        for piece in [1, 7, 48, 100, 512, 4096, 65536] {
            let tally = feed_in_pieces(&pool, &bytes, 65536, piece).expect("right");
            assert_eq!(tally, Tally { checked_blocks: 128, ..Tally::default() });
        }
    }

    #[test]
    fn one_flipped_bit_of_reduced_data_is_found_in_copies_and_zeros_too() {
        let (pool, bytes) = reduced(16 << 10);
        for at in (0..bytes.len()).step_by(13) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            for piece in [1, 49, 512, 4096] {
                let wrong = feed_in_pieces(&pool, &damaged, 65536, piece).expect_err("wrong");
                assert_eq!(wrong.at, 65536 + (at as u64 / 512) * 512);
            }
        }
    }

    #[test]
    fn right_data_pass_at_every_split() {
        let (pool, mut bytes) = filled(4096, 65536);
        bytes[1024..1536].fill(0);
        for piece in 1..=1600 {
            let tally = feed_in_pieces(&pool, &bytes, 65536, piece).expect("right");
            assert_eq!(
                tally,
                Tally { checked_blocks: 8, never_written_blocks: 1, ..Tally::default() },
                "pieces of {piece}"
            );
        }
    }

    #[test]
    fn one_flipped_bit_is_found_at_every_split_and_place() {
        let (pool, bytes) = filled(1024, 4096);
        for at in (0..1024).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            for piece in [1, 47, 48, 49, 100, 512, 513, 1024] {
                let wrong = feed_in_pieces(&pool, &damaged, 4096, piece).expect_err("wrong");
                assert_eq!(wrong.at, 4096 + (at as u64 / 512) * 512);
            }
        }
    }

    #[test]
    fn block_of_another_place_is_named() {
        let (pool, bytes) = filled(512, 8192);
        let wrong = feed_in_pieces(&pool, &bytes, 4096, 512).expect_err("wrong place");
        assert!(wrong.found.contains("the block of byte 8192"), "{wrong}");
    }

    #[test]
    fn missing_and_displaced_bytes_are_wrong() {
        let (pool, bytes) = filled(1024, 0);
        let (mut check, mut tally) = (ReadCheck::default(), Tally::default());
        check.begin(0, 1024);
        check.feed(&pool, &Ledger::permissive(), &mut tally, 0, &bytes[..512]).expect("first half");
        assert!(check.finish().is_err());
        assert!(check.feed(&pool, &Ledger::permissive(), &mut tally, 0, &bytes[512..]).is_err());
        assert!(check.feed(&pool, &Ledger::permissive(), &mut tally, 512, &[0; 513]).is_err());
    }

    #[test]
    fn classify_tells_zeros_pattern_and_foreign() {
        let (pool, mut bytes) = filled(4096, 0);
        assert_eq!(classify(&pool, &[0; 4096], 0), Content::Zeros);
        assert_eq!(classify(&pool, &bytes, 0), Content::Pattern);
        bytes[512..1024].fill(0);
        assert_eq!(classify(&pool, &bytes, 0), Content::Pattern);
        bytes[700] = 9;
        assert!(matches!(classify(&pool, &bytes, 0), Content::Foreign { at: 700, .. }));
        bytes[700] = 0;
        assert!(matches!(classify(&pool, &bytes, 512), Content::Foreign { at: 512, .. }), "pattern of another place");
    }
}
