//! Intervals of several threads, reported once every thread has completed them.

use std::collections::VecDeque;

use iotax_node::load::Sample;

/// How often threads are polled for completed intervals.
pub(super) const PERIOD: std::time::Duration = std::time::Duration::from_millis(200);

pub(super) struct Samples {
    /// For each thread, the intervals that are not passed on yet.
    waiting: Vec<VecDeque<Sample>>,
}

impl Samples {
    pub(super) fn of(threads: usize) -> Self {
        Self { waiting: vec![VecDeque::new(); threads] }
    }

    pub(super) fn add(&mut self, thread: usize, samples: Vec<Sample>) {
        self.waiting[thread].extend(samples);
    }

    /// The next interval that all threads have completed, merged.
    pub(super) fn next(&mut self) -> Option<Sample> {
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let mut whole: Option<Sample> = None;
        for sample in self.waiting.iter_mut().filter_map(VecDeque::pop_front) {
            match &mut whole {
                Some(whole) => whole.merge(&sample),
                None => whole = Some(sample),
            }
        }
        whole
    }
}
