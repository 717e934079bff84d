//! How other threads reach a driver's thread: to wake it, stop it, or hand it a connection.

#[cfg(all(loom, test))]
use loom::sync::atomic::AtomicBool;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::AtomicBool;
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use iotax_node::ListenerId;
use rustix::event::{EventfdFlags, eventfd};

/// A flag that wakes a sleeping driver: an eventfd, written only if no thread has notified the driver since it last
/// checked.
#[derive(Debug)]
pub(crate) struct Notifier<E = OwnedFd> {
    event: E,
    pending: AtomicBool,
}

/// What a notifier needs of an eventfd whose writes a driver waits for, each one anew.
pub(crate) trait Event {
    fn write(&self);
    fn clear(&self);
}

impl Event for OwnedFd {
    fn write(&self) {
        // It fails only if the counter is full, and then the driver is awake anyway.
        let _ = rustix::io::write(self, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // An empty counter (`EAGAIN`) means that the other thread has not written yet; the driver will then wake once
        // more.
        let _ = rustix::io::read(self, &mut [0; 8]);
    }
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, pending: AtomicBool::new(false) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl<E: Event> Notifier<E> {
    pub(crate) fn notify(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.event.write();
        }
    }

    /// Needs no system call.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Takes the notification. What was published before `notify` is visible after this.
    pub(crate) fn take(&self) -> bool {
        if !self.is_pending() {
            return false;
        }
        self.event.clear();
        self.pending.swap(false, Ordering::AcqRel)
    }
}

/// An accepted socket on its way to the thread that will drive it.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) socket: OwnedFd,
    pub(crate) listener: ListenerId,
    pub(crate) peer: SocketAddr,
}

/// Aligned to two cache lines, which processors fetch together, so that no driver waits for memory that another writes
/// in its turn.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    notifier: Notifier,
    stop: AtomicBool,
    handed: Mutex<Vec<Handed>>,
    /// Connections of the driver that carry I/O, or may yet; and connections given to it that it has not counted.
    working: AtomicUsize,
    arriving: AtomicUsize,
}

/// Another thread's handle on a driver. It is created first, passed in the `DriverConfig`, and can be cloned.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Waker {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Shared {
            notifier: Notifier::new()?,
            stop: AtomicBool::new(false),
            handed: Mutex::new(Vec::new()),
            working: AtomicUsize::new(0),
            arriving: AtomicUsize::new(0),
        })))
    }

    /// Makes the driver call its control function soon.
    pub fn wake(&self) {
        self.0.notifier.notify();
    }

    /// Makes the driver return `Ended::Stopped` soon; its connections are closed without an orderly end.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Acquire)
    }

    pub(crate) fn hand_over(&self, handed: Handed) {
        self.0.handed.lock().unwrap_or_else(PoisonError::into_inner).push(handed);
        self.wake();
    }

    pub(crate) fn take_handed(&self) -> Vec<Handed> {
        std::mem::take(&mut *self.0.handed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of connections with work for the driver, by which the receiver of the next one is chosen.
    pub(crate) fn load(&self) -> usize {
        self.0.working.load(Ordering::Relaxed) + self.0.arriving.load(Ordering::Relaxed)
    }

    /// Another connection is on its way to the driver.
    pub(crate) fn announce(&self) {
        self.0.arriving.fetch_add(1, Ordering::Relaxed);
    }

    /// The driver has `working` connections, which include the `arrived` announced ones.
    pub(crate) fn set_load(&self, working: usize, arrived: usize) {
        if self.0.working.load(Ordering::Relaxed) != working {
            self.0.working.store(working, Ordering::Relaxed);
        }
        if arrived > 0 {
            self.0.arriving.fetch_sub(arrived, Ordering::Relaxed);
        }
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.0.notifier
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// scripts/loom runs this: every order in which the threads can use a notifier.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{
        model::Builder,
        sync::{Notify, atomic::AtomicU32},
        thread,
    };

    use super::*;

    /// As epoll reports an eventfd edge-triggered: whoever waits wakes once after writes, whether they were read or not.
    impl Event for Notify {
        fn write(&self) {
            self.notify();
        }

        fn clear(&self) {}
    }

    #[test]
    fn a_driver_that_sleeps_hears_of_everything_that_was_published() {
        let mut model = Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let notifier = Arc::new(Notifier { event: Notify::new(), pending: AtomicBool::new(false) });
            let published: Arc<[AtomicU32; 2]> = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let threads: Vec<_> = (0..2)
                .map(|index| {
                    let (notifier, published) = (Arc::clone(&notifier), Arc::clone(&published));
                    thread::spawn(move || {
                        published[index].store(1, Ordering::Relaxed);
                        notifier.notify();
                    })
                })
                .collect();
            while published.iter().any(|each| each.load(Ordering::Relaxed) == 0) {
                if !notifier.is_pending() {
                    notifier.event.wait();
                }
                notifier.take();
            }
            threads.into_iter().for_each(|each| each.join().unwrap());
        });
    }
}
