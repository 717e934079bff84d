//! A connection, and its operations at the kernel.

use std::os::fd::OwnedFd;

use iotax_node::CloseReason;

use super::super::{connections::Connection, life::Life, socket::Window};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a socket, not the states of a machine")]
pub(in crate::driver) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) life: Life,
    /// Address of a connect while the kernel has it; boxed, so that it does not move.
    pub(super) connecting: Option<Box<socket2::SockAddr>>,
    /// The kernel has a receive, or a wait for something to receive.
    pub(super) receiving: bool,
    /// The last receive left bytes in the socket: the next one finds them without waiting.
    pub(super) more_waits: bool,
    /// Bytes received since a receive last left none behind.
    pub(super) streak_bytes: usize,
    pub(super) window: Window,
    /// The last receive filled a place.
    pub(super) had_place: bool,
    /// The socket is full, and the kernel waits for room.
    pub(super) blocked: bool,
    /// Bytes that arrived when the node no longer accepted any: at most those of one receive.
    pub(super) held: Vec<u8>,
    /// The connection has ended. The node is informed when the kernel has returned all operations.
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
            window: Window::default(),
            had_place: false,
            blocked: false,
            held: Vec::new(),
            ending: None,
        }
    }

    /// Counts a receive, once it is known whether it left bytes behind.
    #[inline]
    pub(super) fn count_streak(&mut self, received: usize) {
        if self.more_waits {
            self.streak_bytes += received;
            self.window.received(&self.socket, self.streak_bytes);
        } else {
            self.streak_bytes = 0;
        }
    }

    /// Whether it is connected, and the kernel has no receive on it.
    pub(super) fn may_receive(&self) -> bool {
        !self.receiving && self.connecting.is_none() && self.ending.is_none() && self.life.receives()
    }

    /// Whether the kernel has no operation on this connection.
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
