//! Threads that execute disk operations for drivers without io_uring.

use std::{
    collections::VecDeque,
    io,
    os::fd::{BorrowedFd, RawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use iotax_node::DiskToken;
use slab::Slab;

use super::waker::Notifier;
use crate::disk::{SystemOp, Transfer};

/// Maximum number of operations at the disks at a time; others are queued here.
const MAX_THREADS: usize = 32;

/// Threads, which are started as operations arrive and then kept.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Operations under way by slot, with the memory they keep alive, which never leaves the driver's thread.
    under_way: Slab<(DiskToken, Transfer)>,
    done: Vec<(usize, i32)>,
}

#[derive(Debug)]
struct Shared {
    work: Mutex<Work>,
    more: Condvar,
    done: Mutex<Vec<(usize, i32)>>,
    notifier: Notifier,
}

#[derive(Debug, Default)]
struct Work {
    jobs: VecDeque<Job>,
    idle_threads: usize,
    stop: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    slot: usize,
    fd: RawFd,
    op: SystemOp,
}

impl Pool {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared {
                work: Mutex::default(),
                more: Condvar::new(),
                done: Mutex::default(),
                notifier: Notifier::new()?,
            }),
            threads: Vec::new(),
            under_way: Slab::new(),
            done: Vec::new(),
        })
    }

    /// Readable when `take_done` has something to take.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.notifier.fd()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn submit(&mut self, token: DiskToken, transfer: Transfer) {
        let (fd, op) = (transfer.fd(), transfer.op());
        let slot = self.under_way.insert((token, transfer));
        self.start(Job { slot, fd, op });
    }

    pub(super) fn take_done(&mut self, into: &mut VecDeque<(DiskToken, Result<u32, i32>)>) {
        self.shared.notifier.take();
        std::mem::swap(&mut *lock(&self.shared.done), &mut self.done);
        while let Some((slot, answer)) = self.done.pop() {
            let transfer = &mut self.under_way[slot].1;
            if let Some(op) = transfer.fall_back(-answer) {
                let fd = transfer.fd();
                self.start(Job { slot, fd, op });
                continue;
            }
            let (token, transfer) = self.under_way.remove(slot);
            into.push_back((token, transfer.finish(answer)));
        }
    }

    fn start(&mut self, job: Job) {
        let mut work = lock(&self.shared.work);
        work.jobs.push_back(job);
        let short = work.jobs.len() > work.idle_threads;
        drop(work);
        if short && self.threads.len() < MAX_THREADS {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(move || shared.work());
            match thread {
                Ok(thread) => self.threads.push(thread),
                // Without a thread, the operation would never be done.
                Err(_) if self.threads.is_empty() => {
                    if let Some(job) = lock(&self.shared.work).jobs.pop_back() {
                        lock(&self.shared.done).push((job.slot, job.op.perform(job.fd)));
                        self.shared.notifier.notify();
                    }
                }
                Err(_) => {}
            }
        }
        self.shared.more.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        let mut work = lock(&self.work);
        loop {
            if let Some(job) = work.jobs.pop_front() {
                drop(work);
                let answer = job.op.perform(job.fd);
                lock(&self.done).push((job.slot, answer));
                self.notifier.notify();
                work = lock(&self.work);
            } else if work.stop {
                return;
            } else {
                work.idle_threads += 1;
                work = self.more.wait(work).unwrap_or_else(PoisonError::into_inner);
                work.idle_threads -= 1;
            }
        }
    }
}

impl Drop for Pool {
    /// Waits for operations under way, because the system may still write to memory that would be freed.
    fn drop(&mut self) {
        lock(&self.shared.work).stop = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
