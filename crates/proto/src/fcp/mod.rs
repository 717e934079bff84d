//! SCSI over Fibre Channel (FCP-4): the initiator's side, the target's side, and their information units.

pub mod decode;
pub mod initiator;
mod iu;
pub mod target_side;

pub use crate::fc::{Port, PortName, sequence::TransferReady};
pub use iu::{Command, function, response_code};
