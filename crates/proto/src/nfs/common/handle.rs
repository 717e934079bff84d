//! A server's name of a file.

use core::fmt;

use crate::{
    rpc::{
        Encoder, Garbage,
        xdr::{self},
    },
    wire::Reader,
};

/// Opaque to everybody but the server.
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
    fn a_handle_has_at_most_sixty_four_bytes() {
        assert!(FileHandle::new(&[1; 65]).is_none());
        let handle = FileHandle::new(&[1; 64]).expect("a handle");
        assert_eq!(handle.bytes(), &[1; 64]);
    }
}
