//! What keeps initiators apart: RESERVE and RELEASE (SPC-2 §7.21) and persistent reservations (SPC-5 §5.14) of one logical
//! unit. Persistence through power loss is declined, so that nothing here outlives the process.

use alloc::vec::Vec;

use super::{
    ports::{NexusId, Ports},
    sense::Sense,
};
use crate::{Origin, Shares, reservation::Kind};

/// Most registrations of a logical unit, and of those of one origin; beyond it REGISTER answers INSUFFICIENT REGISTRATION RESOURCES.
pub(crate) const REGISTRATIONS: Shares = Shares { all: 256, of_origin: 64 };

/// What a nexus may not do because of reservations of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Barred {
    /// Anything but what is always allowed; only RESERVE does this.
    pub(crate) ready: bool,
    pub(crate) reads: bool,
    pub(crate) changes: bool,
}

/// Types of a persistent reservation (SPC-5 §6.16.3.4).
pub(crate) const KINDS: [u8; 6] = [1, 3, 5, 6, 7, 8];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) key: u64,
    pub(crate) ports: Ports,
    /// Who counts for it. It stays when its session ends.
    origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    kind: Kind,
    /// Who made it; with `held_by_all` any registrant holds it.
    by: Ports,
}

/// Reservations of one logical unit.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    reserve: Option<NexusId>,
    pub(crate) registrations: Vec<Registration>,
    held: Option<Held>,
    pub(crate) generation: u32,
}

/// Why a reservation command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Conflict,
    /// RELEASE names another scope or type than the one held.
    NotThatOne,
    ZeroKey,
    Full,
}

/// Unit attention condition that a reservation command establishes, and the registrants it is for.
pub(crate) type Notice = (Sense, Vec<Ports>);

impl Reservations {
    /// What `ports` may not do.
    pub(crate) fn barred(&self, id: NexusId, ports: &Ports) -> Barred {
        if self.reserve.is_some_and(|holder| holder != id) {
            return Barred { ready: true, reads: true, changes: true };
        }
        let is_barred = |held: &Held| {
            let is_spared = held.kind.spares_registrants && self.key_of(ports).is_some();
            !is_spared && !self.is_holder(ports)
        };
        match &self.held {
            Some(held) if is_barred(held) => Barred { ready: false, reads: held.kind.exclusive_access, changes: true },
            _ => Barred::default(),
        }
    }

    // ------------------------------------------------------------------------------------------- RESERVE and RELEASE

    pub(crate) fn reserve(&mut self, id: NexusId) -> Result<(), Refusal> {
        if self.reserve.is_some_and(|holder| holder != id) || !self.registrations.is_empty() {
            return Err(Refusal::Conflict);
        }
        self.reserve = Some(id);
        Ok(())
    }

    /// Does nothing where another holds the reservation (SPC-2 §7.21.2).
    pub(crate) fn release(&mut self, id: NexusId) {
        self.reserve = self.reserve.filter(|holder| *holder != id);
    }

    /// A reset undoes RESERVE; persistent reservations stay.
    pub(crate) fn reset(&mut self) {
        self.reserve = None;
    }

    pub(crate) fn reserved_by_other(&self, id: NexusId) -> bool {
        self.reserve.is_some_and(|holder| holder != id)
    }

    // --------------------------------------------------------------------------------------- persistent reservations

    pub(crate) fn key_of(&self, ports: &Ports) -> Option<u64> {
        self.registrations.iter().find(|registration| registration.ports == *ports).map(|registration| registration.key)
    }

    pub(crate) fn is_holder(&self, ports: &Ports) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| if held.kind.held_by_all { self.key_of(ports).is_some() } else { held.by == *ports })
    }

    /// Key and type of the reservation that is held; the key is 0 where all registrants hold it.
    pub(crate) fn held(&self) -> Option<(u64, Kind)> {
        let held = self.held.as_ref()?;
        let key = if held.kind.held_by_all { 0 } else { self.key_of(&held.by).unwrap_or(0) };
        Some((key, held.kind))
    }

    /// REGISTER where `expected` is given, else REGISTER AND IGNORE EXISTING KEY; a `key` of 0 unregisters.
    pub(crate) fn register(
        &mut self,
        (ports, origin): (&Ports, &Origin),
        expected: Option<u64>,
        key: u64,
    ) -> Result<Option<Notice>, Refusal> {
        let existing = self.key_of(ports);
        if expected.is_some_and(|expected| expected != existing.unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        let mut notice = None;
        match (existing, key) {
            (None, 0) => return Ok(None),
            (None, _) if !self.has_room(origin) => return Err(Refusal::Full),
            (None, _) => self.registrations.push(Registration { key, ports: ports.clone(), origin: origin.clone() }),
            (Some(_), 0) => notice = self.unregister(ports),
            (Some(_), _) => {
                let mut registrations = self.registrations.iter_mut();
                if let Some(registration) = registrations.find(|registration| registration.ports == *ports) {
                    registration.key = key;
                }
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notice)
    }

    fn has_room(&self, origin: &Origin) -> bool {
        let of_origin = self.registrations.iter().filter(|registration| registration.origin == *origin).count();
        REGISTRATIONS.has_room(self.registrations.len(), of_origin)
    }

    /// A holder that unregisters releases, unless other registrants hold the reservation as well (SPC-5 §5.14.11.3).
    fn unregister(&mut self, ports: &Ports) -> Option<Notice> {
        let was_holder = self.is_holder(ports);
        self.registrations.retain(|registration| registration.ports != *ports);
        let held = self.held.as_ref()?;
        if !was_holder || (held.kind.held_by_all && !self.registrations.is_empty()) {
            return None;
        }
        let notice = held.kind.spares_registrants.then(|| (Sense::RESERVATIONS_RELEASED, self.registrants()));
        self.held = None;
        notice
    }

    /// RESERVE of PERSISTENT RESERVE OUT.
    pub(crate) fn hold(&mut self, ports: &Ports, key: u64, kind: Kind) -> Result<(), Refusal> {
        self.check_key(ports, key)?;
        match &self.held {
            None => {
                self.held = Some(Held { kind, by: ports.clone() });
                Ok(())
            }
            Some(held) if held.kind == kind && self.is_holder(ports) => Ok(()),
            Some(_) => Err(Refusal::Conflict),
        }
    }

    /// RELEASE of PERSISTENT RESERVE OUT; from a registrant that does not hold the reservation it does nothing.
    pub(crate) fn let_go(&mut self, ports: &Ports, key: u64, kind: Kind) -> Result<Option<Notice>, Refusal> {
        self.check_key(ports, key)?;
        if !self.is_holder(ports) {
            return Ok(None);
        }
        if self.held.as_ref().is_some_and(|held| held.kind != kind) {
            return Err(Refusal::NotThatOne);
        }
        self.held = None;
        Ok(kind.spares_registrants.then(|| (Sense::RESERVATIONS_RELEASED, self.registrants())))
    }

    pub(crate) fn clear(&mut self, ports: &Ports, key: u64) -> Result<Option<Notice>, Refusal> {
        self.check_key(ports, key)?;
        let notice = (Sense::RESERVATIONS_PREEMPTED, self.registrants());
        self.registrations.clear();
        self.held = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(Some(notice))
    }

    /// PREEMPT (SPC-5 §5.14.11.4): removes the registrations with key `victim`, and takes the reservation where it was theirs.
    pub(crate) fn preempt(&mut self, ports: &Ports, key: u64, victim: u64, kind: Kind) -> Result<Vec<Notice>, Refusal> {
        self.check_key(ports, key)?;
        let held = self.held();
        let takes_all = victim == 0 && held.is_some_and(|(_, held)| held.held_by_all);
        if victim == 0 && !takes_all {
            return Err(Refusal::ZeroKey);
        }
        let takes_over = takes_all || held.is_some_and(|(key, held)| !held.held_by_all && key == victim);
        // Whoever takes the reservation over keeps its own registration, even under the victim's key.
        let is_victim = |registration: &Registration| {
            (takes_all || registration.key == victim) && !(takes_over && registration.ports == *ports)
        };
        let victims: Vec<Ports> =
            self.registrations.iter().filter(|at| is_victim(at)).map(|at| at.ports.clone()).collect();
        if victims.is_empty() && !takes_over {
            return Err(Refusal::Conflict);
        }
        self.registrations.retain(|registration| !is_victim(registration));
        let mut notices = alloc::vec![(Sense::REGISTRATIONS_PREEMPTED, victims)];
        if takes_over {
            self.held = Some(Held { kind, by: ports.clone() });
            if held.is_some_and(|(_, held)| held != kind) {
                notices.push((Sense::RESERVATIONS_RELEASED, self.registrants()));
            }
        } else if self.registrations.is_empty() {
            self.held = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    fn check_key(&self, ports: &Ports, key: u64) -> Result<(), Refusal> {
        if self.key_of(ports) == Some(key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    fn registrants(&self) -> Vec<Ports> {
        self.registrations.iter().map(|registration| registration.ports.clone()).collect()
    }
}
