//! The functions of one machine in a lab, without I/O: the storage server and the load generator.
//!
//! A node takes inputs and time, and returns outputs. A driver (sockets and files in `iotax-runtime`, or a simulator)
//! executes these.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

// Helpers of tests/ use the crate's name, and unit tests use these helpers, too.
#[cfg(test)]
extern crate self as iotax_node;

mod access;
mod errno;
pub mod failure;
pub mod fs;
pub mod load;
pub mod node;
pub mod pattern;
pub mod protocols;
mod random;
pub mod secrets;
pub mod seeded;
pub mod server;
mod sync;
pub mod volume;

pub use access::Access;
pub use failure::{Failure, FailureKind};
pub use load::{LoadConfig, LoadNode, RunConfig, TaskConfig};
pub use node::{CloseReason, ConnId, DiskId, DiskOp, DiskToken, Input, ListenerId, Node, Output};
pub use protocols::Protocol;
pub use random::{Randomness, Unpredictable};
pub use server::{Server, ServerConfig, ServerNode};
