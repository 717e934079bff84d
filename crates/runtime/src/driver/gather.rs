//! Gathers a queue of chunks into the vectors of one send, and sends them.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
};

use iotax_proto::{Transmit, wire::Chunk};

use super::optimisations::Optimisations;

/// The system's limit (`UIO_MAXIOV`).
const MAX_IOVECS: usize = 1024;

/// Maximum bytes per send that are copied because their payloads have no address.
const STAGING_BYTES: usize = 64 * 1024;

/// Bytes at the start of a payload that are prefetched into the processor's cache while a send is gathered, for all of
/// its payloads at once. The processor fetches the rest by itself while the system copies each payload. Prefetching all
/// 4 KiB would exceed the fetches that it can have under way.
const PREFETCH_BYTES: usize = 512;

/// The vectors of one send. They point into the transmit queue, into regions and into `staging`. They are valid while
/// the queue from which they were gathered is neither changed nor dropped.
pub(super) struct Gather {
    vectors: Box<Vectors>,
    /// How many of them are filled.
    len: usize,
    staging: Vec<u8>,
    optimisations: Optimisations,
}

/// Aligned to two cache lines, which processors fetch together: allocators without a heap for each thread would place it
/// beside memory that another thread writes in its turn.
#[repr(align(128))]
struct Vectors([libc::iovec; MAX_IOVECS]);

/// The result of a send.
pub(super) enum Sent {
    All,
    /// The socket is full.
    Blocked,
    /// The system's error number; the queue is cleared.
    Failed(i32),
}

impl Gather {
    pub(super) fn new(optimisations: Optimisations) -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self { vectors: Box::new(Vectors([none; MAX_IOVECS])), len: 0, staging: Vec::new(), optimisations }
    }

    /// Gathers from the front of the queue; returns the number of bytes gathered.
    fn fill(&mut self, transmit: &Transmit) -> usize {
        self.len = 0;
        self.staging.clear();
        let mut total = 0;
        for chunk in transmit.chunks() {
            if self.len == MAX_IOVECS {
                break;
            }
            let (address, len) = match chunk {
                Chunk::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
                Chunk::Payload(payload) => {
                    if let Some(address) = payload.address() {
                        if self.optimisations.prefetch {
                            prefetch(address, payload.len().min(PREFETCH_BYTES));
                        }
                        (address, payload.len())
                    } else {
                        // The capacity never changes while vectors point into it.
                        self.staging.reserve_exact(STAGING_BYTES - self.staging.len());
                        let at = self.staging.len();
                        let len = payload.len().min(STAGING_BYTES - at);
                        if len == 0 {
                            break;
                        }
                        self.staging.resize(at + len, 0);
                        payload.copy_out(0, &mut self.staging[at..]);
                        let address = self.staging[at..].as_ptr();
                        if len < payload.len() {
                            self.push(address, len);
                            return total + len;
                        }
                        (address, len)
                    }
                }
            };
            self.push(address, len);
            total += len;
        }
        total
    }

    /// Sends from the queue as much as the socket takes.
    pub(super) fn send(&mut self, transmit: &mut Transmit, socket: &OwnedFd) -> Sent {
        while !transmit.is_empty() {
            self.fill(transmit);
            match self.send_filled(socket) {
                Ok(count) => transmit.advance(count),
                Err(libc::EAGAIN) => return Sent::Blocked,
                Err(libc::EINTR) => {}
                Err(error) => {
                    transmit.clear();
                    return Sent::Failed(error);
                }
            }
        }
        Sent::All
    }

    fn send_filled(&self, socket: &OwnedFd) -> Result<usize, i32> {
        // SAFETY: all-zero bytes are a valid msghdr (no name, no control data).
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = self.vectors.0.as_ptr().cast_mut();
        // The field is a usize in glibc and an int in musl; the value is at most `MAX_IOVECS`.
        message.msg_iovlen = self.len as _;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the vectors point into memory that is alive: `send` filled them from a queue that it has not touched
        // since. The system only reads it.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    #[cfg(test)]
    fn iovecs(&self) -> &[libc::iovec] {
        &self.vectors.0[..self.len]
    }

    fn push(&mut self, address: *const u8, len: usize) {
        self.vectors.0[self.len] = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: len };
        self.len += 1;
    }
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gather({} vectors)", self.len)
    }
}

/// Lets the processor prefetch bytes that will be read soon; changes nothing.
#[inline]
fn prefetch(address: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..len).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that can be seen and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, len);
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use iotax_proto::{Payload, Region};

    use super::*;

    struct Placeless(usize);

    impl Region for Placeless {
        fn len(&self) -> usize {
            self.0
        }
        fn copy_out(&self, offset: usize, into: &mut [u8]) {
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = ((offset + at) % 251) as u8;
            }
        }
        fn copy_in(&self, _offset: usize, _from: &[u8]) {}
        fn address(&self, _offset: usize) -> Option<*const u8> {
            None
        }
    }

    #[test]
    fn payloads_without_an_address_are_staged_whole_and_in_order() {
        let mut transmit = Transmit::default();
        transmit.put(b"head");
        transmit.payload(Payload::new(Rc::new(Placeless(150_000)), 0, 150_000));
        transmit.put(b"tail");
        let mut gather = Gather::new(Optimisations::default());
        let mut seen = Vec::new();
        while !transmit.is_empty() {
            let count = gather.fill(&transmit);
            assert!(count > 0);
            for iovec in gather.iovecs() {
                // SAFETY: the vectors point into `transmit` and `gather.staging`, both alive and unchanged since
                // `fill`.
                seen.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(iovec.iov_base.cast::<u8>(), iovec.iov_len)
                });
            }
            transmit.advance(count);
        }
        let mut expected = b"head".to_vec();
        expected.extend((0..150_000_usize).map(|at| (at % 251) as u8));
        expected.extend_from_slice(b"tail");
        assert!(seen == expected);
    }

    #[test]
    fn a_gather_stops_at_the_systems_limit_of_vectors() {
        let mut transmit = Transmit::default();
        for _ in 0..2000 {
            transmit.payload(Payload::from_vec(vec![1]));
        }
        let mut gather = Gather::new(Optimisations::default());
        assert_eq!(gather.fill(&transmit), MAX_IOVECS);
        transmit.advance(MAX_IOVECS);
        assert_eq!(gather.fill(&transmit), 2000 - MAX_IOVECS);
    }
}
