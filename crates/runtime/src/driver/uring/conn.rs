//! A connection and the operations on it that the kernel has.

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{opcode, squeue};
use iotax_node::CloseReason;
use iotax_proto::Transmit;

use super::{super::gather::Gather, super::life::Life, ring::fd};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a socket, not the states of a machine")]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) life: Life,
    pub(super) flight: Box<Flight>,
    pub(super) connecting: bool,
    pub(super) sending: bool,
    /// A receive is with the kernel and brings bytes until it says otherwise.
    pub(super) receiving: bool,
    /// The kernel was asked to stop receiving.
    pub(super) stopping: bool,
    pub(super) queued: bool,
    pub(super) dirty: bool,
    pub(super) paused: bool,
    /// Bytes that arrived when the node did not want them; no more than the buffers that the kernel had at that time.
    pub(super) held: Vec<u8>,
    /// The connection is over: once the kernel has given everything back, the node is told.
    pub(super) ending: Option<CloseReason>,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            life: Life::default(),
            flight: Box::default(),
            connecting: false,
            sending: false,
            receiving: false,
            stopping: false,
            queued: false,
            dirty: false,
            paused: false,
            held: Vec::new(),
            ending: None,
        }
    }

    /// The kernel has nothing of this connection.
    pub(super) fn is_still(&self) -> bool {
        !self.connecting && !self.sending && !self.receiving
    }
}

/// What the kernel reads while it sends or connects; boxed, so that it stays where it is.
pub(super) struct Flight {
    /// Bytes being sent, swapped from the node's queue, and with them the payloads' memory.
    pub(super) transmit: Transmit,
    gather: Gather,
    message: libc::msghdr,
    pub(super) address: Option<socket2::SockAddr>,
}

/// All of it arrives, however often the kernel must wait for room; and no signal where the peer is gone.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

impl Flight {
    /// The operation that sends what is next. The flight must not change before it completes.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> squeue::Entry {
        self.gather.fill(&self.transmit, usize::MAX);
        let iovecs = self.gather.iovecs();
        if let [iovec] = iovecs {
            let len = u32::try_from(iovec.iov_len).unwrap_or(u32::MAX >> 1);
            return opcode::Send::new(fd(socket.as_raw_fd()), iovec.iov_base.cast(), len).flags(SEND_FLAGS).build();
        }
        self.message.msg_iov = iovecs.as_ptr().cast_mut();
        self.message.msg_iovlen = iovecs.len();
        opcode::SendMsg::new(fd(socket.as_raw_fd()), &raw const self.message).flags(SEND_FLAGS as u32).build()
    }
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            transmit: Transmit::default(),
            gather: Gather::default(),
            // SAFETY: all-zero bytes are a valid msghdr (no name, no control data).
            message: unsafe { std::mem::MaybeUninit::zeroed().assume_init() },
            address: None,
        }
    }
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flight({} bytes)", self.transmit.len())
    }
}
