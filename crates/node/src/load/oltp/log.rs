//! The write-ahead log: what is in it, how much of it is durable, and who makes the rest so.
//!
//! Whoever commits first writes and flushes for all who wait with it (group commit): what came before its write began is served by
//! one flush. The last page is written again until it is full. Positions count bytes of log from the beginning.

/// Of a changed row's record, and of a commit's: of a transaction 560, as PostgreSQL 15's for pgbench's without images of pages.
pub(super) const ROW_BYTES: u64 = 94;
pub(super) const COMMIT_BYTES: u64 = 40;

#[derive(Debug)]
pub(super) struct Log {
    page_bytes: u64,
    /// It is written in a circle of so many.
    pages: u64,
    inserted: u64,
    flushed: u64,
    /// Who writes and flushes, as far as what.
    leader: Option<Leader>,
}

#[derive(Clone, Copy, Debug)]
struct Leader {
    client: usize,
    /// Up to where this commit makes durable.
    until: u64,
    written: u64,
}

/// What the leader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Pages of the circle, at most as many as asked for.
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

    /// Where the log ends with these bytes.
    pub(super) fn insert(&mut self, bytes: u64) -> u64 {
        self.inserted += bytes;
        self.inserted
    }

    pub(super) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Everything in it counts as durable: nobody waits any more.
    pub(super) fn reset(&mut self) {
        self.flushed = self.inserted;
        self.leader = None;
    }

    /// What `client`, who waits until `position` is durable, has to do for that; `None` while another does it.
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
