//! How a connection has those of other threads look at what it did to them.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Bell {
    rings: AtomicU64,
    wake: OnceLock<Wake>,
}

impl Bell {
    /// `wake` makes every thread of the server look. The first counts.
    pub(super) fn hang(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }

    pub(super) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        self.rouse();
    }

    /// Has every thread look, but not at what connections did to others.
    pub(super) fn rouse(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// How often it rang: more than before means that there is something to look at.
    pub(super) fn rings(&self) -> u64 {
        self.rings.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bell({} rings)", self.rings())
    }
}
