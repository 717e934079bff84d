//! Results of all NFS procedures (RFC 1813 §3.3).

use super::{Procedure, types::Status};
use crate::{
    nfs::common::{Attributes, FileHandle, MAX_NAME_LEN, MAX_PATH_LEN, PathConf, Space, Stability, Time},
    rpc::{Encoder, Garbage, xdr},
    wire::Reader,
};

/// `post_op_attr`.
pub type PostOp = Option<Attributes>;

/// `wcc_attr`: attributes that show whether a file changed between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreOp {
    pub size: u64,
    pub modified: Time,
    pub changed: Time,
}

/// `wcc_data`: attributes of a file before and after an operation that changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    pub before: Option<PreOp>,
    pub after: PostOp,
}

/// The server's limits and properties (`FSINFO3resok`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInfo {
    pub read_max: u32,
    pub read_preferred: u32,
    pub read_multiple: u32,
    pub write_max: u32,
    pub write_preferred: u32,
    pub write_multiple: u32,
    pub listing_preferred: u32,
    pub max_file_size: u64,
    pub time_delta: Time,
    pub properties: u32,
}

/// Bits of `FsInfo::properties` (RFC 1813 §3.3.19).
pub mod properties {
    pub const LINK: u32 = 0x01;
    pub const SYMLINK: u32 = 0x02;
    pub const HOMOGENEOUS: u32 = 0x08;
    pub const CAN_SET_TIME: u32 = 0x10;
}

/// Results of a successful procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    Null,
    GetAttr(Attributes),
    SetAttr(Wcc),
    Lookup {
        object: FileHandle,
        attributes: PostOp,
        directory: PostOp,
    },
    Access {
        attributes: PostOp,
        rights: u32,
    },
    ReadLink {
        attributes: PostOp,
        path: &'a [u8],
    },
    /// `data_len` bytes of data and their padding follow.
    Read {
        attributes: PostOp,
        count: u32,
        eof: bool,
        data_len: u32,
    },
    Write {
        file: Wcc,
        count: u32,
        committed: Stability,
        verifier: [u8; 8],
    },
    /// CREATE, MKDIR, SYMLINK and MKNOD.
    Create {
        object: Option<FileHandle>,
        attributes: PostOp,
        directory: Wcc,
    },
    /// REMOVE and RMDIR.
    Remove {
        directory: Wcc,
    },
    Rename {
        from: Wcc,
        to: Wcc,
    },
    Link {
        attributes: PostOp,
        directory: Wcc,
    },
    ReadDir {
        attributes: PostOp,
        verifier: [u8; 8],
        entries: Entries<'a>,
        eof: bool,
    },
    FsStat {
        attributes: PostOp,
        space: Space,
    },
    FsInfo {
        attributes: PostOp,
        info: FsInfo,
    },
    PathConf {
        attributes: PostOp,
        limits: PathConf,
    },
    Commit {
        file: Wcc,
        verifier: [u8; 8],
    },
}

/// The attributes that a failed procedure returns besides its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureContext {
    /// GETATTR.
    Nothing,
    PostOp(PostOp),
    Wcc(Wcc),
    Rename {
        from: Wcc,
        to: Wcc,
    },
    Link {
        attributes: PostOp,
        directory: Wcc,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: Status,
    pub context: FailureContext,
}

pub type Reply<'a> = Result<Results<'a>, Failure>;

impl Failure {
    /// A failure without attributes, in the form of the procedure's results.
    pub fn bare(procedure: Procedure, status: Status) -> Self {
        let context = match procedure {
            Procedure::Null | Procedure::GetAttr => FailureContext::Nothing,
            Procedure::Lookup
            | Procedure::Access
            | Procedure::ReadLink
            | Procedure::Read
            | Procedure::ReadDir
            | Procedure::ReadDirPlus
            | Procedure::FsStat
            | Procedure::FsInfo
            | Procedure::PathConf => FailureContext::PostOp(None),
            Procedure::Rename => FailureContext::Rename { from: Wcc::default(), to: Wcc::default() },
            Procedure::Link => FailureContext::Link { attributes: None, directory: Wcc::default() },
            _ => FailureContext::Wcc(Wcc::default()),
        };
        Self { status, context }
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.status as u32);
        match &self.context {
            FailureContext::Nothing => {}
            FailureContext::PostOp(attributes) => encode_post_op(attributes, encoder),
            FailureContext::Wcc(wcc) => wcc.encode(encoder),
            FailureContext::Rename { from, to } => {
                from.encode(encoder);
                to.encode(encoder);
            }
            FailureContext::Link { attributes, directory } => {
                encode_post_op(attributes, encoder);
                directory.encode(encoder);
            }
        }
    }

    fn decode(procedure: Procedure, status: Status, reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        let context = match Self::bare(procedure, status).context {
            FailureContext::Nothing => FailureContext::Nothing,
            FailureContext::PostOp(_) => FailureContext::PostOp(decode_post_op(reader)?),
            FailureContext::Wcc(_) => FailureContext::Wcc(Wcc::decode(reader)?),
            FailureContext::Rename { .. } => {
                FailureContext::Rename { from: Wcc::decode(reader)?, to: Wcc::decode(reader)? }
            }
            FailureContext::Link { .. } => {
                FailureContext::Link { attributes: decode_post_op(reader)?, directory: Wcc::decode(reader)? }
            }
        };
        Ok(Self { status, context })
    }
}

impl<'a> Results<'a> {
    /// Decodes status and results; for a READ, up to its data.
    pub fn decode(procedure: Procedure, reader: &mut Reader<'a>) -> Result<Reply<'a>, Garbage> {
        if procedure == Procedure::Null {
            return Ok(Ok(Self::Null));
        }
        if let Err(status) = Status::decode(reader)? {
            return Failure::decode(procedure, status, reader).map(Err);
        }
        Ok(Ok(match procedure {
            Procedure::Null => Self::Null,
            Procedure::GetAttr => Self::GetAttr(Attributes::decode(reader)?),
            Procedure::SetAttr => Self::SetAttr(Wcc::decode(reader)?),
            Procedure::Lookup => Self::Lookup {
                object: FileHandle::decode(reader)?,
                attributes: decode_post_op(reader)?,
                directory: decode_post_op(reader)?,
            },
            Procedure::Access => Self::Access { attributes: decode_post_op(reader)?, rights: reader.u32_be()? },
            Procedure::ReadLink => {
                Self::ReadLink { attributes: decode_post_op(reader)?, path: xdr::opaque(reader, MAX_PATH_LEN)? }
            }
            Procedure::Read => Self::Read {
                attributes: decode_post_op(reader)?,
                count: reader.u32_be()?,
                eof: xdr::boolean(reader)?,
                data_len: reader.u32_be()?,
            },
            Procedure::Write => Self::Write {
                file: Wcc::decode(reader)?,
                count: reader.u32_be()?,
                committed: Stability::decode(reader)?,
                verifier: reader.array()?,
            },
            Procedure::Create | Procedure::MkDir | Procedure::SymLink | Procedure::MkNod => Self::Create {
                object: xdr::optional(reader, |reader| FileHandle::decode(reader))?,
                attributes: decode_post_op(reader)?,
                directory: Wcc::decode(reader)?,
            },
            Procedure::Remove | Procedure::RmDir => Self::Remove { directory: Wcc::decode(reader)? },
            Procedure::Rename => Self::Rename { from: Wcc::decode(reader)?, to: Wcc::decode(reader)? },
            Procedure::Link => Self::Link { attributes: decode_post_op(reader)?, directory: Wcc::decode(reader)? },
            Procedure::ReadDir | Procedure::ReadDirPlus => {
                let (attributes, verifier) = (decode_post_op(reader)?, reader.array()?);
                let entries = Entries::decode(procedure == Procedure::ReadDirPlus, reader)?;
                Self::ReadDir { attributes, verifier, entries, eof: xdr::boolean(reader)? }
            }
            Procedure::FsStat => {
                let (attributes, space) = (decode_post_op(reader)?, decode_space(reader)?);
                Self::FsStat { attributes, space }
            }
            Procedure::FsInfo => Self::FsInfo { attributes: decode_post_op(reader)?, info: FsInfo::decode(reader)? },
            Procedure::PathConf => {
                Self::PathConf { attributes: decode_post_op(reader)?, limits: PathConf::decode(reader)? }
            }
            Procedure::Commit => Self::Commit { file: Wcc::decode(reader)?, verifier: reader.array()? },
        }))
    }

    /// Encodes status and results; for a READ, up to its data.
    pub fn encode(&self, encoder: &mut Encoder) {
        if *self != Self::Null {
            encoder.u32(0);
        }
        match self {
            Self::Null => {}
            Self::GetAttr(attributes) => attributes.encode(encoder),
            Self::SetAttr(wcc) | Self::Remove { directory: wcc } => wcc.encode(encoder),
            Self::Lookup { object, attributes, directory } => {
                object.encode(encoder);
                encode_post_op(attributes, encoder);
                encode_post_op(directory, encoder);
            }
            Self::Access { attributes, rights } => {
                encode_post_op(attributes, encoder);
                encoder.u32(*rights);
            }
            Self::ReadLink { attributes, path } => {
                encode_post_op(attributes, encoder);
                encoder.opaque(path);
            }
            Self::Read { attributes, count, eof, data_len } => {
                encode_post_op(attributes, encoder);
                encoder.u32(*count).boolean(*eof).u32(*data_len);
            }
            Self::Write { file, count, committed, verifier } => {
                file.encode(encoder);
                encoder.u32(*count).u32(*committed as u32).raw(verifier);
            }
            Self::Create { object, attributes, directory } => {
                encoder.optional(object.as_ref(), FileHandle::encode);
                encode_post_op(attributes, encoder);
                directory.encode(encoder);
            }
            Self::Rename { from, to } => {
                from.encode(encoder);
                to.encode(encoder);
            }
            Self::Link { attributes, directory } => {
                encode_post_op(attributes, encoder);
                directory.encode(encoder);
            }
            Self::ReadDir { attributes, verifier, entries, eof } => {
                encode_post_op(attributes, encoder);
                encoder.raw(verifier).raw(entries.encoded).boolean(false).boolean(*eof);
            }
            Self::FsStat { attributes, space } => {
                encode_post_op(attributes, encoder);
                encoder.u64(space.total_bytes).u64(space.free_bytes).u64(space.free_bytes);
                encoder.u64(space.total_files).u64(space.free_files).u64(space.free_files);
                encoder.u32(0); // invarsec: may change at any time.
            }
            Self::FsInfo { attributes, info } => {
                encode_post_op(attributes, encoder);
                info.encode(encoder);
            }
            Self::PathConf { attributes, limits } => {
                encode_post_op(attributes, encoder);
                limits.encode(encoder);
            }
            Self::Commit { file, verifier } => {
                file.encode(encoder);
                encoder.raw(verifier);
            }
        }
    }
}

/// Encoded directory entries of a reply: `entry3` or `entryplus3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    plus: bool,
    encoded: &'a [u8],
}

/// One directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub number: u64,
    pub name: &'a [u8],
    pub cookie: u64,
    /// Only in READDIRPLUS.
    pub attributes: PostOp,
    pub handle: Option<FileHandle>,
}

impl<'a> Entries<'a> {
    /// Iterates over entries that `Entry::encode` encoded.
    pub fn new(plus: bool, encoded: &'a [u8]) -> Self {
        Self { plus, encoded }
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let (plus, mut reader) = (self.plus, Reader::new(self.encoded));
        core::iter::from_fn(move || {
            reader.skip(4).ok()?;
            Entry::decode(plus, &mut reader).ok()
        })
    }

    fn decode(plus: bool, reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        let mut ahead = *reader;
        loop {
            let len = ahead.position() - reader.position();
            if !xdr::boolean(&mut ahead)? {
                let encoded = reader.take(len)?;
                *reader = ahead;
                return Ok(Self { plus, encoded });
            }
            Entry::decode(plus, &mut ahead)?;
        }
    }
}

impl<'a> Entry<'a> {
    fn decode(plus: bool, reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        let (number, name) = (reader.u64_be()?, xdr::opaque(reader, MAX_NAME_LEN)?);
        let mut entry = Self { number, name, cookie: reader.u64_be()?, attributes: None, handle: None };
        if plus {
            entry.attributes = decode_post_op(reader)?;
            entry.handle = xdr::optional(reader, |reader| FileHandle::decode(reader))?;
        }
        Ok(entry)
    }

    /// Encodes the marker that an entry follows, and the entry.
    pub fn encode(&self, plus: bool, encoder: &mut Encoder) {
        encoder.boolean(true).u64(self.number).opaque(self.name).u64(self.cookie);
        if plus {
            encode_post_op(&self.attributes, encoder);
            encoder.optional(self.handle.as_ref(), FileHandle::encode);
        }
    }
}

impl PreOp {
    pub const ENCODED_LEN: usize = 24;
}

impl From<&Attributes> for PreOp {
    fn from(attributes: &Attributes) -> Self {
        Self { size: attributes.size, modified: attributes.modified, changed: attributes.changed }
    }
}

impl Wcc {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        let before = xdr::optional(reader, |reader| {
            Ok(PreOp { size: reader.u64_be()?, modified: Time::decode(reader)?, changed: Time::decode(reader)? })
        })?;
        Ok(Self { before, after: decode_post_op(reader)? })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.optional(self.before.as_ref(), |before, encoder| {
            encoder.u64(before.size);
            before.modified.encode(encoder);
            before.changed.encode(encoder);
        });
        encode_post_op(&self.after, encoder);
    }
}

impl FsInfo {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            read_max: reader.u32_be()?,
            read_preferred: reader.u32_be()?,
            read_multiple: reader.u32_be()?,
            write_max: reader.u32_be()?,
            write_preferred: reader.u32_be()?,
            write_multiple: reader.u32_be()?,
            listing_preferred: reader.u32_be()?,
            max_file_size: reader.u64_be()?,
            time_delta: Time::decode(reader)?,
            properties: reader.u32_be()?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.read_max).u32(self.read_preferred).u32(self.read_multiple);
        encoder.u32(self.write_max).u32(self.write_preferred).u32(self.write_multiple);
        encoder.u32(self.listing_preferred).u64(self.max_file_size);
        self.time_delta.encode(encoder);
        encoder.u32(self.properties);
    }
}

impl PathConf {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            links_max: reader.u32_be()?,
            name_max: reader.u32_be()?,
            no_truncation: xdr::boolean(reader)?,
            chown_restricted: xdr::boolean(reader)?,
            case_insensitive: xdr::boolean(reader)?,
            case_preserving: xdr::boolean(reader)?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.links_max).u32(self.name_max).boolean(self.no_truncation);
        encoder.boolean(self.chown_restricted).boolean(self.case_insensitive).boolean(self.case_preserving);
    }
}

fn decode_space(reader: &mut Reader<'_>) -> Result<Space, Garbage> {
    let mut words = [0; 6];
    for word in &mut words {
        *word = reader.u64_be()?;
    }
    reader.skip(4)?;
    // Free space is what the caller may use (the third and sixth word).
    let [total_bytes, _, free_bytes, total_files, _, free_files] = words;
    Ok(Space { total_bytes, free_bytes, total_files, free_files })
}

fn decode_post_op(reader: &mut Reader<'_>) -> Result<PostOp, Garbage> {
    xdr::optional(reader, |reader| Attributes::decode(reader))
}

fn encode_post_op(attributes: &PostOp, encoder: &mut Encoder) {
    encoder.optional(attributes.as_ref(), Attributes::encode);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::common::FileType;
    use alloc::vec;

    fn attributes() -> Attributes {
        let time = Time { seconds: 1, nanoseconds: 2 };
        Attributes {
            kind: FileType::Regular,
            mode: 0o600,
            links: 1,
            uid: 2,
            gid: 3,
            size: 4,
            used: 5,
            device: (0, 0),
            file_system: 6,
            number: 7,
            accessed: time,
            modified: time,
            changed: time,
        }
    }

    #[test]
    fn results_come_back_as_they_were_sent_and_cut_short_they_are_garbage() {
        let attributes = attributes();
        let post_op = Some(attributes);
        let wcc = Wcc { before: Some(PreOp::from(&attributes)), after: post_op };
        let object = FileHandle::new(b"object").expect("a handle");
        let info = FsInfo {
            read_max: 1,
            read_preferred: 2,
            read_multiple: 3,
            write_max: 4,
            write_preferred: 5,
            write_multiple: 6,
            listing_preferred: 7,
            max_file_size: 8,
            time_delta: Time { seconds: 0, nanoseconds: 1 },
            properties: 0x1b,
        };
        let limits = PathConf {
            links_max: 9,
            name_max: 255,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        let space = Space { total_bytes: 1 << 40, free_bytes: 2, total_files: 3, free_files: 4 };
        let mut list = Encoder::default();
        Entry { number: 7, name: b"name", cookie: 3, attributes: post_op, handle: Some(object) }
            .encode(true, &mut list);
        let entries = Entries::new(true, list.bytes());
        assert_eq!(entries.iter().map(|entry| entry.name).collect::<vec::Vec<_>>(), [b"name"]);
        let examples = [
            (Procedure::Null, Results::Null),
            (Procedure::GetAttr, Results::GetAttr(attributes)),
            (Procedure::SetAttr, Results::SetAttr(wcc)),
            (Procedure::Lookup, Results::Lookup { object, attributes: post_op, directory: None }),
            (Procedure::Access, Results::Access { attributes: None, rights: 5 }),
            (Procedure::ReadLink, Results::ReadLink { attributes: post_op, path: b"a/b" }),
            (Procedure::Read, Results::Read { attributes: post_op, count: 4, eof: true, data_len: 4 }),
            (
                Procedure::Write,
                Results::Write { file: wcc, count: 4, committed: Stability::FileSync, verifier: [3; 8] },
            ),
            (Procedure::Create, Results::Create { object: Some(object), attributes: post_op, directory: wcc }),
            (Procedure::Remove, Results::Remove { directory: wcc }),
            (Procedure::Rename, Results::Rename { from: wcc, to: Wcc::default() }),
            (Procedure::Link, Results::Link { attributes: post_op, directory: wcc }),
            (Procedure::ReadDirPlus, Results::ReadDir { attributes: post_op, verifier: [4; 8], entries, eof: true }),
            (Procedure::FsStat, Results::FsStat { attributes: post_op, space }),
            (Procedure::FsInfo, Results::FsInfo { attributes: post_op, info }),
            (Procedure::PathConf, Results::PathConf { attributes: post_op, limits }),
            (Procedure::Commit, Results::Commit { file: wcc, verifier: [5; 8] }),
        ];
        for (procedure, results) in examples {
            let mut encoder = Encoder::default();
            results.encode(&mut encoder);
            let mut reader = Reader::new(encoder.bytes());
            assert_eq!(Results::decode(procedure, &mut reader), Ok(Ok(results)));
            assert_eq!(reader.remaining(), 0, "{results:?}");
            for len in 0..encoder.len() {
                let cut = Results::decode(procedure, &mut Reader::new(&encoder.bytes()[..len]));
                assert_eq!(cut, Err(Garbage), "{procedure:?} of {len} bytes");
            }
        }
    }

    #[test]
    fn failures_come_back_in_the_form_of_their_procedure() {
        for procedure in Procedure::ALL.into_iter().skip(1) {
            let failure = Failure::bare(procedure, Status::Stale);
            let mut encoder = Encoder::default();
            failure.encode(&mut encoder);
            let mut reader = Reader::new(encoder.bytes());
            assert_eq!(Results::decode(procedure, &mut reader), Ok(Err(failure)));
            assert_eq!(reader.remaining(), 0);
        }
    }
}
