//! NVMe over Fibre Channel (FC-NVMe-2): the initiator's side, the target's side, their information units and link
//! services.

pub mod decode;
pub mod initiator;
mod iu;
pub mod ls;
pub mod target_side;

pub use crate::fc::{Port, PortName, sequence::TransferReady};
pub use iu::{Command, Extended, RESPONSE_LEN, result};

/// Identifies an association; assigned by the target port (FC-NVMe-2, Create Association).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssociationId(pub u64);

/// Identifies a connection, i.e. a queue of an association's controller (FC-NVMe-2, Create I/O Connection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionId(pub u64);
