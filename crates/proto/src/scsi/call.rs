//! A command on its way to its handler, and the rows of the command table.

use alloc::vec::Vec;

use super::{
    Next, Response,
    cdb::{Cdb, cdb_len},
    device::Device,
    lun::LunView,
    nexus::Nexus,
    sense::{Fault, Sense},
};
use crate::Backend;

/// A handler's result.
pub(crate) type Handled = Result<Next, Fault>;

/// A command in progress.
pub(crate) struct Call<'a> {
    pub(crate) nexus: &'a mut Nexus,
    /// The LUN field of the command.
    pub(crate) lun: u64,
    pub(crate) cdb: Cdb<'a>,
    /// `None` if there is no such logical unit.
    pub(crate) view: Option<LunView>,
    pub(crate) data_out_len: u32,
    pub(crate) backend: &'a dyn Backend,
    /// The command table of the device server.
    pub(crate) commands: &'static Commands,
}

impl Call<'_> {
    /// Makes the checks that are common to all commands: logical unit, reserved bits of the CDB, unit attentions,
    /// access, reservations.
    #[inline]
    pub(crate) fn admit(&mut self, entry: &Entry) -> Result<(), Fault> {
        if self.view.is_none() && !entry.always {
            return Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into());
        }
        entry.check_reserved_bits(self.cdb)?;
        let Some(view) = self.view else { return Ok(()) };
        if view.attention && !entry.always {
            let id = self.nexus.id;
            if let Some(sense) = self.with_device(|device| device.take_attention(id, view.lun)) {
                return Err(sense.into());
            }
        }
        let is_barred = match entry.class {
            Class::Always => false,
            Class::Free => view.is_shut(),
            Class::Ready => view.barred.ready,
            Class::Reads => view.barred.reads,
            Class::Changes => view.barred.changes,
        };
        if is_barred { Err(view.why_barred()) } else { Ok(()) }
    }

    /// Returns the logical unit. Only handlers of commands that work without one need this check.
    pub(crate) fn unit(&self) -> Result<LunView, Fault> {
        self.view.ok_or(Fault::Check(Sense::LOGICAL_UNIT_NOT_SUPPORTED))
    }

    pub(crate) fn with_device<R>(&self, use_it: impl FnOnce(&mut Device) -> R) -> R {
        self.nexus.with_device(use_it)
    }

    /// Requests a parameter list of `len` bytes. A length of 0 is not an error (SPC-5 §4.2.5.5), but an initiator must
    /// send the whole list.
    pub(crate) fn collect(&self, len: u32) -> Handled {
        if len == 0 {
            good()
        } else if len > self.data_out_len {
            Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into())
        } else {
            Ok(Next::Parameters { len })
        }
    }
}

pub(crate) type Run = fn(&mut Call<'_>) -> Handled;
pub(crate) type RunParameters = fn(&mut Call<'_>, &[u8]) -> Handled;

/// How reservations of other nexuses affect a command (SPC-5 §5.14.1, SBC-4 §4.17; RESERVE: SPC-2 §5.5.1), and whether
/// it is executed through a target port without access (SPC-4 §5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Executed even without access.
    Always,
    /// Blocked by no reservation, or the handler checks reservations itself.
    Free,
    /// Blocked only by RESERVE.
    Ready,
    /// Blocked by RESERVE and by exclusive access.
    Reads,
    /// Blocked by every reservation.
    Changes,
}

/// One command that the device server supports.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) usage: Usage,
    pub(crate) has_service_action: bool,
    pub(crate) class: Class,
    pub(crate) run: Run,
    /// Runs when the parameter data that `run` requested have arrived.
    pub(crate) parameters: Option<RunParameters>,
    /// Executed even without a logical unit, and while a unit attention condition is pending (SPC-5 §4.4.8).
    pub(crate) always: bool,
    pub(crate) needs: Needs,
}

/// Properties of a logical unit that a command requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Thin,
    Erasable,
    /// Target port groups.
    Asymmetric,
}

const SERVICE_ACTION: u8 = 0x1f;

/// CDB usage data (SPC-5 §6.34.3): the operation code, the service action if there is one, and a 1 for each bit of a
/// field that is evaluated. All other bits are reserved or not supported, and must be 0.
pub(crate) struct Usage {
    pub(crate) bytes: [u8; 16],
    pub(crate) len: usize,
}

impl Entry {
    pub(crate) fn opcode(&self) -> u8 {
        self.usage.bytes[0]
    }

    pub(crate) fn service_action(&self) -> u16 {
        if self.has_service_action { (self.usage.bytes[1] & SERVICE_ACTION).into() } else { 0 }
    }

    pub(crate) fn usage(&self) -> &[u8] {
        &self.usage.bytes[..self.usage.len]
    }

    fn is_available(&self, view: Option<&LunView>) -> bool {
        view.is_none_or(|view| match self.needs {
            Needs::Nothing => true,
            Needs::Thin => view.is_thin(),
            Needs::Erasable => view.erasable,
            Needs::Asymmetric => view.access.is_some(),
        })
    }

    /// Rejects a CDB in which a bit is set that the command does not use. The sense data point at that bit.
    pub(crate) fn check_reserved_bits(&self, cdb: Cdb<'_>) -> Result<(), Fault> {
        for (at, usage) in self.usage().iter().enumerate().skip(1) {
            let usage = if at == 1 && self.has_service_action { usage | SERVICE_ACTION } else { *usage };
            let reserved = cdb.u8(at) & !usage;
            if reserved != 0 {
                return Err(Sense::cdb_field(at as u16, Some(reserved.ilog2() as u8)).into());
            }
        }
        Ok(())
    }
}

/// The table of all commands.
pub(crate) struct Commands {
    /// Sorted by operation code, then service action.
    pub(crate) rows: &'static [Entry],
    /// First row of each operation code; `u8::MAX` if there is none.
    pub(crate) first: &'static [u8; 256],
}

impl Commands {
    /// The rows of an operation code that a logical unit supports: one, or one per service action.
    pub(crate) fn rows_of(&self, opcode: u8, view: Option<&LunView>) -> impl Iterator<Item = &'static Entry> {
        let rows = self.rows.get(usize::from(self.first[usize::from(opcode)])..).unwrap_or(&[]);
        rows.iter().take_while(move |row| row.opcode() == opcode).filter(move |row| row.is_available(view))
    }

    /// All rows that a logical unit supports.
    pub(crate) fn all(&self, view: Option<&LunView>) -> impl Iterator<Item = &'static Entry> {
        self.rows.iter().filter(move |row| row.is_available(view))
    }

    /// The row for a CDB.
    pub(crate) fn find(&self, cdb: &[u8], view: Option<&LunView>) -> Result<&'static Entry, Fault> {
        let opcode = *cdb.first().ok_or(Sense::INVALID_OPCODE)?;
        let mut rows = self.rows_of(opcode, view).peekable();
        if rows.peek().is_none() {
            return Err(Sense::INVALID_OPCODE.into());
        }
        if cdb_len(opcode).is_some_and(|len| cdb.len() < len) {
            return Err(Sense::INVALID_FIELD_IN_CDB.into());
        }
        let action = u16::from(Cdb(cdb).u8(1) & SERVICE_ACTION);
        rows.find(|row| !row.has_service_action || row.service_action() == action)
            .ok_or(Fault::Check(Sense::cdb_field(1, Some(4))))
    }
}

/// GOOD without data.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn good() -> Handled {
    Ok(Next::Respond(Response::good()))
}

/// GOOD after a parameter list of `len` bytes.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn accepted(len: usize) -> Handled {
    Ok(Next::Respond(Response::accepted(len)))
}

/// GOOD with data, truncated to the allocation length.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn answer(bytes: Vec<u8>, allocation_len: impl Into<u32>) -> Handled {
    Ok(Next::Respond(Response::data(bytes, allocation_len.into())))
}
