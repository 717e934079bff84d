//! NFS version 3 (RFC 1813). See README.md of `nfs`.

// A failure contains attributes like a success, and is not larger.
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

/// Maximum length of everything except the data of a READ or WRITE (heads, credentials, handles, attributes), and of
/// all other messages.
pub const MAX_CONTROL_LEN: u32 = 16 << 10;
/// An upper limit for everything before the data in a READ reply or WRITE call.
pub(crate) const MAX_HEAD_LEN: usize = 4096;
/// Maximum length of a directory listing in one reply.
pub const MAX_LISTING_LEN: u32 = 64 << 10;
