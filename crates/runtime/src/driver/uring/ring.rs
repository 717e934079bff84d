//! The ring itself: set-up, submission, waiting.

use std::{collections::VecDeque, io, os::fd::RawFd};

use io_uring::{IoUring, cqueue, squeue, types};

use super::super::port::Until;
use crate::clock::Clock;

/// Entries of the submission queue; more operations in one turn cost an additional system call.
const SUBMISSIONS: u32 = 256;

/// Entries of the completion queue. An overflow costs time but loses nothing.
const COMPLETIONS: u32 = 4096;

/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;

/// A ring of this thread. Its work is done when the thread enters the kernel for it, without interrupting the thread:
/// `IORING_SETUP_DEFER_TASKRUN`, Linux 6.1.
pub(super) struct Ring {
    ring: IoUring,
    /// Operations for which the submission queue had no room, because the kernel was short of memory and took none.
    waiting: VecDeque<squeue::Entry>,
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)
            .map(|ring| Self { ring, waiting: VecDeque::new() })
    }

    /// Registers files by their index in the list: operations with `FIXED_FILE` use it and need not look up a
    /// descriptor.
    pub(super) fn register_files(&self, files: &[RawFd]) -> io::Result<()> {
        if files.is_empty() { Ok(()) } else { self.ring.submitter().register_files(files) }
    }

    /// Unregisters the files now. If a ring is closed with registered files, the kernel releases them some time after
    /// the process has ended, and until then an exclusively opened block device is in use for the next process.
    pub(super) fn release_files(&self) {
        // Fails if none are registered.
        let _ = self.ring.submitter().unregister_files();
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// The memory that the entry points to must stay valid until its completion is taken.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: guaranteed by the caller.
        let is_queued = self.waiting.is_empty() && unsafe { self.ring.submission().push(entry) }.is_ok();
        if !is_queued {
            self.waiting.push_back(entry.clone());
            self.queue_waiting();
        }
    }

    /// Makes room for waiting operations. If the kernel takes none, the next wait fails as well and can report it.
    #[cold]
    fn queue_waiting(&mut self) {
        while let Some(entry) = self.waiting.front() {
            // SAFETY: as promised to `push`: what it points to is valid until its completion is taken, and none has
            // come yet.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                self.waiting.pop_front();
            } else if !matches!(self.ring.submit(), Ok(1..)) {
                return;
            }
        }
    }

    /// Submits queued operations, waits for a completion, at most until `until`, and takes all completions.
    pub(super) fn wait(&mut self, until: Until, clock: Clock, into: &mut Vec<Completion>) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.queue_waiting();
        }
        let ready = !self.ring.completion().is_empty();
        let result = match until {
            _ if ready => self.enter(0),
            Until::Now => self.enter(0),
            Until::Woken => self.enter(1),
            Until::At(at) => {
                let timeout = at.since(clock.now());
                let timespec = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                let args = types::SubmitArgs::new().timespec(&timespec);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        match result {
            Ok(_) => {}
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
        into.extend(self.ring.completion().map(|entry| Completion::from(&entry)));
        Ok(())
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Makes one system call, or none if it could return nothing.
    fn enter(&mut self, want: u32) -> io::Result<usize> {
        let queue = self.ring.submission();
        let (len, work) = (queue.len(), queue.taskrun() || queue.cq_overflow());
        drop(queue);
        if want == 0 && len == 0 && !work {
            return Ok(0);
        }
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        // SAFETY: the arguments are those of io_uring_enter(2): as many entries as are queued, and no signal mask.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(len, want, GET_EVENTS, None) }
    }
}

/// Whether a wait ended because of its time, a signal, or a passing shortage of memory: the next turn tries again.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// The kernel's report of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    pub(super) result: i32,
    flags: u32,
}

impl From<&cqueue::Entry> for Completion {
    fn from(entry: &cqueue::Entry) -> Self {
        Self { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() }
    }
}

impl Completion {
    /// Whether more completions of the same operation will follow.
    pub(super) fn has_more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// Whether a receive left bytes in the socket.
    pub(super) fn leaves_bytes(&self) -> bool {
        cqueue::sock_nonempty(self.flags)
    }

    /// The provided buffer that was used.
    pub(super) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }

    /// The result, or the error number.
    pub(super) fn outcome(&self) -> Result<u32, i32> {
        u32::try_from(self.result).map_err(|_| -self.result)
    }
}

pub(super) fn fd(fd: RawFd) -> types::Fd {
    types::Fd(fd)
}

#[cfg(test)]
mod tests {
    use io_uring::opcode;

    use super::*;

    #[test]
    fn more_operations_than_the_queue_has_room_for_are_all_done() {
        // Containers may refuse io_uring.
        let Ok(mut ring) = Ring::new() else { return };
        let (clock, mut completions) = (Clock::start(), Vec::new());
        for number in 0..3 * u64::from(SUBMISSIONS) {
            // SAFETY: the entry points to nothing.
            unsafe { ring.push(&opcode::Nop::new().build().user_data(number)) };
        }
        while completions.len() < 3 * SUBMISSIONS as usize {
            ring.wait(Until::Woken, clock, &mut completions).expect("a wait");
        }
        let numbers: Vec<_> = completions.iter().map(|completion| completion.user_data).collect();
        assert_eq!(numbers, (0..3 * u64::from(SUBMISSIONS)).collect::<Vec<_>>(), "in their order");
    }
}
