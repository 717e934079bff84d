//! NFS over TCP: what every version speaks of (`common`), the MOUNT protocol, and version 3 (`v3`). See README.md.

pub mod backend;
pub mod common;
pub mod mount;
pub mod v3;

/// NFS's RPC program number.
pub const PROGRAM: u32 = 100_003;
/// The port of NFS where nobody names another.
pub const PORT: u16 = 2049;
