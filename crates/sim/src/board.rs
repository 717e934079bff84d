//! State that all agents of a trial share: the registers, the findings, and the progress.

use std::{cell::RefCell, rc::Rc};

use crate::{fence::Fence, register::Register};

pub(crate) type SharedBoard = Rc<RefCell<Board>>;

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) register: Register,
    pub(crate) fence: Fence,
    /// A host registers as a whole, over any of its connections (NVMe).
    pub(crate) registers_hosts: bool,
    /// A canary: preemptions are reported as done but never sent.
    pub(crate) forgets_preemptions: bool,
    /// Violations, in the order in which they were found.
    pub(crate) findings: Vec<String>,
    pub(crate) phase: Phase,
    pub(crate) counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// With faults.
    Safety,
    /// Without faults: every client completes its commands, reads the whole volume and disconnects.
    Liveness,
}

/// Commands of all agents, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub submitted: u64,
    pub done: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Lost with their connection.
    pub lost: u64,
    /// Refused because of a reservation, or aborted by a client that preempted this one.
    pub fenced: u64,
    /// Preemptions of other clients.
    pub preempted: u64,
    pub connects: u64,
}

impl Board {
    pub(crate) fn new(sectors: usize, mixes: bool) -> SharedBoard {
        Rc::new(RefCell::new(Self {
            register: Register::new(sectors, mixes),
            fence: Fence::default(),
            registers_hosts: false,
            forgets_preemptions: false,
            findings: Vec::new(),
            phase: Phase::Safety,
            counts: Counts::default(),
        }))
    }

    pub(crate) fn find(&mut self, what: impl Into<String>) {
        self.findings.push(what.into());
    }
}
