//! What every protocol needs of bytes: payloads that are named instead of copied, a queue of bytes to send, a cursor, digests, base64.
//! Knows no protocol.

pub mod base64;
pub mod digest;
pub mod payload;
pub mod printable;
pub mod reader;
pub mod transmit;

pub use payload::{HeapRegion, Payload, Region};
pub use printable::printable;
pub use reader::{Reader, Short};
pub use transmit::{Chunk, Transmit};
