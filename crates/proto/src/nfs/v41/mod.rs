//! NFS version 4.1 (RFC 8881): see README.md of `nfs`.

pub mod codec;
pub mod decode;
pub mod fattr;
pub mod initiator;
pub mod operations;
pub mod sessions;
pub mod state;
pub mod target_side;

pub use super::common::MAX_IO_BYTES;
pub use codec::{ChannelAttributes, OpCode, SessionId, StateId, Status};
pub use operations::Operation;

/// The version of the RPC program; minor versions are a number in each COMPOUND.
pub const VERSION: u32 = 4;
/// The minor versions that the target speaks.
pub const MINOR_VERSIONS: core::ops::RangeInclusive<u32> = 1..=2;
/// The minor version that the initiator speaks.
pub const MINOR_VERSION: u32 = 1;

/// Procedures of the program (RFC 8881 §16).
pub const PROC_NULL: u32 = 0;
pub const PROC_COMPOUND: u32 = 1;

/// What heads, credentials, handles, names and attributes add to the data of a READ or WRITE, and the longest other message of a
/// peer that has no session.
pub const MAX_CONTROL_LEN: u32 = 16 << 10;
/// More than all that comes before the data of a WRITE in SEQUENCE, PUTFH, WRITE, and of a READ in their results.
pub(crate) const MAX_HEAD_LEN: usize = 4096;
/// Longest directory listing in one reply.
pub const MAX_LISTING_LEN: u32 = 64 << 10;
