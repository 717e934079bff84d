//! Receives into the memory that a node names for what comes next.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
};

use iotax_node::{ConnId, Input, Node};
use iotax_proto::{Instant, Payload};

use super::port::MAX_RECEIVE_BYTES;

/// Data of fewer bytes are received like anything else, many messages at a time, and copied: a receive of their own costs more.
pub(super) const MIN_BYTES: usize = 16 << 10;

/// Bytes that `receive` asks for, with so many of spill: a place is filled in pieces, as others have their turn between receives.
pub(super) fn limit(place: &Payload, spill_len: usize) -> usize {
    if place.len() > MAX_RECEIVE_BYTES { MAX_RECEIVE_BYTES } else { place.len() + spill_len }
}

/// Receives what is there, `limit` at most: first into `place`, and where that is full, into `spill`. Gives the bytes put into each, or the system's error number: `EAGAIN` where nothing is there.
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
    // SAFETY: the vectors point into the place, whose region lives as long as the payload and is memory that others may read and write
    // at any time, and into `spill`, which is ours. The system writes there before the call returns, and not later.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    match usize::try_from(count) {
        Ok(count) => Ok((count.min(len), count.saturating_sub(len))),
        Err(_) => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Tells a node of what `receive` brought.
pub(super) fn tell<N: Node + ?Sized>(node: &mut N, now: Instant, conn: ConnId, placed: usize, spilt: &[u8]) {
    node.handle(now, Input::Placed { conn, len: placed });
    if !spilt.is_empty() {
        node.handle(now, Input::Received { conn, bytes: spilt });
    }
}
