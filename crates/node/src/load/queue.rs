//! Queues of a host that its loads share: at each LUN and at the adapter a limited number of commands is outstanding;
//! the others wait in order of arrival. One thread owns all queues, in virtual time.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use iotax_proto::Instant;

/// Maximum number of outstanding commands; `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Number of LUNs over which workers are distributed, at least one.
    pub luns: u32,
    pub of_lun: Option<u32>,
    pub of_adapter: Option<u32>,
}

impl Depths {
    pub fn has_end(self) -> bool {
        self.of_lun.is_some() || self.of_adapter.is_some()
    }
}

/// The queues of one host.
#[derive(Clone, Debug)]
pub struct HostQueue(Rc<RefCell<State>>);

/// A load's access to the queues of its host.
#[derive(Clone, Debug)]
pub struct QueuePlace {
    queue: HostQueue,
    load: usize,
    lun: usize,
}

/// Occupied queue places × time: a queue of depth n that was full for a second adds n seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuesUsed {
    pub luns_ns: u64,
    pub adapter_ns: u64,
}

#[derive(Debug)]
struct State {
    luns: Vec<Queue>,
    adapter: Queue,
    loads: Vec<Load>,
    /// Numbers of loads that may continue although nothing arrived for them.
    to_wake: Rc<RefCell<Vec<usize>>>,
}

#[derive(Debug)]
struct Queue {
    /// `None`: unlimited.
    depth: Option<u32>,
    used: u32,
    waiting: VecDeque<Waiter>,
    used_ns: u64,
    changed_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    load: usize,
    worker: u32,
}

#[derive(Debug)]
struct Load {
    /// The number by which it is woken.
    number: usize,
    /// Workers that may each submit one more of their waiting commands.
    granted: VecDeque<u32>,
}

impl HostQueue {
    /// Numbers of loads to wake are added to the list `to_wake`.
    pub fn new(depths: Depths, to_wake: Rc<RefCell<Vec<usize>>>) -> Self {
        let luns = (0..depths.luns.max(1)).map(|_| Queue::new(depths.of_lun)).collect();
        Self(Rc::new(RefCell::new(State { luns, adapter: Queue::new(depths.of_adapter), loads: Vec::new(), to_wake })))
    }

    /// Adds a load that is woken by `number`. Its worker i uses LUN `first_worker + i`, modulo the number of LUNs.
    pub fn join(&self, number: usize, first_worker: u32) -> QueuePlace {
        let mut state = self.0.borrow_mut();
        state.loads.push(Load { number, granted: VecDeque::new() });
        QueuePlace { queue: self.clone(), load: state.loads.len() - 1, lun: first_worker as usize }
    }

    /// Use of the queues until now.
    pub fn used(&self, now: Instant) -> QueuesUsed {
        let state = &mut *self.0.borrow_mut();
        let mut used = QueuesUsed { luns_ns: 0, adapter_ns: state.adapter.used_until(now) };
        for lun in &mut state.luns {
            used.luns_ns += lun.used_until(now);
        }
        used
    }
}

impl QueuePlace {
    /// Whether a worker may submit now; otherwise `take_granted` returns it when its turn comes.
    #[cold]
    pub(super) fn ask(&self, now: Instant, worker: u32) -> bool {
        let state = &mut *self.queue.0.borrow_mut();
        let lun = (self.lun + worker as usize) % state.luns.len();
        let waiter = Waiter { load: self.load, worker };
        state.luns[lun].enter(now, waiter) && state.adapter.enter(now, waiter)
    }

    /// A worker's command has ended: the longest waiting command may proceed.
    #[cold]
    pub(super) fn release(&self, now: Instant, worker: u32) {
        let state = &mut *self.queue.0.borrow_mut();
        let lun = (self.lun + worker as usize) % state.luns.len();
        if let Some(next) = state.adapter.leave(now) {
            state.grant(next, self.load);
        }
        if let Some(next) = state.luns[lun].leave(now)
            && state.adapter.enter(now, next)
        {
            state.grant(next, self.load);
        }
    }

    /// A worker that may submit one of its waiting commands.
    pub(super) fn take_granted(&self) -> Option<u32> {
        self.queue.0.borrow_mut().loads[self.load].granted.pop_front()
    }
}

impl State {
    fn grant(&mut self, to: Waiter, by: usize) {
        let load = &mut self.loads[to.load];
        load.granted.push_back(to.worker);
        if to.load != by {
            self.to_wake.borrow_mut().push(load.number);
        }
    }
}

impl Queue {
    fn new(depth: Option<u32>) -> Self {
        Self { depth, used: 0, waiting: VecDeque::new(), used_ns: 0, changed_at: Instant(0) }
    }

    /// Whether there was a free place; otherwise the command waits.
    fn enter(&mut self, now: Instant, waiter: Waiter) -> bool {
        if self.depth.is_some_and(|depth| self.used >= depth) {
            self.waiting.push_back(waiter);
            return false;
        }
        self.used_until(now);
        self.used += 1;
        true
    }

    /// The command that gets the place, if any waits.
    fn leave(&mut self, now: Instant) -> Option<Waiter> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.used_until(now);
            self.used -= 1;
        }
        next
    }

    fn used_until(&mut self, now: Instant) -> u64 {
        // One thread's time may be ahead of another's.
        self.used_ns += u64::from(self.used) * now.0.saturating_sub(self.changed_at.0);
        self.changed_at = self.changed_at.max(now);
        self.used_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(of_lun: Option<u32>, of_adapter: Option<u32>, luns: u32) -> (HostQueue, Rc<RefCell<Vec<usize>>>) {
        let to_wake = Rc::new(RefCell::new(Vec::new()));
        (HostQueue::new(Depths { luns, of_lun, of_adapter }, Rc::clone(&to_wake)), to_wake)
    }

    #[test]
    fn command_beyond_the_depth_waits_for_one_that_ends_and_its_load_is_woken() {
        let (queue, to_wake) = queue(Some(2), None, 1);
        let (one, other) = (queue.join(7, 0), queue.join(8, 0));
        assert!(one.ask(Instant(0), 0) && one.ask(Instant(0), 1));
        assert!(!other.ask(Instant(10), 3));
        assert!(!one.ask(Instant(20), 0));
        one.release(Instant(100), 1);
        assert_eq!((to_wake.take(), other.take_granted(), other.take_granted()), (vec![8], Some(3), None));
        one.release(Instant(100), 0);
        assert_eq!((to_wake.take(), one.take_granted()), (vec![], Some(0)));
        assert_eq!(queue.used(Instant(200)), QueuesUsed { luns_ns: 400, adapter_ns: 400 });
    }

    #[test]
    fn workers_are_at_several_luns_and_all_at_one_adapter() {
        let (queue, _) = queue(Some(1), Some(2), 3);
        let load = queue.join(0, 1);
        assert!(load.ask(Instant(0), 0) && load.ask(Instant(0), 1));
        // The third LUN is free but the adapter is full; the first LUN is full.
        assert!(!load.ask(Instant(0), 2) && !load.ask(Instant(0), 3));
        load.release(Instant(5), 1);
        assert_eq!((load.take_granted(), load.take_granted()), (Some(2), None));
        load.release(Instant(6), 0);
        assert_eq!((load.take_granted(), load.take_granted()), (Some(3), None));
    }
}
