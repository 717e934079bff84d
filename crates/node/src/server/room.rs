//! Limits the bytes that all connections of a thread hold for peers that send requests but do not read.
//!
//! Each connection stops taking requests at iotax_proto's `Transmit::ROOM`. Beyond `KEPT_MAX` in total, each has only
//! `SHARE_BYTES` of room, and the peers of those that hold more must read, or the connection is closed. The bytes of a
//! connection are counted at its last event. There are never more than counted, since a driver only sends in between.

use std::time::Duration;

use iotax_proto::{Instant, Transmit};

/// Room is short when all connections of a thread hold more than this.
pub(super) const KEPT_MAX: usize = 256 << 20;
/// Room of a connection while room is short, and how many bytes its peer must read in `READ_TIME` if it holds more.
const SHARE_BYTES: usize = 64 << 10;
pub(super) const READ_TIME: Duration = Duration::from_secs(2);
/// How often all connections are recounted while room is short.
const COUNT_INTERVAL: Duration = Duration::from_millis(5);

/// The room of all connections of a thread.
#[derive(Debug, Default)]
pub(super) struct Room {
    kept_bytes: usize,
    /// When to count again; set while room is short.
    pub(super) count_at: Option<Instant>,
}

/// The account of one connection.
#[derive(Debug, Default)]
pub(super) struct Share {
    kept_bytes: usize,
    /// Since when its peer has to read, and the bytes held then.
    watched: Option<(Instant, usize)>,
}

impl Room {
    /// Updates the account of a connection after an event.
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

    /// Room of each connection now.
    #[inline]
    pub(super) fn of_connection(&self) -> usize {
        if self.is_short() { SHARE_BYTES } else { Transmit::ROOM }
    }

    /// All connections have been recounted.
    pub(super) fn counted(&mut self, now: Instant) {
        self.count_at = (self.kept_bytes > KEPT_MAX).then(|| now + COUNT_INTERVAL);
    }
}

impl Share {
    /// Whether the peer reads what exceeds its room. To be called at each count while room is short.
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
