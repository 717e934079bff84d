//! Number of connections: every thread is asked, and the count is complete when all have answered.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// If a thread does not answer in time, its last answer is used.
const ANSWER_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct ConnectionCount {
    answers: Mutex<Answers>,
    given: Condvar,
}

#[derive(Debug)]
struct Answers {
    question: u64,
    /// By thread: the number of the last question answered, and the answer.
    last: Vec<(u64, usize)>,
}

impl ConnectionCount {
    pub(super) fn new(threads: usize) -> Self {
        Self { answers: Mutex::new(Answers { question: 0, last: vec![(0, 0); threads] }), given: Condvar::new() }
    }

    /// `ask` makes every thread call `answer`.
    pub(super) fn take(&self, ask: impl FnOnce()) -> usize {
        let question = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.question += 1;
            answers.question
        };
        ask();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |answers: &mut Answers| answers.last.iter().any(|(answered, _)| *answered < question);
        let waited = self.given.wait_timeout_while(answers, ANSWER_TIME, is_open);
        let (answers, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answers.last.iter().map(|(_, count)| count).sum()
    }

    pub(super) fn answer(&self, thread: usize, count: usize) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.last[thread] = (answers.question, count);
        self.given.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_is_now() {
        let connections = ConnectionCount::new(2);
        connections.answer(0, 5);
        let told = connections.take(|| {
            connections.answer(0, 1);
            connections.answer(1, 2);
        });
        assert_eq!(told, 3);
    }

    #[test]
    fn thread_that_does_not_answer_is_taken_at_its_last_word() {
        let connections = ConnectionCount::new(2);
        connections.answer(1, 7);
        assert_eq!(connections.take(|| connections.answer(0, 1)), 8);
    }
}
