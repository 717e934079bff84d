//! The commands of the device server: one row a command, which says what runs it and which bits of its CDB may be set.
//! Dispatch and REPORT SUPPORTED OPERATION CODES both read it, so this is the place to add a command.

use super::{
    call::{Call, Fault, Handled},
    cdb::{Cdb, cdb_len},
    inquiry, medium,
    sense::Sense,
};

/// One command that the device server knows.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) service_action: Option<u16>,
    /// CDB usage data (SPC-5 §6.34.3): the operation code, then a 1 for each bit of a field that is looked at.
    /// A bit outside is reserved or not supported, and must be 0.
    pub(crate) usage: &'static [u8],
    pub(crate) run: fn(&mut Call<'_>) -> Handled,
    /// Runs when the parameter data that `run` asked for are there.
    pub(crate) parameters: Option<fn(&mut Call<'_>, &[u8]) -> Handled>,
    /// Answered where there is no logical unit.
    pub(crate) without_unit: bool,
    /// Answered while a unit attention condition is pending, which stays (SPC-5 §4.4.8).
    pub(crate) despite_attention: bool,
}

const fn entry(name: &'static str, usage: &'static [u8], run: fn(&mut Call<'_>) -> Handled) -> Entry {
    Entry { name, service_action: None, usage, run, parameters: None, without_unit: false, despite_attention: false }
}

impl Entry {
    const fn always(mut self) -> Self {
        self.without_unit = true;
        self.despite_attention = true;
        self
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// Refuses a CDB with a bit set that this command does not look at, pointing at it.
    pub(crate) fn check_reserved_bits(&self, cdb: Cdb<'_>) -> Result<(), Fault> {
        for (at, usage) in self.usage.iter().enumerate().skip(1) {
            let reserved = cdb.u8(at) & !usage;
            if reserved != 0 && !self.is_service_action(at, reserved) {
                return Err(Sense::cdb_field(at as u16, Some(7 - reserved.leading_zeros() as u8)).into());
            }
        }
        Ok(())
    }

    fn is_service_action(&self, at: usize, bits: u8) -> bool {
        self.service_action.is_some() && at == 1 && bits & !0x1f == 0
    }
}

/// Sorted by operation code, then service action.
pub(crate) static TABLE: &[Entry] = &[
    entry("INQUIRY", &[0x12, 0x01, 0xff, 0xff, 0xff, 0x00], inquiry::inquiry).always(),
    entry("READ(10)", &[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x00], medium::read),
    entry("WRITE(10)", &[0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x00, 0xff, 0xff, 0x00], medium::write),
    entry(
        "READ(16)",
        &[0x88, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00],
        medium::read,
    ),
    entry(
        "WRITE(16)",
        &[0x8a, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00],
        medium::write,
    ),
];

/// First row of each operation code in `TABLE`; `u8::MAX` where there is none.
static FIRST: [u8; 256] = {
    let mut first = [u8::MAX; 256];
    let mut at = TABLE.len();
    while at > 0 {
        at -= 1;
        first[TABLE[at].usage[0] as usize] = at as u8;
    }
    first
};

/// The rows of an operation code: one, or one for each service action.
pub(crate) fn rows(opcode: u8) -> &'static [Entry] {
    let rows = TABLE.get(usize::from(FIRST[usize::from(opcode)])..).unwrap_or(&[]);
    let count = rows.iter().take_while(|row| row.opcode() == opcode).count();
    &rows[..count]
}

/// The row that runs a CDB.
pub(crate) fn find(cdb: &[u8]) -> Result<&'static Entry, Fault> {
    let opcode = *cdb.first().ok_or(Fault::Check(Sense::INVALID_OPCODE))?;
    let rows = rows(opcode);
    if rows.is_empty() {
        return Err(Sense::INVALID_OPCODE.into());
    }
    if cdb_len(opcode).is_some_and(|len| cdb.len() < len) {
        return Err(Sense::INVALID_FIELD_IN_CDB.into());
    }
    let service_action = u16::from(Cdb(cdb).u8(1) & 0x1f);
    rows.iter()
        .find(|row| row.service_action.is_none_or(|wanted| wanted == service_action))
        .ok_or(Fault::Check(Sense::cdb_field(1, Some(4))))
}
