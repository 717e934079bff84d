//! The access to the logical unit through the session's target port: what is known, and when it is asked for.

use core::time::Duration;

use crate::{
    Instant, Violation,
    scsi::{
        AccessState,
        initiator::{AccessQuery, Asked, ProbeCommand},
    },
};

/// Minimum time between two queries, so that a target that refuses I/Os and reports access is not asked without end. It
/// does not apply to a reported change, because each change is reported once. Also the interval during a transition,
/// which ends soon.
const PAUSE: Duration = Duration::from_millis(50);
/// Interval while there is no access. A session without I/Os gets no unit attention, so it must ask. Thousands of idle
/// sessions may do so; those whose unit has I/Os on other paths learn of a change from these.
const POLL: Duration = Duration::from_secs(1);

/// What the target's response to a command says about the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessNews {
    None,
    /// The command was refused.
    Refused,
    /// It changed, to an unknown state.
    Changed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Meanwhile {
    /// The target reported a change, which may be newer than the answer.
    is_changed: bool,
    /// An I/O was refused, which contradicts an answer that there is access.
    is_refused: bool,
    /// There was another reason to ask.
    is_asked: bool,
}

#[derive(Debug)]
pub(super) struct Watch {
    query: AccessQuery,
    state: AccessState,
    /// The target reported a change or refused an I/O, and has not said what the state is.
    is_in_question: bool,
    /// What happened since the query was sent, until it is answered.
    asking: Option<Meanwhile>,
    last_asked: Option<Instant>,
    /// When to ask, if there is a reason; while asking, when the answer is overdue.
    due: Option<Instant>,
}

impl Watch {
    pub(super) fn new(now: Instant, query: AccessQuery, state: AccessState) -> Self {
        let mut watch = Self { query, state, is_in_question: false, asking: None, last_asked: None, due: None };
        watch.schedule(now);
        watch
    }

    pub(super) fn state(&self) -> AccessState {
        self.state
    }

    pub(super) fn is_in_question(&self) -> bool {
        self.is_in_question
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn on_news(&mut self, now: Instant, news: AccessNews) {
        match (news, &mut self.asking) {
            (AccessNews::None, _) => return,
            (AccessNews::Changed, Some(meanwhile)) => meanwhile.is_changed = true,
            (AccessNews::Changed, None) => self.due = Some(now),
            (AccessNews::Refused, Some(meanwhile)) => meanwhile.is_refused = true,
            (AccessNews::Refused, None) => self.check(now),
        }
        if news == AccessNews::Refused {
            self.state = AccessState::Transitioning;
        }
        self.is_in_question = true;
    }

    /// Asks soon.
    pub(super) fn check(&mut self, now: Instant) {
        if let Some(meanwhile) = &mut self.asking {
            meanwhile.is_asked = true;
        } else {
            let due = self.last_asked.map_or(now, |asked| now.max(asked + PAUSE));
            self.due = Some(self.due.map_or(due, |known| known.min(due)));
        }
    }

    /// Whether it is time to ask.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.is_asking() && self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.is_asking() && self.due.is_some_and(|due| due <= now)
    }

    /// Asks now. An answer must come within `timeout`.
    pub(super) fn ask(&mut self, now: Instant, timeout: Duration) -> ProbeCommand {
        self.asking = Some(Meanwhile::default());
        self.last_asked = Some(now);
        self.due = Some(now + timeout);
        self.query.begin()
    }

    /// The query cannot be sent now.
    pub(super) fn postpone(&mut self, now: Instant) {
        self.asking = None;
        self.due = Some(now + PAUSE);
    }

    /// Adds data of the answer; false if they are out of order or longer than requested.
    pub(super) fn data(&mut self, offset: u32, bytes: &[u8]) -> bool {
        self.query.data(offset, bytes)
    }

    /// Processes the end of a response. Returns the query again if it must be repeated.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        status: u8,
        sense: &[u8],
    ) -> Result<Option<ProbeCommand>, Violation> {
        let state = match self.query.end(status, sense)? {
            Asked::Again(command) => return Ok(Some(command)),
            Asked::Known(state) => state,
        };
        let meanwhile = self.asking.take().unwrap_or_default();
        let is_wrong = meanwhile.is_refused && state.is_accessible();
        // I/Os wait for a newer answer, but none goes to a port that had no access a moment ago.
        if !self.is_in_question || !(meanwhile.is_changed || is_wrong) || !state.is_accessible() {
            (self.state, self.is_in_question) = (state, false);
        }
        self.schedule(now);
        if meanwhile.is_changed {
            self.due = Some(now);
        } else if is_wrong || meanwhile.is_asked {
            self.check(now);
        }
        Ok(None)
    }

    fn schedule(&mut self, now: Instant) {
        self.due = match self.state {
            AccessState::Transitioning => Some(now + PAUSE),
            state if state.is_accessible() => None,
            _ => Some(now + POLL),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::status;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn watch() -> Watch {
        Watch::new(at(0), AccessQuery::of(5), AccessState::Optimized)
    }

    /// Asks when it is due, and answers at once.
    fn answer(watch: &mut Watch, ms: u64, state: AccessState) {
        watch.ask(at(ms), Duration::from_secs(60));
        answer_asked(watch, ms, state);
    }

    fn answer_asked(watch: &mut Watch, ms: u64, state: AccessState) {
        assert!(watch.is_asking());
        assert!(watch.data(0, &[0, 0, 0, 12, state as u8, 0x8b, 0, 5, 0, 0, 0, 1, 0, 0, 0, 5]));
        assert_eq!(watch.answered(at(ms), status::GOOD, &[]).map(|again| again.is_none()), Ok(true));
    }

    #[test]
    fn io_waits_from_a_report_of_a_change_until_the_answer() {
        let mut watch = watch();
        assert_eq!((watch.due(), watch.is_in_question()), (None, false));
        watch.on_news(at(1), AccessNews::Changed);
        assert_eq!((watch.is_due(at(1)), watch.is_in_question(), watch.state()), (true, true, AccessState::Optimized));
        answer(&mut watch, 2, AccessState::NonOptimized);
        assert_eq!((watch.due(), watch.is_in_question(), watch.state()), (None, false, AccessState::NonOptimized));
    }

    #[test]
    fn answer_that_is_older_than_a_change_or_contradicts_a_refusal_is_not_believed() {
        // A reported change is followed at once. A contradiction could go on for ever, so there is a pause.
        for (news, again_ms) in [(AccessNews::Changed, 3), (AccessNews::Refused, 51)] {
            let mut watch = watch();
            watch.on_news(at(1), AccessNews::Refused);
            watch.ask(at(1), Duration::from_secs(60));
            watch.on_news(at(2), news);
            answer_asked(&mut watch, 3, AccessState::Optimized);
            assert_eq!((watch.is_in_question(), watch.due()), (true, Some(at(again_ms))));
            assert_eq!(watch.state(), AccessState::Transitioning);
            answer(&mut watch, again_ms, AccessState::Optimized);
            assert_eq!((watch.is_in_question(), watch.due(), watch.state()), (false, None, AccessState::Optimized));
        }
    }

    #[test]
    fn wish_to_ask_while_asking_is_met_later_and_holds_up_no_io() {
        let mut watch = watch();
        watch.ask(at(1), Duration::from_secs(60));
        watch.check(at(2));
        answer_asked(&mut watch, 3, AccessState::Optimized);
        assert_eq!((watch.is_in_question(), watch.due()), (false, Some(at(51))));
        watch.on_news(at(4), AccessNews::Changed);
        watch.check(at(5));
        assert_eq!(watch.due(), Some(at(4)), "the earlier reason holds");
    }

    #[test]
    fn answer_that_there_is_no_access_is_believed_and_asked_for_again() {
        let mut watch = watch();
        watch.on_news(at(1), AccessNews::Changed);
        watch.ask(at(1), Duration::from_secs(60));
        watch.on_news(at(2), AccessNews::Refused);
        answer_asked(&mut watch, 3, AccessState::Standby);
        assert_eq!((watch.is_in_question(), watch.due(), watch.state()), (false, Some(at(1003)), AccessState::Standby));
        answer(&mut watch, 1003, AccessState::Transitioning);
        assert_eq!(watch.due(), Some(at(1053)), "it ends soon");
        answer(&mut watch, 1053, AccessState::Unavailable);
        assert_eq!(watch.due(), Some(at(2053)));
        watch.check(at(1054));
        assert_eq!(watch.due(), Some(at(1103)), "sooner with a reason");
    }

    #[test]
    fn query_that_meets_a_unit_attention_is_repeated_and_one_without_an_answer_fails() {
        let mut watch = watch();
        watch.ask(at(1), Duration::from_secs(60));
        let changed = crate::scsi::Sense::ACCESS_STATE_CHANGED.encode();
        for _ in 1..16 {
            let again = watch.answered(at(2), status::CHECK_CONDITION, &changed).expect("again");
            assert!(again.is_some() && watch.is_asking());
        }
        assert!(watch.answered(at(3), status::CHECK_CONDITION, &changed).is_err());
        watch.ask(at(4), Duration::from_secs(60));
        assert!(watch.answered(at(5), status::GOOD, &[]).is_err(), "no groups");
        assert!(!watch.data(1, &[0]), "data out of order");
    }
}
