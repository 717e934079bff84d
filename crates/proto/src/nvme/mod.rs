//! The NVM Express command set and the controllers of a subsystem, independent of the transport.
//!
//! For both sides, `command`, `status`, `identify`, `log` and `property` define what the bytes mean. `subsystem` holds
//! what the connections of one subsystem share, and `reserve` its reservation commands. `admin` executes a controller's
//! admin commands, `auth` authenticates hosts and controllers, and `io` turns I/O commands into operations of a
//! backend. `fabrics` is what host and controller do on a connection of any transport. Section numbers are those of
//! NVMe base 2.1 and NVM command set 1.1.

pub mod admin;
pub mod ana;
pub mod ana_log;
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

pub use ana::AnaState;
pub use command::{CommandId, ControllerId, Cqe, QueueId, Sqe};
pub use discovery::{DISCOVERY_NQN, DiscoveryEntry};
pub use status::Status;
pub use subsystem::{Admission, Namespace, NvmeBackend, Refusal, Subsystem, SubsystemConfig};
