//! Asymmetric Namespace Access (NVMe base 2.1 §8.1.1): how a controller reaches its namespaces.

use super::Status;

/// The only ANA group of our subsystems. It contains all namespaces; each controller has its own state of it.
pub const GROUP: u32 = 1;
/// ANACAP: the states Optimized, Non-Optimized and Inaccessible are reported.
pub const CAPABILITIES: u8 = 1 | 1 << 1 | 1 << 2;

/// The state of an ANA group, as one controller sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnaState {
    #[default]
    Optimized = 0x1,
    NonOptimized = 0x2,
    Inaccessible = 0x3,
    PersistentLoss = 0x4,
    /// Between two other states.
    Change = 0xf,
}

impl AnaState {
    /// `None` if the value is reserved.
    pub fn parse(value: u8) -> Option<Self> {
        [Self::Optimized, Self::NonOptimized, Self::Inaccessible, Self::PersistentLoss, Self::Change]
            .into_iter()
            .find(|state| *state as u8 == value)
    }

    /// The status with which a controller refuses commands for namespaces in this state; `None`: it executes them.
    /// It aborts those that are submitted while it is in the state (NVMe base 2.1 §8.1.1.6 to §8.1.1.8). Do Not Retry is
    /// clear, because another controller may execute them (§4.2.3.4).
    pub fn refusal(self) -> Option<Status> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::Inaccessible => Some(Status::ACCESS_INACCESSIBLE),
            Self::PersistentLoss => Some(Status::ACCESS_PERSISTENT_LOSS),
            Self::Change => Some(Status::ACCESS_TRANSITION),
        }
    }
}

/// The state that a port's controllers report, and how often it has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortAccess {
    pub state: AnaState,
    pub changes: u64,
}
