//! What a thread's connections may keep in all for peers that ask and do not read.
//!
//! Each connection stops taking requests at iotax_proto's `Transmit::ROOM`. Beyond `KEPT_MAX` in all, each has only `SHARE_BYTES` of room, and
//! those that keep more must be read from, or close. What is counted of a connection is what there was when something last
//! happened to it: never less than there is now, since a driver only sends in between.

use std::time::Duration;

use iotax_proto::{Instant, Transmit};

/// Bytes kept for all connections of a thread from which on room is short.
pub(super) const KEPT_MAX: usize = 256 << 20;
/// Room of a connection where room is short, and what its peer must read of more than that in `READ_TIME`.
const SHARE_BYTES: usize = 64 << 10;
pub(super) const READ_TIME: Duration = Duration::from_secs(2);
/// How often all connections are counted anew where room is short.
const COUNT_INTERVAL: Duration = Duration::from_millis(5);

/// Of all connections of a thread.
#[derive(Debug, Default)]
pub(super) struct Room {
    kept_bytes: usize,
    /// When to count again: set while room is short.
    pub(super) count_at: Option<Instant>,
}

/// What `Room` knows of one connection.
#[derive(Debug, Default)]
pub(super) struct Share {
    kept_bytes: usize,
    /// Since when it has to be read from, and what was kept then.
    watched: Option<(Instant, usize)>,
}

impl Room {
    /// Something happened to a connection.
    #[inline]
    pub(super) fn update(&mut self, now: Instant, share: &mut Share, kept_bytes: usize) {
        if kept_bytes == share.kept_bytes {
            return;
        }
        self.kept_bytes = self.kept_bytes + kept_bytes - share.kept_bytes;
        share.kept_bytes = kept_bytes;
        if self.kept_bytes > KEPT_MAX && self.count_at.is_none() {
            self.count_at = Some(now);
        }
    }

    pub(super) fn forget(&mut self, share: &Share) {
        self.kept_bytes -= share.kept_bytes;
    }

    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.count_at.is_some()
    }

    /// What a connection has now.
    #[inline]
    pub(super) fn of_connection(&self) -> usize {
        if self.is_short() { SHARE_BYTES } else { Transmit::ROOM }
    }

    /// All connections were counted.
    pub(super) fn counted(&mut self, now: Instant) {
        self.count_at = (self.kept_bytes > KEPT_MAX).then(|| now + COUNT_INTERVAL);
    }
}

impl Share {
    /// Whether the peer reads what there is no room for. To be asked at each count while room is short.
    pub(super) fn is_read(&mut self, now: Instant) -> bool {
        if self.kept_bytes <= SHARE_BYTES {
            self.watched = None;
            return true;
        }
        let (since, then) = *self.watched.get_or_insert((now, self.kept_bytes));
        let is_read = self.kept_bytes + SHARE_BYTES <= then;
        if is_read {
            self.watched = Some((now, self.kept_bytes));
        }
        is_read || now.since(since) < READ_TIME
    }

    pub(super) fn is_fine(&mut self) {
        self.watched = None;
    }
}
