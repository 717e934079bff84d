//! How a thread waits for events: asleep, or after polling first.

use std::time::Duration;

/// How to wait. Polling occupies a processor and saves the time of a sleep and a wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Sleeps whenever there is nothing to do.
    #[default]
    Never,
    /// Polls for up to `LOOK` while events arrive that soon, and otherwise sleeps at once.
    Auto,
    /// Never sleeps: occupies a processor as long as the thread exists.
    Always,
}

/// About the cost of a sleep and a wake on a virtual machine: it is better to sleep for later events.
const LOOK: Duration = Duration::from_micros(100);
/// If this many polls in a row find nothing, and an event follows soon after each, polling itself delays the other
/// side, because both share a processor.
const VAIN_MAX: u32 = 4;
/// Number of waits without polling then; doubled each time, up to the maximum.
const REST: u32 = 64;
const REST_MAX: u32 = 4096;

/// Decides whether to poll before the next sleep, by the results of the last waits.
#[derive(Debug)]
pub(super) struct PollingState {
    polling: Polling,
    last_was_short: bool,
    vain: u32,
    resting: u32,
    next_rest: u32,
}

impl PollingState {
    pub(super) fn new(polling: Polling) -> Self {
        Self { polling, last_was_short: true, vain: 0, resting: 0, next_rest: REST }
    }

    /// Whether waits need not be timed.
    pub(super) fn sleeps_only(&self) -> bool {
        self.polling == Polling::Never
    }

    /// How long to poll before the next sleep; `Duration::MAX`: never sleep.
    pub(super) fn look(&mut self) -> Duration {
        match self.polling {
            Polling::Always => Duration::MAX,
            Polling::Auto if self.resting > 0 => {
                self.resting -= 1;
                Duration::ZERO
            }
            Polling::Auto if self.last_was_short => LOOK,
            Polling::Never | Polling::Auto => Duration::ZERO,
        }
    }

    /// A poll found an event.
    pub(super) fn found(&mut self) {
        self.vain = 0;
        self.next_rest = REST;
    }

    /// A sleep ended, `waited` after the wait began; the first `looked` of this was spent polling.
    pub(super) fn slept(&mut self, looked: Duration, waited: Duration) {
        // A wake takes time: an event within the polling time is seen up to that much later.
        self.last_was_short = waited < 2 * LOOK;
        if looked.is_zero() || !self.last_was_short {
            return;
        }
        self.vain += 1;
        if self.vain == VAIN_MAX {
            self.vain = 0;
            self.resting = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(REST_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(150);
    const LATE: Duration = Duration::from_millis(1);

    #[test]
    fn never_sleeps_at_once_and_always_never_sleeps() {
        assert_eq!(PollingState::new(Polling::Never).look(), Duration::ZERO);
        let mut always = PollingState::new(Polling::Always);
        always.slept(Duration::ZERO, LATE);
        assert_eq!(always.look(), Duration::MAX);
    }

    #[test]
    fn auto_looks_while_news_comes_soon() {
        let mut auto = PollingState::new(Polling::Auto);
        assert_eq!(auto.look(), LOOK);
        auto.slept(LOOK, LATE);
        assert_eq!(auto.look(), Duration::ZERO, "after a long wait");
        auto.slept(Duration::ZERO, SOON);
        assert_eq!(auto.look(), LOOK, "after a short one");
        auto.found();
        assert_eq!(auto.look(), LOOK);
    }

    #[test]
    fn auto_is_asleep_a_millisecond_after_the_last_news_and_stays_so() {
        let mut auto = PollingState::new(Polling::Auto);
        for _ in 0..1000 {
            auto.look();
            auto.found();
        }
        let first = auto.look();
        assert!(first < LATE, "{first:?}");
        auto.slept(first, LATE);
        for _ in 0..1000 {
            assert_eq!(auto.look(), Duration::ZERO);
            auto.slept(Duration::ZERO, LATE);
        }
    }

    #[test]
    fn auto_rests_where_looking_itself_keeps_news_away() {
        let mut auto = PollingState::new(Polling::Auto);
        let mut rests = Vec::new();
        for _ in 0..3 {
            for _ in 0..VAIN_MAX {
                assert_eq!(auto.look(), LOOK);
                auto.slept(LOOK, SOON);
            }
            let mut rest = 0;
            while auto.look().is_zero() {
                auto.slept(Duration::ZERO, SOON);
                rest += 1;
            }
            // The poll that ended the rest was the first of the next four.
            auto.slept(LOOK, SOON);
            auto.vain = 0;
            rests.push(rest);
        }
        assert_eq!(rests, [REST, 2 * REST, 4 * REST]);
        auto.found();
        assert_eq!(auto.next_rest, REST);
    }
}
