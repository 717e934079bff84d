//! Work on more bytes than should occupy a thread or a disk at a time: done piece by piece, with other work in between.

/// The rest of an operation on ranges of bytes.
#[derive(Debug)]
pub(super) struct Long {
    /// Disjoint, not empty, by falling offset: the next range is the last.
    ranges: Vec<(u64, u64)>,
}

impl Long {
    /// `ranges` are offsets and lengths; bytes covered by several ranges are worked on once.
    pub(super) fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(_, len)| *len > 0);
        ranges.sort_unstable_by_key(|(offset, _)| std::cmp::Reverse(*offset));
        let mut apart: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        while let Some((offset, len)) = ranges.pop() {
            match apart.last_mut() {
                Some((before, known)) if offset <= *before + *known => *known = (*known).max(offset + len - *before),
                _ => apart.push((offset, len)),
            }
        }
        apart.reverse();
        Self { ranges: apart }
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, len)| len).sum()
    }

    pub(super) fn is_over(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The next piece, of at most `most` bytes, without taking it.
    pub(super) fn peek(&self, most: u64) -> Option<(u64, u64)> {
        self.ranges.last().map(|(offset, len)| (*offset, most.min(*len)))
    }

    /// Marks `done` bytes of the next piece as done.
    pub(super) fn advance(&mut self, done: u64) {
        if let Some((offset, len)) = self.ranges.last_mut() {
            (*offset, *len) = (*offset + done, *len - done);
            if *len == 0 {
                self.ranges.pop();
            }
        }
    }

    /// Takes the next piece, of at most `most` bytes.
    pub(super) fn next(&mut self, most: u64) -> Option<(u64, u64)> {
        let piece = self.peek(most)?;
        self.advance(piece.1);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(ranges: &[(u64, u64)], most: u64) -> Vec<(u64, u64)> {
        let mut long = Long::new(ranges.to_vec());
        std::iter::from_fn(|| long.next(most)).collect()
    }

    #[test]
    fn ranges_come_in_order_and_in_pieces() {
        assert_eq!(pieces(&[(100, 25), (0, 10)], 10), [(0, 10), (100, 10), (110, 10), (120, 5)]);
        assert_eq!(pieces(&[(7, 0)], 10), []);
    }

    #[test]
    fn what_several_ranges_cover_comes_once() {
        assert_eq!(pieces(&[(0, 100); 256], 100), [(0, 100)]);
        assert_eq!(pieces(&[(50, 10), (0, 20), (10, 15), (25, 5), (0, 5)], 100), [(0, 30), (50, 10)]);
        assert_eq!(Long::new(vec![(0, 10), (5, 10)]).total_bytes(), 15);
    }
}
