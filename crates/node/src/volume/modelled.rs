//! Modelled media in real time: one array, shared by all threads of a server.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use iotax_proto::Instant;

use super::model::{Access, MediaModel, MediaQueue};
use crate::seeded::SeededRng;

/// Modelled media behind a lock that only operations of their volume take.
#[derive(Clone, Debug)]
pub struct ModelledMedia(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    model: MediaModel,
    queue: MediaQueue,
    random: SeededRng,
    work: ModelledWork,
}

/// What modelled media have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelledWork {
    /// Operations that a server or a disk worked on: all but those that a cache alone answered.
    pub operations: u64,
    /// Busy time of all servers together.
    pub busy_ns: u64,
    /// Operations whose completion had to wait, and how much later than modelled they completed, in total and at most.
    pub told: u64,
    pub late_sum_ns: u64,
    pub late_max_ns: u64,
}

impl ModelledMedia {
    pub fn new(model: MediaModel, seed: u64) -> Self {
        let queue = MediaQueue::new(&model);
        let random = SeededRng::new(seed, "media", 0);
        Self(Arc::new(Mutex::new(State { model, queue, random, work: ModelledWork::default() })))
    }

    /// Accepts an operation and returns how long it takes.
    pub(super) fn take(&self, now: Instant, access: Access) -> Duration {
        let State { model, queue, random, work } = &mut *self.lock();
        let takes = queue.take(model, now, access, random);
        work.operations += u64::from(queue.busy_ns() > work.busy_ns);
        work.busy_ns = queue.busy_ns();
        takes
    }

    /// An operation completed `late` after it was due.
    pub(super) fn told(&self, late: Duration) {
        let late_ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        let work = &mut self.lock().work;
        work.told += 1;
        work.late_sum_ns = work.late_sum_ns.saturating_add(late_ns);
        work.late_max_ns = work.late_max_ns.max(late_ns);
    }

    /// The work so far; the maximum lateness is that since the last call.
    pub fn take_work(&self) -> ModelledWork {
        let work = &mut self.lock().work;
        let so_far = *work;
        work.late_max_ns = 0;
        so_far
    }

    /// A thread that panics while it holds the lock ends the process, so the state is always complete.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
