//! A command descriptor block (SPC-5 §4.2), and reads that never run past its end.

/// The bytes of a CDB. Bytes beyond its end read as zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cdb<'a>(pub(crate) &'a [u8]);

impl Cdb<'_> {
    pub(crate) fn u8(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        core::array::from_fn(|index| self.u8(at + index))
    }

    pub(crate) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(crate) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(crate) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    pub(crate) fn bit(self, at: usize, bit: u8) -> bool {
        self.u8(at) >> bit & 1 == 1
    }

    pub(crate) fn opcode(self) -> u8 {
        self.u8(0)
    }

    /// First block and number of blocks. Their positions depend only on the size of the CDB (SBC-4 §5).
    pub(crate) fn extent(self) -> Extent {
        match cdb_len(self.opcode()) {
            Some(6) => {
                let blocks = match self.u8(4) {
                    0 => 256,
                    blocks => u32::from(blocks),
                };
                Extent { lba: u64::from(self.u32(0) & 0x1f_ffff), blocks, blocks_at: 4 }
            }
            Some(10) => Extent { lba: self.u32(2).into(), blocks: self.u16(7).into(), blocks_at: 7 },
            Some(12) => Extent { lba: self.u32(2).into(), blocks: self.u32(6), blocks_at: 6 },
            _ => Extent { lba: self.u64(2), blocks: self.u32(10), blocks_at: 10 },
        }
    }
}

/// The blocks that a command addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    /// Byte of the CDB that contains the number of blocks, for sense data.
    pub(crate) blocks_at: u16,
}

/// Length of a CDB according to the group of its operation code (SPC-5 §4.2.5.1); `None` for vendor-specific and
/// variable-length groups.
pub(crate) fn cdb_len(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_is_read_from_every_cdb_size() {
        let extent = |cdb: &[u8]| {
            let Extent { lba, blocks, .. } = Cdb(cdb).extent();
            (lba, blocks)
        };
        assert_eq!(extent(&[0x08, 0x1f, 0, 2, 0, 0]), (0x1f_0002, 256));
        assert_eq!(extent(&[0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]), (0x0102_0304, 0x0506));
        assert_eq!(extent(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]), (0x0102_0304, 0x0506_0708));
        assert_eq!(extent(&[0x88, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]), (0x0009_0000_0001, 2));
        assert_eq!(extent(&[0x88]), (0, 0));
    }
}
