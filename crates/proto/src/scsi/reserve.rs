//! The reservation commands RESERVE, RELEASE, PERSISTENT RESERVE IN and PERSISTENT RESERVE OUT (SPC-2 §7.21, SPC-5
//! §6.16 and §6.17).

use alloc::vec::Vec;

use super::{
    Next, Response,
    call::{Call, Handled, accepted, answer, good},
    device::{Audience, Lun, Ports, Purge},
    sense::{Fault, Sense},
};
use crate::{
    Endings,
    reservation::{Kind, Notice, Notices, Refusal, Reservations},
    wire::Reader,
};

/// Types of a persistent reservation (SPC-5 §6.16.3.4).
const KINDS: [u8; 6] = [1, 3, 5, 6, 7, 8];

/// Length of the basic parameter list of PERSISTENT RESERVE OUT. It is the only one, because SPEC_I_PT and REGISTER AND
/// MOVE are not supported.
const PARAMETER_LIST_LEN: u32 = 24;

/// A service action of PERSISTENT RESERVE OUT.
const PREEMPT_AND_ABORT: u8 = 5;

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Conflict => Self::RESERVATION_CONFLICT,
            Refusal::OtherKind => Sense::INVALID_RELEASE.into(),
            Refusal::ZeroKey => Sense::parameter_field(8, None).into(),
            Refusal::Full => Sense::INSUFFICIENT_REGISTRATION_RESOURCES.into(),
        }
    }
}

/// RESERVE (6) and (10) for the whole logical unit.
pub(crate) fn reserve(call: &mut Call<'_>) -> Handled {
    let id = call.nexus.id;
    change(call, |unit| {
        if unit.is_reserved_by_other(id) || !unit.reservations.registrants.is_empty() {
            return Err(Refusal::Conflict);
        }
        unit.reserved_by = Some(id);
        Ok(())
    })?;
    good()
}

/// RELEASE (6) and (10).
pub(crate) fn release(call: &mut Call<'_>) -> Handled {
    let id = call.nexus.id;
    change(call, |unit| {
        unit.release(id);
        Ok(())
    })?;
    good()
}

pub(crate) fn read_keys(call: &mut Call<'_>) -> Handled {
    read(call, |reservations| {
        let mut list = Vec::new();
        for registrant in &reservations.registrants {
            list.extend_from_slice(&registrant.key.to_be_bytes());
        }
        list
    })
}

pub(crate) fn read_reservation(call: &mut Call<'_>) -> Handled {
    read(call, |reservations| {
        let mut list = Vec::new();
        if let Some((key, kind)) = reservations.held() {
            list.extend_from_slice(&key.to_be_bytes());
            list.extend_from_slice(&[0, 0, 0, 0, 0, kind.code, 0, 0]);
        }
        list
    })
}

pub(crate) fn read_full_status(call: &mut Call<'_>) -> Handled {
    read(call, |reservations| {
        let mut list = Vec::new();
        for registrant in &reservations.registrants {
            let held = reservations.held().filter(|_| reservations.is_holder(&registrant.who));
            let transport_id = &registrant.who.initiator_id;
            list.extend_from_slice(&registrant.key.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
            list.extend_from_slice(&[u8::from(held.is_some()), held.map_or(0, |(_, kind)| kind.code), 0, 0, 0, 0]);
            list.extend_from_slice(&registrant.who.relative_target_port.to_be_bytes());
            list.extend_from_slice(&(transport_id.len() as u32).to_be_bytes());
            list.extend_from_slice(transport_id);
        }
        list
    })
}

/// PRGENERATION, ADDITIONAL LENGTH, then a list derived from the reservations.
fn read(call: &mut Call<'_>, list: impl FnOnce(&Reservations<Ports>) -> Vec<u8>) -> Handled {
    let id = call.nexus.id;
    let data = with_unit(call, |unit| {
        if unit.is_reserved_by_other(id) {
            return Err(Fault::RESERVATION_CONFLICT);
        }
        let list = list(&unit.reservations);
        let mut data = unit.reservations.generation.to_be_bytes().to_vec();
        data.extend_from_slice(&(list.len() as u32).to_be_bytes());
        data.extend_from_slice(&list);
        Ok(data)
    })?;
    answer(data, call.cdb.u16(7))
}

/// REPORT CAPABILITIES: compatible handling of RESERVE, specified initiator ports, all target ports and persistence
/// through power loss are not supported. TEST UNIT READY is allowed under every reservation. All six types are
/// supported.
pub(crate) fn report_capabilities(call: &mut Call<'_>) -> Handled {
    answer(alloc::vec![0, 8, 0x00, 0x90, 0xea, 0x01, 0, 0], call.cdb.u16(7))
}

/// PERSISTENT RESERVE OUT, all service actions: requests the parameter list.
pub(crate) fn out(call: &mut Call<'_>) -> Handled {
    if call.cdb.u32(5) != PARAMETER_LIST_LEN {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    call.collect(PARAMETER_LIST_LEN)
}

pub(crate) fn out_register(call: &mut Call<'_>, data: &[u8]) -> Handled {
    register(call, data, true)
}

pub(crate) fn out_register_and_ignore(call: &mut Call<'_>, data: &[u8]) -> Handled {
    register(call, data, false)
}

fn register(call: &mut Call<'_>, data: &[u8], is_key_checked: bool) -> Handled {
    let parameters = Parameters::parse(data, true)?;
    let (ports, origin) = (call.nexus.ports.clone(), call.nexus.origin.clone());
    let expected = is_key_checked.then_some(parameters.key);
    let notices = change_persistent(call, |reservations| {
        let existing = reservations.key_of(&ports);
        if expected.is_some_and(|expected| expected != existing.unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        match (existing, parameters.action_key) {
            (None, 0) => Ok(Notices::new()),
            (Some(_), 0) => Ok(reservations.unregister(&ports)),
            (_, key) => reservations.set_key((&ports, &origin), key).map(|()| Notices::new()),
        }
    })?;
    notify(call, notices);
    accepted(data.len())
}

pub(crate) fn out_reserve(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let (parameters, kind) = (Parameters::parse(data, false)?, kind(call)?);
    let ports = call.nexus.ports.clone();
    change_persistent(call, |reservations| reservations.acquire(&ports, parameters.key, kind))?;
    accepted(data.len())
}

pub(crate) fn out_release(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let (parameters, kind) = (Parameters::parse(data, false)?, kind(call)?);
    let ports = call.nexus.ports.clone();
    let notices = change_persistent(call, |reservations| reservations.release(&ports, parameters.key, kind))?;
    notify(call, notices);
    accepted(data.len())
}

pub(crate) fn out_clear(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let parameters = Parameters::parse(data, false)?;
    let ports = call.nexus.ports.clone();
    let notices = change_persistent(call, |reservations| reservations.clear(&ports, parameters.key))?;
    notify(call, notices);
    accepted(data.len())
}

/// PREEMPT and PREEMPT AND ABORT. The latter completes when the commands of the preempted nexuses have ended (SPC-5
/// §5.14.11.5).
pub(crate) fn out_preempt(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let (parameters, kind) = (Parameters::parse(data, false)?, kind(call)?);
    let ports = call.nexus.ports.clone();
    let notices = change_persistent(call, |reservations| {
        reservations.preempt(&ports, parameters.key, parameters.action_key, kind)
    })?;
    let mut endings = Endings::default();
    if call.cdb.u8(1) & 0x1f == PREEMPT_AND_ABORT {
        for (_, preempted) in notices.iter().filter(|(notice, _)| *notice == Notice::RegistrationPreempted) {
            endings.append(purge(call, preempted));
        }
    }
    notify(call, notices);
    Ok(Next::RespondAfter(endings, Response::accepted(data.len())))
}

/// The keys of a PERSISTENT RESERVE OUT parameter list.
struct Parameters {
    key: u64,
    action_key: u64,
}

impl Parameters {
    fn parse(data: &[u8], is_register: bool) -> Result<Self, Fault> {
        let mut reader = Reader::new(data);
        let short = |_| Fault::Check(Sense::PARAMETER_LIST_LENGTH_ERROR);
        let key = reader.u64_be().map_err(short)?;
        let action_key = reader.u64_be().map_err(short)?;
        reader.skip(4).map_err(short)?;
        // SPEC_I_PT, ALL_TG_PT and APTPL are not supported.
        let flags = reader.u8().map_err(short)?;
        for bit in [3, 2, 0] {
            if is_register && flags >> bit & 1 == 1 {
                return Err(Sense::parameter_field(20, Some(bit)).into());
            }
        }
        Ok(Self { key, action_key })
    }
}

/// Parses scope and type in the CDB. The only scope is the logical unit.
fn kind(call: &Call<'_>) -> Result<Kind, Fault> {
    if call.cdb.u8(2) >> 4 != 0 {
        return Err(Sense::cdb_field(2, Some(7)).into());
    }
    Kind::from_code(call.cdb.u8(2) & 0x0f, KINDS).ok_or(Fault::Check(Sense::cdb_field(2, Some(3))))
}

/// Changes the persistent reservations, unless another nexus holds the unit with RESERVE.
fn change_persistent<R>(
    call: &Call<'_>,
    change_it: impl FnOnce(&mut Reservations<Ports>) -> Result<R, Refusal>,
) -> Result<R, Fault> {
    let id = call.nexus.id;
    change(
        call,
        |unit| {
            if unit.is_reserved_by_other(id) { Err(Refusal::Conflict) } else { change_it(&mut unit.reservations) }
        },
    )
}

fn change<R>(call: &Call<'_>, change_it: impl FnOnce(&mut Lun) -> Result<R, Refusal>) -> Result<R, Fault> {
    let result = with_unit(call, |unit| change_it(unit).map_err(Fault::from));
    call.with_device(|device| device.touch());
    result
}

fn with_unit<R>(call: &Call<'_>, use_it: impl FnOnce(&mut Lun) -> Result<R, Fault>) -> Result<R, Fault> {
    let lun = call.unit()?.lun;
    call.with_device(|device| match device.lun(lun) {
        Some(unit) => use_it(unit),
        None => Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into()),
    })
}

/// Ends the commands of these nexuses on the logical unit.
fn purge(call: &Call<'_>, preempted: &[Ports]) -> Endings {
    let view = call.view.expect("a reservation is of a logical unit");
    let id = call.nexus.id;
    let purge = Purge { lun: view.lun, is_told: true };
    call.with_device(|device| device.purge(purge, Audience::Between(preempted, id)))
}

fn notify(call: &Call<'_>, notices: Notices<Ports>) {
    let view = call.view.expect("a reservation is of a logical unit");
    let id = call.nexus.id;
    for (notice, registrants) in notices {
        let sense = match notice {
            Notice::RegistrationPreempted => Sense::REGISTRATIONS_PREEMPTED,
            Notice::ReservationReleased => Sense::RESERVATIONS_RELEASED,
            Notice::ReservationPreempted => Sense::RESERVATIONS_PREEMPTED,
        };
        call.with_device(|device| device.attention(view.lun, sense, Audience::Between(&registrants, id)));
    }
}
