//! How a worker reaches its unit.

use std::net::SocketAddr;

use iotax_proto::{InitiatorEvents, Instant, Tag, Transmit, Violation};

use super::facts::Facts;
use crate::{
    failure::Failure,
    node::{DiskId, DiskOp},
    protocols::AnyInitiator,
};

/// A worker's own way to its unit: one connection, or none.
#[derive(Debug)]
pub struct Link {
    pub initiator: AnyInitiator,
    /// Where to connect to; `None` for a unit of this machine.
    pub to: Option<SocketAddr>,
}

impl Link {
    /// What the connection itself found and agreed on.
    pub fn facts(&self) -> Facts {
        self.initiator.facts()
    }

    pub fn poll_disk(&mut self) -> Option<(Tag, DiskId, DiskOp)> {
        match &mut self.initiator {
            AnyInitiator::Disk(initiator) => initiator.poll_disk(),
            _ => None,
        }
    }

    pub fn disk_done(&mut self, now: Instant, tag: Tag, result: Result<u32, i32>, events: &mut dyn InitiatorEvents) {
        if let AnyInitiator::Disk(initiator) = &mut self.initiator {
            initiator.disk_done(now, tag, result, events);
        }
    }
}

/// What comes before the workers' own connections (a mount, a controller's admin queue), on one connection at a time.
pub trait Control {
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation>;
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation>;
    /// What to do next; asked after every call above, each answer given once.
    fn step(&mut self, now: Instant) -> ControlStep;
    /// Begins the orderly end, when the workers' connections are closed.
    fn close(&mut self, now: Instant);
    /// False while its connection, if there is one, is of no use.
    fn needs_connection(&self) -> bool;
    /// What it found and agreed on, once the links are open.
    fn facts(&self) -> Facts;
}

#[derive(Debug)]
pub enum ControlStep {
    Wait,
    /// Close the connection, if there is one, and go on at this address.
    Connect(SocketAddr),
    /// The workers may connect, each with its own link.
    Open(Vec<Link>),
    Failed(Failure),
    /// The end is done.
    Closed,
}
