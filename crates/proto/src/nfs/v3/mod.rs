//! NFS version 3 (RFC 1813): see README.md of `nfs`.

// A failure carries attributes as a success does, and is no larger than it.
#![allow(clippy::result_large_err)]

pub mod arguments;
pub mod decode;
pub mod initiator;
pub mod results;
pub mod target_side;
pub mod types;

pub use self::types::Procedure;
pub use super::common::MAX_IO_BYTES;
pub use arguments::{Arguments, FileRange, Place};
pub use results::{Failure, Results, Wcc};
pub use types::Status;

pub const VERSION: u32 = 3;

/// What heads, credentials, handles and attributes add to the data of a READ or WRITE, and the longest other message.
pub const MAX_CONTROL_LEN: u32 = 16 << 10;
/// More than the head of any READ reply or WRITE call: all that comes before the data.
pub(crate) const MAX_HEAD_LEN: usize = 4096;
/// Longest directory listing in one reply.
pub const MAX_LISTING_LEN: u32 = 64 << 10;
