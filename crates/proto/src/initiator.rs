//! The client side of a protocol: `Io`s become bytes, and bytes completions.
//!
//! It is driven as a `Target` is: mutate (`receive`, `submit`, `handle_timeout`), then drain `transmit`, then ask
//! `poll_timeout`. Input from a peer never panics; misuse by the caller is a bug and may.

use crate::{
    backend::Geometry,
    errors::{IoError, Misuse, Violation},
    time::Instant,
    wire::{Payload, Transmit},
};

/// Names an I/O between caller and initiator. Tags are dense: `0..depth`, so that they index tables.
pub type Tag = u32;

/// An I/O as every protocol can carry it. Offsets and lengths are bytes; block protocols need them aligned to the block size.
#[derive(Clone, Debug)]
pub enum Io {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        data: Payload,
        /// Complete only when the data are on stable storage: FUA over SCSI and NVMe, `FILE_SYNC` over NFS.
        durable: bool,
    },
    /// Makes earlier completed writes durable.
    Flush,
    WriteZeroes {
        offset: u64,
        len: u32,
    },
    /// Tells the storage that a range is no longer needed; reads of it may give anything the protocol allows.
    Unmap {
        offset: u64,
        len: u32,
    },
    /// About the unit's reservation, which SCSI and NVMe have.
    Reserve(Reserve),
}

/// Reservations of the type Write Exclusive, Registrants Only (SPC-5 §6.17, NVMe base 2.1 §7.5 and §7.6): what a cluster keeps its members
/// apart with. Over SCSI a port is registered, over NVMe a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Registers with a key. Over SCSI it replaces the port's key; over NVMe a host that has another is refused.
    Register { key: u64 },
    /// Takes the reservation where it is free.
    Hold { key: u64 },
    /// Removes whoever is registered with another key and ends their commands; takes the reservation where it was theirs.
    PreemptAndAbort { key: u64, victim: u64 },
}

/// One connection of a protocol's client side.
pub trait Initiator {
    /// Bytes arrived. On `Err` the connection is of no more use: flush `transmit`, then close it.
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation>;
    /// How many more `submit`s would be accepted now; 0 until ready.
    fn credits(&self) -> usize;
    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse>;
    /// Bytes to be sent. A driver drains it after every call above.
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    /// Call when `poll_timeout` has passed: keep-alives are queued, overdue peers are given up (`Err`).
    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation>;
    /// Begins an orderly end (logout, disconnect, unmount); `closed` follows.
    fn close(&mut self, now: Instant);
    /// The transport is gone: every I/O outstanding completes with `ConnectionLost`.
    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents);
}

/// What an initiator tells its caller, from inside `receive` and its siblings.
pub trait InitiatorEvents {
    /// The session stands; `submit` may be called after the current call returns.
    fn ready(&mut self, now: Instant, geometry: &Geometry);
    /// Bytes of a read, at `offset` in its buffer, in the order of arrival; valid during the call only.
    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]);
    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>);
    /// The orderly end is done: nothing more will be sent.
    fn closed(&mut self, now: Instant);
}
