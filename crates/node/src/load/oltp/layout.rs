//! The layout of an OLTP load's database, and the pages that a transaction needs.
//!
//! The shape is that of pgbench (TPC-B's transaction as PostgreSQL stores it), with the numbers of 8 KiB pages that it
//! has per unit of scale: 1640 of accounts and 276 of their index. A page of the index is found through the levels
//! above it.

use crate::seeded::{Chance, SeededRng};

/// Pages of accounts and of their index's leaves, per branch.
const TABLE_PAGES: u64 = 1640;
const INDEX_PAGES: u64 = 276;
/// Pages of an index under one page of the level above.
const FAN_OUT: u64 = 300;
/// Branches whose rows share a page. The tellers of as many branches share a page, too.
const ROWS: u64 = 64;
/// Rows of history, and of accounts, that fill a page.
const HISTORY_ROWS: u64 = 157;
const ACCOUNT_ROWS: u64 = 61;
/// Percentage of changed accounts that find no room in their page: a row in another page and one in a leaf of the index
/// change, too. Counted in PostgreSQL 15 over pgbench's first minute (docs/guide/oltp.md).
const MOVED_PERCENT: f64 = 76.0;
/// One page in this many is for history, for moved accounts, and for the log.
const HISTORY_SHARE: u64 = 64;
const MOVED_SHARE: u64 = 16;
const LOG_SHARE: u64 = 8;
/// A log of fewer pages would be overwritten within one commit.
const LOG_PAGES_MIN: u64 = 32;
/// Minimum number of pages: every region needs a page.
pub(super) const PAGES_MIN: u64 = 512;

/// Page numbers, from the start of the working set, in this order: branches, tellers, history, moved accounts, index
/// from the root down, accounts, log.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) branches: u64,
    /// Number of pages without the log.
    pub(super) pages: u64,
    pub(super) log_pages: u64,
    tellers_at: u64,
    history: Appended,
    moved: Appended,
    /// First page and number of pages of each level of the index.
    levels: Vec<(u64, u64)>,
    accounts_at: u64,
    accounts_pages: u64,
}

/// A region to which rows are appended; it restarts when it is full.
#[derive(Clone, Copy, Debug)]
struct Appended {
    at: u64,
    pages: u64,
    rows: u64,
}

impl Appended {
    fn touch(self, row: u64) -> Touch {
        let change = if row.is_multiple_of(self.rows) { Change::New } else { Change::Row };
        Touch { page: self.at + row / self.rows % self.pages, change }
    }
}

/// Number of rows of each kind so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rows {
    history: u64,
    moved: u64,
}

/// The pages that one transaction uses, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The branch whose row it holds from touch number `locks_at` to its commit.
    pub(super) branch: u64,
    pub(super) locks_at: usize,
    pub(super) touches: Vec<Touch>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) page: u64,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Only read.
    None,
    /// A changed row in a page that must be read first.
    Row,
    /// A row in a new page, which is not read.
    New,
}

impl Layout {
    /// `None` for fewer than `PAGES_MIN` pages.
    pub(super) fn of(pages: u64) -> Option<Self> {
        if pages < PAGES_MIN {
            return None;
        }
        let log_pages = (pages / LOG_SHARE).max(LOG_PAGES_MIN);
        let pages = pages - log_pages;
        let branches = (pages / (TABLE_PAGES + INDEX_PAGES)).max(1);
        let hot = branches.div_ceil(ROWS);
        let history = Appended { at: 2 * hot, pages: (pages / HISTORY_SHARE).max(2), rows: HISTORY_ROWS };
        let moved =
            Appended { at: history.at + history.pages, pages: (pages / MOVED_SHARE).max(2), rows: ACCOUNT_ROWS };
        let index_at = moved.at + moved.pages;
        let leaves = ((pages - index_at) * INDEX_PAGES / (TABLE_PAGES + INDEX_PAGES)).max(1);
        let mut sizes = vec![leaves];
        while sizes[0] > 1 {
            sizes.insert(0, sizes[0].div_ceil(FAN_OUT));
        }
        let mut at = index_at;
        let level = |size: &u64| {
            let begin = at;
            at += size;
            (begin, *size)
        };
        let levels = sizes.iter().map(level).collect();
        let accounts_pages = pages - at;
        Some(Self {
            branches,
            pages,
            log_pages,
            tellers_at: hot,
            history,
            moved,
            levels,
            accounts_at: at,
            accounts_pages,
        })
    }

    /// Draws the pages of the next transaction: down the index to an account, uniformly, then the teller, the branch
    /// and the history.
    pub(super) fn draw(&self, random: &mut SeededRng, rows: &mut Rows, plan: &mut Plan) {
        plan.touches.clear();
        let account = random.below(self.accounts_pages);
        for (at, pages) in &self.levels {
            let page = at + (u128::from(account) * u128::from(*pages) / u128::from(self.accounts_pages)) as u64;
            plan.touches.push(Touch { page, change: Change::None });
        }
        plan.touches.push(Touch { page: self.accounts_at + account, change: Change::Row });
        if random.chance(Chance::percent(MOVED_PERCENT)) {
            plan.touches.push(self.moved.touch(rows.moved));
            rows.moved += 1;
            let leaf = plan.touches[self.levels.len() - 1].page;
            plan.touches.push(Touch { page: leaf, change: Change::Row });
        }
        let teller = random.below(self.branches);
        plan.touches.push(Touch { page: self.tellers_at + teller / ROWS, change: Change::Row });
        plan.branch = random.below(self.branches);
        plan.locks_at = plan.touches.len();
        plan.touches.push(Touch { page: plan.branch / ROWS, change: Change::Row });
        plan.touches.push(self.history.touch(rows.history));
        rows.history += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_tile_the_pages() {
        for pages in [PAGES_MIN, 5000, 1 << 20] {
            let layout = Layout::of(pages).unwrap();
            assert_eq!(layout.pages + layout.log_pages, pages);
            let mut end = layout.moved.at + layout.moved.pages;
            for (at, size) in &layout.levels {
                assert_eq!(*at, end);
                end += size;
            }
            assert_eq!((layout.levels[0].1, layout.accounts_at), (1, end));
            assert_eq!(layout.accounts_at + layout.accounts_pages, layout.pages);
        }
        assert!(Layout::of(PAGES_MIN - 1).is_none());
    }

    #[test]
    fn transaction_goes_down_the_index_to_its_account() {
        let layout = Layout::of(1 << 20).unwrap();
        let (mut random, mut rows, mut plan) = (SeededRng::new(1, "oltp", 0), Rows::default(), Plan::default());
        let mut hit = vec![0_u32; 16];
        for _ in 0..16_000 {
            layout.draw(&mut random, &mut rows, &mut plan);
            let depth = layout.levels.len();
            for (touch, (at, size)) in plan.touches.iter().zip(&layout.levels) {
                assert!((*at..at + size).contains(&touch.page) && touch.change == Change::None);
            }
            let account = plan.touches[depth].page - layout.accounts_at;
            assert!(account < layout.accounts_pages);
            hit[(account * 16 / layout.accounts_pages) as usize] += 1;
            assert!(plan.touches.iter().all(|touch| touch.page < layout.pages) && plan.branch < layout.branches);
        }
        assert!(hit.iter().all(|count| (850..1150).contains(count)), "{hit:?}");
    }
}
