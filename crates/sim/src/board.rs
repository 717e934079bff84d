//! What all agents of a trial share: the registers, what was found, how far they are.

use std::{cell::RefCell, rc::Rc};

use crate::{fence::Fence, register::Register};

pub(crate) type SharedBoard = Rc<RefCell<Board>>;

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) register: Register,
    pub(crate) fence: Fence,
    /// Who registers is a host, whichever of its connections it does it by (NVMe).
    pub(crate) registers_hosts: bool,
    /// A canary: preemptions are told as done, and never asked for.
    pub(crate) forgets_preemptions: bool,
    /// What must not be, in the order in which it was seen.
    pub(crate) findings: Vec<String>,
    pub(crate) phase: Phase,
    pub(crate) counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// With faults.
    Safety,
    /// Without: everybody ends what is to be done, looks at everything and leaves.
    Liveness,
}

/// Commands of all agents, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub submitted: u64,
    pub done: u64,
    /// Answered with an error.
    pub failed: u64,
    /// With their connection.
    pub lost: u64,
    /// Refused for a reservation, or ended by whoever preempted it.
    pub fenced: u64,
    /// Other clients that were preempted.
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
