//! The write-ahead log: its contents, how much of it is durable, and which client makes the rest durable.
//!
//! The first client that commits writes and flushes for all others that wait (group commit): one flush serves
//! everything logged before its write began. The last page is rewritten until it is full. Positions are bytes of log
//! from its beginning.

/// Bytes of the record of a changed row, and of a commit: 560 per transaction, as PostgreSQL 15 logs for pgbench
/// without page images.
pub(super) const ROW_BYTES: u64 = 94;
pub(super) const COMMIT_BYTES: u64 = 40;

#[derive(Debug)]
pub(super) struct Log {
    page_bytes: u64,
    /// Number of pages, written in a circle.
    pages: u64,
    inserted: u64,
    flushed: u64,
    /// The client that writes and flushes, and how far.
    leader: Option<Leader>,
}

#[derive(Clone, Copy, Debug)]
struct Leader {
    client: usize,
    /// Its flush makes the log durable up to this position.
    until: u64,
    written: u64,
}

/// What the leader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Pages of the circle, at most the requested number.
    Write {
        page: u64,
        count: u64,
    },
    Flush,
}

impl Log {
    pub(super) fn new(page_bytes: u64, pages: u64) -> Self {
        Self { page_bytes, pages, inserted: 0, flushed: 0, leader: None }
    }

    /// Adds a record of this size; returns the position of its end.
    pub(super) fn insert(&mut self, bytes: u64) -> u64 {
        self.inserted += bytes;
        self.inserted
    }

    pub(super) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Everything logged counts as durable: no client waits any more.
    pub(super) fn reset(&mut self) {
        self.flushed = self.inserted;
        self.leader = None;
    }

    /// The next step of `client`, which waits for its commit to become durable; `None` while another client does it.
    pub(super) fn lead(&mut self, client: usize, most_pages: u64) -> Option<Step> {
        let (flushed, until) = (self.flushed, self.inserted);
        let leader = *self.leader.get_or_insert(Leader { client, until, written: flushed });
        if leader.client != client {
            return None;
        }
        if leader.written >= leader.until {
            return Some(Step::Flush);
        }
        let first = leader.written / self.page_bytes;
        let end = leader.until.div_ceil(self.page_bytes);
        let before_wrap = self.pages - first % self.pages;
        let count = (end - first).min(most_pages).min(before_wrap);
        Some(Step::Write { page: first % self.pages, count })
    }

    /// The leader's write of `count` pages is done.
    pub(super) fn written(&mut self, count: u64) {
        if let Some(leader) = &mut self.leader {
            leader.written = ((leader.written / self.page_bytes + count) * self.page_bytes).min(leader.until);
        }
    }

    /// The leader's flush is done.
    pub(super) fn flush_done(&mut self) {
        if let Some(leader) = self.leader.take() {
            self.flushed = leader.until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_serves_all_who_came_before_its_write_began() {
        let mut log = Log::new(8192, 64);
        let first = log.insert(600);
        let second = log.insert(600);
        assert_eq!(log.lead(0, 16), Some(Step::Write { page: 0, count: 1 }));
        let late = log.insert(600);
        assert_eq!(log.lead(1, 16), None, "another leads");
        log.written(1);
        assert_eq!(log.lead(0, 16), Some(Step::Flush));
        log.flush_done();
        assert!(log.flushed() >= second && second > first && log.flushed() < late);
        assert_eq!(log.lead(2, 16), Some(Step::Write { page: 0, count: 1 }), "the last page again");
    }

    #[test]
    fn images_take_several_writes_and_turn_back_at_the_circles_end() {
        let mut log = Log::new(8192, 4);
        log.insert(3 * 8192);
        log.reset();
        log.insert(3 * 8192);
        let mut steps = Vec::new();
        while let Some(step) = log.lead(0, 2) {
            steps.push(step);
            match step {
                Step::Write { count, .. } => log.written(count),
                Step::Flush => {
                    log.flush_done();
                    break;
                }
            }
        }
        assert_eq!(steps, [Step::Write { page: 3, count: 1 }, Step::Write { page: 0, count: 2 }, Step::Flush],);
    }
}
