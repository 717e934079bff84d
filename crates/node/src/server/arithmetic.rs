//! Arithmetic of authentications, kept away from the threads that carry I/O: an exponentiation takes milliseconds, and
//! anyone who can reach a port may cause one before authenticating.
//!
//! The queue takes origins in turn, so that an origin with many requests delays only itself.

use std::{collections::VecDeque, sync::PoisonError};

use iotax_proto::{
    Origin,
    nvme::auth::{Work, Worked},
};

use crate::{
    node::ConnId,
    sync::{Condvar, Mutex, MutexGuard},
};

/// Maximum number of waiting requests of one origin. A further request fails, and so does its authentication.
const OF_ORIGIN_MAX: usize = 8;
const MAX: usize = 256;

/// The connection that requested work: its thread, its number, and a serial number among connections that had this
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) thread: u64,
    pub(crate) conn: ConnId,
    pub(crate) serial: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Arithmetic {
    state: Mutex<State>,
    there_is_work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a thread does the work.
    has_worker: bool,
    waiting: VecDeque<(Requester, Origin, Work)>,
    last: Option<Origin>,
    done: Vec<(Requester, Worked)>,
}

impl Arithmetic {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests work. It is done at once if no separate thread does it, and refused if too much waits.
    pub(crate) fn ask(&self, requester: Requester, origin: Origin, work: Work) -> Option<Worked> {
        let mut state = self.lock();
        if !state.has_worker {
            drop(state);
            return Some(work.run());
        }
        let of_origin = state.waiting.iter().filter(|(_, other, _)| *other == origin).count();
        if of_origin >= OF_ORIGIN_MAX || state.waiting.len() >= MAX {
            return Some(None);
        }
        state.waiting.push_back((requester, origin, work));
        self.there_is_work.notify_one();
        None
    }

    /// Works for ever. `tell` is called after each request.
    pub(super) fn serve(&self, tell: impl Fn()) -> ! {
        self.lock().has_worker = true;
        loop {
            let (requester, work) = self.next();
            let worked = work.run();
            self.lock().done.push((requester, worked));
            tell();
        }
    }

    fn next(&self) -> (Requester, Work) {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            state = self.there_is_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // The first request of an origin other than the last one's; otherwise the first.
        let other = state.waiting.iter().position(|(_, origin, _)| state.last.as_ref() != Some(origin));
        let (requester, origin, work) = state.waiting.remove(other.unwrap_or(0)).expect("some work waits");
        state.last = Some(origin);
        (requester, work)
    }

    /// Takes the finished work of a thread's connections.
    pub(super) fn take_done(&self, thread: u64) -> Vec<(Requester, Worked)> {
        let mut state = self.lock();
        let (own, others) =
            std::mem::take(&mut state.done).into_iter().partition(|(requester, _)| requester.thread == thread);
        state.done = others;
        own
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, mpsc};

    use iotax_proto::nvme::auth::DhGroup;

    use super::*;

    fn work() -> Work {
        Work::public(DhGroup::Ffdhe2048, [7; 64])
    }

    fn requester(serial: u64) -> Requester {
        Requester { thread: serial % 2, conn: ConnId(0), serial }
    }

    fn ask(arithmetic: &Arithmetic, serial: u64, origin: u128) -> Option<Worked> {
        arithmetic.ask(requester(serial), Origin::Address(origin), work())
    }

    #[test]
    fn work_is_done_at_once_where_nobody_else_does_it() {
        let arithmetic = Arithmetic::default();
        assert_eq!(ask(&arithmetic, 1, 1), Some(work().run()));
    }

    #[test]
    fn who_asks_for_much_waits_behind_itself_and_is_refused_the_rest() {
        let arithmetic = Arc::new(Arithmetic::default());
        arithmetic.lock().has_worker = true;
        for serial in 0..OF_ORIGIN_MAX as u64 {
            assert_eq!(ask(&arithmetic, serial, 1), None);
        }
        assert_eq!(ask(&arithmetic, 90, 1), Some(None), "refused");
        assert_eq!(ask(&arithmetic, 91, 2), None, "others are not");
        let order: Vec<u64> = (0..4).map(|_| arithmetic.next().0.serial).collect();
        assert_eq!(order, [0, 91, 1, 2], "another's turn comes next");
    }

    #[test]
    fn a_thread_finds_what_was_done_for_it_and_no_other_does() {
        let arithmetic = Arc::new(Arithmetic::default());
        let (told, done) = mpsc::channel();
        let worker = Arc::clone(&arithmetic);
        std::thread::spawn(move || worker.serve(move || told.send(()).expect("somebody listens")));
        while !arithmetic.lock().has_worker {
            std::thread::yield_now();
        }
        assert_eq!((ask(&arithmetic, 2, 1), ask(&arithmetic, 3, 1)), (None, None));
        for _ in 0..2 {
            done.recv().expect("work is done");
        }
        assert_eq!(arithmetic.take_done(1), [(requester(3), work().run())]);
        assert_eq!(arithmetic.take_done(0), [(requester(2), work().run())]);
        assert!(arithmetic.take_done(0).is_empty());
    }
}

/// scripts/loom runs this: every order in which the threads can use the queue.
#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use iotax_proto::nvme::auth::DhGroup;
    use loom::thread;

    use super::*;

    #[test]
    fn a_sleeping_worker_hears_of_each_request() {
        loom::model(|| {
            let arithmetic = Arc::new(Arithmetic::default());
            arithmetic.lock().has_worker = true;
            let asking: Vec<_> = (0..2)
                .map(|serial| {
                    let arithmetic = Arc::clone(&arithmetic);
                    let requester = Requester { thread: 0, conn: ConnId(0), serial };
                    let work = Work::public(DhGroup::Ffdhe2048, [7; 64]);
                    thread::spawn(move || assert!(arithmetic.ask(requester, Origin::Address(1), work).is_none()))
                })
                .collect();
            let mut served = [arithmetic.next().0.serial, arithmetic.next().0.serial];
            served.sort_unstable();
            assert_eq!(served, [0, 1]);
            asking.into_iter().for_each(|each| each.join().unwrap());
        });
    }
}
