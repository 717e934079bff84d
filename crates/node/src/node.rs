//! The only thing that a driver knows: inputs in, outputs out, bytes to send by connection.

use std::net::SocketAddr;

use iotax_proto::{Instant, Payload, Transmit};

/// Names a connection between node and driver. The driver chooses ids of accepted connections, the node those it opens;
/// both are dense, small, and free again after `Input::Closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// Names a listening socket: the index of its address in the list that the driver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub u32);

/// Names an open file or block device: its index in the list that the driver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskId(pub u32);

/// Names a disk operation under way; chosen by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskToken(pub u64);

/// What a driver tells a node.
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
    /// Bytes of a connection; valid during the call only.
    Received {
        conn: ConnId,
        bytes: &'a [u8],
    },
    /// The connection's next `len` bytes are where `Node::place` said, which was asked just before.
    Placed {
        conn: ConnId,
        len: usize,
    },
    /// The connection is gone, by either side, or was never made. Its id is free.
    Closed {
        conn: ConnId,
        reason: CloseReason,
    },
    /// A disk operation ended: bytes moved, or the system's error number.
    DiskDone {
        token: DiskToken,
        result: Result<u32, i32>,
    },
    /// `poll_timeout` has passed.
    Timer,
    /// The driver was woken, or has started: look at what other threads did to this node.
    Woken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The node asked for it, or the peer ended it in order.
    Ended,
    /// The system's error number: refused, reset, unreachable.
    Failed(i32),
}

/// What a node asks of a driver.
#[derive(Debug)]
pub enum Output {
    Connect {
        conn: ConnId,
        to: SocketAddr,
    },
    /// Close once everything queued is sent, or at once where the peer does not take it in time.
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

/// The polling order after any `handle`: `poll_output` until `None`, then `poll_transmit` until `None`, then `poll_timeout`.
pub trait Node {
    fn handle(&mut self, now: Instant, input: Input<'_>);
    fn poll_output(&mut self) -> Option<Output>;
    /// A connection with bytes to send that the driver has not been told of since it last found its queue empty.
    fn poll_transmit(&mut self) -> Option<ConnId>;
    /// The bytes to send; a driver swaps the queue for an empty one while it sends.
    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit>;
    /// False while the node wants no more bytes of this connection (its queues are full); asked again after every `handle`
    /// and whenever bytes were sent.
    fn wants_receive(&self, conn: ConnId) -> bool {
        let _ = conn;
        true
    }
    /// Memory that the next bytes of this connection belong in, where there are at least `at_least` of them and the node need not
    /// see them. A driver may receive the first of them there at once and says so with `Input::Placed`; what follows them is
    /// `Input::Received`. What a peer that dies had sent until then stays there, as any part of a write may that fails.
    fn place(&mut self, conn: ConnId, at_least: usize) -> Option<Payload> {
        let _ = (conn, at_least);
        None
    }
    /// Of the connections open, those that will carry no I/O, such as admin queues: they count for nothing where the next is placed.
    fn idle_connections(&self) -> usize {
        0
    }
    /// When to call with `Input::Timer`. A time that has passed means: again at once, without sleeping.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Nothing more to do; the driver returns.
    fn is_finished(&self) -> bool;
}
