//! Whether io_uring works here: kernels lack parts of it, administrators switch it off, containers filter it.

use std::{fs, io, os::fd::AsRawFd, time::Duration};

use io_uring::{Probe, opcode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{
    super::run::Until,
    buffers::{Buffers, GROUP},
    ring::{Ring, fd},
};
use crate::clock::Clock;

/// Why io_uring cannot be used; `None` where it can. Tries what the driver needs on a pair of sockets of its own.
pub(in super::super) fn refusal() -> Option<String> {
    let mut ring = match Ring::new() {
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
        (opcode::RecvMulti::CODE, "recv"),
        (opcode::Send::CODE, "send"),
        (opcode::SendMsg::CODE, "sendmsg"),
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
    match receive_something(&mut ring) {
        Ok(()) => None,
        Err(error) => Some(format!("a receive through io_uring failed: {error}")),
    }
}

/// A multishot receive into provided buffers, as the driver uses it (Linux 6.0).
fn receive_something(ring: &mut Ring) -> io::Result<()> {
    let buffers = Buffers::new(ring)?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::write(&theirs, b"io_uring")?;
    // SAFETY: the entry points to nothing; the buffers outlive the receive, which ends below when the peer does.
    unsafe { ring.push(&opcode::RecvMulti::new(fd(ours.as_raw_fd()), GROUP).build()) };
    let clock = Clock::start();
    let deadline = clock.now() + Duration::from_secs(1);
    let mut completions = Vec::new();
    let mut theirs = Some(theirs);
    let mut received = false;
    while clock.now() < deadline {
        ring.wait(Until::At(deadline), clock, &mut completions)?;
        for completion in completions.drain(..) {
            let count = completion.outcome().map_err(io::Error::from_raw_os_error)?;
            if let Some(buffer) = completion.buffer()
                && count > 0
            {
                received |= buffers.bytes(buffer, count as usize) == b"io_uring";
                theirs = None;
            }
            if !completion.has_more() && theirs.is_none() {
                return if received { Ok(()) } else { Err(io::Error::other("it brought other bytes")) };
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
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
