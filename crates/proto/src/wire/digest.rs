//! CRC32C, the digest of iSCSI (RFC 7143 §13.1) and NVMe/TCP (NVMe/TCP transport §3.3.1.1), CRC-32, and the comparison
//! of digests.

use crc_fast::{CrcAlgorithm, Digest};
use subtle::ConstantTimeEq as _;

/// A running CRC32C.
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// A running CRC-32, as in Fibre Channel frames.
#[derive(Clone, Debug)]
pub struct Crc32(Digest);

impl Default for Crc32 {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32IsoHdlc))
    }
}

impl Crc32 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32 of IEEE 802.3, which protects NVMe secrets and Fibre Channel frames.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// Compares digests in a time that does not depend on where they differ.
pub fn same(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 §A.4 (CRC examples).
    #[test]
    fn crc32c_gives_the_values_of_the_standard() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let mut rising = [0; 32];
        for (at, byte) in rising.iter_mut().enumerate() {
            *byte = at as u8;
        }
        assert_eq!(crc32c(&rising), 0x46dd_794e);
    }
}
