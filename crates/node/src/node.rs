//! The interface between a node and its driver: inputs, outputs, and bytes to send by connection.

use std::net::SocketAddr;

use iotax_proto::{Instant, Payload, Transmit};

/// Identifies a connection between node and driver. The driver chooses the ids of accepted connections, the node those
/// of connections it opens. Both are dense and small, and may be reused after `Input::Closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// Identifies a listening socket: the index of its address in the list that the driver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u32);

/// Identifies an open file or block device: its index in the list that the driver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskId(pub u32);

/// Identifies a disk operation under way; chosen by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskToken(pub u64);

/// An event that a driver reports to a node.
#[derive(Debug)]
pub enum Input<'a> {
    Accepted {
        conn: ConnId,
        listener: ListenerId,
        peer: SocketAddr,
    },
    Connected {
        conn: ConnId,
    },
    /// Bytes of a connection, valid during the call only.
    Received {
        conn: ConnId,
        bytes: &'a [u8],
    },
    /// The next `len` bytes of the connection are in the memory that `Node::place` returned just before.
    Placed {
        conn: ConnId,
        len: usize,
    },
    /// The connection has ended, by either side, or was never established. Its id may be reused.
    Closed {
        conn: ConnId,
        reason: CloseReason,
    },
    /// A disk operation ended. The result is the number of bytes moved or the system's error number.
    DiskDone {
        token: DiskToken,
        result: Result<u32, i32>,
    },
    /// `poll_timeout` has passed.
    Timer,
    /// The driver was woken, or has started: check what other threads did to this node.
    Woken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The node requested it, or the peer ended it in order.
    Ended,
    /// The system's error number: refused, reset, unreachable.
    Failed(i32),
}

/// A request of a node to its driver.
#[derive(Debug)]
pub enum Output {
    Connect {
        conn: ConnId,
        to: SocketAddr,
    },
    /// Close once everything queued is sent. Close at once if the peer does not take it in time.
    Close {
        conn: ConnId,
    },
    Disk {
        token: DiskToken,
        disk: DiskId,
        op: DiskOp,
    },
}

/// An operation on a file or block device, in bytes.
#[derive(Debug)]
pub enum DiskOp {
    Read { offset: u64, into: Payload },
    Write { offset: u64, from: Payload, durable: bool },
    Sync,
    WriteZeroes { offset: u64, len: u64 },
    Unmap { offset: u64, len: u64 },
    Allocate { offset: u64, len: u64 },
}

/// A state machine that a driver runs. The polling order after any `handle`: `poll_output` until `None`, then
/// `poll_transmit` until `None`, then `poll_timeout`.
pub trait Node {
    fn handle(&mut self, now: Instant, input: Input<'_>);
    fn poll_output(&mut self) -> Option<Output>;
    /// A connection with bytes to send, unless it was returned since the driver last found its queue empty.
    fn poll_transmit(&mut self) -> Option<ConnId>;
    /// The queue of bytes to send. A driver replaces it by an empty one while it sends.
    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit>;
    /// False while the node accepts no more bytes of this connection because its queues are full. Checked again after
    /// every `handle` and whenever bytes were sent.
    fn wants_receive(&self, conn: ConnId) -> bool {
        let _ = conn;
        true
    }
    /// Memory for the next bytes of this connection, if there are at least `at_least` of them and the node need not see
    /// them. A driver may receive some of them there directly and reports it with `Input::Placed`; `Input::Received`
    /// reports what follows. If the peer dies, the bytes that have arrived stay there, as with any part of a failed
    /// write.
    fn place(&mut self, conn: ConnId, at_least: usize) -> Option<Payload> {
        let _ = (conn, at_least);
        None
    }
    /// Number of open connections that will carry no I/O, such as admin queues: they are ignored when threads share new
    /// connections.
    fn idle_connections(&self) -> usize {
        0
    }
    /// When to call with `Input::Timer`. If the time has passed: again at once, without sleeping.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Whether the node has nothing more to do; then the driver returns.
    fn is_finished(&self) -> bool;
}
