//! File handles of this target: a server's names of files. A handle contains the export and the file, so that no search is
//! needed, and a tag that only the server can compute. So a client can have a handle only from a LOOKUP in a directory
//! that it may search, from MNT of a path, which takes no permission within the export, or from another client.

use core::fmt;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::{ExportId, FileError, FileId};
use crate::{
    rpc::{Encoder, Garbage, xdr},
    wire::{Reader, digest::same},
};

/// Distinguishes our handles from those of other servers, and from earlier and later layouts.
const MAGIC: u32 = 0x696f_7402;
const NAMED_LEN: usize = 20;
const TAG_LEN: usize = 8;
/// Tag of files that exist across restarts of the server.
const NO_TAG: [u8; TAG_LEN] = [0; TAG_LEN];

/// Creates and decodes handles. The key is the server's secret, and differs at each start.
#[derive(Clone, Copy)]
pub struct Handles {
    key: [u8; 32],
}

impl Handles {
    /// Length of a handle in bytes.
    pub(crate) const LEN: usize = NAMED_LEN + TAG_LEN;

    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    pub fn encode(&self, export: ExportId, file: FileId) -> FileHandle {
        let mut bytes = [0; Self::LEN];
        let (named, tag) = bytes.split_at_mut(NAMED_LEN);
        named[..4].copy_from_slice(&MAGIC.to_be_bytes());
        named[4..8].copy_from_slice(&export.to_be_bytes());
        named[8..12].copy_from_slice(&file.generation.to_be_bytes());
        named[12..].copy_from_slice(&file.number.to_be_bytes());
        tag.copy_from_slice(&self.tag(named, file));
        FileHandle::new(&bytes).expect("shorter than the longest handle")
    }

    /// Decodes a handle. One of ours with another tag is from before a restart, or was guessed: its file is gone
    /// (RFC 1813 §2.6).
    #[inline]
    pub(crate) fn decode(&self, handle: &FileHandle) -> Result<(ExportId, FileId), FileError> {
        let (export, file, named, tag) = Self::fields(handle).ok_or(FileError::BadHandle)?;
        // `NO_TAG` is not secret, so it need not be compared in constant time.
        let is_ours =
            if file.generation == FileId::LASTING { tag == NO_TAG } else { same(tag, &self.tag(named, file)) };
        if is_ours { Ok((export, file)) } else { Err(FileError::Stale) }
    }

    #[inline]
    fn fields(handle: &FileHandle) -> Option<(ExportId, FileId, &[u8], &[u8])> {
        let (named, tag) = handle.bytes().split_at_checked(NAMED_LEN).filter(|(_, tag)| tag.len() == TAG_LEN)?;
        let mut reader = Reader::new(named);
        if reader.u32_be().ok()? != MAGIC {
            return None;
        }
        let export = reader.u32_be().ok()?;
        let generation = reader.u32_be().ok()?;
        let number = reader.u64_be().ok()?;
        Some((export, FileId { number, generation }, named, tag))
    }

    /// The tag of a handle. Files that exist across restarts have no secret tag, because their handles must be valid
    /// after a restart. MNT, or a LOOKUP in the root, gives these handles to everyone whom the export admits.
    #[inline]
    fn tag(&self, named: &[u8], file: FileId) -> [u8; TAG_LEN] {
        if file.generation == FileId::LASTING { NO_TAG } else { self.secret_tag(named) }
    }

    /// A tag that makes other identifiers given to peers impossible to guess.
    pub(crate) fn tag_of(&self, named: &[u8]) -> [u8; TAG_LEN] {
        self.secret_tag(named)
    }

    fn secret_tag(&self, named: &[u8]) -> [u8; TAG_LEN] {
        // RFC 2104 §2: a key shorter than a block is padded with zeros.
        let mut block = [0; 64];
        block[..self.key.len()].copy_from_slice(&self.key);
        let hash = Hmac::<Sha256>::new(&block.into()).chain_update(named).finalize().into_bytes();
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&hash[..TAG_LEN]);
        tag
    }
}

impl core::fmt::Debug for Handles {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Handles")
    }
}

/// A file handle, which only the server can interpret.
#[derive(Clone, Copy)]
pub struct FileHandle {
    len: u8,
    bytes: [u8; Self::MAX_LEN],
}

impl FileHandle {
    pub const MAX_LEN: usize = 64;

    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut handle = Self { len: u8::try_from(bytes.len()).ok()?, bytes: [0; Self::MAX_LEN] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Self::new(xdr::opaque(reader, Self::MAX_LEN)?).ok_or(Garbage)
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.bytes());
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for FileHandle {}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        for byte in self.bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_back_to_its_file_and_others_lead_nowhere() {
        let handles = Handles::new([1; 32]);
        for generation in [FileId::LASTING, 7] {
            let file = FileId { number: 1 << 40, generation };
            let handle = handles.encode(3, file);
            assert_eq!(handles.decode(&handle), Ok((3, file)));
            let bytes = handle.bytes();
            for len in 0..bytes.len() {
                let cut = FileHandle::new(&bytes[..len]).expect("a handle");
                assert_eq!(handles.decode(&cut), Err(FileError::BadHandle));
            }
            let mut longer = bytes.to_vec();
            longer.push(0);
            let longer = FileHandle::new(&longer).expect("a handle");
            assert_eq!(handles.decode(&longer), Err(FileError::BadHandle));
        }
    }

    #[test]
    fn a_handle_that_was_not_given_is_stale() {
        let (handles, others) = (Handles::new([1; 32]), Handles::new([2; 32]));
        let file = FileId { number: 1 << 16, generation: 7 };
        let given = handles.encode(0, file);
        assert_eq!(others.decode(&given), Err(FileError::Stale), "another start's");
        for bit in 0..given.bytes().len() * 8 {
            let mut guess = given.bytes().to_vec();
            guess[bit / 8] ^= 1 << (bit % 8);
            let found = handles.decode(&FileHandle::new(&guess).expect("a handle"));
            // The first four bytes distinguish handles from those of other servers.
            let expected = if bit < 32 { FileError::BadHandle } else { FileError::Stale };
            assert_eq!(found, Err(expected), "bit {bit}");
        }
        // The handle of a secret file cannot be turned into a handle of a file that exists across restarts.
        let mut lasting = given.bytes().to_vec();
        lasting[8..12].fill(0);
        assert_eq!(handles.decode(&FileHandle::new(&lasting).expect("a handle")), Err(FileError::Stale));
    }
}

#[cfg(test)]
mod handle_tests {
    use super::*;

    #[test]
    fn a_handle_has_at_most_sixty_four_bytes() {
        assert!(FileHandle::new(&[1; 65]).is_none());
        let handle = FileHandle::new(&[1; 64]).expect("a handle");
        assert_eq!(handle.bytes(), &[1; 64]);
    }
}
