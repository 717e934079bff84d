//! The reservation commands Register, Acquire, Release and Report (NVMe base 2.1 §7.5 to §7.8): their encoding and
//! their effect on a subsystem.

use alloc::{string::String, vec, vec::Vec};

use super::{
    Sqe, Status, Subsystem,
    command::{CommandId, ControllerId, nvm},
    subsystem::HostId,
};
use crate::{
    Endings, Origin, Payload, Reserve,
    reservation::{Kind, Notices, Refusal, Reservations},
};

/// Reservation types, RTYPE (NVMe base 2.1 §7.5).
const KINDS: [u8; 6] = [1, 2, 3, 4, 5, 6];

/// Bytes of data that Register and Acquire take. Release takes half of them.
const KEYS_LEN: usize = 16;
/// Maximum bytes that a host may send for them: some hosts, such as Linux, also send two keys with Release.
pub const KEYS_LEN_MAX: u32 = 4096;

/// Lengths in Reservation Report with the extended data structure: its header, and one registrant.
const STATUS_LEN: usize = 64;
const REGISTRANT_LEN: usize = 64;
const EXTENDED_DATA_STRUCTURE: u32 = 1;

/// RESCAP: all six types, and Ignore Existing Key as since NVMe 1.3; no persistence through power loss.
pub const CAPABILITIES: u8 = 0b1111_1110;

const IGNORE_EXISTING_KEY: u32 = 1 << 3;
/// CPTPL of Register: persistence through power loss is unchanged, or off.
const PERSISTENCE_UNCHANGED: u32 = 0;
const PERSISTENCE_OFF: u32 = 2;

const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;
const REPLACE: u32 = 2;
const ACQUIRE: u32 = 0;
const PREEMPT: u32 = 1;
const PREEMPT_AND_ABORT: u32 = 2;
const RELEASE: u32 = 0;
const CLEAR: u32 = 1;

const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u32 = 3;

/// A parsed reservation command. `expected` is the key that must match; `None` means that no key is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Register { key: u64 },
    Unregister { expected: Option<u64> },
    Replace { expected: Option<u64>, key: u64 },
    Acquire { key: u64, kind: Kind },
    Preempt { key: u64, victim: u64, kind: Kind, aborts: bool },
    Release { key: u64, kind: Kind },
    Clear { key: u64 },
}

/// Bytes of data that the command takes, if it is Register, Acquire or Release.
pub fn keys_len(opcode: u8) -> Option<u32> {
    match opcode {
        nvm::RESERVATION_REGISTER | nvm::RESERVATION_ACQUIRE => Some(KEYS_LEN as u32),
        nvm::RESERVATION_RELEASE => Some(KEYS_LEN as u32 / 2),
        _ => None,
    }
}

impl Request {
    /// Parses a command. `data` is at least as long as `keys_len` says.
    fn parse(sqe: &Sqe, data: &[u8]) -> Result<Self, Status> {
        let key_at = |at: usize| data.get(at..at + 8).and_then(<[u8]>::first_chunk).map(|key| u64::from_le_bytes(*key));
        let key = key_at(0).ok_or(Status::INVALID_FIELD)?;
        let second = key_at(8);
        let dword = sqe.cdw(10);
        let (action, ignores_key) = (dword & 7, dword & IGNORE_EXISTING_KEY != 0);
        let kind = || Kind::from_code((dword >> 8) as u8, KINDS).ok_or(Status::INVALID_FIELD);
        let expected = (!ignores_key).then_some(key);
        match (sqe.opcode(), action, second) {
            (nvm::RESERVATION_REGISTER, _, _) if !matches!(dword >> 30, PERSISTENCE_UNCHANGED | PERSISTENCE_OFF) => {
                Err(Status::INVALID_FIELD)
            }
            (nvm::RESERVATION_REGISTER, REGISTER, Some(key)) => Ok(Self::Register { key }),
            (nvm::RESERVATION_REGISTER, UNREGISTER, _) => Ok(Self::Unregister { expected }),
            (nvm::RESERVATION_REGISTER, REPLACE, Some(key)) => Ok(Self::Replace { expected, key }),
            // Acquire and Release always check the key.
            (nvm::RESERVATION_ACQUIRE | nvm::RESERVATION_RELEASE, _, _) if ignores_key => Err(Status::INVALID_FIELD),
            (nvm::RESERVATION_ACQUIRE, ACQUIRE, _) => Ok(Self::Acquire { key, kind: kind()? }),
            (nvm::RESERVATION_ACQUIRE, PREEMPT | PREEMPT_AND_ABORT, Some(victim)) => {
                Ok(Self::Preempt { key, victim, kind: kind()?, aborts: action == PREEMPT_AND_ABORT })
            }
            (nvm::RESERVATION_RELEASE, RELEASE, _) => Ok(Self::Release { key, kind: kind()? }),
            (nvm::RESERVATION_RELEASE, CLEAR, _) => Ok(Self::Clear { key }),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

impl Subsystem {
    /// Executes a host's Register, Acquire or Release. When the returned endings are over, everything that it aborted
    /// has ended.
    pub(super) fn reserve(&mut self, host: HostId, sqe: &Sqe, data: &[u8]) -> Result<Endings, Status> {
        let request = Request::parse(sqe, data)?;
        // 0 does not identify a host: two hosts that send it are not the same (NVMe base 2.1 §5.1.25.1.28).
        if host == HostId::default() {
            return Err(Status::HOST_ID_INCONSISTENT);
        }
        let nsid = sqe.nsid();
        // If all controllers of the host have ended meanwhile, its origin is unknown.
        let origin = self.origin_of(&host).unwrap_or_else(|| Origin::Name(String::new()));
        let reservations = self.reservations(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        let notices = carry_out(reservations, (&host, &origin), request)?;
        let aborts = matches!(request, Request::Preempt { aborts: true, .. });
        Ok(self.reserved(nsid, &notices, aborts))
    }

    /// Returns the first `len` bytes of Reservation Report, padded with zeros.
    pub(super) fn report(&mut self, sqe: &Sqe, len: usize) -> Result<Vec<u8>, Status> {
        // Fabrics hosts have 128-bit identifiers, for which the shorter data structure has no space.
        if sqe.cdw(11) & EXTENDED_DATA_STRUCTURE == 0 {
            return Err(Status::HOST_ID_INCONSISTENT);
        }
        let reservations = self.reservations(sqe.nsid()).ok_or(Status::INVALID_NAMESPACE)?;
        let mut data = report(reservations);
        data.resize(len, 0);
        Ok(data)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Conflict => Self::RESERVATION_CONFLICT,
            Refusal::OtherKind | Refusal::ZeroKey => Self::INVALID_FIELD,
            Refusal::Full => Self::INTERNAL_ERROR,
        }
    }
}

fn carry_out(
    reservations: &mut Reservations<HostId>,
    (host, origin): (&HostId, &Origin),
    request: Request,
) -> Result<Notices<HostId>, Refusal> {
    let existing = reservations.key_of(host);
    match request {
        // Register fails for a registrant with another key. If no key is checked, Replace registers a host that is not
        // registered.
        Request::Register { key: wanted } if existing.is_some_and(|existing| existing != wanted) => {
            Err(Refusal::Conflict)
        }
        Request::Replace { expected, .. } if expected.is_some() && expected != existing => Err(Refusal::Conflict),
        Request::Register { key } | Request::Replace { key, .. } => {
            reservations.set_key((host, origin), key).map(|()| Notices::new())
        }
        Request::Unregister { expected } => match existing {
            Some(existing) if expected.is_none_or(|expected| expected == existing) => Ok(reservations.unregister(host)),
            _ => Err(Refusal::Conflict),
        },
        Request::Acquire { key, kind } => reservations.acquire(host, key, kind).map(|()| Notices::new()),
        Request::Preempt { key, victim, kind, .. } => reservations.preempt(host, key, victim, kind),
        // A wrong type is an error even from a registrant that does not hold the reservation.
        Request::Release { key, kind } => {
            reservations.check_key(host, key)?;
            if reservations.held().is_some_and(|(_, held)| held != kind) {
                return Err(Refusal::OtherKind);
            }
            reservations.release(host, key, kind)
        }
        Request::Clear { key } => reservations.clear(host, key),
    }
}

/// Encodes the Reservation Status Extended data structure: one entry per registrant. Controllers are dynamic, so
/// entries contain no controller ID.
fn report(reservations: &Reservations<HostId>) -> Vec<u8> {
    let mut data = vec![0; STATUS_LEN];
    data[..4].copy_from_slice(&reservations.generation.to_le_bytes());
    data[4] = reservations.held().map_or(0, |(_, kind)| kind.code);
    data[5..7].copy_from_slice(&(reservations.registrants.len() as u16).to_le_bytes());
    for registrant in &reservations.registrants {
        let mut entry = [0; REGISTRANT_LEN];
        entry[..2].copy_from_slice(&ControllerId::ANY.0.to_le_bytes());
        entry[2] = u8::from(reservations.is_holder(&registrant.who));
        entry[8..16].copy_from_slice(&registrant.key.to_le_bytes());
        entry[16..32].copy_from_slice(&registrant.who);
        data.extend_from_slice(&entry);
    }
    data
}

/// Encodes a host's `Reserve` as a command and its data. The type is Write Exclusive, Registrants Only.
#[cold]
#[inline(never)]
pub fn command(cid: CommandId, nsid: u32, reserve: Reserve) -> (Sqe, Payload) {
    let (opcode, action, kind, keys) = match reserve {
        Reserve::Register { key } => (nvm::RESERVATION_REGISTER, REGISTER, 0, [0, key]),
        Reserve::Hold { key } => (nvm::RESERVATION_ACQUIRE, ACQUIRE, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [key, 0]),
        Reserve::PreemptAndAbort { key, victim } => {
            (nvm::RESERVATION_ACQUIRE, PREEMPT_AND_ABORT, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [key, victim])
        }
    };
    let mut sqe = Sqe::new(opcode, cid, nsid);
    sqe.set_cdw(10, action | kind << 8);
    (sqe, Payload::from_vec(keys.iter().flat_map(|key| key.to_le_bytes()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(opcode: u8, dword: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode, CommandId(1), 1);
        sqe.set_cdw(10, dword);
        sqe
    }

    const ONE: (&HostId, &Origin) = (&[1; 16], &Origin::Address(1));
    const OTHER: (&HostId, &Origin) = (&[2; 16], &Origin::Address(1));

    #[test]
    fn key_is_checked_and_replaced_as_registers_action_says() {
        let mut reservations = Reservations::default();
        let mut ask = |host, request| carry_out(&mut reservations, host, request).map(drop);
        let register = |key| Request::Register { key };
        let replace = |expected, key| Request::Replace { expected, key };
        let unregister = |expected| Request::Unregister { expected };
        let conflict = Err(Refusal::Conflict);
        assert_eq!(ask(ONE, register(0)), Err(Refusal::ZeroKey));
        assert!(ask(ONE, register(1)).is_ok() && ask(ONE, register(1)).is_ok());
        assert_eq!(ask(ONE, register(7)), conflict);
        assert_eq!(ask(ONE, replace(Some(7), 8)), conflict);
        assert!(ask(ONE, replace(Some(1), 8)).is_ok() && ask(ONE, replace(None, 9)).is_ok());
        assert_eq!(ask(OTHER, replace(Some(0), 8)), conflict);
        assert!(ask(OTHER, replace(None, 8)).is_ok(), "its key is not looked at, so it need have none");
        assert_eq!(ask(ONE, unregister(Some(8))), conflict);
        assert!(ask(ONE, unregister(Some(9))).is_ok());
        assert_eq!(ask(ONE, unregister(None)), conflict);
        assert_eq!((reservations.registrants.len(), reservations.generation), (1, 6));
    }

    #[test]
    fn release_names_the_type_that_is_held_whoever_asks() {
        let mut reservations = Reservations::default();
        let mut ask = |host, request| carry_out(&mut reservations, host, request).map(drop);
        let kind = |code| Kind::from_code(code, KINDS).expect("a type");
        ask(ONE, Request::Register { key: 1 }).expect("registers");
        ask(OTHER, Request::Register { key: 2 }).expect("registers");
        ask(ONE, Request::Acquire { key: 1, kind: kind(3) }).expect("free");
        assert_eq!(ask(OTHER, Request::Release { key: 1, kind: kind(1) }), Err(Refusal::Conflict), "not its key");
        assert_eq!(ask(OTHER, Request::Release { key: 2, kind: kind(1) }), Err(Refusal::OtherKind));
        assert_eq!(ask(OTHER, Request::Release { key: 2, kind: kind(3) }), Ok(()));
        assert_eq!(reservations.held(), Some((1, kind(3))), "it does not hold it");
    }

    fn keys(first: u64, second: u64) -> Vec<u8> {
        [first.to_le_bytes(), second.to_le_bytes()].concat()
    }

    #[test]
    fn what_a_host_asks_for_is_what_the_controller_reads() {
        let kind = Kind::from_code(3, KINDS).expect("a type");
        for (reserve, request) in [
            (Reserve::Register { key: 7 }, Request::Register { key: 7 }),
            (Reserve::Hold { key: 7 }, Request::Acquire { key: 7, kind }),
            (
                Reserve::PreemptAndAbort { key: 7, victim: 9 },
                Request::Preempt { key: 7, victim: 9, kind, aborts: true },
            ),
        ] {
            let (sqe, data) = command(CommandId(1), 1, reserve);
            assert_eq!(keys_len(sqe.opcode()), Some(data.len() as u32));
            assert_eq!(Request::parse(&sqe, &data.to_vec()), Ok(request));
        }
    }

    #[test]
    fn fields_that_are_not_supported_are_refused() {
        let persists = 3 << 30;
        for (opcode, dword) in [
            (nvm::RESERVATION_REGISTER, persists),
            (nvm::RESERVATION_REGISTER, 1 << 30),
            (nvm::RESERVATION_REGISTER, 3),
            (nvm::RESERVATION_ACQUIRE, 1 << 8 | IGNORE_EXISTING_KEY),
            (nvm::RESERVATION_ACQUIRE, 0),
            (nvm::RESERVATION_ACQUIRE, 7 << 8),
            (nvm::RESERVATION_ACQUIRE, 1 << 8 | 3),
            (nvm::RESERVATION_RELEASE, 1 << 8 | IGNORE_EXISTING_KEY),
            (nvm::RESERVATION_RELEASE, 0),
            (nvm::RESERVATION_RELEASE, 1 << 8 | 2),
        ] {
            let parsed = Request::parse(&asked(opcode, dword), &keys(1, 2));
            assert_eq!(parsed, Err(Status::INVALID_FIELD), "{opcode:#x} {dword:#x}");
        }
        let persistence_off = 2 << 30;
        let parsed = Request::parse(&asked(nvm::RESERVATION_REGISTER, persistence_off), &keys(1, 2));
        assert_eq!(parsed, Ok(Request::Register { key: 2 }));
        assert_eq!(Request::parse(&asked(nvm::RESERVATION_REGISTER, 0), &[0; 8]), Err(Status::INVALID_FIELD));
        assert_eq!(Request::parse(&asked(nvm::RESERVATION_RELEASE, 1), &[0; 7]), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn report_has_an_entry_for_each_registrant() {
        let mut reservations = Reservations::default();
        carry_out(&mut reservations, ONE, Request::Register { key: 0x11 }).expect("registers");
        carry_out(&mut reservations, OTHER, Request::Register { key: 0x22 }).expect("registers");
        let kind = Kind::from_code(4, KINDS).expect("a type");
        carry_out(&mut reservations, OTHER, Request::Acquire { key: 0x22, kind }).expect("free");
        let data = report(&reservations);
        assert_eq!(data.len(), 64 + 2 * 64);
        assert_eq!(data[..10], [2, 0, 0, 0, 4, 2, 0, 0, 0, 0]);
        assert_eq!(data[64..67], [0xff, 0xff, 0]);
        assert_eq!((data[72], data[80]), (0x11, 1));
        assert_eq!((data[128 + 2], data[128 + 8], data[128 + 16]), (1, 0x22, 2));
    }
}
