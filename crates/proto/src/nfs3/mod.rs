//! NFS version 3 and MOUNT version 3 (RFC 1813) over TCP: see README.md.

// A failure carries attributes as a success does, and is no larger than it.
#![allow(clippy::result_large_err)]

pub mod arguments;
pub mod decode;
pub mod initiator;
pub mod mount;
pub mod procedure;
pub mod results;
pub mod target_side;
pub mod types;

pub use arguments::{Arguments, CreateHow, FileRange, NodeKind, Place, SetAttributes, SetTime, Stability};
pub use procedure::Procedure;
pub use results::{Failure, Results, Wcc};
pub use types::{Attributes, FileHandle, FileType, Status, Time};

/// NFS's RPC program number.
pub const PROGRAM: u32 = 100_003;
/// MOUNT's RPC program number.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The version of both.
pub const VERSION: u32 = 3;
/// The port of NFS where nobody names another.
pub const PORT: u16 = 2049;

/// Largest READ and WRITE.
pub const MAX_IO_BYTES: u32 = 1 << 20;
/// Longest name of a directory entry.
pub const MAX_NAME_LEN: usize = 255;
/// Longest path: of a symbolic link, and of an export (`MNTPATHLEN`, RFC 1813 §5.1.2, is below it).
pub const MAX_PATH_LEN: usize = 4096;
/// What heads, credentials, handles and attributes add to the data of a READ or WRITE, and the longest other message.
pub const MAX_CONTROL_LEN: u32 = 16 << 10;
/// More than the head of any READ reply or WRITE call: all that comes before the data.
pub(crate) const MAX_HEAD_LEN: usize = 4096;
/// Longest directory listing in one reply.
pub const MAX_LISTING_LEN: u32 = 64 << 10;
