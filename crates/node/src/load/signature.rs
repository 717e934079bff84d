//! Names what well-known bytes belong to: partition tables, file systems, volume managers.

/// `(offset on the device, bytes, name)`; first match wins, so containers come after what may be inside their first blocks.
/// Offsets and magic numbers as in util-linux's libblkid and each format's own documentation.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", "LUKS encrypted volume"),
    (512, b"LABELONE", "LVM2 physical volume"),
    (0, b"XFSB", "XFS file system"),
    (0x438, b"\x53\xef", "ext2/3/4 file system"),
    (0x1_0040, b"_BHRfS_M", "Btrfs file system"),
    (4096, b"\xfc\x4e\x2b\xa9", "Linux RAID member (1.2)"),
    (0, b"\xfc\x4e\x2b\xa9", "Linux RAID member (1.1)"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (0x400, b"\x10\x20\xf5\xf2", "F2FS file system"),
    (3, b"NTFS    ", "NTFS file system"),
    (3, b"EXFAT   ", "exFAT file system"),
    (0x52, b"FAT32   ", "FAT32 file system"),
    (0x36, b"FAT16   ", "FAT16 file system"),
    (0x36, b"FAT12   ", "FAT12 file system"),
    (0x8001, b"CD001", "ISO 9660 file system"),
    (0, b"hsqs", "SquashFS file system"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache device"),
    (0x2_0000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00", "ZFS pool member"),
    (0, b"KDMV", "VMDK disk image"),
    (0, b"QFI\xfb", "QCOW2 disk image"),
    (0x10_0000, b"\x0d\xd0\x01\xc0", "VMFS datastore"),
    (512, b"EFI PART", "GPT partition table"),
    (4096, b"EFI PART", "GPT partition table (4 KiB blocks)"),
    (510, b"\x55\xaa", "MBR partition table or boot sector"),
];

/// What the bytes read from `offset` of a device are the beginning of, and where its signature stands.
pub fn name(bytes: &[u8], offset: u64) -> Option<(u64, &'static str)> {
    SIGNATURES.iter().find_map(|(at, magic, name)| {
        let begin = usize::try_from(at.checked_sub(offset)?).ok()?;
        let found = bytes.get(begin..begin.checked_add(magic.len())?)?;
        (found == *magic).then_some((*at, *name))
    })
}

/// What stands at the end of a device that begins with it: UEFI 2.10 §5.3.2 keeps a second header in the last block.
pub fn name_at_end(block: &[u8]) -> Option<&'static str> {
    block.starts_with(b"EFI PART").then_some("GPT partition table (backup)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_found_and_named() {
        for (at, magic, expected) in SIGNATURES {
            let mut device = vec![0; 2 << 20];
            device[*at as usize..*at as usize + magic.len()].copy_from_slice(magic);
            assert_eq!(name(&device, 0), Some((*at, *expected)));
        }
    }

    #[test]
    fn file_system_inside_a_boot_sector_is_named_before_the_sector() {
        let mut device = vec![0; 4096];
        device[510..512].copy_from_slice(b"\x55\xaa");
        device[3..11].copy_from_slice(b"NTFS    ");
        assert_eq!(name(&device, 0), Some((3, "NTFS file system")));
    }

    #[test]
    fn short_or_late_bytes_have_no_name() {
        assert_eq!(name(&[0x53], 0x438), None);
        assert_eq!(name(b"XFSB", 512), None);
        assert_eq!(name(&[], 0), None);
    }
}
