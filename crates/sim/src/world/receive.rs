//! How much of a connection's data is received at once.

use super::Event;

/// As in the drivers (`crates/runtime/src/driver/port.rs`): little at first, so that replies leave before the rest is
/// received, and more if much has arrived.
const FIRST_BYTES: u64 = 32 << 10;
const STREAK_BYTES: u64 = 4 * FIRST_BYTES;
const MAX_BYTES: u64 = 128 << 10;

/// Consecutive receives from one connection.
#[derive(Default)]
pub(super) struct Receive {
    taken_bytes: u64,
    streak_bytes: u64,
}

impl Receive {
    /// Whether the next bytes belong to the same receive, before anything is answered.
    pub(super) fn goes_on(&mut self, event: &Event, next: Option<&Event>) -> bool {
        let (Some((end, bytes)), Some((next_end, next_bytes))) = (arrival(event), next.and_then(arrival)) else {
            *self = Self::default();
            return false;
        };
        if end != next_end {
            *self = Self::default();
            return false;
        }
        self.taken_bytes += bytes;
        self.streak_bytes += bytes;
        let limit_bytes = if self.streak_bytes < STREAK_BYTES { FIRST_BYTES } else { MAX_BYTES };
        let goes_on = self.taken_bytes + next_bytes <= limit_bytes;
        if !goes_on {
            self.taken_bytes = 0;
        }
        goes_on
    }
}

/// The end and connection of an arrival, and its number of bytes.
fn arrival(event: &Event) -> Option<((crate::link::PipeId, crate::link::Side), u64)> {
    match event {
        Event::Arrive { pipe, to, bytes } => Some(((*pipe, *to), u64::from(*bytes))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{PipeId, Side};

    fn piece(slot: u32, bytes: u32) -> Event {
        Event::Arrive { pipe: PipeId { slot, generation: 0 }, to: Side::Server, bytes }
    }

    /// The number of bytes in each receive.
    fn receives(events: &[Event]) -> Vec<u64> {
        let (mut receive, mut found) = (Receive::default(), vec![0]);
        for (at, event) in events.iter().enumerate() {
            *found.last_mut().unwrap() += arrival(event).map_or(0, |(_, bytes)| bytes);
            if !receive.goes_on(event, events.get(at + 1)) {
                found.push(0);
            }
        }
        found.pop();
        found
    }

    #[test]
    fn receives_grow_where_much_has_come() {
        let pieces: Vec<Event> = (0..12).map(|_| piece(1, 32 << 10)).collect();
        assert_eq!(receives(&pieces), [32, 32, 32, 128, 128, 32].map(|kib: u64| kib << 10));
    }

    #[test]
    fn small_pieces_are_received_together_and_those_of_another_connection_are_not() {
        assert_eq!(receives(&[piece(1, 100), piece(1, 200), piece(2, 300)]), [300, 300]);
        assert_eq!(receives(&[piece(1, 100), Event::Woken { host: 0 }, piece(1, 200)]), [100, 0, 200]);
    }
}
