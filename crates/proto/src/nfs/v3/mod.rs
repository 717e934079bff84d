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
pub use super::common::{MAX_CONTROL_LEN, MAX_IO_BYTES};
pub use arguments::{Arguments, FileRange, Place};
pub use results::{Failure, Results, Wcc};
pub use types::Status;

pub const VERSION: u32 = 3;

/// Maximum length of a directory listing in one reply.
pub const MAX_LISTING_LEN: u32 = 64 << 10;
