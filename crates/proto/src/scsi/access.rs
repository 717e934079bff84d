//! Asymmetric logical unit access (SPC-4 §5.15): how the logical units can be accessed through a target port group. Only
//! the device changes the states (implicit access, TPGS 01b).

use super::sense::Sense;

/// A primary target port asymmetric access state, with its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessState {
    #[default]
    Optimized = 0x0,
    NonOptimized = 0x1,
    Standby = 0x2,
    Unavailable = 0x3,
    /// Some logical blocks are accessed better than others.
    BlockDependent = 0x4,
    Offline = 0xe,
    /// Between two other states.
    Transitioning = 0xf,
}

/// T_SUP, U_SUP, AN_SUP and AO_SUP: the states that the device has.
const SUPPORTED: u8 = 0x80 | 0x08 | 0x02 | 0x01;
/// STATUS CODE: the device itself changed the state.
const CHANGED_IMPLICITLY: u8 = 0x02;

impl AccessState {
    /// `None` if the value is reserved.
    pub fn parse(value: u8) -> Option<Self> {
        [
            Self::Optimized,
            Self::NonOptimized,
            Self::Standby,
            Self::Unavailable,
            Self::BlockDependent,
            Self::Offline,
            Self::Transitioning,
        ]
        .into_iter()
        .find(|state| *state as u8 == value)
    }

    /// Whether I/Os are executed.
    pub fn is_accessible(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized | Self::BlockDependent)
    }

    /// Why the device refuses most commands in this state; `None`: it executes all.
    ///
    /// # Panics
    /// If our device does not have this state.
    pub(crate) fn refusal(self) -> Option<Sense> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::Unavailable => Some(Sense::PORT_UNAVAILABLE),
            Self::Transitioning => Some(Sense::PORT_IN_TRANSITION),
            Self::Standby | Self::BlockDependent | Self::Offline => panic!("the device has no such state"),
        }
    }
}

/// A target port group. It contains the one target port whose relative identifier is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortGroup {
    pub(crate) number: u16,
    pub(crate) state: AccessState,
    pub(crate) is_changed: bool,
}

impl PortGroup {
    pub(crate) fn new(number: u16) -> Self {
        Self { number, state: AccessState::default(), is_changed: false }
    }

    /// Its target port group descriptor (SPC-4 §5.15).
    pub(crate) fn encode(self) -> [u8; 12] {
        let [high, low] = self.number.to_be_bytes();
        let status = if self.is_changed { CHANGED_IMPLICITLY } else { 0 };
        [self.state as u8, SUPPORTED, high, low, 0, status, 0, 1, 0, 0, high, low]
    }
}
