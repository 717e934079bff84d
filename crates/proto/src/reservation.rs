//! Reservations that outlive a connection: the registrants of a unit, and which of them holds its reservation. SCSI's
//! persistent reservations (SPC-5 §5.14) and NVMe's (NVMe base 2.0 §8.19) differ only in their codes and in who
//! registers. Persistence through power loss is not supported, so nothing here outlives the process.

use alloc::{vec, vec::Vec};

use crate::{Origin, Shares};

/// Maximum registrants of a unit, in total and per origin.
pub(crate) const REGISTRANTS: Shares = Shares { all: 256, of_origin: 64 };

/// Types of a reservation. SCSI and NVMe have the same types with different codes (SPC-5 §6.16.3.4, NVMe base 2.1
/// §7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The code in its protocol.
    pub(crate) code: u8,
    /// Blocks reads too, not only writes.
    pub(crate) exclusive_access: bool,
    /// Does not block registrants.
    pub(crate) spares_registrants: bool,
    /// Held by every registrant.
    pub(crate) held_by_all: bool,
}

impl Kind {
    /// `codes` are the codes of Write Exclusive and Exclusive Access: first the plain types, then those for registrants
    /// only, then those for all registrants.
    pub(crate) fn from_code(code: u8, codes: [u8; 6]) -> Option<Self> {
        let at = codes.iter().position(|known| *known == code)?;
        Some(Self { code, exclusive_access: at % 2 == 1, spares_registrants: at >= 2, held_by_all: at >= 4 })
    }
}

/// The commands that an initiator or host may not send, because of the reservations of others or without access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Barred {
    /// All commands except those that are always allowed. Among reservations, only SCSI's RESERVE does this.
    pub(crate) ready: bool,
    pub(crate) reads: bool,
    pub(crate) changes: bool,
}

impl Barred {
    pub(crate) const ALL: Self = Self { ready: true, reads: true, changes: true };
}

/// Why a reservation command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Conflict,
    /// The type to release is not the type that is held.
    OtherKind,
    /// 0 is not a valid key, and no registrant has it.
    ZeroKey,
    /// The maximum of registrants is reached.
    Full,
}

/// Notices to registrants about actions of others. The numbers are those of NVMe's Reservation Notification log page
/// (NVMe base 2.0 §8.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    RegistrationPreempted = 1,
    ReservationReleased = 2,
    ReservationPreempted = 3,
}

/// Notices and their receivers. The one that caused a notice does not get it.
pub(crate) type Notices<Who> = Vec<(Notice, Vec<Who>)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant<Who> {
    pub(crate) who: Who,
    pub(crate) key: u64,
    /// The origin against whose limit the registration counts. It stays when its session or connection ends.
    origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held<Who> {
    kind: Kind,
    /// The registrant that acquired it. With `held_by_all`, every registrant holds it.
    by: Who,
}

/// Registrants and reservation of one logical unit or namespace. `Who` is what registers: an I_T nexus or a host.
#[derive(Debug)]
pub(crate) struct Reservations<Who> {
    pub(crate) registrants: Vec<Registrant<Who>>,
    held: Option<Held<Who>>,
    /// Rises with every change of the registrants.
    pub(crate) generation: u32,
}

impl<Who> Default for Reservations<Who> {
    fn default() -> Self {
        Self { registrants: Vec::new(), held: None, generation: 0 }
    }
}

impl<Who: Clone + PartialEq> Reservations<Who> {
    pub(crate) fn barred(&self, who: &Who) -> Barred {
        let is_barred = |held: &Held<Who>| {
            let is_spared = held.kind.spares_registrants && self.key_of(who).is_some();
            !is_spared && !self.is_holder(who)
        };
        match &self.held {
            Some(held) if is_barred(held) => Barred { ready: false, reads: held.kind.exclusive_access, changes: true },
            _ => Barred::default(),
        }
    }

    pub(crate) fn key_of(&self, who: &Who) -> Option<u64> {
        self.registrants.iter().find(|registrant| registrant.who == *who).map(|registrant| registrant.key)
    }

    pub(crate) fn is_holder(&self, who: &Who) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| if held.kind.held_by_all { self.key_of(who).is_some() } else { held.by == *who })
    }

    /// Key and type of the reservation; the key is 0 if all registrants hold it.
    pub(crate) fn held(&self) -> Option<(u64, Kind)> {
        let held = self.held.as_ref()?;
        let key = if held.kind.held_by_all { 0 } else { self.key_of(&held.by).unwrap_or(0) };
        Some((key, held.kind))
    }

    pub(crate) fn check_key(&self, who: &Who, key: u64) -> Result<(), Refusal> {
        if self.key_of(who) == Some(key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// Registers, or changes the key of a registrant. The protocol checks whether that is allowed.
    pub(crate) fn set_key(&mut self, (who, origin): (&Who, &Origin), key: u64) -> Result<(), Refusal> {
        if key == 0 {
            return Err(Refusal::ZeroKey);
        }
        if let Some(registrant) = self.registrants.iter_mut().find(|registrant| registrant.who == *who) {
            registrant.key = key;
        } else if self.has_room(origin) {
            self.registrants.push(Registrant { who: who.clone(), key, origin: origin.clone() });
        } else {
            return Err(Refusal::Full);
        }
        self.changed();
        Ok(())
    }

    /// Unregisters. If it was the holder, the reservation is released, unless other registrants hold it too (SPC-5
    /// §5.14.11.3).
    pub(crate) fn unregister(&mut self, who: &Who) -> Notices<Who> {
        let was_holder = self.is_holder(who);
        self.registrants.retain(|registrant| registrant.who != *who);
        self.changed();
        match self.held() {
            Some((_, kind)) if was_holder && (!kind.held_by_all || self.registrants.is_empty()) => {
                self.held = None;
                self.released(kind, who)
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn acquire(&mut self, who: &Who, key: u64, kind: Kind) -> Result<(), Refusal> {
        self.check_key(who, key)?;
        match &self.held {
            None => self.held = Some(Held { kind, by: who.clone() }),
            Some(held) if held.kind == kind && self.is_holder(who) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(())
    }

    /// Releases the reservation. Does nothing for a registrant that does not hold it.
    pub(crate) fn release(&mut self, who: &Who, key: u64, kind: Kind) -> Result<Notices<Who>, Refusal> {
        self.check_key(who, key)?;
        if !self.is_holder(who) {
            return Ok(Vec::new());
        }
        if self.held().is_some_and(|(_, held)| held != kind) {
            return Err(Refusal::OtherKind);
        }
        self.held = None;
        Ok(self.released(kind, who))
    }

    pub(crate) fn clear(&mut self, who: &Who, key: u64) -> Result<Notices<Who>, Refusal> {
        self.check_key(who, key)?;
        let others = self.others(who);
        self.registrants.clear();
        self.held = None;
        self.changed();
        Ok(vec![(Notice::ReservationPreempted, others)])
    }

    /// Removes the registrants with the key `victim`, and takes over the reservation if it was theirs (SPC-5
    /// §5.14.11.4).
    pub(crate) fn preempt(&mut self, who: &Who, key: u64, victim: u64, kind: Kind) -> Result<Notices<Who>, Refusal> {
        self.check_key(who, key)?;
        let held = self.held();
        let takes_all = victim == 0 && held.is_some_and(|(_, held)| held.held_by_all);
        if victim == 0 && !takes_all {
            return Err(Refusal::ZeroKey);
        }
        let takes_over = takes_all || held.is_some_and(|(key, held)| !held.held_by_all && key == victim);
        // The one that takes over the reservation stays registered, even if it has the victim's key.
        let is_victim = |registrant: &Registrant<Who>| {
            (takes_all || registrant.key == victim) && !(takes_over && registrant.who == *who)
        };
        let mut victims: Vec<Who> =
            self.registrants.extract_if(.., |each| is_victim(each)).map(|registrant| registrant.who).collect();
        if victims.is_empty() && !takes_over {
            return Err(Refusal::Conflict);
        }
        victims.retain(|victim| victim != who);
        let mut notices = vec![(Notice::RegistrationPreempted, victims)];
        if takes_over {
            self.held = Some(Held { kind, by: who.clone() });
            if held.is_some_and(|(_, held)| held != kind) {
                notices.push((Notice::ReservationReleased, self.others(who)));
            }
        } else if self.registrants.is_empty() {
            self.held = None;
        }
        self.changed();
        Ok(notices)
    }

    /// The notice to registrants when a reservation of that type is released.
    fn released(&self, kind: Kind, by: &Who) -> Notices<Who> {
        if kind.spares_registrants { vec![(Notice::ReservationReleased, self.others(by))] } else { Vec::new() }
    }

    fn others(&self, than: &Who) -> Vec<Who> {
        self.registrants.iter().map(|registrant| &registrant.who).filter(|who| *who != than).cloned().collect()
    }

    fn has_room(&self, origin: &Origin) -> bool {
        let of_origin = self.registrants.iter().filter(|registrant| registrant.origin == *origin).count();
        REGISTRANTS.has_room(self.registrants.len(), of_origin)
    }

    fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [u8; 6] = [1, 2, 3, 4, 5, 6];
    const ONE: u8 = 1;
    const OTHER: u8 = 2;
    const STRANGER: u8 = 3;
    const CONFLICT: Refusal = Refusal::Conflict;

    fn kind(code: u8) -> Kind {
        Kind::from_code(code, KINDS).expect("a type")
    }

    fn register(reservations: &mut Reservations<u8>, who: u8, key: u64) -> Result<(), Refusal> {
        reservations.set_key((&who, &Origin::Address(1)), key)
    }

    /// Two registrants with the keys 1 and 2.
    fn two() -> Reservations<u8> {
        let mut reservations = Reservations::default();
        register(&mut reservations, ONE, 1).expect("registers");
        register(&mut reservations, OTHER, 2).expect("registers");
        reservations
    }

    /// Like `two`, and the first registrant holds a reservation of the type `code`.
    fn held(code: u8) -> Reservations<u8> {
        let mut reservations = two();
        reservations.acquire(&ONE, 1, kind(code)).expect("free");
        reservations
    }

    #[test]
    fn each_type_bars_whom_it_says_from_what_it_says() {
        let none = Barred::default();
        let writes = Barred { changes: true, ..none };
        let all = Barred { reads: true, ..writes };
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
    fn registrants_are_limited_in_all_and_of_one_origin() {
        let mut reservations = Reservations::default();
        let mut register = |who: u16, origin: u128| reservations.set_key((&who, &Origin::Address(origin)), 1);
        assert!((0..64).all(|who| register(who, 1).is_ok()));
        assert_eq!(register(64, 1), Err(Refusal::Full), "the origin has its share");
        assert_eq!(register(0, 1), Ok(()), "a registrant registers again");
        assert!((64..=255).all(|who| register(who, who.into()).is_ok()));
        assert_eq!(register(256, 999), Err(Refusal::Full));
    }

    #[test]
    fn reservation_is_acquired_by_a_registrant_once_and_again_in_its_type() {
        let mut reservations = held(3);
        assert_eq!(reservations.acquire(&STRANGER, 3, kind(3)), Err(CONFLICT));
        assert_eq!(reservations.acquire(&ONE, 2, kind(3)), Err(CONFLICT), "not its key");
        assert_eq!(reservations.acquire(&OTHER, 2, kind(3)), Err(CONFLICT));
        assert_eq!(reservations.acquire(&ONE, 1, kind(4)), Err(CONFLICT));
        assert!(reservations.acquire(&ONE, 1, kind(3)).is_ok());
        assert!(held(5).acquire(&OTHER, 2, kind(5)).is_ok(), "all registrants hold it");
    }

    #[test]
    fn release_is_the_holders_and_of_its_type() {
        let mut reservations = held(3);
        assert_eq!(reservations.release(&OTHER, 2, kind(3)), Ok(vec![]));
        assert_eq!(reservations.release(&ONE, 1, kind(1)), Err(Refusal::OtherKind));
        assert_eq!(reservations.release(&ONE, 2, kind(3)), Err(CONFLICT));
        assert_eq!(reservations.release(&ONE, 1, kind(3)), Ok(vec![(Notice::ReservationReleased, vec![OTHER])]));
        assert_eq!(reservations.held(), None);
        assert_eq!(reservations.release(&ONE, 1, kind(3)), Ok(vec![]), "there is none");
        assert_eq!(held(1).release(&ONE, 1, kind(1)), Ok(vec![]), "others are barred as before");
    }

    #[test]
    fn holder_that_unregisters_releases_unless_all_hold() {
        let mut reservations = held(3);
        assert_eq!(reservations.unregister(&ONE), vec![(Notice::ReservationReleased, vec![OTHER])]);
        assert_eq!(reservations.held(), None);
        let mut reservations = held(5);
        assert_eq!(reservations.unregister(&ONE), vec![]);
        assert!(reservations.is_holder(&OTHER));
        assert_eq!(reservations.unregister(&OTHER), vec![(Notice::ReservationReleased, vec![])]);
        assert_eq!(reservations.held(), None);
    }

    #[test]
    fn clear_leaves_nothing_and_tells_the_others() {
        let mut reservations = held(6);
        assert_eq!(reservations.clear(&STRANGER, 0), Err(CONFLICT));
        assert_eq!(reservations.clear(&OTHER, 2), Ok(vec![(Notice::ReservationPreempted, vec![ONE])]));
        assert_eq!((reservations.registrants.len(), reservations.held()), (0, None));
    }

    #[test]
    fn preempting_the_holder_takes_the_reservation() {
        let mut reservations = held(3);
        register(&mut reservations, STRANGER, 3).expect("registers");
        let told = reservations.preempt(&OTHER, 2, 1, kind(1));
        let released = (Notice::ReservationReleased, vec![STRANGER]);
        assert_eq!(told, Ok(vec![(Notice::RegistrationPreempted, vec![ONE]), released]));
        assert!(reservations.is_holder(&OTHER) && reservations.held() == Some((2, kind(1))));
        assert_eq!(reservations.preempt(&ONE, 1, 2, kind(1)), Err(CONFLICT), "it is not a registrant any more");
        // Preempts its own reservation with another type.
        assert!(reservations.preempt(&OTHER, 2, 2, kind(2)).is_ok());
        assert!(reservations.is_holder(&OTHER) && reservations.held() == Some((2, kind(2))));
    }

    #[test]
    fn preempting_another_registrant_leaves_the_reservation() {
        let mut reservations = held(3);
        assert_eq!(reservations.preempt(&ONE, 1, 9, kind(3)), Err(CONFLICT), "nobody has that key");
        assert_eq!(reservations.preempt(&ONE, 1, 0, kind(3)), Err(Refusal::ZeroKey));
        let told = reservations.preempt(&ONE, 1, 2, kind(3));
        assert_eq!(told, Ok(vec![(Notice::RegistrationPreempted, vec![OTHER])]));
        assert!(reservations.is_holder(&ONE));
        let mut free = two();
        assert!(free.preempt(&ONE, 1, 2, kind(3)).is_ok());
        assert_eq!(free.held(), None, "there was none to take");
    }

    #[test]
    fn reservation_of_all_registrants_is_preempted_by_the_key_0() {
        let mut reservations = held(5);
        let told = reservations.preempt(&OTHER, 2, 0, kind(5));
        assert_eq!(told, Ok(vec![(Notice::RegistrationPreempted, vec![ONE])]));
        assert!(reservations.is_holder(&OTHER) && !reservations.is_holder(&ONE));
        let mut reservations = held(6);
        assert!(reservations.preempt(&OTHER, 2, 1, kind(3)).is_ok());
        assert_eq!(reservations.held(), Some((0, kind(6))), "one registrant less");
    }
}
