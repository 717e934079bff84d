//! Numbers and small types of NFSv4.1 (RFC 8881 §3, RFC 5662), with their encoding.

use crate::{
    Refusal,
    nfs::common::numbered_file_errors,
    rpc::{Encoder, Garbage, xdr},
    wire::Reader,
};

/// Maximum length of the owner of a client, open or lock (`NFS4_OPAQUE_LIMIT`).
pub const MAX_OWNER_LEN: usize = 1024;
/// Maximum length of a file handle (`NFS4_FHSIZE`).
pub const MAX_HANDLE_LEN: usize = 128;
/// Maximum length of a COMPOUND's tag that is accepted and returned.
pub const MAX_TAG_LEN: usize = 1024;

macro_rules! statuses {
    ($($name:ident = $number:literal $text:literal,)+) => {
        /// `nfsstat4` other than `NFS4_OK`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Status {
            $($name = $number,)+
        }

        impl Status {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// A text with a static lifetime, for errors.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

statuses! {
    NotOwner = 1 "not owner",
    NoEntry = 2 "no such file or directory",
    Io = 5 "I/O error",
    NoDeviceAddress = 6 "no such device or address",
    Access = 13 "permission denied",
    Exists = 17 "file exists",
    CrossDevice = 18 "link across file systems",
    NotDirectory = 20 "not a directory",
    IsDirectory = 21 "is a directory",
    Invalid = 22 "invalid argument",
    FileTooBig = 27 "file too large",
    NoSpace = 28 "no space left",
    ReadOnly = 30 "read-only file system",
    TooManyLinks = 31 "too many links",
    NameTooLong = 63 "name too long",
    NotEmpty = 66 "directory not empty",
    Quota = 69 "quota exceeded",
    Stale = 70 "stale file handle",
    BadHandle = 10001 "bad file handle",
    BadCookie = 10003 "stale directory cookie",
    NotSupported = 10004 "operation not supported",
    TooSmall = 10005 "buffer too small",
    ServerFault = 10006 "server fault",
    BadType = 10007 "type not supported",
    Delay = 10008 "try again later",
    Same = 10009 "attributes are the same",
    Denied = 10010 "locked by another owner",
    Expired = 10011 "the lease expired",
    Locked = 10012 "the file is locked against this I/O",
    Grace = 10013 "the server is in its grace period",
    HandleExpired = 10014 "the file handle expired",
    ShareDenied = 10015 "somebody else has opened the file and shares it not",
    WrongSecurity = 10016 "wrong security flavour",
    ClientIdInUse = 10017 "another principal has this client",
    Moved = 10019 "the file system moved",
    NoFileHandle = 10020 "no current file handle",
    MinorVersionMismatch = 10021 "the minor version is not spoken here",
    StaleClientId = 10022 "no such client",
    StaleStateId = 10023 "a stateid of an earlier start of the server",
    OldStateId = 10024 "an old stateid",
    BadStateId = 10025 "no such stateid",
    BadSeqId = 10026 "a sequence number out of order",
    NotSame = 10027 "attributes differ",
    LockRange = 10028 "lock ranges cannot be cut",
    Symlink = 10029 "a symbolic link",
    NoSavedHandle = 10030 "no saved file handle",
    LeaseMoved = 10031 "the lease moved",
    AttributeNotSupported = 10032 "attribute not supported",
    NoGrace = 10033 "state cannot be reclaimed",
    ReclaimBad = 10034 "nothing to be reclaimed",
    ReclaimConflict = 10035 "somebody else has what is reclaimed",
    BadXdr = 10036 "arguments that do not decode",
    LocksHeld = 10037 "locks are held",
    OpenMode = 10038 "the file was not opened for this",
    BadOwner = 10039 "no such user or group",
    BadCharacter = 10040 "a character that names cannot have",
    BadName = 10041 "a name that is reserved",
    BadRange = 10042 "a range that cannot be locked",
    LockNotSupported = 10043 "atomic lock upgrades are not supported",
    IllegalOperation = 10044 "no such operation",
    Deadlock = 10045 "a deadlock of locks",
    FileOpen = 10046 "the file is open",
    AdministratorRevoked = 10047 "revoked by the administrator",
    CallbackPathDown = 10048 "no way to call the client back",
    BadIoMode = 10049 "no such mode of a layout",
    BadLayout = 10050 "no such layout",
    BadSessionDigest = 10051 "a wrong digest of the session",
    BadSession = 10052 "no such session",
    BadSlot = 10053 "no such slot",
    CompleteAlready = 10054 "reclaims were complete already",
    ConnectionNotBound = 10055 "the connection is not bound to the session",
    DelegationWanted = 10056 "the delegation is wanted already",
    BackChannelBusy = 10057 "the back channel is busy",
    LayoutTryLater = 10058 "no layout now",
    LayoutUnavailable = 10059 "no layout",
    NoMatchingLayout = 10060 "no layout that matches",
    RecallConflict = 10061 "a recall is under way",
    UnknownLayoutType = 10062 "no such type of layout",
    SequenceMisordered = 10063 "a slot's sequence out of order",
    SequencePosition = 10064 "SEQUENCE is not the first operation",
    RequestTooBig = 10065 "a request longer than was agreed",
    ReplyTooBig = 10066 "a reply longer than was agreed",
    ReplyTooBigToCache = 10067 "a reply too long to be kept",
    RetryUncached = 10068 "a repeated request whose reply was not kept",
    UnsafeCompound = 10069 "an unsafe compound",
    TooManyOperations = 10070 "more operations than were agreed",
    OperationNotInSession = 10071 "an operation outside a session",
    HashUnsupported = 10072 "no such hash",
    ClientIdBusy = 10074 "the client has state",
    PnfsHole = 10075 "a hole",
    FalseRetry = 10076 "another request in the place of a repeated one",
    BadHighSlot = 10077 "a highest slot beyond what was agreed",
    DeadSession = 10078 "a dead session",
    EncryptionUnsupported = 10079 "no such encryption",
    PnfsNoLayout = 10080 "I/O without a layout",
    NotOnlyOperation = 10081 "not the only operation",
    WrongCredential = 10082 "a wrong credential",
    WrongType = 10083 "a file of the wrong type",
    DirectoryDelegationUnavailable = 10084 "no delegation of a directory",
    RejectDelegation = 10085 "the delegation is rejected",
    ReturnConflict = 10086 "a return is under way",
    DelegationRevoked = 10087 "the delegation was revoked",
    UnionNotSupported = 10090 "no such kind of content",
}

impl Status {
    /// The kind of refusal that the status means.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::NoEntry | Self::NotDirectory | Self::NoDeviceAddress | Self::Stale | Self::BadHandle => {
                Refusal::NotFound
            }
            Self::IsDirectory | Self::BadType | Self::WrongType | Self::Symlink => Refusal::WrongKind,
            Self::Access | Self::NotOwner | Self::WrongSecurity | Self::WrongCredential => Refusal::Denied,
            Self::ReadOnly => Refusal::ReadOnly,
            Self::NoSpace | Self::Quota => Refusal::Full,
            Self::Delay | Self::Grace => Refusal::Busy,
            Self::ShareDenied | Self::Locked | Self::Denied => Refusal::InUse,
            _ => Refusal::Other,
        }
    }

    /// Decodes a status: `Ok(Ok(()))` is `NFS4_OK`. An undefined number counts as a server fault.
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Result<(), Self>, Garbage> {
        Ok(match reader.u32_be()? {
            0 => Ok(()),
            number => Err(Self::from_number(number)),
        })
    }

    fn from_number(number: u32) -> Self {
        Self::ALL.iter().copied().find(|status| *status as u32 == number).unwrap_or(Self::ServerFault)
    }
}

numbered_file_errors!(Status);

impl From<Garbage> for Status {
    fn from(_: Garbage) -> Self {
        Self::BadXdr
    }
}

macro_rules! op_codes {
    ($($name:ident = $number:literal $text:literal,)+) => {
        /// Operations of a COMPOUND: `nfs_opnum4`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum OpCode {
            $($name = $number,)+
        }

        impl OpCode {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// The name in the standard.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

op_codes! {
    Access = 3 "ACCESS",
    Close = 4 "CLOSE",
    Commit = 5 "COMMIT",
    Create = 6 "CREATE",
    DelegPurge = 7 "DELEGPURGE",
    DelegReturn = 8 "DELEGRETURN",
    GetAttr = 9 "GETATTR",
    GetFh = 10 "GETFH",
    Link = 11 "LINK",
    Lock = 12 "LOCK",
    LockT = 13 "LOCKT",
    LockU = 14 "LOCKU",
    Lookup = 15 "LOOKUP",
    LookupP = 16 "LOOKUPP",
    NVerify = 17 "NVERIFY",
    Open = 18 "OPEN",
    OpenAttr = 19 "OPENATTR",
    OpenConfirm = 20 "OPEN_CONFIRM",
    OpenDowngrade = 21 "OPEN_DOWNGRADE",
    PutFh = 22 "PUTFH",
    PutPubFh = 23 "PUTPUBFH",
    PutRootFh = 24 "PUTROOTFH",
    Read = 25 "READ",
    ReadDir = 26 "READDIR",
    ReadLink = 27 "READLINK",
    Remove = 28 "REMOVE",
    Rename = 29 "RENAME",
    Renew = 30 "RENEW",
    RestoreFh = 31 "RESTOREFH",
    SaveFh = 32 "SAVEFH",
    SecInfo = 33 "SECINFO",
    SetAttr = 34 "SETATTR",
    SetClientId = 35 "SETCLIENTID",
    SetClientIdConfirm = 36 "SETCLIENTID_CONFIRM",
    Verify = 37 "VERIFY",
    Write = 38 "WRITE",
    ReleaseLockOwner = 39 "RELEASE_LOCKOWNER",
    BackchannelCtl = 40 "BACKCHANNEL_CTL",
    BindConnToSession = 41 "BIND_CONN_TO_SESSION",
    ExchangeId = 42 "EXCHANGE_ID",
    CreateSession = 43 "CREATE_SESSION",
    DestroySession = 44 "DESTROY_SESSION",
    FreeStateId = 45 "FREE_STATEID",
    GetDirDelegation = 46 "GET_DIR_DELEGATION",
    GetDeviceInfo = 47 "GETDEVICEINFO",
    GetDeviceList = 48 "GETDEVICELIST",
    LayoutCommit = 49 "LAYOUTCOMMIT",
    LayoutGet = 50 "LAYOUTGET",
    LayoutReturn = 51 "LAYOUTRETURN",
    SecInfoNoName = 52 "SECINFO_NO_NAME",
    Sequence = 53 "SEQUENCE",
    SetSsv = 54 "SET_SSV",
    TestStateId = 55 "TEST_STATEID",
    WantDelegation = 56 "WANT_DELEGATION",
    DestroyClientId = 57 "DESTROY_CLIENTID",
    ReclaimComplete = 58 "RECLAIM_COMPLETE",
    Allocate = 59 "ALLOCATE",
    Copy = 60 "COPY",
    CopyNotify = 61 "COPY_NOTIFY",
    Deallocate = 62 "DEALLOCATE",
    IoAdvise = 63 "IO_ADVISE",
    LayoutError = 64 "LAYOUTERROR",
    LayoutStats = 65 "LAYOUTSTATS",
    OffloadCancel = 66 "OFFLOAD_CANCEL",
    OffloadStatus = 67 "OFFLOAD_STATUS",
    ReadPlus = 68 "READ_PLUS",
    Seek = 69 "SEEK",
    WriteSame = 70 "WRITE_SAME",
    Clone = 71 "CLONE",
    Illegal = 10044 "ILLEGAL",
}

impl OpCode {
    /// The last operation of minor version 1.
    const LAST_OF_41: u32 = 58;

    /// The operation with this number, if the minor version has it.
    pub fn of_minor_version(number: u32, minor: u32) -> Option<Self> {
        let last = if minor < 2 { Self::LAST_OF_41 } else { Self::Clone as u32 };
        if number > last { None } else { Self::from_number(number) }
    }
}

/// `sessionid4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

/// `stateid4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateId {
    pub seqid: u32,
    pub other: [u8; 12],
}

impl StateId {
    pub const LEN: usize = 16;
    /// The anonymous stateid (RFC 8881 §8.2.3).
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// The READ bypass stateid, which bypasses locks.
    pub const BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// Refers to the current stateid.
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// Invalid: CLOSE returns it.
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self { seqid: reader.u32_be()?, other: reader.array()? })
    }

    #[inline]
    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.seqid).raw(&self.other);
    }

    /// Whether this is a special stateid, not one that a server created.
    #[inline]
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

/// `channel_attrs4` without RDMA; lengths in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelAttributes {
    pub header_pad: u32,
    pub max_request: u32,
    pub max_response: u32,
    pub max_response_cached: u32,
    pub max_operations: u32,
    pub max_requests: u32,
}

impl ChannelAttributes {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        let attributes = Self {
            header_pad: reader.u32_be()?,
            max_request: reader.u32_be()?,
            max_response: reader.u32_be()?,
            max_response_cached: reader.u32_be()?,
            max_operations: reader.u32_be()?,
            max_requests: reader.u32_be()?,
        };
        match reader.u32_be()? {
            0 => {}
            1 => reader.skip(4)?,
            _ => return Err(Garbage),
        }
        Ok(attributes)
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.header_pad).u32(self.max_request).u32(self.max_response).u32(self.max_response_cached);
        encoder.u32(self.max_operations).u32(self.max_requests).u32(0);
    }
}

/// `change_info4` of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeInfo {
    pub before: u64,
    pub after: u64,
}

impl ChangeInfo {
    /// Encodes it as atomic, because names change in one step.
    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.boolean(true).u64(self.before).u64(self.after);
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        xdr::boolean(reader)?;
        Ok(Self { before: reader.u64_be()?, after: reader.u64_be()? })
    }
}

/// The head of a COMPOUND, before its operations: tag, minor version, number of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompoundHead<'a> {
    pub tag: &'a [u8],
    pub minor: u32,
    pub operations: u32,
}

impl<'a> CompoundHead<'a> {
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self { tag: xdr::opaque(reader, MAX_TAG_LEN)?, minor: reader.u32_be()?, operations: reader.u32_be()? })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.tag).u32(self.minor).u32(self.operations);
    }
}

/// Flags of EXCHANGE_ID (RFC 8881 §18.35).
pub mod exchange {
    pub const UPDATE_CONFIRMED: u32 = 0x4000_0000;
    pub const CONFIRMED: u32 = 0x8000_0000;
    pub const USE_NON_PNFS: u32 = 0x0001_0000;
    /// All flags that a client may set.
    pub const OF_CLIENT: u32 = 0x4007_0103;
}

/// `share_access` and `share_deny` of OPEN (RFC 8881 §18.16).
pub mod share {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const BOTH: u32 = 3;
    /// The client's wishes about delegations, in addition to the access.
    pub const WANTS: u32 = 0x0003_ff00;
    pub const WANT_NO_DELEGATION: u32 = 0x0400;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_unknown_to_the_standard_is_a_server_fault() {
        for status in Status::ALL {
            assert_eq!(Status::decode(&mut Reader::new(&(*status as u32).to_be_bytes())), Ok(Err(*status)));
        }
        assert_eq!(Status::decode(&mut Reader::new(&[0; 4])), Ok(Ok(())));
        assert_eq!(Status::decode(&mut Reader::new(&[0, 0, 0, 95])), Ok(Err(Status::ServerFault)));
    }

    #[test]
    fn operations_have_the_numbers_of_the_standard_and_a_minor_version() {
        for code in OpCode::ALL {
            assert_eq!(OpCode::from_number(*code as u32), Some(*code));
        }
        assert_eq!(OpCode::of_minor_version(2, 1), None);
        assert_eq!(OpCode::of_minor_version(58, 1), Some(OpCode::ReclaimComplete));
        assert_eq!(OpCode::of_minor_version(69, 1), None);
        assert_eq!(OpCode::of_minor_version(69, 2), Some(OpCode::Seek));
        assert_eq!(OpCode::of_minor_version(10044, 2), None);
    }

    #[test]
    fn channel_attributes_come_back_and_rdma_is_skipped() {
        let attributes = ChannelAttributes {
            header_pad: 0,
            max_request: 1,
            max_response: 2,
            max_response_cached: 3,
            max_operations: 4,
            max_requests: 5,
        };
        let mut encoder = Encoder::default();
        attributes.encode(&mut encoder);
        assert_eq!(ChannelAttributes::decode(&mut Reader::new(encoder.bytes())), Ok(attributes));
        let mut rdma = encoder.bytes()[..24].to_vec();
        rdma.extend([0, 0, 0, 1, 9, 9, 9, 9]);
        assert_eq!(ChannelAttributes::decode(&mut Reader::new(&rdma)), Ok(attributes));
    }
}
