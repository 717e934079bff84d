//! A connection and the operations on it that the kernel has.

use std::os::fd::OwnedFd;

use iotax_node::CloseReason;

use super::super::life::Life;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a socket, not the states of a machine")]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) life: Life,
    /// Where a connect goes, while the kernel has it; boxed, so that it stays where it is.
    pub(super) connecting: Option<Box<socket2::SockAddr>>,
    /// A receive is with the kernel.
    pub(super) receiving: bool,
    /// The last receive left bytes behind: the next finds some without waiting.
    pub(super) more_waits: bool,
    /// Bytes received since there were none.
    pub(super) streak_bytes: usize,
    /// The socket is full, and the kernel watches for room.
    pub(super) blocked: bool,
    pub(super) queued: bool,
    pub(super) dirty: bool,
    pub(super) paused: bool,
    /// Bytes that arrived when the node no longer wanted any: those of one receive at most.
    pub(super) held: Vec<u8>,
    /// The connection is over: once the kernel has given everything back, the node is told.
    pub(super) ending: Option<CloseReason>,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            life: Life::default(),
            connecting: None,
            receiving: false,
            more_waits: false,
            streak_bytes: 0,
            blocked: false,
            queued: false,
            dirty: false,
            paused: false,
            held: Vec::new(),
            ending: None,
        }
    }

    /// The kernel has nothing of this connection.
    pub(super) fn is_still(&self) -> bool {
        self.connecting.is_none() && !self.receiving && !self.blocked
    }
}
