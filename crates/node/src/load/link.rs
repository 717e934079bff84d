//! How a worker reaches its unit.

use std::net::SocketAddr;

use iotax_proto::{Initiator, InitiatorEvents, Instant, Tag, Transmit, Violation, iscsi, nfs3, nvme_tcp};

use super::{
    facts::{self, Facts},
    local::{DiskInitiator, MemoryInitiator},
};
use crate::{
    failure::Failure,
    node::{DiskId, DiskOp},
};

/// A worker's own way to its unit: one connection, or none.
#[derive(Debug)]
pub struct Link {
    pub initiator: AnyInitiator,
    /// Where to connect to; `None` for a unit of this machine.
    pub to: Option<SocketAddr>,
}

pub enum AnyInitiator {
    Nfs(Box<nfs3::initiator::Mount>),
    Iscsi(Box<iscsi::initiator::Session>),
    Nvme(Box<nvme_tcp::IoQueue>),
    Memory(MemoryInitiator),
    Disk(DiskInitiator),
}

impl AnyInitiator {
    pub fn get(&mut self) -> &mut dyn Initiator {
        match self {
            Self::Nfs(initiator) => initiator.as_mut(),
            Self::Iscsi(initiator) => initiator.as_mut(),
            Self::Nvme(initiator) => initiator.as_mut(),
            Self::Memory(initiator) => initiator,
            Self::Disk(initiator) => initiator,
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Nfs(initiator) => initiator.poll_timeout(),
            Self::Iscsi(initiator) => initiator.poll_timeout(),
            Self::Nvme(initiator) => initiator.poll_timeout(),
            Self::Memory(initiator) => initiator.poll_timeout(),
            Self::Disk(initiator) => initiator.poll_timeout(),
        }
    }
}

impl Link {
    /// What the connection itself found and agreed on.
    pub fn facts(&self) -> Facts {
        match &self.initiator {
            AnyInitiator::Iscsi(session) => facts::of_session(session),
            AnyInitiator::Nfs(mount) => facts::of_mount(mount),
            _ => Facts::default(),
        }
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

impl std::fmt::Debug for AnyInitiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nfs(_) => "Nfs",
            Self::Iscsi(_) => "Iscsi",
            Self::Nvme(_) => "Nvme",
            Self::Memory(_) => "Memory",
            Self::Disk(_) => "Disk",
        })
    }
}

/// What comes before the workers' own connections (a mount, a controller's admin queue), on one connection at a time.
pub trait Control {
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Violation>;
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation>;
    /// What to do next; asked after every call above, each answer given once.
    fn step(&mut self, now: Instant) -> Step;
    /// Begins the orderly end, when the workers' connections are closed.
    fn close(&mut self, now: Instant);
    /// False while its connection, if there is one, is of no use.
    fn needs_connection(&self) -> bool;
    /// What it found and agreed on, once the links are open.
    fn facts(&self) -> Facts;
}

#[derive(Debug)]
pub enum Step {
    Wait,
    /// Close the connection, if there is one, and go on at this address.
    Connect(SocketAddr),
    /// The workers may connect, each with its own link.
    Open(Vec<Link>),
    Failed(Failure),
    /// The end is done.
    Closed,
}
