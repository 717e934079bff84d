//! The pages that a database has in memory, and which of them it evicts: PostgreSQL's clock sweep.

/// Maximum number of times that a page is passed over before it is evicted, as in PostgreSQL (`BM_MAX_USAGE_COUNT`).
const USAGE_MAX: u8 = 5;
/// Number of frames ahead of the clock hand in which dirty pages are searched.
const REACH: usize = 128;
const NOWHERE: u32 = u32::MAX;

/// Page buffers without their contents: the ledger of writes knows what a page must hold.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Page → its frame.
    frame_of: Vec<u32>,
    /// Page → number of the checkpoint after whose start its image was last logged.
    imaged: Vec<u32>,
    frames: Vec<Frame>,
    hand: usize,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u32,
    usage: u8,
    state: State,
    dirty: bool,
    /// Log position up to which the log must be durable before the page is written.
    change_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Loading,
    Writing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here,
    /// Another client reads it.
    Loading,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    Begun,
    /// A write or read of it is under way, or its change is not durable.
    NotYet,
    /// It is clean, or no longer in memory.
    Needless,
}

impl Buffers {
    /// With at least one frame.
    pub(super) fn new(pages: u64, frames: u64) -> Self {
        let frame = Frame { page: NOWHERE, usage: 0, state: State::Idle, dirty: false, change_at: 0 };
        Self {
            frame_of: vec![NOWHERE; pages as usize],
            imaged: vec![0; pages as usize],
            frames: vec![frame; frames.max(1) as usize],
            hand: 0,
            used: 0,
        }
    }

    pub(super) fn find(&mut self, page: u64) -> Found {
        let Some(frame) = self.frame_mut(page) else { return Found::Absent };
        if frame.state == State::Loading {
            return Found::Loading;
        }
        frame.usage = (frame.usage + 1).min(USAGE_MAX);
        Found::Here
    }

    /// Finds a frame for an absent page, whose read then ends with `loaded`. Returns `false` if every page that could
    /// be evicted must be written first.
    pub(super) fn admit(&mut self, page: u64) -> bool {
        let Some(index) = self.victim() else { return false };
        let frame = &mut self.frames[index];
        if frame.page != NOWHERE {
            self.frame_of[frame.page as usize] = NOWHERE;
        }
        *frame = Frame { page: page as u32, usage: 1, state: State::Loading, dirty: false, change_at: 0 };
        self.frame_of[page as usize] = index as u32;
        true
    }

    /// The read or the write of a page is done.
    pub(super) fn loaded(&mut self, page: u64) {
        if let Some(frame) = self.frame_mut(page) {
            frame.state = State::Idle;
        }
    }

    /// Records a change of a page, logged up to `change_at`.
    pub(super) fn change(&mut self, page: u64, change_at: u64) {
        if let Some(frame) = self.frame_mut(page) {
            frame.dirty = true;
            frame.change_at = change_at;
        }
    }

    /// Whether this is the page's first change since `checkpoint` began. Then the log takes the whole page.
    pub(super) fn first_change(&mut self, page: u64, checkpoint: u32) -> bool {
        std::mem::replace(&mut self.imaged[page as usize], checkpoint) != checkpoint
    }

    /// Pages that a checkpoint has to write, in order of their numbers.
    pub(super) fn dirty(&self) -> Vec<u32> {
        let mut pages: Vec<u32> = self.frames.iter().filter(|frame| frame.dirty).map(|frame| frame.page).collect();
        pages.sort_unstable();
        pages
    }

    /// Takes a page to be written if its changes are durable. The log is durable up to `flushed`.
    pub(super) fn take(&mut self, page: u64, flushed: u64) -> Take {
        match self.frame_mut(page) {
            Some(frame) if frame.dirty => {
                if frame.state != State::Idle || frame.change_at > flushed {
                    return Take::NotYet;
                }
                (frame.dirty, frame.state) = (false, State::Writing);
                Take::Begun
            }
            _ => Take::Needless,
        }
    }

    /// The next dirty page ahead of the hand that is to be evicted and may be written.
    pub(super) fn soon_to_go(&self, flushed: u64) -> Option<u64> {
        let count = self.frames.len();
        if self.used < count {
            return None;
        }
        let within = (0..REACH.min(count)).map(|at| &self.frames[(self.hand + at) % count]);
        let goes = |frame: &&Frame| {
            frame.dirty && frame.usage == 0 && frame.state == State::Idle && frame.change_at <= flushed
        };
        within.filter(goes).map(|frame| u64::from(frame.page)).next()
    }

    fn victim(&mut self) -> Option<usize> {
        if self.used < self.frames.len() {
            self.used += 1;
            return Some(self.used - 1);
        }
        for _ in 0..=self.frames.len() * (usize::from(USAGE_MAX) + 1) {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[index];
            if frame.state != State::Idle {
                continue;
            }
            if frame.usage > 0 {
                frame.usage -= 1;
            } else if !frame.dirty {
                return Some(index);
            }
        }
        None
    }

    fn frame_mut(&mut self, page: u64) -> Option<&mut Frame> {
        self.frames.get_mut(self.frame_of[page as usize] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(pages: u64) -> Buffers {
        let mut buffers = Buffers::new(100, pages);
        for page in 0..pages {
            assert!(buffers.admit(page));
            buffers.loaded(page);
        }
        buffers
    }

    #[test]
    fn page_that_was_used_stays_longer() {
        let mut buffers = full(4);
        for _ in 0..3 {
            assert_eq!(buffers.find(2), Found::Here);
        }
        for page in 50..53 {
            assert!(buffers.admit(page));
            buffers.loaded(page);
        }
        assert_eq!(buffers.find(2), Found::Here);
        assert_eq!([0, 1, 3].map(|page| buffers.find(page)), [Found::Absent; 3]);
    }

    #[test]
    fn dirty_page_stays_until_it_is_written_and_is_written_after_its_log() {
        let mut buffers = full(1);
        buffers.change(0, 100);
        assert!(!buffers.admit(7));
        assert_eq!(buffers.take(0, 99), Take::NotYet, "its change is not durable");
        assert_eq!(buffers.take(0, 100), Take::Begun);
        buffers.change(0, 101);
        assert_eq!(buffers.take(0, 101), Take::NotYet, "under way");
        assert!(!buffers.admit(7), "what is being written is not given up");
        buffers.loaded(0);
        assert_eq!(buffers.take(0, 101), Take::Begun);
        buffers.loaded(0);
        assert!(buffers.admit(7));
        assert_eq!((buffers.find(0), buffers.find(7)), (Found::Absent, Found::Loading));
    }

    #[test]
    fn first_change_after_a_checkpoint_is_told_once() {
        let mut buffers = full(2);
        assert!(buffers.first_change(1, 1) && !buffers.first_change(1, 1));
        assert!(buffers.first_change(1, 2));
    }
}
