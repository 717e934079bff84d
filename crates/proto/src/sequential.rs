//! loom's atomics for the tests of `scripts/loom`, used with `SeqCst`. loom takes that for `AcqRel`, and then a load may
//! return an old value. A read-modify-write never does, and if there is nothing else, it has the one order of all accesses
//! that `SeqCst` promises.

use loom::sync::atomic::{self, Ordering};

#[derive(Debug)]
pub struct AtomicBool(atomic::AtomicBool);

impl AtomicBool {
    #[must_use]
    pub fn new(value: bool) -> Self {
        Self(atomic::AtomicBool::new(value))
    }

    pub fn load(&self, order: Ordering) -> bool {
        self.0.fetch_or(false, order)
    }

    pub fn store(&self, value: bool, order: Ordering) {
        self.0.swap(value, order);
    }

    pub fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value, order)
    }
}

macro_rules! number {
    ($name:ident, $number:ty) => {
        #[derive(Debug, Default)]
        pub struct $name(atomic::$name);

        impl $name {
            #[must_use]
            pub fn new(value: $number) -> Self {
                Self(atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $number {
                self.0.fetch_add(0, order)
            }

            pub fn store(&self, value: $number, order: Ordering) {
                self.0.swap(value, order);
            }

            pub fn swap(&self, value: $number, order: Ordering) -> $number {
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                current: $number,
                new: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                self.0.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_add(&self, value: $number, order: Ordering) -> $number {
                self.0.fetch_add(value, order)
            }

            pub fn fetch_sub(&self, value: $number, order: Ordering) -> $number {
                self.0.fetch_sub(value, order)
            }

            pub fn fetch_or(&self, value: $number, order: Ordering) -> $number {
                self.0.fetch_or(value, order)
            }
        }
    };
}

number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
