//! Why a command ends without GOOD.

use super::sense::{Sense, status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Check(Sense),
    Status(u8),
}

impl Fault {
    pub(crate) const RESERVATION_CONFLICT: Self = Self::Status(status::RESERVATION_CONFLICT);
}

impl From<Sense> for Fault {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}
