//! What every version of NFS speaks of: files, their attributes and names, exports, errors. No version is known here.

mod attributes;
mod handles;
mod io;
mod names;

pub use self::attributes::FileError;
pub use self::handles::FileHandle;
pub(in crate::nfs) use attributes::numbered_file_errors;
pub use attributes::{
    Attributes, CreateHow, FileType, NodeKind, PathConf, SetAttributes, SetTime, Space, Time, access,
};
pub use handles::Handles;
pub(in crate::nfs) use io::{PUT_OFF_DELAY, ReadUnderway, Verifier, Work, reply_head};
pub use io::{STATUS_VERIFIER_CHANGED, Stability};
pub use names::{Caller, Export, ExportAccess, ExportId, FileId, Listed, ListingEnd, NameSpace, OpenFile, Squash};

/// Longest name of a directory entry.
pub const MAX_NAME_LEN: usize = 255;
/// Longest path: of a symbolic link, and of an export (`MNTPATHLEN`, RFC 1813 §5.1.2, is below it).
pub const MAX_PATH_LEN: usize = 4096;
/// Largest READ and WRITE.
pub const MAX_IO_BYTES: u32 = 1 << 20;
