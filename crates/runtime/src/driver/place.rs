//! Receives into the memory that a node names for the next bytes.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
};

use iotax_node::{ConnId, Input, Node};
use iotax_proto::{Instant, Payload};

use super::port::MAX_RECEIVE_BYTES;

/// Fewer bytes are received like all others, many messages at a time, and copied: a separate receive would cost more.
pub(super) const MIN_BYTES: usize = 16 << 10;

/// Maximum bytes that `receive` takes with a spill buffer of this size. A place is filled in pieces, so that other
/// connections have their turn between receives.
pub(super) fn limit(place: &Payload, spill_len: usize) -> usize {
    if place.len() > MAX_RECEIVE_BYTES { MAX_RECEIVE_BYTES } else { place.len() + spill_len }
}

/// Receives up to `limit` bytes that have arrived: first into `place`, and when that is full, into `spill`. Returns the
/// number of bytes in each, or the system's error number: `EAGAIN` if none have arrived.
pub(super) fn receive(socket: &OwnedFd, place: &Payload, spill: &mut [u8]) -> Result<(usize, usize), i32> {
    let Some(address) = place.address() else { return Err(libc::EFAULT) };
    let len = place.len().min(MAX_RECEIVE_BYTES);
    let spill_len = limit(place, spill.len()) - len;
    let mut vectors = [
        libc::iovec { iov_base: address.cast_mut().cast(), iov_len: len },
        libc::iovec { iov_base: spill.as_mut_ptr().cast(), iov_len: spill_len },
    ];
    // SAFETY: all-zero bytes are a valid msghdr (no name, no control data).
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    // SAFETY: the vectors point into the place, whose region lives as long as the payload and is memory that others may
    // read and write at any time, and into `spill`, which is ours. The system writes there before the call returns, and
    // not later.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    match usize::try_from(count) {
        Ok(count) => Ok((count.min(len), count.saturating_sub(len))),
        Err(_) => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Reports to a node what `receive` returned.
pub(super) fn tell<N: Node + ?Sized>(node: &mut N, now: Instant, conn: ConnId, placed: usize, spilt: &[u8]) {
    node.handle(now, Input::Placed { conn, len: placed });
    if !spilt.is_empty() {
        node.handle(now, Input::Received { conn, bytes: spilt });
    }
}
