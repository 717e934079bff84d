//! A run's record of its own writes: it shows whether a block lost a write or was never written.

use crate::pattern::{BLOCK_BYTES, Copied, Reduction, Stamp};

/// Maximum number of entries (4 bytes each). In a larger zone, only the writers' sequence counts are checked.
const ENTRIES_MAX: u64 = 1 << 24;
/// The same if what was written is read back. Entries of blocks that are never written take no memory.
pub const READ_BACK_MAX: u64 = 1 << 28;
const UNTOUCHED: u32 = 0;
/// A write of this block failed: the data before it and those of each failed write are correct (`Failed`).
const UNKNOWN: u32 = u32::MAX;

/// The writes of one worker to its own zone, which no other worker writes during the run.
#[derive(Debug)]
pub struct Ledger {
    run: u64,
    writer: u32,
    issued: u64,
    zone_offset: u64,
    block_shift: Shift,
    reduction: Reduction,
    is_filled: bool,
    /// Sequence number of each block's last completed write.
    last: Vec<u32>,
    failed: Vec<Failed>,
}

/// A failed write of a block, which was perhaps executed, and the block's entry before the first of them.
#[derive(Clone, Copy, Debug)]
struct Failed {
    index: usize,
    before: u32,
    entry: u32,
}

/// Division by the block size: a shift if it is a power of two.
#[derive(Clone, Copy, Debug)]
enum Shift {
    By(u32),
    Divide(u64),
}

impl Ledger {
    /// Remembers the writes of the first `blocks` blocks from `zone_offset` on.
    pub fn new(run: u64, writer: u32, zone_offset: u64, blocks: u64, block_size: u64) -> Self {
        let block_shift = if block_size.is_power_of_two() {
            Shift::By(block_size.trailing_zeros())
        } else {
            Shift::Divide(block_size.max(1))
        };
        Self {
            run,
            writer,
            issued: 0,
            zone_offset,
            block_shift,
            reduction: Reduction::default(),
            is_filled: false,
            last: vec![UNTOUCHED; blocks as usize],
            failed: Vec::new(),
        }
    }

    /// Expects writes of which some are copies.
    #[must_use]
    pub fn reduced(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Expects a unit that was filled before: zeros are wrong everywhere.
    #[must_use]
    pub fn filled(mut self, is_filled: bool) -> Self {
        self.is_filled = is_filled;
        self
    }

    /// The number of the copy that the write of this sequence sends, if it sends one.
    pub fn copy(&self, sequence: u64) -> Option<u32> {
        self.reduction.copy_of(Stamp { run: self.run, writer: self.writer, sequence: u64::from(entry(sequence)) })
    }

    /// Forgets all writes; those that follow belong to `run`.
    pub fn renew(&mut self, run: u64) {
        self.run = run;
        self.issued = 0;
        if self.last.len() as u64 <= ENTRIES_MAX {
            self.last.fill(UNTOUCHED);
        } else {
            // Not filled, because that would touch the entries of blocks that were never written.
            self.last = vec![UNTOUCHED; self.last.len()];
        }
        self.failed.clear();
    }

    /// Accepts every header that is in its place.
    #[cfg(test)]
    pub(super) fn permissive() -> Self {
        Self::new(0, 0, 0, 0, 1)
    }

    /// The stamp of the next write.
    pub fn issue(&mut self) -> Stamp {
        self.issued += 1;
        Stamp { run: self.run, writer: self.writer, sequence: self.issued }
    }

    #[inline]
    pub fn written(&mut self, offset: u64, sequence: u64) {
        let Some(index) = self.index(offset) else { return };
        let Some(last) = self.last.get_mut(index) else { return };
        if std::mem::replace(last, entry(sequence)) == UNKNOWN {
            self.failed.retain(|each| each.index != index);
        }
    }

    /// The first block at or after byte `from` of the unit of which a write was acknowledged: where it begins, and where
    /// the block after it does.
    pub fn written_from(&self, from: u64) -> Option<(u64, u64)> {
        let first = self.index(from).unwrap_or(0);
        let was_written = |index: &usize| match self.last[*index] {
            UNTOUCHED => false,
            UNKNOWN => self.failed_at(*index).any(|each| each.before != UNTOUCHED),
            _ => true,
        };
        let at = (first..self.last.len()).find(was_written)?;
        Some((self.offset_of(at), self.offset_of(at + 1)))
    }

    /// The write of this sequence failed. Until another one is acknowledged, the block may hold what it held before, or
    /// the data of this write.
    #[cold]
    pub fn failed(&mut self, offset: u64, sequence: u64) {
        let Some(index) = self.index(offset) else { return };
        let Some(last) = self.last.get_mut(index) else { return };
        let before = match std::mem::replace(last, UNKNOWN) {
            UNKNOWN => self.failed_at(index).next().map_or(UNTOUCHED, |each| each.before),
            before => before,
        };
        self.failed.push(Failed { index, before, entry: entry(sequence) });
    }

    /// The failed writes of a block since its last acknowledged one.
    fn failed_at(&self, index: usize) -> impl Iterator<Item = &Failed> {
        self.failed.iter().filter(move |each| each.index == index)
    }

    /// Whether a block with this verdict can be at `offset`.
    #[inline]
    pub fn judge(&self, offset: u64, verdict: Verdict) -> Result<(), Wrong> {
        match verdict {
            Verdict::Ours(stamp) => self.judge_ours(offset, stamp),
            verdict => self.judge_other(offset, verdict),
        }
    }

    #[inline]
    fn judge_ours(&self, offset: u64, stamp: Stamp) -> Result<(), Wrong> {
        let last = self.last(offset);
        let possible = match last {
            Some(UNTOUCHED) => stamp.run != self.run || stamp.writer == 0,
            Some(UNKNOWN) => self.can_be(offset, Verdict::Ours(stamp)),
            Some(last) => self.is_write(stamp, last),
            None => stamp.run != self.run || stamp.writer != self.writer || stamp.sequence <= self.issued,
        };
        if possible || self.writer == 0 { Ok(()) } else { Err(self.impossible(offset, last, Verdict::Ours(stamp))) }
    }

    #[cold]
    fn judge_other(&self, offset: u64, verdict: Verdict) -> Result<(), Wrong> {
        let last = self.last(offset);
        let possible = match (verdict, last) {
            (verdict, Some(UNKNOWN)) => self.can_be(offset, verdict),
            (Verdict::Copy(_), None | Some(UNTOUCHED)) => true,
            (Verdict::NeverWritten, None | Some(UNTOUCHED)) => !self.is_filled,
            (Verdict::NeverWritten | Verdict::Ours(_), Some(_) | None) => false,
            (Verdict::Copy(copied), Some(last)) => self.is_copy(offset, last, copied),
        };
        if possible || self.writer == 0 { Ok(()) } else { Err(self.impossible(offset, last, verdict)) }
    }

    /// Whether a stamp is that of the write with this entry.
    #[inline]
    fn is_write(&self, stamp: Stamp, last: u32) -> bool {
        stamp.run == self.run && stamp.writer == self.writer && entry(stamp.sequence) == last
    }

    /// Whether a block whose last writes failed can have this verdict.
    #[cold]
    fn can_be(&self, offset: u64, verdict: Verdict) -> bool {
        let is_of = |last: u32| match (verdict, last) {
            (Verdict::NeverWritten, UNTOUCHED) => !self.is_filled,
            (Verdict::Ours(stamp), UNTOUCHED) => stamp.run != self.run || stamp.writer == 0,
            (Verdict::Copy(_), UNTOUCHED) => true,
            (Verdict::NeverWritten, _) => false,
            (Verdict::Ours(stamp), last) => self.is_write(stamp, last),
            (Verdict::Copy(copied), last) => self.is_copy(offset, last, copied),
        };
        self.index(offset).is_none_or(|index| self.failed_at(index).any(|each| is_of(each.before) || is_of(each.entry)))
    }

    #[inline]
    fn last(&self, offset: u64) -> Option<u32> {
        self.index(offset).and_then(|index| self.last.get(index)).copied()
    }

    #[cold]
    fn is_copy(&self, offset: u64, last: u32, copied: Copied) -> bool {
        let within = offset.saturating_sub(self.zone_offset);
        let at = match self.block_shift {
            Shift::By(bits) => within & ((1 << bits) - 1),
            Shift::Divide(size) => within % size,
        };
        self.copy(u64::from(last)) == Some(copied.number) && at / BLOCK_BYTES as u64 == u64::from(copied.at)
    }

    fn offset_of(&self, index: usize) -> u64 {
        self.zone_offset
            + match self.block_shift {
                Shift::By(bits) => (index as u64) << bits,
                Shift::Divide(size) => index as u64 * size,
            }
    }

    fn index(&self, offset: u64) -> Option<usize> {
        let within = offset.checked_sub(self.zone_offset)?;
        Some(match self.block_shift {
            Shift::By(bits) => within >> bits,
            Shift::Divide(size) => within / size,
        } as usize)
    }

    #[cold]
    fn impossible(&self, at: u64, last: Option<u32>, verdict: Verdict) -> Wrong {
        let expected = match last {
            Some(UNTOUCHED) if self.is_filled => "a block of the fill, or of an earlier run".to_owned(),
            Some(UNTOUCHED) => "a block that this run did not write yet".to_owned(),
            Some(UNKNOWN) => "what it held before its last write, which failed, or the data of that write".to_owned(),
            Some(last) => {
                let written = Stamp { run: self.run, writer: self.writer, sequence: u64::from(last) };
                self.copy(written.sequence).map_or_else(|| describe_stamp(written), describe_copy)
            }
            None => format!("at most sequence {} of writer {}", self.issued, self.writer),
        };
        // Runs are named by their start times.
        let of_later_run = matches!(verdict, Verdict::Ours(stamp) if stamp.run > self.run);
        let found = match verdict {
            Verdict::NeverWritten if last.is_none_or(|last| last == UNTOUCHED) => {
                "zeros: the block was filled and is lost".to_owned()
            }
            Verdict::NeverWritten => "zeros: the write was lost".to_owned(),
            Verdict::Copy(copied) => format!("block {} of {}", copied.at, describe_copy(copied.number)),
            Verdict::Ours(stamp) if stamp.run < self.run && stamp.writer > 0 => {
                format!(
                    "{} of an earlier run: a write was lost, unless that run still writes here",
                    describe_stamp(stamp)
                )
            }
            Verdict::Ours(stamp) => describe_stamp(stamp),
        };
        Wrong { at, expected, found, of_later_run }
    }
}

/// Number of a zone's blocks whose writes are remembered: all, or none if there are too many.
pub(super) fn remembered(zone_blocks: u64, read_back: bool) -> u64 {
    let max = if read_back { READ_BACK_MAX } else { ENTRIES_MAX };
    if zone_blocks <= max { zone_blocks } else { 0 }
}

/// How a sequence number is stored in an entry.
fn entry(sequence: u64) -> u32 {
    (sequence as u32).clamp(UNTOUCHED + 1, UNKNOWN - 1)
}

/// What a correct block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All zeros: it was not written yet.
    NeverWritten,
    Ours(Stamp),
    /// Data of a copy, which records neither offset nor writer.
    Copy(Copied),
}

/// A block that cannot be what was written there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {at}: expected {expected}, found {found}", if *of_later_run { "another run writes here" } else { "wrong data" })]
pub struct Wrong {
    /// Offset of the pattern block in its unit, bytes.
    pub at: u64,
    pub expected: String,
    pub found: String,
    /// It was written by a run that began after this one: the unit is not at fault.
    pub of_later_run: bool,
}

pub(super) fn describe_stamp(stamp: Stamp) -> String {
    format!("run {:#x}, writer {}, sequence {}", stamp.run, stamp.writer, stamp.sequence)
}

pub(super) fn describe_copy(number: u32) -> String {
    format!("copy {number}, which many places hold")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(run: u64, writer: u32, sequence: u64) -> Verdict {
        Verdict::Ours(Stamp { run, writer, sequence })
    }

    #[test]
    fn zeros_are_wrong_where_everything_was_filled() {
        let ledger = Ledger::new(9, 2, 0, 16, 4096).filled(true);
        let wrong = ledger.judge(8192, Verdict::NeverWritten).expect_err("it was filled");
        assert!(wrong.found.contains("filled"), "{wrong}");
        assert!(ledger.judge(8192, ours(0, 0, 0)).is_ok());
        assert!(
            Ledger::new(9, 2, 0, remembered(ENTRIES_MAX + 1, false), 512)
                .filled(true)
                .judge(0, Verdict::NeverWritten)
                .is_err()
        );
    }

    #[test]
    fn lost_and_stale_writes_are_seen() {
        let mut ledger = Ledger::new(9, 2, 4096, 16, 4096);
        assert!(ledger.judge(8192, Verdict::NeverWritten).is_ok());
        assert!(ledger.judge(8192, ours(8, 1, 5)).is_ok(), "an earlier run's");
        let first = ledger.issue();
        ledger.written(8192, first.sequence);
        assert!(ledger.judge(8192 + 512, Verdict::Ours(first)).is_ok());
        assert!(ledger.judge(8192, Verdict::NeverWritten).is_err(), "lost");
        assert!(ledger.judge(8192, ours(8, 1, 5)).is_err(), "stale, of an earlier run");
        let second = ledger.issue();
        ledger.written(8192, second.sequence);
        assert!(ledger.judge(8192, Verdict::Ours(first)).is_err(), "stale, of this run");
        assert!(ledger.judge(4096, Verdict::Ours(second)).is_err(), "never written there");
    }

    #[test]
    fn data_of_a_later_run_are_another_runs_not_wrong_ones() {
        let mut ledger = Ledger::new(9, 1, 0, 16, 512);
        let stamp = ledger.issue();
        ledger.written(512, stamp.sequence);
        let later = ledger.judge(512, ours(10, 1, 1)).expect_err("overwritten");
        assert!(later.to_string().starts_with("another run writes here at byte 512"), "{later}");
        let earlier = ledger.judge(512, ours(8, 1, 1)).expect_err("stale");
        assert!(!earlier.of_later_run && earlier.found.contains("unless that run still writes here"), "{earlier}");
    }

    #[test]
    fn block_with_failed_writes_may_be_old_or_new_and_nothing_else() {
        let mut ledger = Ledger::new(9, 1, 0, 16, 512);
        let first = ledger.issue();
        ledger.failed(512, first.sequence);
        assert!(ledger.judge(512, Verdict::NeverWritten).is_ok() && ledger.judge(512, Verdict::Ours(first)).is_ok());
        assert!(ledger.judge(512, ours(8, 1, 5)).is_ok(), "of an earlier run");
        assert_eq!(ledger.written_from(0), None, "nothing was acknowledged");
        let [second, third, fourth] = [(); 3].map(|()| ledger.issue());
        ledger.written(512, second.sequence);
        assert!(ledger.judge(512, Verdict::Ours(first)).is_err(), "a failed write that is late");
        ledger.failed(512, third.sequence);
        ledger.failed(512, fourth.sequence);
        for possible in [second, third, fourth] {
            assert!(ledger.judge(512, Verdict::Ours(possible)).is_ok());
        }
        assert!(ledger.judge(512, Verdict::Ours(first)).is_err(), "stale");
        let lost = ledger.judge(512, Verdict::NeverWritten).expect_err("the acknowledged write is lost");
        assert!(lost.expected.contains("which failed") && lost.found.contains("lost"), "{lost}");
        assert_eq!(ledger.written_from(0), Some((512, 1024)));
        let fifth = ledger.issue();
        ledger.written(512, fifth.sequence);
        assert!(ledger.failed.is_empty() && ledger.judge(512, Verdict::Ours(fourth)).is_err());
    }

    #[test]
    fn sequences_beyond_32_bits_are_still_those_of_their_writes() {
        for sequence in [u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1] {
            let mut ledger = Ledger::new(9, 1, 0, 16, 512);
            ledger.written(512, sequence);
            assert!(ledger.judge(512, ours(9, 1, sequence)).is_ok(), "{sequence}");
        }
    }

    #[test]
    fn write_that_repeats_must_be_the_copy_that_it_was() {
        let reduction = Reduction::new(1.0, 2.0, 4096).expect("a ratio");
        let mut ledger = Ledger::new(9, 1, 4096, 16, 4096).reduced(reduction);
        let mut copies = 0;
        for _ in 0..100 {
            let stamp = ledger.issue();
            ledger.written(8192, stamp.sequence);
            if let Some(number) = ledger.copy(stamp.sequence) {
                copies += 1;
                let found = |number, at| ledger.judge(8192 + 1024, Verdict::Copy(Copied { number, at }));
                assert!(found(number, 2).is_ok() && found(number, 3).is_err() && found(number ^ 1, 2).is_err());
                assert!(ledger.judge(8192, Verdict::Ours(Stamp { sequence: stamp.sequence - 1, ..stamp })).is_err());
            } else {
                let stale = ledger.judge(8192, Verdict::Copy(Copied { number: 3, at: 0 })).expect_err("not a copy");
                assert!(stale.found.contains("copy 3"), "{stale}");
            }
        }
        assert!((30..70).contains(&copies), "{copies}");
    }

    #[test]
    fn zone_beyond_the_limit_is_judged_by_counts() {
        let mut ledger = Ledger::new(9, 1, 0, remembered(ENTRIES_MAX + 1, false), 512);
        ledger.issue();
        assert!(ledger.judge(512, ours(9, 1, 1)).is_ok());
        assert!(ledger.judge(512, ours(9, 1, 2)).is_err());
    }
}
