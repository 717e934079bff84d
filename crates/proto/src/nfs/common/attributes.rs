//! What is known of a file, and what may be set.
//!
//! Why a server of files does not do what it is asked; each version has its own numbers for it.

/// Since 1970.
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

/// With the numbers of every version.
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

/// Sizes in bytes.
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
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub file_system: u64,
    pub number: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    #[default]
    Keep,
    ServerTime,
    Client(Time),
}

/// Attributes to be set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: SetTime,
    pub modified: SetTime,
}

/// How a file is created where there may be one already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    Unchecked(SetAttributes),
    Guarded(SetAttributes),
    /// The verifier tells a repeated call from another client's.
    Exclusive([u8; 8]),
}

/// A file that is not a regular file, directory or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Block { major: u32, minor: u32 },
    Character { major: u32, minor: u32 },
    Socket,
    Fifo,
}

/// Sizes of the file system in bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
}

/// Limits on names and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // The standard's own.
pub struct PathConf {
    pub links_max: u32,
    pub name_max: u32,
    /// Names too long are refused, not cut.
    pub no_truncation: bool,
    pub chown_restricted: bool,
    pub case_insensitive: bool,
    pub case_preserving: bool,
}

/// Rights that ACCESS asks for, with the numbers of every version (RFC 1813 §3.3.4, RFC 8881 §18.1).
pub mod access {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
    /// What a read-only export may grant.
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

/// A version's status of each `FileError`, which it calls alike.
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
