//! Arguments of the operations of a COMPOUND (RFC 8881 §18). The data after the head of a WRITE are not decoded here.

use super::{
    codec::{ChannelAttributes, MAX_HANDLE_LEN, MAX_OWNER_LEN, OpCode, SessionId, StateId},
    fattr::{Bitmap, RawAttributes},
};
use crate::{
    nfs::common::{MAX_PATH_LEN, NodeKind, Stability},
    rpc::{Encoder, Garbage, xdr},
    wire::Reader,
};

/// Maximum entries of lists that are not used here but must be skipped: security parameters, implementation names,
/// stateids.
const MAX_LIST: u32 = 1024;
/// Maximum length of an entry in such a list.
const MAX_LISTED_LEN: usize = 4096;

/// SEQUENCE (RFC 8881 §18.46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceArguments {
    pub session: SessionId,
    pub seqid: u32,
    pub slot: u32,
    pub highest_slot: u32,
    pub cache_this: bool,
}

impl SequenceArguments {
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            session: SessionId(reader.array()?),
            seqid: reader.u32_be()?,
            slot: reader.u32_be()?,
            highest_slot: reader.u32_be()?,
            cache_this: xdr::boolean(reader)?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.raw(&self.session.0).u32(self.seqid).u32(self.slot).u32(self.highest_slot).boolean(self.cache_this);
    }
}

/// READ (RFC 8881 §18.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadArguments {
    pub state: StateId,
    pub offset: u64,
    pub count: u32,
}

impl ReadArguments {
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { state: StateId::decode(reader)?, offset: reader.u64_be()?, count: reader.u32_be()? })
    }
}

/// ALLOCATE and DEALLOCATE (RFC 7862 §15.1 and §15.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceArguments {
    pub state: StateId,
    pub offset: u64,
    pub len: u64,
}

impl SpaceArguments {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { state: StateId::decode(reader)?, offset: reader.u64_be()?, len: reader.u64_be()? })
    }

    fn encode(&self, encoder: &mut Encoder) {
        self.state.encode(encoder);
        encoder.u64(self.offset).u64(self.len);
    }
}

/// `data_content4`: the kind of content of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Data,
    Hole,
}

/// SEEK (RFC 7862 §15.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekArguments {
    pub state: StateId,
    pub offset: u64,
    /// `None`: something other than data and holes.
    pub what: Option<Content>,
}

impl SeekArguments {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        let (state, offset) = (StateId::decode(reader)?, reader.u64_be()?);
        let what = match reader.u32_be()? {
            0 => Some(Content::Data),
            1 => Some(Content::Hole),
            _ => None,
        };
        Ok(Self { state, offset, what })
    }

    fn encode(&self, encoder: &mut Encoder) {
        self.state.encode(encoder);
        encoder.u64(self.offset).u32(self.what.map_or(u32::MAX, |what| what as u32));
    }
}

/// The head of a WRITE (RFC 8881 §18.32). `len` bytes of data and their padding follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHead {
    pub state: StateId,
    pub offset: u64,
    pub stability: Stability,
    pub len: u32,
}

impl WriteHead {
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            state: StateId::decode(reader)?,
            offset: reader.u64_be()?,
            stability: Stability::decode(reader)?,
            len: reader.u32_be()?,
        })
    }
}

/// The owner of an open or lock: a client, and a name within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    pub client: u64,
    pub name: &'a [u8],
}

impl<'a> Owner<'a> {
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self { client: reader.u64_be()?, name: xdr::opaque(reader, MAX_OWNER_LEN)? })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u64(self.client).opaque(self.name);
    }
}

/// Whether and how OPEN creates the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow<'a> {
    NoCreate,
    Unchecked(RawAttributes<'a>),
    Guarded(RawAttributes<'a>),
    Exclusive { verifier: [u8; 8], attributes: RawAttributes<'a> },
}

/// The file that OPEN opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// A name in the current directory.
    Name(&'a [u8]),
    /// The current file.
    File,
    /// A file that was open before the server restarted.
    Previous,
    /// A file by a delegation, which this target does not grant.
    Delegation,
}

/// OPEN (RFC 8881 §18.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenArguments<'a> {
    /// Includes the wishes about delegations.
    pub access: u32,
    pub deny: u32,
    pub owner: Owner<'a>,
    pub how: OpenHow<'a>,
    pub claim: Claim<'a>,
}

impl<'a> OpenArguments<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        reader.skip(4)?; // The sequence number of version 4.0.
        let (access, deny) = (reader.u32_be()?, reader.u32_be()?);
        let owner = Owner::decode(reader)?;
        let how = match reader.u32_be()? {
            0 => OpenHow::NoCreate,
            1 => match reader.u32_be()? {
                0 => OpenHow::Unchecked(RawAttributes::decode(reader)?),
                1 => OpenHow::Guarded(RawAttributes::decode(reader)?),
                2 => OpenHow::Exclusive { verifier: reader.array()?, attributes: RawAttributes::NONE },
                3 => OpenHow::Exclusive { verifier: reader.array()?, attributes: RawAttributes::decode(reader)? },
                _ => return Err(Garbage),
            },
            _ => return Err(Garbage),
        };
        let claim = match reader.u32_be()? {
            0 => Claim::Name(xdr::opaque(reader, MAX_PATH_LEN)?),
            1 => {
                reader.skip(4)?;
                Claim::Previous
            }
            2 => {
                StateId::decode(reader)?;
                xdr::opaque(reader, MAX_PATH_LEN)?;
                Claim::Delegation
            }
            3 => {
                xdr::opaque(reader, MAX_PATH_LEN)?;
                Claim::Delegation
            }
            4 => Claim::File,
            5 => {
                StateId::decode(reader)?;
                Claim::Delegation
            }
            6 => Claim::Delegation,
            _ => return Err(Garbage),
        };
        Ok(Self { access, deny, owner, how, claim })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(0).u32(self.access).u32(self.deny);
        self.owner.encode(encoder);
        match &self.how {
            OpenHow::NoCreate => drop(encoder.u32(0)),
            OpenHow::Unchecked(attributes) => attributes.encode(encoder.u32(1).u32(0)),
            OpenHow::Guarded(attributes) => attributes.encode(encoder.u32(1).u32(1)),
            OpenHow::Exclusive { verifier, attributes } => attributes.encode(encoder.u32(1).u32(3).raw(verifier)),
        }
        match self.claim {
            Claim::Name(name) => encoder.u32(0).opaque(name),
            Claim::File => encoder.u32(4),
            Claim::Previous => encoder.u32(1).u32(0),
            Claim::Delegation => encoder.u32(6),
        };
    }
}

/// The state on which LOCK bases the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locker<'a> {
    /// The first lock of an owner on a file that it has opened.
    New { open: StateId, owner: Owner<'a> },
    /// A further lock.
    Known(StateId),
}

/// A range of bytes; a length of `u64::MAX` means to the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    pub offset: u64,
    pub len: u64,
}

impl LockRange {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { offset: reader.u64_be()?, len: reader.u64_be()? })
    }
}

/// Whether a lock also excludes readers. `READW_LT` and `WRITEW_LT` are treated the same, because there are no
/// callbacks.
fn is_exclusive(reader: &mut Reader<'_>) -> Result<bool, Garbage> {
    match reader.u32_be()? {
        1 | 3 => Ok(false),
        2 | 4 => Ok(true),
        _ => Err(Garbage),
    }
}

/// EXCHANGE_ID (RFC 8881 §18.35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeArguments<'a> {
    pub verifier: [u8; 8],
    pub owner: &'a [u8],
    pub flags: u32,
    /// Whether the client requires machine credentials or SSV, which need RPCSEC_GSS.
    pub wants_protection: bool,
}

impl<'a> ExchangeArguments<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        let (verifier, owner) = (reader.array()?, xdr::opaque(reader, MAX_OWNER_LEN)?);
        let flags = reader.u32_be()?;
        let protection = reader.u32_be()?;
        match protection {
            0 => {}
            1 => skip_protected_operations(reader)?,
            2 => {
                skip_protected_operations(reader)?;
                for _ in 0..2 {
                    skip_list(reader, |reader| xdr::opaque(reader, MAX_LISTED_LEN).map(drop))?;
                }
                reader.skip(8)?;
            }
            _ => return Err(Garbage),
        }
        skip_implementation(reader)?;
        Ok(Self { verifier, owner, flags, wants_protection: protection != 0 })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.raw(&self.verifier).opaque(self.owner).u32(self.flags);
        encoder.u32(u32::from(self.wants_protection));
        if self.wants_protection {
            encoder.u32(0).u32(0);
        }
        encoder.u32(0);
    }
}

fn skip_protected_operations(reader: &mut Reader<'_>) -> Result<(), Garbage> {
    for _ in 0..2 {
        skip_list(reader, |reader| Ok(reader.skip(4)?))?;
    }
    Ok(())
}

/// `nfs_impl_id4<1>`.
fn skip_implementation(reader: &mut Reader<'_>) -> Result<(), Garbage> {
    if xdr::boolean(reader)? {
        xdr::opaque(reader, MAX_LISTED_LEN)?;
        xdr::opaque(reader, MAX_LISTED_LEN)?;
        reader.skip(12)?;
    }
    Ok(())
}

fn skip_list<'a>(
    reader: &mut Reader<'a>,
    mut skip: impl FnMut(&mut Reader<'a>) -> Result<(), Garbage>,
) -> Result<(), Garbage> {
    let count = reader.u32_be()?;
    if count > MAX_LIST {
        return Err(Garbage);
    }
    (0..count).try_for_each(|_| skip(reader))
}

/// CREATE_SESSION (RFC 8881 §18.36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSessionArguments {
    pub client: u64,
    pub sequence: u32,
    pub flags: u32,
    pub fore: ChannelAttributes,
    pub back: ChannelAttributes,
    pub callback_program: u32,
}

impl CreateSessionArguments {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        let arguments = Self {
            client: reader.u64_be()?,
            sequence: reader.u32_be()?,
            flags: reader.u32_be()?,
            fore: ChannelAttributes::decode(reader)?,
            back: ChannelAttributes::decode(reader)?,
            callback_program: reader.u32_be()?,
        };
        skip_callback_security(reader)?;
        Ok(arguments)
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.u64(self.client).u32(self.sequence).u32(self.flags);
        self.fore.encode(encoder);
        self.back.encode(encoder);
        // The credential for callbacks is AUTH_NONE. There are no callbacks.
        encoder.u32(self.callback_program).u32(1).u32(0);
    }
}

/// `callback_sec_parms4<>`.
fn skip_callback_security(reader: &mut Reader<'_>) -> Result<(), Garbage> {
    skip_list(reader, |reader| match reader.u32_be()? {
        0 => Ok(()),
        1 => {
            reader.skip(4)?;
            xdr::opaque(reader, 255)?;
            reader.skip(8)?;
            skip_list(reader, |reader| Ok(reader.skip(4)?))
        }
        6 => {
            reader.skip(4)?;
            xdr::opaque(reader, MAX_LISTED_LEN)?;
            xdr::opaque(reader, MAX_LISTED_LEN).map(drop)
        }
        _ => Err(Garbage),
    })
}

/// The type of file that CREATE creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'a> {
    Directory,
    Link(&'a [u8]),
    Node(NodeKind),
    /// A regular file, which OPEN creates, or an undefined type.
    Other,
}

impl<'a> Made<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(match reader.u32_be()? {
            2 => Self::Directory,
            3 => Self::Node(NodeKind::Block { major: reader.u32_be()?, minor: reader.u32_be()? }),
            4 => Self::Node(NodeKind::Character { major: reader.u32_be()?, minor: reader.u32_be()? }),
            5 => Self::Link(xdr::opaque(reader, MAX_PATH_LEN)?),
            6 => Self::Node(NodeKind::Socket),
            7 => Self::Node(NodeKind::Fifo),
            _ => Self::Other,
        })
    }

    fn encode(self, encoder: &mut Encoder) {
        match self {
            Self::Directory => encoder.u32(2),
            Self::Node(NodeKind::Block { major, minor }) => encoder.u32(3).u32(major).u32(minor),
            Self::Node(NodeKind::Character { major, minor }) => encoder.u32(4).u32(major).u32(minor),
            Self::Link(path) => encoder.u32(5).opaque(path),
            Self::Node(NodeKind::Socket) => encoder.u32(6),
            Self::Node(NodeKind::Fifo) => encoder.u32(7),
            Self::Other => encoder.u32(1),
        };
    }
}

/// READDIR (RFC 8881 §18.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirArguments {
    pub cookie: u64,
    pub verifier: [u8; 8],
    /// Maximum bytes of names and cookies.
    pub names: u32,
    /// Maximum bytes of the whole result.
    pub all: u32,
    pub wanted: Bitmap,
}

/// Arguments of an operation. Those of an operation that the target always rejects are not decoded: `Unserved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    Access {
        rights: u32,
    },
    Close {
        state: StateId,
    },
    Commit {
        offset: u64,
        count: u32,
    },
    Create {
        made: Made<'a>,
        name: &'a [u8],
        attributes: RawAttributes<'a>,
    },
    GetAttr(Bitmap),
    GetFh,
    Link {
        name: &'a [u8],
    },
    Lock {
        is_exclusive: bool,
        reclaims: bool,
        range: LockRange,
        locker: Locker<'a>,
    },
    LockT {
        is_exclusive: bool,
        range: LockRange,
        owner: Owner<'a>,
    },
    LockU {
        state: StateId,
        range: LockRange,
    },
    Lookup {
        name: &'a [u8],
    },
    LookupP,
    NVerify(RawAttributes<'a>),
    Open(OpenArguments<'a>),
    OpenDowngrade {
        state: StateId,
        access: u32,
        deny: u32,
    },
    PutFh(&'a [u8]),
    PutPubFh,
    PutRootFh,
    Read(ReadArguments),
    ReadDir(ReadDirArguments),
    ReadLink,
    Remove {
        name: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    RestoreFh,
    SaveFh,
    SecInfo {
        name: &'a [u8],
    },
    SetAttr {
        state: StateId,
        attributes: RawAttributes<'a>,
    },
    Verify(RawAttributes<'a>),
    Write(WriteHead),
    BackchannelCtl {
        program: u32,
    },
    BindConnToSession {
        session: SessionId,
        direction: u32,
        rdma: bool,
    },
    ExchangeId(ExchangeArguments<'a>),
    CreateSession(CreateSessionArguments),
    DestroySession(SessionId),
    FreeStateId(StateId),
    SecInfoNoName {
        of_parent: bool,
    },
    Sequence(SequenceArguments),
    /// Encoded stateids, sixteen bytes each.
    TestStateId(&'a [u8]),
    DestroyClientId(u64),
    ReclaimComplete {
        of_one_file_system: bool,
    },
    Allocate(SpaceArguments),
    Deallocate(SpaceArguments),
    Seek(SeekArguments),
    Unserved,
}

impl<'a> Operation<'a> {
    pub fn decode(code: OpCode, reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        let name = |reader: &mut Reader<'a>| xdr::opaque(reader, MAX_PATH_LEN);
        Ok(match code {
            OpCode::Access => Self::Access { rights: reader.u32_be()? },
            OpCode::Close => {
                reader.skip(4)?;
                Self::Close { state: StateId::decode(reader)? }
            }
            OpCode::Commit => Self::Commit { offset: reader.u64_be()?, count: reader.u32_be()? },
            OpCode::Create => Self::Create {
                made: Made::decode(reader)?,
                name: name(reader)?,
                attributes: RawAttributes::decode(reader)?,
            },
            OpCode::GetAttr => Self::GetAttr(Bitmap::decode(reader)?),
            OpCode::GetFh => Self::GetFh,
            OpCode::Link => Self::Link { name: name(reader)? },
            OpCode::Lock => Self::decode_lock(reader)?,
            OpCode::LockT => Self::LockT {
                is_exclusive: is_exclusive(reader)?,
                range: LockRange::decode(reader)?,
                owner: Owner::decode(reader)?,
            },
            OpCode::LockU => {
                is_exclusive(reader)?;
                reader.skip(4)?;
                Self::LockU { state: StateId::decode(reader)?, range: LockRange::decode(reader)? }
            }
            OpCode::Lookup => Self::Lookup { name: name(reader)? },
            OpCode::LookupP => Self::LookupP,
            OpCode::NVerify => Self::NVerify(RawAttributes::decode(reader)?),
            OpCode::Open => Self::Open(OpenArguments::decode(reader)?),
            OpCode::OpenDowngrade => {
                let state = StateId::decode(reader)?;
                reader.skip(4)?;
                Self::OpenDowngrade { state, access: reader.u32_be()?, deny: reader.u32_be()? }
            }
            OpCode::PutFh => Self::PutFh(xdr::opaque(reader, MAX_HANDLE_LEN)?),
            OpCode::PutPubFh => Self::PutPubFh,
            OpCode::PutRootFh => Self::PutRootFh,
            OpCode::Read => Self::Read(ReadArguments::decode(reader)?),
            OpCode::ReadDir => Self::ReadDir(ReadDirArguments {
                cookie: reader.u64_be()?,
                verifier: reader.array()?,
                names: reader.u32_be()?,
                all: reader.u32_be()?,
                wanted: Bitmap::decode(reader)?,
            }),
            OpCode::ReadLink => Self::ReadLink,
            OpCode::Remove => Self::Remove { name: name(reader)? },
            OpCode::Rename => Self::Rename { from: name(reader)?, to: name(reader)? },
            OpCode::RestoreFh => Self::RestoreFh,
            OpCode::SaveFh => Self::SaveFh,
            OpCode::SecInfo => Self::SecInfo { name: name(reader)? },
            OpCode::SetAttr => {
                Self::SetAttr { state: StateId::decode(reader)?, attributes: RawAttributes::decode(reader)? }
            }
            OpCode::Verify => Self::Verify(RawAttributes::decode(reader)?),
            OpCode::Write => Self::Write(WriteHead::decode(reader)?),
            OpCode::BackchannelCtl => {
                let program = reader.u32_be()?;
                skip_callback_security(reader)?;
                Self::BackchannelCtl { program }
            }
            OpCode::BindConnToSession => Self::BindConnToSession {
                session: SessionId(reader.array()?),
                direction: reader.u32_be()?,
                rdma: xdr::boolean(reader)?,
            },
            OpCode::ExchangeId => Self::ExchangeId(ExchangeArguments::decode(reader)?),
            OpCode::CreateSession => Self::CreateSession(CreateSessionArguments::decode(reader)?),
            OpCode::DestroySession => Self::DestroySession(SessionId(reader.array()?)),
            OpCode::FreeStateId => Self::FreeStateId(StateId::decode(reader)?),
            OpCode::SecInfoNoName => Self::SecInfoNoName {
                of_parent: match reader.u32_be()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Garbage),
                },
            },
            OpCode::Sequence => Self::Sequence(SequenceArguments::decode(reader)?),
            OpCode::TestStateId => {
                let count = reader.u32_be()?;
                if count > MAX_LIST {
                    return Err(Garbage);
                }
                Self::TestStateId(reader.take(count as usize * StateId::LEN)?)
            }
            OpCode::DestroyClientId => Self::DestroyClientId(reader.u64_be()?),
            OpCode::ReclaimComplete => Self::ReclaimComplete { of_one_file_system: xdr::boolean(reader)? },
            OpCode::Allocate => Self::Allocate(SpaceArguments::decode(reader)?),
            OpCode::Deallocate => Self::Deallocate(SpaceArguments::decode(reader)?),
            OpCode::Seek => Self::Seek(SeekArguments::decode(reader)?),
            _ => Self::Unserved,
        })
    }

    fn decode_lock(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        let (is_exclusive, reclaims) = (is_exclusive(reader)?, xdr::boolean(reader)?);
        let range = LockRange::decode(reader)?;
        let locker = if xdr::boolean(reader)? {
            reader.skip(4)?;
            let open = StateId::decode(reader)?;
            reader.skip(4)?;
            Locker::New { open, owner: Owner::decode(reader)? }
        } else {
            let known = StateId::decode(reader)?;
            reader.skip(4)?;
            Locker::Known(known)
        };
        Ok(Self::Lock { is_exclusive, reclaims, range, locker })
    }

    pub fn code(&self) -> OpCode {
        match self {
            Self::Access { .. } => OpCode::Access,
            Self::Close { .. } => OpCode::Close,
            Self::Commit { .. } => OpCode::Commit,
            Self::Create { .. } => OpCode::Create,
            Self::GetAttr(_) => OpCode::GetAttr,
            Self::GetFh => OpCode::GetFh,
            Self::Link { .. } => OpCode::Link,
            Self::Lock { .. } => OpCode::Lock,
            Self::LockT { .. } => OpCode::LockT,
            Self::LockU { .. } => OpCode::LockU,
            Self::Lookup { .. } => OpCode::Lookup,
            Self::LookupP => OpCode::LookupP,
            Self::NVerify(_) => OpCode::NVerify,
            Self::Open(_) => OpCode::Open,
            Self::OpenDowngrade { .. } => OpCode::OpenDowngrade,
            Self::PutFh(_) => OpCode::PutFh,
            Self::PutPubFh => OpCode::PutPubFh,
            Self::PutRootFh => OpCode::PutRootFh,
            Self::Read(_) => OpCode::Read,
            Self::ReadDir(_) => OpCode::ReadDir,
            Self::ReadLink => OpCode::ReadLink,
            Self::Remove { .. } => OpCode::Remove,
            Self::Rename { .. } => OpCode::Rename,
            Self::RestoreFh => OpCode::RestoreFh,
            Self::SaveFh => OpCode::SaveFh,
            Self::SecInfo { .. } => OpCode::SecInfo,
            Self::SetAttr { .. } => OpCode::SetAttr,
            Self::Verify(_) => OpCode::Verify,
            Self::Write(_) => OpCode::Write,
            Self::BackchannelCtl { .. } => OpCode::BackchannelCtl,
            Self::BindConnToSession { .. } => OpCode::BindConnToSession,
            Self::ExchangeId(_) => OpCode::ExchangeId,
            Self::CreateSession(_) => OpCode::CreateSession,
            Self::DestroySession(_) => OpCode::DestroySession,
            Self::FreeStateId(_) => OpCode::FreeStateId,
            Self::SecInfoNoName { .. } => OpCode::SecInfoNoName,
            Self::Sequence(_) => OpCode::Sequence,
            Self::TestStateId(_) => OpCode::TestStateId,
            Self::DestroyClientId(_) => OpCode::DestroyClientId,
            Self::ReclaimComplete { .. } => OpCode::ReclaimComplete,
            Self::Allocate(_) => OpCode::Allocate,
            Self::Deallocate(_) => OpCode::Deallocate,
            Self::Seek(_) => OpCode::Seek,
            Self::Unserved => OpCode::Illegal,
        }
    }

    /// Encodes number and arguments, as in a COMPOUND.
    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.code() as u32);
        match self {
            Self::Access { rights } => drop(encoder.u32(*rights)),
            Self::Close { state } => state.encode(encoder.u32(0)),
            Self::Commit { offset, count } => drop(encoder.u64(*offset).u32(*count)),
            Self::Create { made, name, attributes } => {
                made.encode(encoder);
                attributes.encode(encoder.opaque(name));
            }
            Self::GetAttr(wanted) => wanted.encode(encoder),
            Self::Link { name } | Self::Lookup { name } | Self::Remove { name } | Self::SecInfo { name } => {
                encoder.opaque(name);
            }
            Self::Lock { is_exclusive, reclaims, range, locker } => {
                encoder.u32(1 + u32::from(*is_exclusive)).boolean(*reclaims).u64(range.offset).u64(range.len);
                match locker {
                    Locker::New { open, owner } => {
                        open.encode(encoder.boolean(true).u32(0));
                        owner.encode(encoder.u32(0));
                    }
                    Locker::Known(state) => {
                        state.encode(encoder.boolean(false));
                        encoder.u32(0);
                    }
                }
            }
            Self::LockT { is_exclusive, range, owner } => {
                encoder.u32(1 + u32::from(*is_exclusive)).u64(range.offset).u64(range.len);
                owner.encode(encoder);
            }
            Self::LockU { state, range } => {
                state.encode(encoder.u32(1).u32(0));
                encoder.u64(range.offset).u64(range.len);
            }
            Self::NVerify(attributes) | Self::Verify(attributes) => attributes.encode(encoder),
            Self::Open(open) => open.encode(encoder),
            Self::OpenDowngrade { state, access, deny } => {
                state.encode(encoder);
                encoder.u32(0).u32(*access).u32(*deny);
            }
            Self::PutFh(handle) => drop(encoder.opaque(handle)),
            Self::Read(read) => {
                read.state.encode(encoder);
                encoder.u64(read.offset).u32(read.count);
            }
            Self::ReadDir(listing) => {
                encoder.u64(listing.cookie).raw(&listing.verifier).u32(listing.names).u32(listing.all);
                listing.wanted.encode(encoder);
            }
            Self::Rename { from, to } => drop(encoder.opaque(from).opaque(to)),
            Self::SetAttr { state, attributes } => {
                state.encode(encoder);
                attributes.encode(encoder);
            }
            Self::Write(head) => {
                head.state.encode(encoder);
                encoder.u64(head.offset).u32(head.stability as u32).u32(head.len);
            }
            Self::BackchannelCtl { program } => drop(encoder.u32(*program).u32(1).u32(0)),
            Self::BindConnToSession { session, direction, rdma } => {
                encoder.raw(&session.0).u32(*direction).boolean(*rdma);
            }
            Self::ExchangeId(exchange) => exchange.encode(encoder),
            Self::CreateSession(create) => create.encode(encoder),
            Self::DestroySession(session) => drop(encoder.raw(&session.0)),
            Self::FreeStateId(state) => state.encode(encoder),
            Self::SecInfoNoName { of_parent } => drop(encoder.u32(u32::from(*of_parent))),
            Self::Sequence(sequence) => sequence.encode(encoder),
            Self::TestStateId(states) => drop(encoder.u32((states.len() / StateId::LEN) as u32).raw(states)),
            Self::DestroyClientId(client) => drop(encoder.u64(*client)),
            Self::ReclaimComplete { of_one_file_system } => drop(encoder.boolean(*of_one_file_system)),
            Self::Allocate(space) | Self::Deallocate(space) => space.encode(encoder),
            Self::Seek(seek) => seek.encode(encoder),
            Self::GetFh
            | Self::LookupP
            | Self::PutPubFh
            | Self::PutRootFh
            | Self::ReadLink
            | Self::RestoreFh
            | Self::SaveFh
            | Self::Unserved => {}
        }
    }
}
