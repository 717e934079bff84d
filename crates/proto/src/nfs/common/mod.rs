//! Code that all versions of NFS share: files, their attributes and names, exports, errors. It depends on none of the
//! versions.

mod attributes;
mod handles;
mod io;
mod names;
mod replies;

pub use self::attributes::FileError;
pub use self::handles::FileHandle;
pub(in crate::nfs) use attributes::numbered_file_errors;
pub use attributes::{
    Attributes, CreateHow, FileType, NodeKind, PathConf, SetAttributes, SetTime, Space, Time, access,
};
pub use handles::Handles;
pub(in crate::nfs) use io::{
    CONTROL_TAG, Calls, IoSlot, PUT_OFF_DELAY, ReadUnderway, Work, Written, reply_head, rpc_failed,
};
pub use io::{STATUS_VERIFIER_CHANGED, Stability};
pub use names::{Caller, Export, ExportAccess, ExportId, FileId, Listed, ListingEnd, NameSpace, OpenFile, Squash};
pub(in crate::nfs) use replies::{FileClient, ReadHead, Replies, Violations};

/// Maximum length of a name in a directory.
pub const MAX_NAME_LEN: usize = 255;
/// Maximum length of a path: of a symbolic link, and of an export (`MNTPATHLEN`, RFC 1813 §5.1.2, is smaller).
pub const MAX_PATH_LEN: usize = 4096;
/// Maximum length of everything except the data of a READ or WRITE (heads, credentials, handles, names, attributes),
/// and of all other messages; in version 4.1 of a peer without session.
pub const MAX_CONTROL_LEN: u32 = 16 << 10;
/// An upper limit for everything before the data in a READ reply or WRITE call.
pub(in crate::nfs) const MAX_HEAD_LEN: usize = 4096;
/// Maximum length of a READ or WRITE in bytes.
pub const MAX_IO_BYTES: u32 = 1 << 20;
