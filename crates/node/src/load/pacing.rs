//! When the next I/O starts.
//!
//! Pacing says when an I/O was meant to start (`intended`); a worker submits it when a slot and the target's credit allow. In
//! a closed loop an I/O is meant to start when a slot is free, so that both are the same instant. An open loop differs only here: it
//! gives instants of its own, latency runs from them, and the worker asks `next_due` for its timer.

use iotax_proto::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Each completion starts the next I/O.
    Closed,
}

/// The pacing of one worker.
#[derive(Debug)]
pub struct Pacer {
    pacing: Pacing,
}

impl Pacer {
    pub fn new(pacing: Pacing) -> Self {
        Self { pacing }
    }

    /// When the next I/O was meant to start, if that is now or past; each call takes one.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        match self.pacing {
            Pacing::Closed => Some(now),
        }
    }

    /// When to ask again; `None` where only a completion starts the next I/O.
    pub fn next_due(&self) -> Option<Instant> {
        match self.pacing {
            Pacing::Closed => None,
        }
    }
}
