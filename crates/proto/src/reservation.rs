//! Types of a reservation, which SCSI and NVMe have alike and number otherwise (SPC-5 §6.16.3.4, NVMe base 2.1 §7.5).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// As its protocol numbers it.
    pub(crate) code: u8,
    /// Bars reads too, not only writes.
    pub(crate) exclusive_access: bool,
    /// Registrants are not barred.
    pub(crate) spares_registrants: bool,
    /// Every registrant holds it.
    pub(crate) held_by_all: bool,
}

impl Kind {
    /// `codes` are those of Write Exclusive and Exclusive Access, then of both for registrants only, then for all registrants.
    pub(crate) fn from_code(code: u8, codes: [u8; 6]) -> Option<Self> {
        let at = codes.iter().position(|known| *known == code)?;
        Some(Self { code, exclusive_access: at % 2 == 1, spares_registrants: at >= 2, held_by_all: at >= 4 })
    }
}
