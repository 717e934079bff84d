//! The storage server: volumes, exported at listeners to the initiators that have access.
//!
//! All threads share a [`Server`]; each thread drives a [`ServerNode`] of its own. README.md beside this file describes
//! what is shared, the limits, and access control.

mod arithmetic;
mod backend;
mod connection;
mod files;
mod groups;
pub(crate) mod identity;
mod node;
mod notifier;
mod portals;
mod room;
mod shared;

pub use crate::protocols::{ExportOptions, Protocol};
pub use backend::ServerBackend;
pub use groups::{Group, GroupError};
pub use identity::{iscsi_name, nvme_name};
pub use iotax_proto::nfs::common::Squash;
pub use node::{Notice, ServerNode};
pub use portals::{Export, Portal, Service, plan_portals};
pub(crate) use shared::port_id;
pub use shared::{Guarded, NoAccess, Server, ServerConfig};
