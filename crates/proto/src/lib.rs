//! Storage protocols as state machines: bytes and time go in, bytes and events come out.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number, so the same code runs
//! under `io_uring`, under epoll, in a test that delivers one byte at a time, and in a simulator.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod iscsi;
pub mod machine;
pub mod nfs3;
pub mod nvme;
pub mod nvme_tcp;
pub mod origin;
pub mod rpc;
pub mod scsi;
pub mod wire;

pub use machine::{
    Allocation, Backend, Ending, Endings, Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, IoId, Misuse,
    Shared, Started, Tag, Target, UnitError, UnitId, UnitOp, Violation, ViolationKind,
};
pub use origin::Origin;
pub use wire::{HeapRegion, Payload, Region, Transmit};
