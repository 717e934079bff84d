//! Locks and atomics that threads share. In the tests of `scripts/loom` they are loom's, which tries every order in which
//! threads can use them.

#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicUsize},
};
#[cfg(all(loom, test))]
pub(crate) use {
    loom::sync::{Condvar, Mutex, MutexGuard},
    sequential::{AtomicBool, AtomicU32, AtomicUsize},
};

/// Atomics that are only used with `SeqCst`. loom takes that for `AcqRel`, and then a load may return an old value. A
/// read-modify-write never does, and if there is nothing else, it has the one order of all accesses that `SeqCst` promises.
#[cfg(all(loom, test))]
mod sequential {
    use loom::sync::atomic::{self, Ordering};

    #[derive(Debug)]
    pub(crate) struct AtomicBool(atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.0.fetch_or(false, order)
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.swap(value, order);
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            self.0.swap(value, order)
        }
    }

    macro_rules! counter {
        ($name:ident, $number:ty) => {
            #[derive(Debug)]
            pub(crate) struct $name(atomic::$name);

            impl $name {
                pub(crate) fn new(value: $number) -> Self {
                    Self(atomic::$name::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $number {
                    self.0.fetch_add(0, order)
                }

                pub(crate) fn fetch_add(&self, value: $number, order: Ordering) -> $number {
                    self.0.fetch_add(value, order)
                }

                pub(crate) fn fetch_sub(&self, value: $number, order: Ordering) -> $number {
                    self.0.fetch_sub(value, order)
                }
            }
        };
    }

    counter!(AtomicU32, u32);
    counter!(AtomicUsize, usize);
}
