//! What keeps hosts apart: registrations and the reservation of one namespace (NVMe base 2.0 §8.19). Persistence through power
//! loss is declined, so that nothing here outlives the process.

use alloc::{vec, vec::Vec};

use super::Status;
use crate::{Origin, Shares, reservation::Kind};

/// Most registrants of a namespace, and of those of one origin; beyond it Reservation Register fails with Internal Error.
pub const REGISTRANTS: Shares = Shares { all: 256, of_origin: 64 };

/// A host among those of a subsystem: whom reservations know, over whatever controllers and connections.
pub type HostId = [u8; 16];

/// What a host may not do because of a reservation of others (NVMe base 2.0 §8.19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Barred {
    pub(super) reads: bool,
    pub(super) changes: bool,
}

/// Types of a reservation, RTYPE (NVMe base 2.1 §7.5).
pub(super) const KINDS: [u8; 6] = [1, 2, 3, 4, 5, 6];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registrant {
    pub(super) host: HostId,
    pub(super) key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    kind: Kind,
    /// Who made it; with `held_by_all` any registrant holds it.
    by: HostId,
}

/// What hosts are told of what another did (NVMe base 2.0 §8.19, Reservation Notification log page).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    RegistrationPreempted = 1,
    ReservationReleased = 2,
    ReservationPreempted = 3,
}

/// Notices, and the hosts that they are for.
pub(super) type Notices = Vec<(Notice, Vec<HostId>)>;

/// Registrants and reservation of one namespace.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    pub(super) registrants: Vec<Registrant>,
    /// Who counts for each of them. They stay when their connections end.
    origins: Vec<(HostId, Origin)>,
    held: Option<Held>,
    /// GEN of Reservation Report.
    pub(super) generation: u32,
}

/// What a command is refused with.
const CONFLICT: Status = Status::RESERVATION_CONFLICT;

impl Reservations {
    /// What a host may not do.
    pub(super) fn barred(&self, host: &HostId) -> Barred {
        let is_barred = |held: &Held| {
            let is_spared = held.kind.spares_registrants && self.key_of(host).is_some();
            !is_spared && !self.is_holder(host)
        };
        match &self.held {
            Some(held) if is_barred(held) => Barred { reads: held.kind.exclusive_access, changes: true },
            _ => Barred::default(),
        }
    }

    pub(super) fn is_holder(&self, host: &HostId) -> bool {
        self.held.is_some_and(|held| if held.kind.held_by_all { self.key_of(host).is_some() } else { held.by == *host })
    }

    /// Type of the reservation that is held.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.held.map(|held| held.kind)
    }

    /// To be asked before a host registers. Fails where its origin has its share of the registrants.
    pub(super) fn admit(&mut self, host: HostId, origin: Origin) -> Result<(), Status> {
        let registrants = &self.registrants;
        self.origins.retain(|(known, _)| registrants.iter().any(|registrant| registrant.host == *known));
        if self.key_of(&host).is_some() {
            return Ok(());
        }
        let of_origin = self.origins.iter().filter(|(_, known)| *known == origin).count();
        if !REGISTRANTS.has_room(self.registrants.len(), of_origin) {
            return Err(Status::INTERNAL_ERROR);
        }
        self.origins.push((host, origin));
        Ok(())
    }

    /// RREGA 0: another key than the one that a host has is refused.
    pub(super) fn register(&mut self, host: HostId, key: u64) -> Result<Notices, Status> {
        if self.key_of(&host).is_some_and(|existing| existing != key) {
            return Err(CONFLICT);
        }
        self.set_key(host, key)
    }

    /// RREGA 2. Without an `expected` key (IEKEY) a host that is no registrant becomes one.
    pub(super) fn replace(&mut self, host: HostId, expected: Option<u64>, key: u64) -> Result<Notices, Status> {
        if expected.is_some() && self.key_of(&host) != expected {
            return Err(CONFLICT);
        }
        self.set_key(host, key)
    }

    fn set_key(&mut self, host: HostId, key: u64) -> Result<Notices, Status> {
        if key == 0 {
            return Err(Status::INVALID_FIELD);
        }
        match self.registrants.iter_mut().find(|registrant| registrant.host == host) {
            Some(registrant) => registrant.key = key,
            None => self.registrants.push(Registrant { host, key }),
        }
        self.changed();
        Ok(Vec::new())
    }

    /// RREGA 1. A holder that unregisters releases, unless other registrants hold the reservation as well.
    pub(super) fn unregister(&mut self, host: HostId, expected: Option<u64>) -> Result<Notices, Status> {
        match (self.key_of(&host), expected) {
            (Some(key), expected) if expected.is_none_or(|expected| expected == key) => {}
            _ => return Err(CONFLICT),
        }
        let was_holder = self.is_holder(&host);
        self.registrants.retain(|registrant| registrant.host != host);
        self.changed();
        match self.held {
            Some(held) if was_holder && (!held.kind.held_by_all || self.registrants.is_empty()) => {
                self.held = None;
                Ok(self.released(held.kind, &host))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// RACQA 0.
    pub(super) fn acquire(&mut self, host: HostId, key: u64, kind: Kind) -> Result<Notices, Status> {
        self.check_key(&host, key)?;
        match &self.held {
            None => self.held = Some(Held { kind, by: host }),
            Some(held) if held.kind == kind && self.is_holder(&host) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(Vec::new())
    }

    /// RRELA 0; from a registrant that does not hold the reservation it does nothing.
    pub(super) fn release(&mut self, host: HostId, key: u64, kind: Kind) -> Result<Notices, Status> {
        self.check_key(&host, key)?;
        match self.held {
            Some(held) if held.kind != kind => Err(Status::INVALID_FIELD),
            Some(_) if self.is_holder(&host) => {
                self.held = None;
                Ok(self.released(kind, &host))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// RRELA 1.
    pub(super) fn clear(&mut self, host: HostId, key: u64) -> Result<Notices, Status> {
        self.check_key(&host, key)?;
        let others = self.others(&host);
        self.registrants.clear();
        self.held = None;
        self.changed();
        Ok(vec![(Notice::ReservationPreempted, others)])
    }

    /// RACQA 1 and 2: removes the registrants with the key `victim`, and takes the reservation where it was theirs.
    pub(super) fn preempt(&mut self, host: HostId, key: u64, victim: u64, kind: Kind) -> Result<Notices, Status> {
        self.check_key(&host, key)?;
        let held = self.held;
        let takes_all = victim == 0 && held.is_some_and(|held| held.kind.held_by_all);
        if victim == 0 && !takes_all {
            return Err(Status::INVALID_FIELD);
        }
        let is_victims = |held: Held| !held.kind.held_by_all && self.key_of(&held.by) == Some(victim);
        let takes_over = takes_all || held.is_some_and(is_victims);
        // Whoever takes the reservation over keeps its own registration, even under the victim's key.
        let is_victim = |registrant: &Registrant| {
            (takes_all || registrant.key == victim) && !(takes_over && registrant.host == host)
        };
        let victims: Vec<HostId> =
            self.registrants.iter().filter(|each| is_victim(each)).map(|each| each.host).collect();
        if victims.is_empty() && !takes_over {
            return Err(CONFLICT);
        }
        self.registrants.retain(|registrant| !is_victim(registrant));
        let told = victims.into_iter().filter(|victim| *victim != host).collect();
        let mut notices = vec![(Notice::RegistrationPreempted, told)];
        if takes_over {
            self.held = Some(Held { kind, by: host });
            if held.is_some_and(|held| held.kind != kind) {
                notices.push((Notice::ReservationReleased, self.others(&host)));
            }
        } else if self.registrants.is_empty() {
            self.held = None;
        }
        self.changed();
        Ok(notices)
    }

    fn key_of(&self, host: &HostId) -> Option<u64> {
        self.registrants.iter().find(|registrant| registrant.host == *host).map(|registrant| registrant.key)
    }

    fn check_key(&self, host: &HostId, key: u64) -> Result<(), Status> {
        if self.key_of(host) == Some(key) { Ok(()) } else { Err(CONFLICT) }
    }

    /// What registrants hear where a reservation of that type is released.
    fn released(&self, kind: Kind, by: &HostId) -> Notices {
        if kind.spares_registrants { vec![(Notice::ReservationReleased, self.others(by))] } else { Vec::new() }
    }

    fn others(&self, than: &HostId) -> Vec<HostId> {
        self.registrants.iter().map(|registrant| registrant.host).filter(|host| host != than).collect()
    }

    fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: HostId = [1; 16];
    const OTHER: HostId = [2; 16];
    const STRANGER: HostId = [3; 16];

    fn kind(code: u8) -> Kind {
        Kind::from_code(code, KINDS).expect("a type")
    }

    /// Two registrants with the keys 1 and 2; the first holds.
    fn held(code: u8) -> Reservations {
        let mut reservations = Reservations::default();
        reservations.register(ONE, 1).expect("registers");
        reservations.register(OTHER, 2).expect("registers");
        reservations.acquire(ONE, 1, kind(code)).expect("free");
        reservations
    }

    #[test]
    fn each_type_bars_whom_it_says_from_what_it_says() {
        let none = Barred::default();
        let writes = Barred { reads: false, changes: true };
        let all = Barred { reads: true, changes: true };
        let table =
            [(1, writes, writes), (2, all, all), (3, none, writes), (4, none, all), (5, none, writes), (6, none, all)];
        for (code, registrant, stranger) in table {
            let reservations = held(code);
            let barred = [ONE, OTHER, STRANGER].map(|host| reservations.barred(&host));
            assert_eq!(barred, [none, registrant, stranger], "type {code}");
        }
        assert!(Kind::from_code(0, KINDS).is_none() && Kind::from_code(7, KINDS).is_none());
    }

    #[test]
    fn key_is_checked_and_replaced_as_registers_action_says() {
        let mut reservations = Reservations::default();
        assert_eq!(reservations.register(ONE, 0), Err(Status::INVALID_FIELD));
        assert!(reservations.register(ONE, 1).is_ok() && reservations.register(ONE, 1).is_ok());
        assert_eq!(reservations.register(ONE, 7), Err(CONFLICT));
        assert_eq!(reservations.replace(ONE, Some(7), 8), Err(CONFLICT));
        assert!(reservations.replace(ONE, Some(1), 8).is_ok() && reservations.replace(ONE, None, 9).is_ok());
        assert_eq!(reservations.replace(OTHER, Some(0), 8), Err(CONFLICT));
        assert!(reservations.replace(OTHER, None, 8).is_ok(), "its key is not looked at, so it need have none");
        assert_eq!(reservations.unregister(ONE, Some(8)), Err(CONFLICT));
        assert!(reservations.unregister(ONE, Some(9)).is_ok());
        assert_eq!(reservations.unregister(ONE, None), Err(CONFLICT));
        assert_eq!((reservations.registrants.len(), reservations.generation), (1, 6));
    }

    #[test]
    fn registrants_are_limited_in_all_and_of_one_origin() {
        let mut reservations = Reservations::default();
        let mut register = |host: u8, origin: u128| {
            let host = [host; 16];
            reservations.admit(host, Origin::Address(origin))?;
            reservations.register(host, 1).map(drop)
        };
        assert!((0..64).all(|host| register(host, 1).is_ok()));
        assert_eq!(register(64, 1), Err(Status::INTERNAL_ERROR), "the origin has its share");
        assert_eq!(register(0, 1), Ok(()), "a registrant registers again");
        assert!((64..=255).filter(|host| register(*host, u128::from(*host)).is_ok()).count() == 192);
        let full = [1; 15].iter().chain(&[2]).copied().collect::<Vec<u8>>();
        assert_eq!(reservations.admit(full.try_into().expect("16"), Origin::Address(999)), Err(Status::INTERNAL_ERROR));
    }

    #[test]
    fn reservation_is_acquired_by_a_registrant_once_and_again_in_its_type() {
        let mut reservations = held(3);
        assert_eq!(reservations.acquire(STRANGER, 3, kind(3)), Err(CONFLICT));
        assert_eq!(reservations.acquire(ONE, 2, kind(3)), Err(CONFLICT), "not its key");
        assert_eq!(reservations.acquire(OTHER, 2, kind(3)), Err(CONFLICT));
        assert_eq!(reservations.acquire(ONE, 1, kind(4)), Err(CONFLICT));
        assert!(reservations.acquire(ONE, 1, kind(3)).is_ok());
        assert!(held(5).acquire(OTHER, 2, kind(5)).is_ok(), "all registrants hold it");
    }

    #[test]
    fn release_is_the_holders_and_of_its_type() {
        let mut reservations = held(3);
        assert_eq!(reservations.release(OTHER, 2, kind(3)), Ok(vec![]));
        assert_eq!(reservations.release(ONE, 1, kind(1)), Err(Status::INVALID_FIELD));
        assert_eq!(reservations.release(ONE, 2, kind(3)), Err(CONFLICT));
        assert_eq!(reservations.release(ONE, 1, kind(3)), Ok(vec![(Notice::ReservationReleased, vec![OTHER])]));
        assert_eq!(reservations.kind(), None);
        assert_eq!(reservations.release(ONE, 1, kind(3)), Ok(vec![]), "there is none");
        assert_eq!(held(1).release(ONE, 1, kind(1)), Ok(vec![]), "others are barred as before");
    }

    #[test]
    fn holder_that_unregisters_releases_unless_all_hold() {
        let mut reservations = held(3);
        assert_eq!(reservations.unregister(ONE, Some(1)), Ok(vec![(Notice::ReservationReleased, vec![OTHER])]));
        assert_eq!(reservations.kind(), None);
        let mut reservations = held(5);
        assert_eq!(reservations.unregister(ONE, Some(1)), Ok(vec![]));
        assert!(reservations.is_holder(&OTHER));
        reservations.unregister(OTHER, Some(2)).expect("a registrant");
        assert_eq!(reservations.kind(), None);
    }

    #[test]
    fn clear_leaves_nothing_and_tells_the_others() {
        let mut reservations = held(6);
        assert_eq!(reservations.clear(STRANGER, 0), Err(CONFLICT));
        assert_eq!(reservations.clear(OTHER, 2), Ok(vec![(Notice::ReservationPreempted, vec![ONE])]));
        assert_eq!((reservations.registrants.len(), reservations.kind()), (0, None));
    }

    #[test]
    fn preempting_the_holder_takes_the_reservation() {
        let mut reservations = held(3);
        reservations.register(STRANGER, 3).expect("registers");
        let told = reservations.preempt(OTHER, 2, 1, kind(1));
        let released = (Notice::ReservationReleased, vec![STRANGER]);
        assert_eq!(told, Ok(vec![(Notice::RegistrationPreempted, vec![ONE]), released]));
        assert!(reservations.is_holder(&OTHER) && reservations.kind() == Some(kind(1)));
        assert_eq!(reservations.preempt(ONE, 1, 2, kind(1)), Err(CONFLICT), "it is no registrant any more");
        // Its own type anew.
        assert!(reservations.preempt(OTHER, 2, 2, kind(2)).is_ok());
        assert!(reservations.is_holder(&OTHER) && reservations.kind() == Some(kind(2)));
    }

    #[test]
    fn preempting_another_registrant_leaves_the_reservation() {
        let mut reservations = held(3);
        assert_eq!(reservations.preempt(ONE, 1, 9, kind(3)), Err(CONFLICT), "nobody has that key");
        assert_eq!(reservations.preempt(ONE, 1, 0, kind(3)), Err(Status::INVALID_FIELD));
        let told = reservations.preempt(ONE, 1, 2, kind(3));
        assert_eq!(told, Ok(vec![(Notice::RegistrationPreempted, vec![OTHER])]));
        assert!(reservations.is_holder(&ONE));
        let mut free = Reservations::default();
        free.register(ONE, 1).expect("registers");
        free.register(OTHER, 2).expect("registers");
        assert!(free.preempt(ONE, 1, 2, kind(3)).is_ok());
        assert_eq!(free.kind(), None, "there was none to take");
    }

    #[test]
    fn reservation_of_all_registrants_is_preempted_by_the_key_0() {
        let mut reservations = held(5);
        let told = reservations.preempt(OTHER, 2, 0, kind(5));
        assert_eq!(told, Ok(vec![(Notice::RegistrationPreempted, vec![ONE])]));
        assert!(reservations.is_holder(&OTHER) && !reservations.is_holder(&ONE));
        let mut reservations = held(6);
        assert!(reservations.preempt(OTHER, 2, 1, kind(3)).is_ok());
        assert_eq!(reservations.kind(), Some(kind(6)), "one registrant less");
    }
}
