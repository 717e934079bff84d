//! Threads, sockets, files and clocks: the only crate that calls the system.
//!
//! [`driver`] runs one [`iotax_node::Node`] on the calling thread, over io_uring or over epoll; [`memory`] and [`disk`] hold what volumes
//! are made of; [`clock`], [`cpu`] and [`counters`] are what measurements are made with; [`names`] are those of hosts.
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
