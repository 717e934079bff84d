//! Attributes of files, and which of them can be set. Also the errors of file operations, to which each version assigns
//! its own numbers.

/// A time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    pub seconds: u32,
    pub nanoseconds: u32,
}

impl Time {
    pub fn from_nanos(nanos: u64) -> Self {
        Self { seconds: (nanos / 1_000_000_000) as u32, nanoseconds: (nanos % 1_000_000_000) as u32 }
    }

    pub fn as_nanos(self) -> u64 {
        u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanoseconds)
    }
}

/// The type of a file, with the numbers that all versions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    Regular = 1,
    Directory = 2,
    Block = 3,
    Character = 4,
    Symlink = 5,
    Socket = 6,
    Fifo = 7,
}

/// Attributes of a file; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub kind: FileType,
    /// Permission bits, 0o7777.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    /// Major and minor device number.
    pub device: (u32, u32),
    pub file_system: u64,
    pub number: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
}

/// A time to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    #[default]
    Keep,
    ServerTime,
    Client(Time),
}

/// Attributes to set; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: SetTime,
    pub modified: SetTime,
}

/// What to do if the file to create already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    Unchecked(SetAttributes),
    Guarded(SetAttributes),
    /// The verifier distinguishes a repeated call from a call of another client.
    Exclusive([u8; 8]),
}

/// A file that is not a regular file, directory or symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Block { major: u32, minor: u32 },
    Character { major: u32, minor: u32 },
    Socket,
    Fifo,
}

/// Sizes of the file system, in bytes and in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
}

/// Limits on names and links (PATHCONF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // As in the standard.
pub struct PathConf {
    pub links_max: u32,
    pub name_max: u32,
    /// Names that are too long are rejected, not truncated.
    pub no_truncation: bool,
    pub chown_restricted: bool,
    pub case_insensitive: bool,
    pub case_preserving: bool,
}

/// Rights that ACCESS queries, with the numbers that all versions use (RFC 1813 §3.3.4, RFC 8881 §18.1).
pub mod access {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
    /// The rights that a read-only export may grant.
    pub const READING: u32 = READ | LOOKUP | EXECUTE;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("not owner")]
    NotOwner,
    #[error("no such file or directory")]
    NoEntry,
    #[error("permission denied")]
    Access,
    #[error("file exists")]
    Exists,
    #[error("link across file systems")]
    CrossDevice,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("invalid argument")]
    Invalid,
    #[error("file too large")]
    FileTooBig,
    #[error("no space left")]
    NoSpace,
    #[error("read-only file system")]
    ReadOnly,
    #[error("too many links")]
    TooManyLinks,
    #[error("name too long")]
    NameTooLong,
    #[error("directory not empty")]
    NotEmpty,
    #[error("stale file handle")]
    Stale,
    #[error("bad file handle")]
    BadHandle,
    #[error("stale directory cookie")]
    BadCookie,
    #[error("I/O error")]
    Io,
    #[error("operation not supported")]
    NotSupported,
}

/// Converts a `FileError` to a version's status, whose variants have the same names.
macro_rules! numbered_file_errors {
    ($status:ty) => {
        impl From<$crate::nfs::common::FileError> for $status {
            fn from(error: $crate::nfs::common::FileError) -> Self {
                use $crate::nfs::common::FileError;
                match error {
                    FileError::NotOwner => Self::NotOwner,
                    FileError::NoEntry => Self::NoEntry,
                    FileError::Access => Self::Access,
                    FileError::Exists => Self::Exists,
                    FileError::CrossDevice => Self::CrossDevice,
                    FileError::NotDirectory => Self::NotDirectory,
                    FileError::IsDirectory => Self::IsDirectory,
                    FileError::Invalid => Self::Invalid,
                    FileError::FileTooBig => Self::FileTooBig,
                    FileError::NoSpace => Self::NoSpace,
                    FileError::ReadOnly => Self::ReadOnly,
                    FileError::TooManyLinks => Self::TooManyLinks,
                    FileError::NameTooLong => Self::NameTooLong,
                    FileError::NotEmpty => Self::NotEmpty,
                    FileError::Stale => Self::Stale,
                    FileError::BadHandle => Self::BadHandle,
                    FileError::BadCookie => Self::BadCookie,
                    FileError::Io => Self::Io,
                    FileError::NotSupported => Self::NotSupported,
                }
            }
        }
    };
}

pub(in crate::nfs) use numbered_file_errors;
