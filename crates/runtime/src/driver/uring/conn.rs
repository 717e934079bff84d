//! A connection and the operations on it that the kernel has.

use std::os::fd::OwnedFd;

use iotax_node::CloseReason;

use super::super::{connections::Connection, life::Life};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a socket, not the states of a machine")]
pub(in crate::driver) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) life: Life,
    /// Where a connect goes, while the kernel has it; boxed, so that it stays where it is.
    pub(super) connecting: Option<Box<socket2::SockAddr>>,
    /// A receive, or a wait for something to receive, is with the kernel.
    pub(super) receiving: bool,
    /// The last receive left bytes behind: the next finds some without waiting.
    pub(super) more_waits: bool,
    /// Bytes received since there were none.
    pub(super) streak_bytes: usize,
    /// The last receive filled a place.
    pub(super) had_place: bool,
    /// The socket is full, and the kernel watches for room.
    pub(super) blocked: bool,
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
            had_place: false,
            blocked: false,
            held: Vec::new(),
            ending: None,
        }
    }

    /// The connection stands, and no receive of it is with the kernel.
    pub(super) fn may_receive(&self) -> bool {
        !self.receiving && self.connecting.is_none() && self.ending.is_none() && self.life.receives()
    }

    /// The kernel has nothing of this connection.
    pub(super) fn is_still(&self) -> bool {
        self.connecting.is_none() && !self.receiving && !self.blocked
    }
}

impl Connection for Conn {
    fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn is_connecting(&self) -> bool {
        self.connecting.is_some()
    }

    fn is_over(&self) -> bool {
        self.ending.is_some()
    }
}
