//! Who may write, by what clients were told of reservations of the kind that clusters fence with (Write Exclusive, Registrants Only;
//! SPC-5 §5.14, NVMe base 2.0 §8.19): registered members write, and who was preempted does not until it registers again. Knows
//! nothing of the code under test. Where what was asked may have been carried out in either order, nothing is sure.

use std::collections::BTreeMap;

use crate::register::HostConnection;

/// Who is registered. Over SCSI an initiator port: a client's host, and its worker. Over NVMe the host, and 0.
pub(crate) type Port = (usize, usize);

#[derive(Debug, Default)]
pub(crate) struct Fence {
    order: u64,
    /// Started so far.
    pub(crate) preemptions: u64,
    /// Since when somebody surely holds the reservation.
    held_since: Option<u64>,
    ports: BTreeMap<Port, Standing>,
    /// Commands about it that may still be carried out.
    under_way: BTreeMap<u64, Change>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Since when it surely is registered, or surely is not. Neither while that is not known.
    member_since: Option<u64>,
    fenced_since: Option<u64>,
    /// Until when a registration, or a preemption, that has ended may have been carried out.
    registered_until: u64,
    preempted_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Register(Port),
    Hold,
    /// All ports of a host.
    Preempt(usize),
}

#[derive(Clone, Copy, Debug)]
struct Change {
    what: What,
    lost: Option<HostConnection>,
}

impl Fence {
    pub(crate) fn begin_register(&mut self, port: Port) -> u64 {
        self.ports.entry(port).or_default().fenced_since = None;
        self.begin(What::Register(port))
    }

    pub(crate) fn begin_hold(&mut self) -> u64 {
        self.begin(What::Hold)
    }

    /// Of a host whose keys are all one.
    pub(crate) fn begin_preempt(&mut self, host: usize) -> u64 {
        self.preemptions += 1;
        for (_, standing) in self.ports_of(host) {
            standing.member_since = None;
        }
        self.begin(What::Preempt(host))
    }

    /// Carried out. The host whose commands have all ended, and whose later ones fail: all its ports were fenced.
    pub(crate) fn done(&mut self, id: u64) -> Option<usize> {
        let change = self.ended(id)?;
        let now = self.now();
        match change.what {
            What::Register(port) => {
                let preempts = self.is_under_way(What::Preempt(port.0));
                let standing = self.ports.entry(port).or_default();
                if !preempts && standing.preempted_until < id {
                    standing.member_since.get_or_insert(now);
                }
                None
            }
            What::Hold => {
                self.held_since.get_or_insert(now);
                None
            }
            What::Preempt(host) => {
                let registering: Vec<Port> = self.under_way.values().filter_map(Change::registers).collect();
                let mut all = self.held_since.is_some_and(|held| held < id);
                for (port, standing) in self.ports_of(host) {
                    if !registering.contains(port) && standing.registered_until < id {
                        standing.fenced_since.get_or_insert(now);
                    } else {
                        all = false;
                    }
                }
                all.then_some(host)
            }
        }
    }

    /// It will be carried out no more, and nobody knows whether it was.
    pub(crate) fn failed(&mut self, id: u64) {
        self.ended(id);
    }

    /// Nobody knows: it may still be carried out for as long as the server has that connection.
    pub(crate) fn lost(&mut self, id: u64, connection: HostConnection) {
        if let Some(change) = self.under_way.get_mut(&id) {
            change.lost = Some(connection);
        }
    }

    /// What was lost with these connections is carried out no more.
    pub(crate) fn over(&mut self, is_over: impl Fn(HostConnection) -> bool) {
        let over = self.under_way.iter().filter(|(_, change)| change.lost.is_some_and(&is_over));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ended(id);
        }
    }

    /// A server that crashed has forgotten all of it.
    pub(crate) fn server_crashed(&mut self) {
        self.held_since = None;
        self.ports.clear();
        self.under_way.clear();
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// Before a command that a member alone may do.
    pub(crate) fn now(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Such a command of a port, started then, completed.
    pub(crate) fn check_done(&self, port: Port, begun: u64) -> Result<(), String> {
        let Some(standing) = self.ports.get(&port) else { return Ok(()) };
        match (standing.fenced_since, self.held_since) {
            (Some(fenced), Some(held)) if fenced < begun && held < begun => {
                Err(format!("{port:?} was fenced at {fenced}, and did at {begun} what members alone may"))
            }
            _ => Ok(()),
        }
    }

    /// It was refused for a reservation.
    pub(crate) fn check_refused(&self, port: Port, begun: u64) -> Result<(), String> {
        match self.ports.get(&port).and_then(|standing| standing.member_since) {
            Some(member) if member < begun => {
                Err(format!("{port:?} is a member since {member}, and was refused at {begun}"))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, what: What) -> u64 {
        let id = self.now();
        self.under_way.insert(id, Change { what, lost: None });
        id
    }

    fn ended(&mut self, id: u64) -> Option<Change> {
        let change = self.under_way.remove(&id)?;
        let now = self.now();
        match change.what {
            What::Register(port) => self.ports.entry(port).or_default().registered_until = now,
            What::Hold => {}
            What::Preempt(host) => self.ports_of(host).for_each(|(_, standing)| standing.preempted_until = now),
        }
        Some(change)
    }

    fn is_under_way(&self, what: What) -> bool {
        self.under_way.values().any(|change| change.what == what)
    }

    fn ports_of(&mut self, host: usize) -> impl Iterator<Item = (&Port, &mut Standing)> {
        self.ports.iter_mut().filter(move |(port, _)| port.0 == host)
    }
}

impl Change {
    fn registers(&self) -> Option<Port> {
        match self.what {
            What::Register(port) => Some(port),
            What::Hold | What::Preempt(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Port = (1, 0);
    const OTHER: Port = (2, 0);

    fn cluster() -> Fence {
        let mut fence = Fence::default();
        for port in [ONE, OTHER] {
            let id = fence.begin_register(port);
            fence.done(id);
        }
        let id = fence.begin_hold();
        fence.done(id);
        fence
    }

    #[test]
    fn member_is_not_refused_and_who_was_fenced_does_nothing_until_it_registers() {
        let mut fence = cluster();
        let begun = fence.now();
        assert!(fence.check_done(ONE, begun).is_ok() && fence.check_refused(ONE, begun).is_err());
        let preempt = fence.begin_preempt(1);
        // In between either may be.
        assert!(fence.check_done(ONE, begun).is_ok() && fence.check_refused(ONE, begun).is_ok());
        assert_eq!(fence.done(preempt), Some(1));
        assert!(fence.check_done(ONE, begun).is_ok(), "it may have been done before");
        let begun = fence.now();
        assert!(fence.check_done(ONE, begun).is_err() && fence.check_refused(ONE, begun).is_ok());
        assert!(fence.check_refused(OTHER, begun).is_err());
        let again = fence.begin_register(ONE);
        assert!(fence.check_done(ONE, begun).is_ok());
        fence.done(again);
        let begun = fence.now();
        assert!(fence.check_refused(ONE, begun).is_err());
    }

    #[test]
    fn what_was_lost_may_still_be_done_until_its_connection_is_over() {
        let mut fence = cluster();
        let register = fence.begin_register(ONE);
        fence.lost(register, (1, 1));
        let preempt = fence.begin_preempt(1);
        assert_eq!(fence.done(preempt), None);
        let begun = fence.now();
        assert!(fence.check_done(ONE, begun).is_ok());
        fence.over(|connection| connection == (1, 1));
        let preempt = fence.begin_preempt(1);
        assert_eq!(fence.done(preempt), Some(1));
        let lost = fence.begin_preempt(2);
        fence.lost(lost, (1, 2));
        let register = fence.begin_register(OTHER);
        fence.done(register);
        let begun = fence.now();
        assert!(fence.check_refused(OTHER, begun).is_ok(), "the preemption may come after it");
    }

    #[test]
    fn registration_and_preemption_that_met_leave_nothing_sure() {
        // Whichever ended first.
        for register_ends_first in [true, false] {
            let mut fence = cluster();
            let preempt = fence.begin_preempt(1);
            let register = fence.begin_register(ONE);
            let (first, last) = if register_ends_first { (register, preempt) } else { (preempt, register) };
            assert_eq!((fence.done(first), fence.done(last)), (None, None));
            let begun = fence.now();
            assert!(fence.check_done(ONE, begun).is_ok() && fence.check_refused(ONE, begun).is_ok());
        }
    }

    #[test]
    fn lost_registration_that_ended_in_the_midst_of_a_preemption_may_have_come_after_it() {
        let mut fence = cluster();
        let register = fence.begin_register(ONE);
        fence.lost(register, (1, 1));
        let preempt = fence.begin_preempt(1);
        fence.over(|connection| connection == (1, 1));
        assert_eq!(fence.done(preempt), None);
        let begun = fence.now();
        assert!(fence.check_done(ONE, begun).is_ok());
    }
}
