//! What a transport does for a controller's queue.

use crate::{
    Transmit,
    nvme::{CommandId, Cqe, fabrics::Data},
};

/// The connection that a queue answers on.
pub trait Transport {
    fn respond(&mut self, cqe: &Cqe);
    /// All data of a command for the host; where `is_success`, they complete it too.
    fn give(&mut self, cid: CommandId, is_success: bool, data: Data<'_>);
    /// Asks the host for all `len` bytes of a command's data; `slot` is what `Queue::solicited` knows them by.
    fn ask(&mut self, cid: CommandId, slot: u16, len: u32);
    /// Most bytes of data that a command's capsule may have from now on.
    fn set_max_command_data(&mut self, bytes: u32);
    fn transmit(&mut self) -> &mut Transmit;
}

/// Where data of the host go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Nowhere,
    /// To the backend, as data of the command in this slot.
    Backend(u16),
    /// To the queue itself.
    Queue(u16),
}
