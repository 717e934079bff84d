//! Threads, sockets, files and clocks: the only crate that makes system calls.
//!
//! [`driver`] runs one [`iotax_node::Node`] on the calling thread, over io_uring or epoll. [`memory`] and [`disk`]
//! provide the storage of volumes. [`clock`], [`cpu`] and [`counters`] are for measurements. [`names`] configures host
//! name lookup.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod clock;
pub mod counters;
pub mod cpu;
pub mod disk;
pub mod driver;
pub mod memory;
pub mod names;

pub use clock::Clock;
pub use driver::{Driver, DriverChoice, DriverConfig, DriverError, DriverKind, Ended, Flow, Waker};
