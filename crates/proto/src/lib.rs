//! Storage protocols as state machines: bytes and time go in, bytes and events come out.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number, so the same code runs
//! under `io_uring`, under epoll, in a test that delivers one byte at a time, and in a simulator.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
pub mod errors;

pub mod backend;
pub mod fc;
pub mod fc_nvme;
pub mod fcp;
pub mod initiator;
pub mod iscsi;
pub mod nfs;
pub mod nvme;
pub mod nvme_tcp;
pub mod origin;
mod reservation;
pub mod rpc;
pub mod scsi;
#[cfg(loom)]
pub mod sequential;
mod session_table;
pub mod time;
pub mod wire;

pub use crate::backend::Geometry;
pub use crate::time::{Wait, WaitOutcome};
pub use backend::{Allocation, Backend, Ending, Endings, IoId, Shared, Started, Target, UnitId, UnitOp};
pub use errors::{IoError, Misuse, Refusal, Rule, UnitError, Violation, ViolationKind};

pub use initiator::{Initiator, InitiatorEvents, Io, Reserve, Tag};
pub use origin::{Origin, Shares};
pub use session_table::{LiveSession, SessionTable};
pub use time::Instant;
pub use wire::{HeapRegion, Payload, Region, Transmit};
