//! Distinguishes the data of a tree's file from a volume, by the unit's number.

use iotax_proto::{UnitId, nfs::common::ExportId};

/// Set in the `UnitId` of every ordinary file; volumes have small numbers.
const TREE: u64 = 1 << 63;

/// The data of an ordinary file, as the `Backend` trait identifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeUnit {
    pub export: ExportId,
    pub number: u32,
}

impl From<TreeUnit> for UnitId {
    fn from(unit: TreeUnit) -> Self {
        assert!(unit.export < 1 << 31, "exports are numbered from zero up");
        Self(TREE | u64::from(unit.export) << 32 | u64::from(unit.number))
    }
}

impl TreeUnit {
    /// `None` for a volume.
    pub fn from_unit(unit: UnitId) -> Option<Self> {
        let export = (unit.0 & !TREE) >> 32;
        (unit.0 & TREE != 0).then_some(Self { export: export as ExportId, number: unit.0 as u32 })
    }
}
