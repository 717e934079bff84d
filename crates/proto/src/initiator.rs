//! The client side of a protocol: turns `Io`s into bytes to send, and received bytes into completions.
//!
//! It is driven like a `Target`: call `receive`, `submit` or `handle_timeout`, then drain `transmit`, then read
//! `poll_timeout`. Input from a peer never causes a panic; misuse by the caller is a bug and may.

use crate::{
    backend::Geometry,
    errors::{IoError, Misuse, Violation},
    time::Instant,
    wire::{Payload, Transmit},
};

/// Identifies an I/O between caller and initiator. Tags are dense (`0..depth`), so that they can index tables.
pub type Tag = u32;

/// An I/O, independent of the protocol. Offsets and lengths are in bytes; block protocols require alignment to the
/// block size.
#[derive(Clone, Debug)]
pub enum Io {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        data: Payload,
        /// Complete only when the data are on stable storage: FUA in SCSI and NVMe, `FILE_SYNC` in NFS.
        durable: bool,
    },
    /// Makes earlier completed writes durable.
    Flush,
    WriteZeroes {
        offset: u64,
        len: u32,
    },
    /// Deallocates a range. What it reads as depends on the protocol.
    Unmap {
        offset: u64,
        len: u32,
    },
    /// A reservation of the unit, in SCSI and NVMe.
    Reserve(Reserve),
}

/// Operations on reservations of type Write Exclusive, Registrants Only (SPC-5 §6.17, NVMe base 2.1 §7.5 and §7.6).
/// Clusters use them to exclude failed members. SCSI registers a port, NVMe a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Registers with a key. In SCSI it replaces the port's key. In NVMe it fails for a host that has another key.
    Register { key: u64 },
    /// Acquires the reservation if it is free.
    Hold { key: u64 },
    /// Removes the registrants with the key `victim` and ends their commands. Takes over the reservation if it was
    /// theirs.
    PreemptAndAbort { key: u64, victim: u64 },
}

/// One connection of a protocol's client side.
pub trait Initiator {
    /// Processes received bytes. After `Err` the connection cannot be used any more: flush `transmit`, then close it.
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation>;
    /// How many more `submit`s would be accepted now; 0 until ready.
    fn credits(&self) -> usize;
    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse>;
    /// Bytes to send. A driver drains it after every call of the methods above.
    fn transmit(&mut self) -> &mut Transmit;
    fn poll_timeout(&self) -> Option<Instant>;
    /// Call this when the time of `poll_timeout` has come. It queues keep-alives; `Err` if the peer is overdue.
    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation>;
    /// Starts an orderly end (logout, disconnect, unmount). `closed` follows.
    fn close(&mut self, now: Instant);
    /// Ends the session because the transport is lost. Every outstanding I/O completes with `ConnectionLost`.
    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents);
}

/// Receives the reports of an initiator. An initiator calls it from inside its methods.
pub trait InitiatorEvents {
    /// The session is ready: `submit` may be called after the current call returns.
    fn ready(&mut self, now: Instant, geometry: &Geometry);
    /// Bytes of a read, at `offset` in its buffer, in the order of arrival. They are valid only during the call.
    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]);
    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>);
    /// The orderly end is complete: nothing more will be sent.
    fn closed(&mut self, now: Instant);
    /// How the unit can be accessed over the connection changed; its initiator says how, or that it is not ready.
    fn access_known(&mut self, _now: Instant) {}
    /// The target reported that the access to the unit changed, over this connection or another.
    fn access_in_question(&mut self, _now: Instant) {}
}
