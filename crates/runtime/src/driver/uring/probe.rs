//! Whether io_uring works here: kernels may lack parts of it, administrators may disable it, containers may filter it.

use std::{fs, io, os::fd::AsRawFd, time::Duration};

use io_uring::{Probe, opcode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{super::port::Until, buffers::Buffers, receive, ring::Ring};
use crate::clock::Clock;

/// Why io_uring cannot be used; `None` if it can. Tests what the driver needs on a pair of sockets.
pub(in super::super) fn refusal() -> Option<String> {
    let ring = match Ring::new() {
        Ok(ring) => ring,
        Err(error) => return Some(explain_setup(&error)),
    };
    let mut probe = Probe::new();
    if let Err(error) = ring.ring().submitter().register_probe(&mut probe) {
        return Some(format!("the kernel does not say what its io_uring can do: {error}"));
    }
    for (code, name) in [
        (opcode::Accept::CODE, "accept"),
        (opcode::Connect::CODE, "connect"),
        (opcode::Recv::CODE, "recv"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel2::CODE, "cancel"),
        (opcode::Read::CODE, "read"),
        (opcode::Write::CODE, "write"),
        (opcode::Fsync::CODE, "fsync"),
        (opcode::Fallocate::CODE, "fallocate"),
    ] {
        if !probe.is_supported(code) {
            return Some(format!("the kernel's io_uring has no {name}"));
        }
    }
    match receive_something(ring) {
        Ok(()) => None,
        Err(error) => Some(format!("a receive through io_uring failed: {error}")),
    }
}

/// Receives into a provided buffer, as the driver does.
fn receive_something(ring: Ring) -> io::Result<()> {
    let buffers = Buffers::new(&ring)?;
    // Dropped before the buffers, which the kernel may use until then.
    let mut ring = ring;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::write(&theirs, b"io_uring")?;
    // SAFETY: the entry points to nothing; the buffers outlive the receive, which finds its bytes waiting.
    unsafe { ring.push(&receive(ours.as_raw_fd(), true, 64)) };
    let clock = Clock::start();
    let mut completions = Vec::new();
    ring.wait(Until::At(clock.now() + Duration::from_secs(1)), clock, &mut completions)?;
    let completion = completions.first().ok_or(io::ErrorKind::TimedOut)?;
    let len = completion.outcome().map_err(io::Error::from_raw_os_error)?;
    match completion.buffer() {
        Some(buffer) if buffers.bytes(buffer, len as usize) == b"io_uring" => Ok(()),
        _ => Err(io::Error::other("it brought other bytes")),
    }
}

fn explain_setup(error: &io::Error) -> String {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match (error.raw_os_error(), disabled.trim()) {
        (Some(libc::ENOSYS), _) => "this kernel or sandbox has no io_uring".to_owned(),
        (Some(libc::EPERM | libc::EACCES), mode @ ("1" | "2")) => {
            format!("the administrator switched it off: sysctl kernel.io_uring_disabled is {mode}")
        }
        (Some(libc::EPERM | libc::EACCES), _) => format!("a sandbox or security policy forbids it: {error}"),
        (Some(libc::EINVAL), _) => "the kernel is too old: Linux 6.1 is needed".to_owned(),
        (Some(libc::ENOMEM), _) => format!("no memory for the ring; raise the limit of locked memory: {error}"),
        _ => format!("the ring could not be made: {error}"),
    }
}
