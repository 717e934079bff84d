//! NFS version 4.1 (RFC 8881). See README.md of `nfs`.

pub mod codec;
pub mod decode;
pub mod fattr;
pub mod initiator;
pub mod operations;
pub mod sessions;
pub mod state;
pub mod target_side;

pub(in crate::nfs) use super::common::MAX_HEAD_LEN;
pub use super::common::{MAX_CONTROL_LEN, MAX_IO_BYTES};
pub use codec::{ChannelAttributes, OpCode, SessionId, StateId, Status};
pub use operations::Operation;

/// The version of the RPC program. Each COMPOUND contains its minor version.
pub const VERSION: u32 = 4;
/// The minor versions that the target supports.
pub const MINOR_VERSIONS: core::ops::RangeInclusive<u32> = 1..=2;
/// The minor version that the initiator uses.
pub const MINOR_VERSION: u32 = 1;

/// Procedures of the program (RFC 8881 §16).
pub const PROC_NULL: u32 = 0;
pub const PROC_COMPOUND: u32 = 1;

/// Maximum length of a directory listing in one reply.
pub const MAX_LISTING_LEN: u32 = 64 << 10;
