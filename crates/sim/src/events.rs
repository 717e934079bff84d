//! The event queue: ordered by time, and within an instant by the order in which events were decided.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use iotax_proto::Instant;
use slab::Slab;

/// Bits of an event's place among those that wait, and of its number among all: 2^40 events are twelve days of work at a
/// million a second.
const PLACE_BITS: u32 = 24;
const NUMBER_BITS: u32 = 40;

/// Events within this time of the last one are sorted apart from the others. They are few, while each host may have
/// timers that are far ahead.
const SOON: Duration = Duration::from_millis(1);

/// Only short keys are sorted, because events are large: time, number, and place in `waiting`, from the high bits to the
/// low ones.
#[derive(Debug)]
pub(crate) struct Events<E> {
    soon: BinaryHeap<Reverse<u128>>,
    later: BinaryHeap<Reverse<u128>>,
    waiting: Slab<E>,
    count: u64,
    /// The time of the last event.
    last: Instant,
}

impl<E> Events<E> {
    pub(crate) fn new() -> Self {
        Self { soon: BinaryHeap::new(), later: BinaryHeap::new(), waiting: Slab::new(), count: 0, last: Instant(0) }
    }

    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.count += 1;
        let place = self.waiting.insert(event) as u64;
        assert!(self.count < 1 << NUMBER_BITS && place < 1 << PLACE_BITS, "more events than a key can number");
        let keys = if at < self.last + SOON { &mut self.soon } else { &mut self.later };
        keys.push(Reverse(u128::from(at.0) << 64 | u128::from(self.count << PLACE_BITS | place)));
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        // The least key is the greatest reversed one.
        self.soon.peek().max(self.later.peek()).map(|Reverse(key)| time_of(*key))
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, E)> {
        let keys = if self.soon.peek() > self.later.peek() { &mut self.soon } else { &mut self.later };
        let Reverse(key) = keys.pop()?;
        self.last = time_of(key);
        let place = key as usize & ((1 << PLACE_BITS) - 1);
        Some((self.last, self.waiting.remove(place)))
    }
}

fn time_of(key: u128) -> Instant {
    Instant((key >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_making() {
        let mut events = Events::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            events.push(Instant(at), event);
        }
        assert_eq!(events.next_at(), Some(Instant(1)));
        let order: String = std::iter::from_fn(|| events.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }

    #[test]
    fn events_far_ahead_come_in_order_with_those_that_are_made_later() {
        let mut events = Events::new();
        let far = Instant(0) + 2 * SOON;
        events.push(far, 'b');
        events.push(Instant(0) + SOON, 'a');
        assert_eq!(events.pop().map(|(_, event)| event), Some('a'));
        for (at, event) in [(far, 'c'), (far + SOON, 'd'), (far, 'c')] {
            events.push(at, event);
        }
        assert_eq!(events.next_at(), Some(far));
        let order: String = std::iter::from_fn(|| events.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "bccd");
    }
}
