//! NVMe over TCP, both sides (NVMe/TCP transport specification 1.1). See README.md in this folder.

pub mod decode;
pub mod initiator;
pub mod pdu;
mod receiver;
pub mod target_side;

pub use initiator::{AdminQueue, ConnectConfig, Discovery, IoQueue};
pub use target_side::{TargetConfig, TargetQueue};
