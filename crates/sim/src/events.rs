//! The event queue: ordered by time, and within an instant by the order in which events were decided.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use iotax_proto::Instant;

#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    sequence: u64,
    event: E,
}

impl<E> Events<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, event: E) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, event }));
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<E> Eq for Entry<E> {}

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
}
