//! SCSI over Fibre Channel (FCP-4): the initiator's side, the target's side, their information units.

pub mod decode;
pub mod initiator;
mod iu;
pub mod target_side;

pub use crate::fc::{Port, PortName};
pub use iu::{Command, TransferReady, function, response_code};
