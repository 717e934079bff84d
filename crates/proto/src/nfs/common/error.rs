//! Why a server of files does not do what it is asked; each version has its own numbers for it.

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
