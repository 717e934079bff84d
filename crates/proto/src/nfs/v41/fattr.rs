//! Attributes as bitmaps and encoded values (`fattr4`, RFC 8881 §5).

use alloc::vec::Vec;
use core::fmt::Write as _;

use super::{
    MAX_IO_BYTES,
    codec::{MAX_HANDLE_LEN, Status},
};
use crate::{
    nfs::common::{
        Attributes, FileHandle, FileType, MAX_NAME_LEN, NameSpace, PathConf, SetAttributes, SetTime, Space, Time,
    },
    rpc::{Encoder, Garbage, xdr},
    wire::Reader,
};

/// Words of a bitmap that are used here. More words are accepted and ignored.
const WORDS: usize = 3;
const MAX_WORDS: usize = 16;
/// Maximum length of encoded attributes that are accepted. Of those that can be set, owner and group are the longest.
const MAX_VALUES_LEN: usize = 4096;
/// How long a client may be silent without losing its opens and locks, in seconds.
pub const LEASE_SECONDS: u32 = 90;
/// Resolution of the timestamps of files: one nanosecond.
const TIME_DELTA: Time = Time { seconds: 0, nanoseconds: 1 };
/// `FH4_PERSISTENT`: a handle is valid as long as its file exists.
const HANDLE_TYPE: u32 = 0;
/// `NFS4_CHANGE_TYPE_IS_TIME_METADATA` (RFC 7862 §12.2.3).
const CHANGE_IS_TIME: u32 = 4;

/// A set of attributes, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap(pub [u32; WORDS]);

macro_rules! attributes {
    ($($name:ident = $number:literal,)+) => {$(
        pub const $name: u32 = $number;
    )+};
}

/// Numbers of attributes (RFC 8881 §5.6 and §5.7; RFC 7862 §12.2).
#[rustfmt::skip]
pub mod attribute {
    attributes! {
        SUPPORTED = 0, TYPE = 1, HANDLE_EXPIRY = 2, CHANGE = 3, SIZE = 4, LINKS = 5, SYMLINKS = 6, NAMED = 7, FSID = 8,
        UNIQUE_HANDLES = 9, LEASE = 10, READ_ERROR = 11, CAN_SET_TIME = 15, CASE_INSENSITIVE = 16, CASE_PRESERVING = 17,
        CHOWN_RESTRICTED = 18, HANDLE = 19, NUMBER = 20, FILES_AVAILABLE = 21, FILES_FREE = 22, FILES_TOTAL = 23,
        HOMOGENEOUS = 26, MAX_FILE_SIZE = 27, MAX_LINK = 28, MAX_NAME = 29, MAX_READ = 30, MAX_WRITE = 31, MODE = 33,
        NO_TRUNCATION = 34, LINK_COUNT = 35, OWNER = 36, OWNER_GROUP = 37, RAW_DEVICE = 41, SPACE_AVAILABLE = 42,
        SPACE_FREE = 43, SPACE_TOTAL = 44, SPACE_USED = 45, ACCESSED = 47, SET_ACCESSED = 48, TIME_DELTA = 51,
        CHANGED = 52, MODIFIED = 53, SET_MODIFIED = 54, MOUNTED_ON = 55, EXCLUSIVE_CREATE = 75, CHANGE_TYPE = 79,
        MODE_UMASK = 81,
    }
}
use attribute as a;

/// Attributes that a client can set but not read.
const WRITE_ONLY: Bitmap = Bitmap::of(&[a::SET_ACCESSED, a::SET_MODIFIED, a::MODE_UMASK]);
/// Attributes that can be set.
pub const SETTABLE: Bitmap =
    Bitmap::of(&[a::SIZE, a::MODE, a::OWNER, a::OWNER_GROUP, a::SET_ACCESSED, a::SET_MODIFIED]);
/// Attributes of the file system or server as a whole.
const OF_FILE_SYSTEM: Bitmap = Bitmap::of(&[
    a::FILES_AVAILABLE,
    a::FILES_FREE,
    a::FILES_TOTAL,
    a::CASE_INSENSITIVE,
    a::CASE_PRESERVING,
    a::CHOWN_RESTRICTED,
    a::MAX_FILE_SIZE,
    a::MAX_LINK,
    a::MAX_NAME,
    a::NO_TRUNCATION,
    a::SPACE_AVAILABLE,
    a::SPACE_FREE,
    a::SPACE_TOTAL,
]);
/// All attributes that are supported in minor version 1.
const SUPPORTED: Bitmap = OF_FILE_SYSTEM.or(SETTABLE).or(Bitmap::of(&[
    a::SUPPORTED,
    a::TYPE,
    a::HANDLE_EXPIRY,
    a::CHANGE,
    a::LINKS,
    a::SYMLINKS,
    a::NAMED,
    a::FSID,
    a::UNIQUE_HANDLES,
    a::LEASE,
    a::READ_ERROR,
    a::CAN_SET_TIME,
    a::HANDLE,
    a::NUMBER,
    a::HOMOGENEOUS,
    a::MAX_READ,
    a::MAX_WRITE,
    a::LINK_COUNT,
    a::RAW_DEVICE,
    a::SPACE_USED,
    a::ACCESSED,
    a::TIME_DELTA,
    a::CHANGED,
    a::MODIFIED,
    a::MOUNTED_ON,
    a::EXCLUSIVE_CREATE,
]));
const OF_MINOR_VERSION_2: Bitmap = Bitmap::of(&[a::CHANGE_TYPE, a::MODE_UMASK]);

impl Bitmap {
    pub const fn of(numbers: &[u32]) -> Self {
        let mut bitmap = Self([0; WORDS]);
        let mut at = 0;
        while at < numbers.len() {
            bitmap.0[numbers[at] as usize / 32] |= 1 << (numbers[at] % 32);
            at += 1;
        }
        bitmap
    }

    /// Attributes that are supported in a minor version.
    pub const fn supported(minor: u32) -> Self {
        if minor < 2 { SUPPORTED } else { SUPPORTED.or(OF_MINOR_VERSION_2) }
    }

    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1], self.0[2] | other.0[2]])
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(core::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(core::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    pub fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    pub fn has(self, number: u32) -> bool {
        self.0[number as usize / 32] >> (number % 32) & 1 == 1
    }

    /// The numbers of the attributes in ascending order.
    fn numbers(self) -> impl Iterator<Item = u32> {
        self.0.into_iter().enumerate().flat_map(|(at, mut word)| {
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(at as u32 * 32 + bit)
            })
        })
    }

    /// Decodes a bitmap. Words beyond those used here are ignored.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        let count = reader.u32_be()? as usize;
        if count > MAX_WORDS {
            return Err(Garbage);
        }
        let mut bitmap = Self::default();
        for at in 0..count {
            let word = reader.u32_be()?;
            if let Some(slot) = bitmap.0.get_mut(at) {
                *slot = word;
            }
        }
        Ok(bitmap)
    }

    pub fn encode(self, encoder: &mut Encoder) {
        let count = WORDS - self.0.iter().rev().take_while(|word| **word == 0).count();
        encoder.u32(count as u32);
        for word in &self.0[..count] {
            encoder.u32(*word);
        }
    }
}

/// A file and its attributes, for encoding.
#[derive(Debug)]
pub struct Shown<'a> {
    pub attributes: Attributes,
    pub handle: &'a FileHandle,
    pub fsid: (u64, u64),
    /// For the root of a file system: number of the directory on which it is mounted. For other files: their own
    /// number.
    pub mounted_on: u64,
    /// Attributes of the file system, if any are requested.
    pub file_system: Option<FileSystem>,
    pub minor: u32,
}

/// Attributes of a whole file system.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    pub space: Space,
    pub limits: PathConf,
    pub max_file_size: u64,
}

impl FileSystem {
    pub fn of(names: &dyn NameSpace) -> Self {
        Self { space: names.space(), limits: names.limits(), max_file_size: names.max_file_size() }
    }

    /// The attributes of the file system of the directory above all exports.
    pub fn of_roots() -> Self {
        let limits = PathConf {
            links_max: 1,
            name_max: MAX_NAME_LEN as u32,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        Self { space: Space::default(), limits, max_file_size: 0 }
    }
}

impl Bitmap {
    /// Whether these include attributes of the file system.
    pub fn asks_for_file_system(self) -> bool {
        !self.and(OF_FILE_SYSTEM).is_empty()
    }

    /// RFC 8881 §18.7: attributes that can only be set cannot be read.
    pub fn check_readable(self) -> Result<(), Status> {
        if self.and(WRITE_ONLY).is_empty() { Ok(()) } else { Err(Status::Invalid) }
    }
}

impl Shown<'_> {
    /// Encodes those of `wanted` that are supported.
    pub fn encode(&self, wanted: Bitmap, encoder: &mut Encoder) {
        let given = wanted.and(Bitmap::supported(self.minor)).without(WRITE_ONLY);
        given.encode(encoder);
        let len_at = encoder.len();
        encoder.u32(0);
        for number in given.numbers() {
            self.encode_value(number, encoder);
        }
        let len = (encoder.len() - len_at - 4) as u32;
        encoder.patch(len_at, len);
    }

    fn encode_value(&self, number: u32, encoder: &mut Encoder) {
        let Attributes { kind, mode, links, uid, gid, size, used, device, number: file, .. } = self.attributes;
        let FileSystem { space, limits, max_file_size } = self.file_system.unwrap_or_else(FileSystem::of_roots);
        match number {
            a::SUPPORTED => Bitmap::supported(self.minor).encode(encoder),
            a::TYPE => drop(encoder.u32(kind as u32)),
            a::HANDLE_EXPIRY => drop(encoder.u32(HANDLE_TYPE)),
            a::CHANGE => drop(encoder.u64(change_of(&self.attributes))),
            a::SIZE => drop(encoder.u64(size)),
            a::FSID => drop(encoder.u64(self.fsid.0).u64(self.fsid.1)),
            a::NAMED | a::CASE_INSENSITIVE => drop(encoder.boolean(false)),
            a::LINKS | a::SYMLINKS | a::UNIQUE_HANDLES | a::CAN_SET_TIME | a::HOMOGENEOUS => {
                encoder.boolean(true);
            }
            a::CASE_PRESERVING => drop(encoder.boolean(limits.case_preserving)),
            a::CHOWN_RESTRICTED => drop(encoder.boolean(limits.chown_restricted)),
            a::NO_TRUNCATION => drop(encoder.boolean(limits.no_truncation)),
            a::LEASE => drop(encoder.u32(LEASE_SECONDS)),
            a::READ_ERROR => drop(encoder.u32(0)),
            a::HANDLE => self.handle.encode(encoder),
            a::NUMBER => drop(encoder.u64(file)),
            a::FILES_AVAILABLE | a::FILES_FREE => drop(encoder.u64(space.free_files)),
            a::FILES_TOTAL => drop(encoder.u64(space.total_files)),
            a::MAX_FILE_SIZE => drop(encoder.u64(max_file_size)),
            a::MAX_LINK => drop(encoder.u32(limits.links_max)),
            a::MAX_NAME => drop(encoder.u32(limits.name_max)),
            a::MAX_READ | a::MAX_WRITE => drop(encoder.u64(MAX_IO_BYTES.into())),
            a::MODE => drop(encoder.u32(mode)),
            a::LINK_COUNT => drop(encoder.u32(links)),
            a::OWNER => put_owner(uid, encoder),
            a::OWNER_GROUP => put_owner(gid, encoder),
            a::RAW_DEVICE => drop(encoder.u32(device.0).u32(device.1)),
            a::SPACE_AVAILABLE | a::SPACE_FREE => drop(encoder.u64(space.free_bytes)),
            a::SPACE_TOTAL => drop(encoder.u64(space.total_bytes)),
            a::SPACE_USED => drop(encoder.u64(used)),
            a::ACCESSED => put_time(self.attributes.accessed, encoder),
            a::CHANGED => put_time(self.attributes.changed, encoder),
            a::MODIFIED => put_time(self.attributes.modified, encoder),
            a::TIME_DELTA => put_time(TIME_DELTA, encoder),
            a::MOUNTED_ON => drop(encoder.u64(self.mounted_on)),
            a::EXCLUSIVE_CREATE => SETTABLE.encode(encoder),
            a::CHANGE_TYPE => drop(encoder.u32(CHANGE_IS_TIME)),
            _ => unreachable!("every supported attribute that can be read has a value"),
        }
    }
}

/// The change attribute (RFC 8881 §5.8.1.4).
pub fn change_of(attributes: &Attributes) -> u64 {
    attributes.changed.as_nanos()
}

fn put_time(time: Time, encoder: &mut Encoder) {
    encoder.u64(time.seconds.into()).u32(time.nanoseconds);
}

/// RFC 8881 §5.9: owners and groups are encoded as decimal numbers.
fn put_owner(id: u32, encoder: &mut Encoder) {
    let mut text = Digits::default();
    let _ = write!(text, "{id}");
    encoder.opaque(&text.bytes[..text.len]);
}

#[derive(Default)]
struct Digits {
    bytes: [u8; 10],
    len: usize,
}

impl core::fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let place = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(core::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// An undecoded `fattr4`: which attributes it contains, and their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawAttributes<'a> {
    pub present: Bitmap,
    pub values: &'a [u8],
}

impl<'a> RawAttributes<'a> {
    pub const NONE: RawAttributes<'static> = RawAttributes { present: Bitmap([0; WORDS]), values: &[] };

    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(Self { present: Bitmap::decode(reader)?, values: xdr::opaque(reader, MAX_VALUES_LEN)? })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        self.present.encode(encoder);
        encoder.opaque(self.values);
    }

    /// Decodes attributes to set.
    pub fn to_set(&self, minor: u32) -> Result<SetAttributes, Status> {
        let mut set = SetAttributes::default();
        if !self.present.without(Bitmap::supported(minor)).is_empty() {
            return Err(Status::AttributeNotSupported);
        }
        if !self.present.without(SETTABLE).without(Bitmap::of(&[a::MODE_UMASK])).is_empty()
            || self.present.has(a::MODE) && self.present.has(a::MODE_UMASK)
        {
            return Err(Status::Invalid);
        }
        let mut reader = Reader::new(self.values);
        for number in self.present.numbers() {
            match number {
                a::SIZE => set.size = Some(reader.u64_be().map_err(Garbage::from)?),
                a::MODE => set.mode = Some(mode(reader.u32_be().map_err(Garbage::from)?)?),
                a::OWNER => set.uid = Some(owner(&mut reader)?),
                a::OWNER_GROUP => set.gid = Some(owner(&mut reader)?),
                a::SET_ACCESSED => set.accessed = set_time(&mut reader)?,
                a::SET_MODIFIED => set.modified = set_time(&mut reader)?,
                // RFC 8275: a mode and the creator's umask, which is applied to it.
                _ => {
                    let wanted = mode(reader.u32_be().map_err(Garbage::from)?)?;
                    set.mode = Some(wanted & !mode(reader.u32_be().map_err(Garbage::from)?)?);
                }
            }
        }
        if reader.remaining() > 0 { Err(Status::BadXdr) } else { Ok(set) }
    }

    /// Decodes attributes that a server returned. Only those of `Known` may be present, because others could not be
    /// skipped.
    pub fn known(&self) -> Result<Known, Garbage> {
        let mut known = Known::default();
        let mut reader = Reader::new(self.values);
        for number in self.present.numbers() {
            match number {
                a::TYPE => known.kind = Some(FileType::decode(&mut reader)?),
                a::SIZE => known.size = Some(reader.u64_be()?),
                a::LEASE => known.lease_seconds = Some(reader.u32_be()?),
                a::MAX_READ => known.max_read = Some(reader.u64_be()?),
                a::MAX_WRITE => known.max_write = Some(reader.u64_be()?),
                _ => return Err(Garbage),
            }
        }
        Ok(known)
    }
}

/// The attributes of a file that an initiator needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub kind: Option<FileType>,
    pub size: Option<u64>,
    pub lease_seconds: Option<u32>,
    pub max_read: Option<u64>,
    pub max_write: Option<u64>,
}

impl Known {
    pub const WANTED: Bitmap = Bitmap::of(&[a::TYPE, a::SIZE, a::LEASE, a::MAX_READ, a::MAX_WRITE]);
}

/// Encodes a size and a mode to set. An initiator sets no other attributes.
pub fn set_values(size: Option<u64>, mode: Option<u32>) -> (Bitmap, Vec<u8>) {
    let (mut present, mut values) = (Bitmap::default(), Vec::new());
    if let Some(size) = size {
        present = present.or(Bitmap::of(&[a::SIZE]));
        values.extend(size.to_be_bytes());
    }
    if let Some(mode) = mode {
        present = present.or(Bitmap::of(&[a::MODE]));
        values.extend(mode.to_be_bytes());
    }
    (present, values)
}

/// The attributes that were set, as a bitmap.
pub fn was_set(set: &SetAttributes) -> Bitmap {
    let bits = [
        (set.size.is_some(), a::SIZE),
        (set.mode.is_some(), a::MODE),
        (set.uid.is_some(), a::OWNER),
        (set.gid.is_some(), a::OWNER_GROUP),
        (set.accessed != SetTime::Keep, a::SET_ACCESSED),
        (set.modified != SetTime::Keep, a::SET_MODIFIED),
    ];
    bits.iter().filter(|(is_set, _)| *is_set).fold(Bitmap::default(), |all, (_, number)| all.or(Bitmap::of(&[*number])))
}

fn mode(bits: u32) -> Result<u32, Status> {
    if bits & !0o7777 == 0 { Ok(bits) } else { Err(Status::Invalid) }
}

fn owner(reader: &mut Reader<'_>) -> Result<u32, Status> {
    let text = xdr::opaque(reader, MAX_VALUES_LEN)?;
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).map_err(|_| Status::Invalid)?;
    if is_number { text.parse().map_err(|_| Status::BadOwner) } else { Err(Status::BadOwner) }
}

fn set_time(reader: &mut Reader<'_>) -> Result<SetTime, Status> {
    match reader.u32_be().map_err(Garbage::from)? {
        0 => Ok(SetTime::ServerTime),
        1 => {
            let seconds = reader.u64_be().map_err(Garbage::from)?;
            let nanoseconds = reader.u32_be().map_err(Garbage::from)?;
            let seconds = u32::try_from(seconds).map_err(|_| Status::Invalid)?;
            if nanoseconds >= 1_000_000_000 {
                return Err(Status::Invalid);
            }
            Ok(SetTime::Client(Time { seconds, nanoseconds }))
        }
        _ => Err(Status::BadXdr),
    }
}

// A handle of this target must not be longer than the standard allows.
const _: () = assert!(FileHandle::MAX_LEN <= MAX_HANDLE_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(handle: &FileHandle, minor: u32) -> Shown<'_> {
        let time = Time { seconds: 5, nanoseconds: 6 };
        let attributes = Attributes {
            kind: FileType::Regular,
            mode: 0o640,
            links: 2,
            uid: 4_294_967_295,
            gid: 0,
            size: 1 << 40,
            used: 7,
            device: (0, 0),
            file_system: 3,
            number: 9,
            accessed: time,
            modified: time,
            changed: time,
        };
        Shown { attributes, handle, fsid: (4, 0), mounted_on: 9, file_system: None, minor }
    }

    #[test]
    fn every_supported_attribute_has_a_value_of_whole_words() {
        let handle = FileHandle::new(b"file").expect("a handle");
        for minor in [1, 2] {
            let all = Bitmap([u32::MAX; WORDS]);
            let mut encoder = Encoder::default();
            shown(&handle, minor).encode(all, &mut encoder);
            let mut reader = Reader::new(encoder.bytes());
            let raw = RawAttributes::decode(&mut reader).expect("attributes");
            assert_eq!(reader.remaining(), 0);
            assert_eq!(raw.present, Bitmap::supported(minor).without(WRITE_ONLY));
            assert_eq!(raw.values.len() % 4, 0);
        }
    }

    #[test]
    fn what_an_initiator_wants_comes_back() {
        let handle = FileHandle::new(b"file").expect("a handle");
        let mut encoder = Encoder::default();
        shown(&handle, 1).encode(Known::WANTED, &mut encoder);
        let raw = RawAttributes::decode(&mut Reader::new(encoder.bytes())).expect("attributes");
        let known = raw.known().expect("what was wanted");
        assert_eq!((known.kind, known.size), (Some(FileType::Regular), Some(1 << 40)));
        assert_eq!((known.max_read, known.lease_seconds), (Some(1 << 20), Some(LEASE_SECONDS)));
    }

    #[test]
    fn what_may_not_be_set_is_refused_for_its_own_reason() {
        let cases: [(&[u32], &[u8], Status); 7] = [
            (&[12], &[0; 4], Status::AttributeNotSupported),
            (&[a::TYPE], &[0, 0, 0, 1], Status::Invalid),
            (&[a::MODE], &[0, 1, 0, 0], Status::Invalid),
            (&[a::MODE], &[0, 0], Status::BadXdr),
            (&[a::MODE], &[0; 8], Status::BadXdr),
            (&[a::OWNER], &[0, 0, 0, 1, b'x', 0, 0, 0], Status::BadOwner),
            (&[a::MODE_UMASK], &[0; 8], Status::AttributeNotSupported),
        ];
        for (numbers, values, status) in cases {
            let raw = RawAttributes { present: Bitmap::of(numbers), values };
            assert_eq!(raw.to_set(1), Err(status), "{numbers:?}");
        }
        let raw = RawAttributes { present: Bitmap::of(&[a::MODE_UMASK]), values: &[0, 0, 1, 0o266, 0, 0, 0, 0o22] };
        assert_eq!(raw.to_set(2).map(|set| set.mode), Ok(Some(0o644)));
        let (present, values) = set_values(Some(5), Some(0o600));
        let set = RawAttributes { present, values: &values }.to_set(1).expect("what was set");
        assert_eq!((set.size, set.mode, was_set(&set)), (Some(5), Some(0o600), present));
    }
}
