//! Arguments of all NFS procedures (RFC 1813 §3.3).

use super::{MAX_IO_BYTES, Procedure};
use crate::{
    nfs::common::{CreateHow, FileHandle, FileType, MAX_PATH_LEN, NodeKind, SetAttributes, SetTime, Stability, Time},
    rpc::{Encoder, Garbage, xdr},
    wire::Reader,
};

/// A name in a directory (`diropargs3`). Names longer than `MAX_NAME_LEN` can be decoded, so that they get the proper
/// error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub directory: FileHandle,
    pub name: &'a [u8],
}

/// The range of a READ or COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    pub file: FileHandle,
    pub offset: u64,
    pub count: u32,
}

impl FileRange {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { file: FileHandle::decode(reader)?, offset: reader.u64_be()?, count: reader.u32_be()? })
    }

    fn encode(&self, encoder: &mut Encoder) {
        self.file.encode(encoder);
        encoder.u64(self.offset).u32(self.count);
    }
}

/// The head of a WRITE. `data_len` bytes of data and their padding follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHead {
    pub file: FileHandle,
    pub offset: u64,
    pub count: u32,
    pub stability: Stability,
    pub data_len: u32,
}

impl WriteHead {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            file: FileHandle::decode(reader)?,
            offset: reader.u64_be()?,
            count: reader.u32_be()?,
            stability: Stability::decode(reader)?,
            data_len: reader.u32_be()?,
        })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        self.file.encode(encoder);
        encoder.u64(self.offset).u32(self.count).u32(self.stability as u32).u32(self.data_len);
    }
}

/// Arguments of a procedure. The data after the head of a WRITE are not decoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    Null,
    GetAttr {
        file: FileHandle,
    },
    SetAttr {
        file: FileHandle,
        attributes: SetAttributes,
        guard: Option<Time>,
    },
    Lookup(Place<'a>),
    Access {
        file: FileHandle,
        rights: u32,
    },
    ReadLink {
        link: FileHandle,
    },
    Read(FileRange),
    Write(WriteHead),
    Create {
        place: Place<'a>,
        how: CreateHow,
    },
    MkDir {
        place: Place<'a>,
        attributes: SetAttributes,
    },
    SymLink {
        place: Place<'a>,
        attributes: SetAttributes,
        path: &'a [u8],
    },
    /// `kind` is `None` for a type that MKNOD cannot create.
    MkNod {
        place: Place<'a>,
        kind: Option<NodeKind>,
        attributes: SetAttributes,
    },
    Remove(Place<'a>),
    RmDir(Place<'a>),
    Rename {
        from: Place<'a>,
        to: Place<'a>,
    },
    Link {
        file: FileHandle,
        link: Place<'a>,
    },
    ReadDir {
        directory: FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    },
    ReadDirPlus {
        directory: FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        name_bytes: u32,
        max_bytes: u32,
    },
    FsStat {
        root: FileHandle,
    },
    FsInfo {
        root: FileHandle,
    },
    PathConf {
        file: FileHandle,
    },
    Commit(FileRange),
}

impl<'a> Arguments<'a> {
    pub fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::GetAttr { .. } => Procedure::GetAttr,
            Self::SetAttr { .. } => Procedure::SetAttr,
            Self::Lookup(_) => Procedure::Lookup,
            Self::Access { .. } => Procedure::Access,
            Self::ReadLink { .. } => Procedure::ReadLink,
            Self::Read(_) => Procedure::Read,
            Self::Write(_) => Procedure::Write,
            Self::Create { .. } => Procedure::Create,
            Self::MkDir { .. } => Procedure::MkDir,
            Self::SymLink { .. } => Procedure::SymLink,
            Self::MkNod { .. } => Procedure::MkNod,
            Self::Remove(_) => Procedure::Remove,
            Self::RmDir(_) => Procedure::RmDir,
            Self::Rename { .. } => Procedure::Rename,
            Self::Link { .. } => Procedure::Link,
            Self::ReadDir { .. } => Procedure::ReadDir,
            Self::ReadDirPlus { .. } => Procedure::ReadDirPlus,
            Self::FsStat { .. } => Procedure::FsStat,
            Self::FsInfo { .. } => Procedure::FsInfo,
            Self::PathConf { .. } => Procedure::PathConf,
            Self::Commit(_) => Procedure::Commit,
        }
    }

    pub fn decode(procedure: Procedure, reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(match procedure {
            Procedure::Null => Self::Null,
            Procedure::GetAttr => Self::GetAttr { file: FileHandle::decode(reader)? },
            Procedure::SetAttr => Self::SetAttr {
                file: FileHandle::decode(reader)?,
                attributes: SetAttributes::decode(reader)?,
                guard: xdr::optional(reader, |reader| Time::decode(reader))?,
            },
            Procedure::Lookup => Self::Lookup(Place::decode(reader)?),
            Procedure::Access => Self::Access { file: FileHandle::decode(reader)?, rights: reader.u32_be()? },
            Procedure::ReadLink => Self::ReadLink { link: FileHandle::decode(reader)? },
            Procedure::Read => Self::Read(FileRange::decode(reader)?),
            Procedure::Write => Self::Write(WriteHead::decode(reader)?),
            Procedure::Create => Self::Create { place: Place::decode(reader)?, how: CreateHow::decode(reader)? },
            Procedure::MkDir => {
                Self::MkDir { place: Place::decode(reader)?, attributes: SetAttributes::decode(reader)? }
            }
            Procedure::SymLink => Self::SymLink {
                place: Place::decode(reader)?,
                attributes: SetAttributes::decode(reader)?,
                path: xdr::opaque(reader, MAX_PATH_LEN)?,
            },
            Procedure::MkNod => Self::decode_node(reader)?,
            Procedure::Remove => Self::Remove(Place::decode(reader)?),
            Procedure::RmDir => Self::RmDir(Place::decode(reader)?),
            Procedure::Rename => Self::Rename { from: Place::decode(reader)?, to: Place::decode(reader)? },
            Procedure::Link => Self::Link { file: FileHandle::decode(reader)?, link: Place::decode(reader)? },
            Procedure::ReadDir => Self::ReadDir {
                directory: FileHandle::decode(reader)?,
                cookie: reader.u64_be()?,
                verifier: reader.array()?,
                count: reader.u32_be()?,
            },
            Procedure::ReadDirPlus => Self::ReadDirPlus {
                directory: FileHandle::decode(reader)?,
                cookie: reader.u64_be()?,
                verifier: reader.array()?,
                name_bytes: reader.u32_be()?,
                max_bytes: reader.u32_be()?,
            },
            Procedure::FsStat => Self::FsStat { root: FileHandle::decode(reader)? },
            Procedure::FsInfo => Self::FsInfo { root: FileHandle::decode(reader)? },
            Procedure::PathConf => Self::PathConf { file: FileHandle::decode(reader)? },
            Procedure::Commit => Self::Commit(FileRange::decode(reader)?),
        })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Null => {}
            Self::GetAttr { file }
            | Self::ReadLink { link: file }
            | Self::FsStat { root: file }
            | Self::FsInfo { root: file }
            | Self::PathConf { file } => file.encode(encoder),
            Self::SetAttr { file, attributes, guard } => {
                file.encode(encoder);
                attributes.encode(encoder);
                encoder.optional(guard.as_ref(), Time::encode);
            }
            Self::Lookup(place) | Self::Remove(place) | Self::RmDir(place) => place.encode(encoder),
            Self::Access { file, rights } => {
                file.encode(encoder);
                encoder.u32(*rights);
            }
            Self::Read(range) | Self::Commit(range) => range.encode(encoder),
            Self::Write(head) => head.encode(encoder),
            Self::Create { place, how } => {
                place.encode(encoder);
                how.encode(encoder);
            }
            Self::MkDir { place, attributes } => {
                place.encode(encoder);
                attributes.encode(encoder);
            }
            Self::SymLink { place, attributes, path } => {
                place.encode(encoder);
                attributes.encode(encoder);
                encoder.opaque(path);
            }
            Self::MkNod { place, kind, attributes } => {
                place.encode(encoder);
                encode_node(*kind, attributes, encoder);
            }
            Self::Rename { from, to } => {
                from.encode(encoder);
                to.encode(encoder);
            }
            Self::Link { file, link } => {
                file.encode(encoder);
                link.encode(encoder);
            }
            Self::ReadDir { directory, cookie, verifier, count } => {
                directory.encode(encoder);
                encoder.u64(*cookie).raw(verifier).u32(*count);
            }
            Self::ReadDirPlus { directory, cookie, verifier, name_bytes, max_bytes } => {
                directory.encode(encoder);
                encoder.u64(*cookie).raw(verifier).u32(*name_bytes).u32(*max_bytes);
            }
        }
    }

    fn decode_node(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        let place = Place::decode(reader)?;
        let file_type = FileType::decode(reader)?;
        if !matches!(file_type, FileType::Block | FileType::Character | FileType::Socket | FileType::Fifo) {
            return Ok(Self::MkNod { place, kind: None, attributes: SetAttributes::default() });
        }
        let attributes = SetAttributes::decode(reader)?;
        let kind = match file_type {
            FileType::Block => NodeKind::Block { major: reader.u32_be()?, minor: reader.u32_be()? },
            FileType::Character => NodeKind::Character { major: reader.u32_be()?, minor: reader.u32_be()? },
            FileType::Socket => NodeKind::Socket,
            _ => NodeKind::Fifo,
        };
        Ok(Self::MkNod { place, kind: Some(kind), attributes })
    }
}

fn encode_node(kind: Option<NodeKind>, attributes: &SetAttributes, encoder: &mut Encoder) {
    let file_type = match kind {
        Some(NodeKind::Block { .. }) => FileType::Block,
        Some(NodeKind::Character { .. }) => FileType::Character,
        Some(NodeKind::Socket) => FileType::Socket,
        Some(NodeKind::Fifo) => FileType::Fifo,
        None => FileType::Regular,
    };
    encoder.u32(file_type as u32);
    if kind.is_some() {
        attributes.encode(encoder);
    }
    if let Some(NodeKind::Block { major, minor } | NodeKind::Character { major, minor }) = kind {
        encoder.u32(major).u32(minor);
    }
}

impl<'a> Place<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self { directory: FileHandle::decode(reader)?, name: xdr::opaque(reader, MAX_PATH_LEN)? })
    }

    fn encode(&self, encoder: &mut Encoder) {
        self.directory.encode(encoder);
        encoder.opaque(self.name);
    }
}

impl SetTime {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(match reader.u32_be()? {
            0 => Self::Keep,
            1 => Self::ServerTime,
            2 => Self::Client(Time::decode(reader)?),
            _ => return Err(Garbage),
        })
    }

    fn encode(self, encoder: &mut Encoder) {
        match self {
            Self::Keep => encoder.u32(0),
            Self::ServerTime => encoder.u32(1),
            Self::Client(time) => encoder.u32(2).u32(time.seconds).u32(time.nanoseconds),
        };
    }
}

impl SetAttributes {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            mode: xdr::optional(reader, |reader| Ok(reader.u32_be()?))?,
            uid: xdr::optional(reader, |reader| Ok(reader.u32_be()?))?,
            gid: xdr::optional(reader, |reader| Ok(reader.u32_be()?))?,
            size: xdr::optional(reader, |reader| Ok(reader.u64_be()?))?,
            accessed: SetTime::decode(reader)?,
            modified: SetTime::decode(reader)?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        for word in [self.mode, self.uid, self.gid] {
            encoder.optional(word.as_ref(), |word, encoder| {
                encoder.u32(*word);
            });
        }
        encoder.optional(self.size.as_ref(), |size, encoder| {
            encoder.u64(*size);
        });
        self.accessed.encode(encoder);
        self.modified.encode(encoder);
    }
}

impl CreateHow {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(match reader.u32_be()? {
            0 => Self::Unchecked(SetAttributes::decode(reader)?),
            1 => Self::Guarded(SetAttributes::decode(reader)?),
            2 => Self::Exclusive(reader.array()?),
            _ => return Err(Garbage),
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Unchecked(attributes) => attributes.encode(encoder.u32(0)),
            Self::Guarded(attributes) => attributes.encode(encoder.u32(1)),
            Self::Exclusive(verifier) => {
                encoder.u32(2).raw(verifier);
            }
        }
    }
}

// The length of a record limits a WRITE's data. This is its maximum:
const _: () = assert!(MAX_IO_BYTES.checked_add(super::MAX_CONTROL_LEN).is_some());

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    /// At least one call of every procedure.
    pub(in crate::nfs::v3) fn examples() -> Vec<Arguments<'static>> {
        let file = FileHandle::new(b"file").expect("a handle");
        let directory = FileHandle::new(b"directory").expect("a handle");
        let place = Place { directory, name: b"name" };
        let attributes = SetAttributes {
            mode: Some(0o640),
            uid: Some(1),
            size: Some(1 << 40),
            modified: SetTime::Client(Time { seconds: 1, nanoseconds: 2 }),
            accessed: SetTime::ServerTime,
            ..SetAttributes::default()
        };
        let node = |kind| Arguments::MkNod { place, kind: Some(kind), attributes };
        vec![
            Arguments::Null,
            Arguments::GetAttr { file },
            Arguments::SetAttr { file, attributes, guard: Some(Time { seconds: 5, nanoseconds: 6 }) },
            Arguments::SetAttr { file, attributes: SetAttributes::default(), guard: None },
            Arguments::Lookup(place),
            Arguments::Access { file, rights: 0x3f },
            Arguments::ReadLink { link: file },
            Arguments::Read(FileRange { file, offset: 1 << 33, count: 4096 }),
            Arguments::Write(WriteHead { file, offset: 7, count: 9, stability: Stability::DataSync, data_len: 9 }),
            Arguments::Create { place, how: CreateHow::Unchecked(attributes) },
            Arguments::Create { place, how: CreateHow::Guarded(attributes) },
            Arguments::Create { place, how: CreateHow::Exclusive(*b"verifier") },
            Arguments::MkDir { place, attributes },
            Arguments::SymLink { place, attributes, path: b"../elsewhere" },
            node(NodeKind::Block { major: 8, minor: 1 }),
            node(NodeKind::Character { major: 1, minor: 3 }),
            node(NodeKind::Socket),
            node(NodeKind::Fifo),
            Arguments::MkNod { place, kind: None, attributes: SetAttributes::default() },
            Arguments::Remove(place),
            Arguments::RmDir(place),
            Arguments::Rename { from: place, to: Place { directory, name: b"new" } },
            Arguments::Link { file, link: place },
            Arguments::ReadDir { directory, cookie: 3, verifier: [1; 8], count: 512 },
            Arguments::ReadDirPlus { directory, cookie: 3, verifier: [1; 8], name_bytes: 512, max_bytes: 8192 },
            Arguments::FsStat { root: file },
            Arguments::FsInfo { root: file },
            Arguments::PathConf { file },
            Arguments::Commit(FileRange { file, offset: 0, count: 0 }),
        ]
    }

    #[test]
    fn arguments_come_back_as_they_were_sent_and_cut_short_they_are_garbage() {
        for arguments in examples() {
            let mut encoder = Encoder::default();
            arguments.encode(&mut encoder);
            let mut reader = Reader::new(encoder.bytes());
            assert_eq!(Arguments::decode(arguments.procedure(), &mut reader), Ok(arguments));
            assert_eq!(reader.remaining(), 0, "{arguments:?}");
            for len in 0..encoder.len() {
                let cut = Arguments::decode(arguments.procedure(), &mut Reader::new(&encoder.bytes()[..len]));
                assert_eq!(cut, Err(Garbage), "{arguments:?} of {len} bytes");
            }
        }
    }
}
