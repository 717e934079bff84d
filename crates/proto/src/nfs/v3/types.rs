//! The encoding of types that calls and replies share (RFC 1813 §2.5, §2.6), and the procedures of NFS version 3
//! (§3.3).

use crate::{
    Refusal,
    nfs::common::{Attributes, FileType, Time, numbered_file_errors},
    rpc::{Encoder, Garbage},
    wire::Reader,
};

/// `nfsstat3` of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Status {
    #[error("not owner")]
    NotOwner = 1,
    #[error("no such file or directory")]
    NoEntry = 2,
    #[error("I/O error")]
    Io = 5,
    #[error("no such device or address")]
    NoDeviceAddress = 6,
    #[error("permission denied")]
    Access = 13,
    #[error("file exists")]
    Exists = 17,
    #[error("link across file systems")]
    CrossDevice = 18,
    #[error("no such device")]
    NoDevice = 19,
    #[error("not a directory")]
    NotDirectory = 20,
    #[error("is a directory")]
    IsDirectory = 21,
    #[error("invalid argument")]
    Invalid = 22,
    #[error("file too large")]
    FileTooBig = 27,
    #[error("no space left")]
    NoSpace = 28,
    #[error("read-only file system")]
    ReadOnly = 30,
    #[error("too many links")]
    TooManyLinks = 31,
    #[error("name too long")]
    NameTooLong = 63,
    #[error("directory not empty")]
    NotEmpty = 66,
    #[error("quota exceeded")]
    Quota = 69,
    #[error("stale file handle")]
    Stale = 70,
    #[error("too many levels of remote in path")]
    Remote = 71,
    #[error("bad file handle")]
    BadHandle = 10001,
    #[error("update synchronization mismatch")]
    NotSynchronized = 10002,
    #[error("stale directory cookie")]
    BadCookie = 10003,
    #[error("operation not supported")]
    NotSupported = 10004,
    #[error("buffer too small")]
    TooSmall = 10005,
    #[error("server fault")]
    ServerFault = 10006,
    #[error("type not supported")]
    BadType = 10007,
    #[error("try again later")]
    Jukebox = 10008,
}

impl Status {
    /// The kind of refusal that the status means.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::NoEntry
            | Self::NotDirectory
            | Self::NoDevice
            | Self::NoDeviceAddress
            | Self::Stale
            | Self::BadHandle => Refusal::NotFound,
            Self::IsDirectory | Self::BadType => Refusal::WrongKind,
            Self::Access | Self::NotOwner => Refusal::Denied,
            Self::ReadOnly => Refusal::ReadOnly,
            Self::NoSpace | Self::Quota => Refusal::Full,
            Self::Jukebox => Refusal::Busy,
            _ => Refusal::Other,
        }
    }

    pub const ALL: [Self; 28] = [
        Self::NotOwner,
        Self::NoEntry,
        Self::Io,
        Self::NoDeviceAddress,
        Self::Access,
        Self::Exists,
        Self::CrossDevice,
        Self::NoDevice,
        Self::NotDirectory,
        Self::IsDirectory,
        Self::Invalid,
        Self::FileTooBig,
        Self::NoSpace,
        Self::ReadOnly,
        Self::TooManyLinks,
        Self::NameTooLong,
        Self::NotEmpty,
        Self::Quota,
        Self::Stale,
        Self::Remote,
        Self::BadHandle,
        Self::NotSynchronized,
        Self::BadCookie,
        Self::NotSupported,
        Self::TooSmall,
        Self::ServerFault,
        Self::BadType,
        Self::Jukebox,
    ];

    /// Decodes a status: `Ok(Ok(()))` is `NFS3_OK`. An undefined number counts as a server fault, because some servers
    /// send their own `errno`.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Result<(), Self>, Garbage> {
        Ok(match reader.u32_be()? {
            0 => Ok(()),
            number => Err(Self::ALL.into_iter().find(|status| *status as u32 == number).unwrap_or(Self::ServerFault)),
        })
    }
}

numbered_file_errors!(Status);

/// `nfstime3`.
impl Time {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { seconds: reader.u32_be()?, nanoseconds: reader.u32_be()? })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.seconds).u32(self.nanoseconds);
    }
}

/// `ftype3`.
impl FileType {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(match reader.u32_be()? {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Block,
            4 => Self::Character,
            5 => Self::Symlink,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return Err(Garbage),
        })
    }
}

/// `fattr3`.
impl Attributes {
    pub const ENCODED_LEN: usize = 84;

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            kind: FileType::decode(reader)?,
            mode: reader.u32_be()?,
            links: reader.u32_be()?,
            uid: reader.u32_be()?,
            gid: reader.u32_be()?,
            size: reader.u64_be()?,
            used: reader.u64_be()?,
            device: (reader.u32_be()?, reader.u32_be()?),
            file_system: reader.u64_be()?,
            number: reader.u64_be()?,
            accessed: Time::decode(reader)?,
            modified: Time::decode(reader)?,
            changed: Time::decode(reader)?,
        })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.raw(&self.to_bytes());
    }

    /// Encodes the attributes at once, because every READ and WRITE reply contains them.
    fn to_bytes(self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [0; Self::ENCODED_LEN];
        let words = [self.kind as u32, self.mode, self.links, self.uid, self.gid];
        let longs = [self.size, self.used, u64::from(self.device.0) << 32 | u64::from(self.device.1)];
        let (head, tail) = bytes.split_at_mut(20);
        for (slot, word) in head.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_be_bytes());
        }
        let times = [self.accessed, self.modified, self.changed]
            .map(|time| u64::from(time.seconds) << 32 | u64::from(time.nanoseconds));
        let longs = longs.into_iter().chain([self.file_system, self.number]).chain(times);
        for (slot, long) in tail.chunks_exact_mut(8).zip(longs) {
            slot.copy_from_slice(&long.to_be_bytes());
        }
        bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    Null = 0,
    GetAttr = 1,
    SetAttr = 2,
    Lookup = 3,
    Access = 4,
    ReadLink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    MkDir = 9,
    SymLink = 10,
    MkNod = 11,
    Remove = 12,
    RmDir = 13,
    Rename = 14,
    Link = 15,
    ReadDir = 16,
    ReadDirPlus = 17,
    FsStat = 18,
    FsInfo = 19,
    PathConf = 20,
    Commit = 21,
}

impl Procedure {
    pub const ALL: [Self; 22] = [
        Self::Null,
        Self::GetAttr,
        Self::SetAttr,
        Self::Lookup,
        Self::Access,
        Self::ReadLink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::MkDir,
        Self::SymLink,
        Self::MkNod,
        Self::Remove,
        Self::RmDir,
        Self::Rename,
        Self::Link,
        Self::ReadDir,
        Self::ReadDirPlus,
        Self::FsStat,
        Self::FsInfo,
        Self::PathConf,
        Self::Commit,
    ];

    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether a repeated execution has the same effect. If not, replies are kept for repeated calls.
    pub fn is_idempotent(self) -> bool {
        !self.changes_names() && self != Self::SetAttr
    }

    /// Whether a read-only export rejects the procedure. WRITE and COMMIT are checked elsewhere.
    pub fn changes(self) -> bool {
        self.changes_names() || matches!(self, Self::SetAttr | Self::Write | Self::Commit)
    }

    fn changes_names(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::MkDir
                | Self::SymLink
                | Self::MkNod
                | Self::Remove
                | Self::RmDir
                | Self::Rename
                | Self::Link
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_sent() {
        let attributes = Attributes {
            kind: FileType::Block,
            mode: 0o644,
            links: 2,
            uid: 3,
            gid: 4,
            size: 5 << 33,
            used: 6 << 34,
            device: (7, 8),
            file_system: 9 << 40,
            number: 10,
            accessed: Time { seconds: 11, nanoseconds: 12 },
            modified: Time { seconds: 13, nanoseconds: 14 },
            changed: Time { seconds: 15, nanoseconds: 16 },
        };
        let mut encoder = Encoder::default();
        attributes.encode(&mut encoder);
        assert_eq!(encoder.len(), Attributes::ENCODED_LEN);
        assert_eq!(Attributes::decode(&mut Reader::new(encoder.bytes())), Ok(attributes));
    }

    #[test]
    fn a_status_unknown_to_the_standard_is_a_server_fault() {
        for status in Status::ALL {
            assert_eq!(Status::decode(&mut Reader::new(&(status as u32).to_be_bytes())), Ok(Err(status)));
        }
        assert_eq!(Status::decode(&mut Reader::new(&[0; 4])), Ok(Ok(())));
        assert_eq!(Status::decode(&mut Reader::new(&[0, 0, 0, 95])), Ok(Err(Status::ServerFault)));
    }
}

#[cfg(test)]
mod procedure_tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standard() {
        for (number, procedure) in Procedure::ALL.iter().enumerate() {
            assert_eq!(*procedure as usize, number);
            assert_eq!(Procedure::from_number(number as u32), Some(*procedure));
        }
        assert_eq!(Procedure::from_number(22), None);
    }
}
