//! Locks and atomics that threads share. In the tests of `scripts/loom` they are loom's, which tries every order in which
//! threads can use them.

#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicUsize},
};
#[cfg(all(loom, test))]
pub(crate) use {
    iotax_proto::sequential::{AtomicBool, AtomicU32, AtomicUsize},
    loom::sync::{Condvar, Mutex, MutexGuard},
};
