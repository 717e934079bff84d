//! The NVM Express command set and the controllers of a subsystem, without a transport.
//!
//! `command`, `status`, `identify`, `log` and `property` say what the bytes mean, for both sides; `subsystem` is what the
//! connections of one subsystem share, `reserve` the commands that keep its hosts apart; `admin` executes a controller's admin commands; `auth` proves who is who; `io` turns I/O commands into
//! operations of a backend; `fabrics` is what both sides of a connection do, whatever carries their capsules. Numbers of sections are
//! those of NVMe base 2.1, NVM command set 1.1.

pub mod admin;
pub(crate) mod ascii;
pub mod auth;
pub mod command;
pub mod describe;
pub mod discovery;
pub mod fabrics;
pub mod identify;
pub mod io;
pub mod log;
mod notifications;
pub mod property;
pub mod reserve;
pub mod status;
pub mod subsystem;

pub use command::{CommandId, ControllerId, Cqe, QueueId, Sqe};
pub use discovery::{DISCOVERY_NQN, DiscoveryEntry};
pub use status::Status;
pub use subsystem::{Admission, Namespace, NvmeBackend, Refusal, Subsystem, SubsystemConfig};
