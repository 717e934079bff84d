//! Lets a connection notify those of other threads of what it did to them.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct Notifier {
    count: AtomicU64,
    wake: OnceLock<Wake>,
}

impl Notifier {
    /// `wake` makes every thread of the server check for notifications. Only the first call counts.
    pub(super) fn wake_with(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }

    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Wakes every thread without a notification.
    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Notifications so far. If there are more than before, there is something to handle.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notifier({} notifications)", self.count())
    }
}
