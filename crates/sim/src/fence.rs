//! Which clients may write, derived from replies to reservation commands of the kind that clusters fence with (Write
//! Exclusive, Registrants Only; SPC-5 §5.14, NVMe base 2.0 §8.19). Registered members may write. A preempted client may
//! not until it registers again. Independent of the code under test. If two commands may have been carried out in
//! either order, nothing is certain.

use std::collections::BTreeMap;

use crate::register::HostConnection;

/// What is registered: over SCSI an initiator port (a client's host, and its worker), over NVMe a host (and 0).
pub(crate) type Port = (usize, usize);

#[derive(Debug, Default)]
pub(crate) struct Fence {
    order: u64,
    /// Preemptions started so far.
    pub(crate) preemptions: u64,
    /// Since when the reservation is certainly held.
    held_since: Option<u64>,
    ports: BTreeMap<Port, Standing>,
    /// Reservation commands that may still be carried out.
    under_way: BTreeMap<u64, Change>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Since when it is certainly registered, or certainly not. Both are `None` while that is unknown.
    member_since: Option<u64>,
    fenced_since: Option<u64>,
    /// Until when an ended registration, or an ended preemption, may have been carried out.
    registered_until: u64,
    preempted_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Register(Port),
    Hold,
    /// Preempts all ports of a host.
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

    /// Begins to preempt a host, all of whose ports have the same key.
    pub(crate) fn begin_preempt(&mut self, host: usize) -> u64 {
        self.preemptions += 1;
        for (_, standing) in self.ports_of(host) {
            standing.member_since = None;
        }
        self.begin(What::Preempt(host))
    }

    /// A command was carried out. Returns a host if all its ports were fenced: its earlier commands have ended, and
    /// later ones fail.
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

    /// A command failed. It will not be carried out any more, and whether it was is unknown.
    pub(crate) fn failed(&mut self, id: u64) {
        self.ended(id);
    }

    /// A command was lost with its connection: it may still be carried out as long as the server has that connection.
    pub(crate) fn lost(&mut self, id: u64, connection: HostConnection) {
        if let Some(change) = self.under_way.get_mut(&id) {
            change.lost = Some(connection);
        }
    }

    /// Commands that were lost with these connections are not carried out any more.
    pub(crate) fn over(&mut self, is_over: impl Fn(HostConnection) -> bool) {
        let over = self.under_way.iter().filter(|(_, change)| change.lost.is_some_and(&is_over));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ended(id);
        }
    }

    /// The server crashed and lost all registrations and reservations.
    pub(crate) fn server_crashed(&mut self) {
        self.held_since = None;
        self.ports.clear();
        self.under_way.clear();
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// To be called before a command that only members may execute.
    pub(crate) fn now(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Checks that this port could complete such a command, which it started at `begun`.
    pub(crate) fn check_done(&self, port: Port, begun: u64) -> Result<(), String> {
        let Some(standing) = self.ports.get(&port) else { return Ok(()) };
        match (standing.fenced_since, self.held_since) {
            (Some(fenced), Some(held)) if fenced < begun && held < begun => {
                Err(format!("{port:?} was fenced at {fenced}, and did at {begun} what members alone may"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that such a command could be refused because of a reservation.
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
        // In between, both results are possible.
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
        // Whichever of them ended first.
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
