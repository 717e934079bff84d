//! Identifies data by well-known bytes: partition tables, file systems, volume managers.

/// After four bytes for encoding and byte order: a list of names and values in XDR whose first name is `version`. Each
/// of the four labels of a ZFS pool member has one.
const NVLIST: &[u8] = b"\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20\0\0\0\x07version";
const ZFS: &str = "ZFS pool member";
const LUKS: &str = "LUKS encrypted volume";
const LVM: &str = "LVM2 physical volume";

/// `(offset on the device, bytes, name)`. The first match counts. Formats that contain others therefore come first, and
/// boot sectors, which file systems may also have, come last. Offsets and magic numbers as in util-linux's libblkid and
/// each format's own documentation.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", LUKS),
    // In any of the first four sectors, after earlier contents.
    (0, b"LABELONE", LVM),
    (512, b"LABELONE", LVM),
    (1024, b"LABELONE", LVM),
    (1536, b"LABELONE", LVM),
    (4096, b"\xfc\x4e\x2b\xa9", "Linux RAID member (1.2)"),
    (0, b"\xfc\x4e\x2b\xa9", "Linux RAID member (1.1)"),
    (0x4004, NVLIST, ZFS),
    (0x2_0000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00", ZFS),
    (516, b"!Stra0tis\x86\xff\x02^Arh", "Stratis device"),
    (4612, b"!Stra0tis\x86\xff\x02^Arh", "Stratis device"),
    (0, b"dmvdo001", "VDO device"),
    (0, b"integrt\0", "dm-integrity device"),
    (0, b"verity\0\0", "dm-verity hashes"),
    (0, b"SnAp", "dm-snapshot store"),
    (32, b"\xba\x52\x9c\x01\0\0\0\0", "dm-thin metadata"),
    (32, b"\x03\xc4\x18\0\0\0\0\0", "dm-cache metadata"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache device"),
    (4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "bcachefs file system"),
    (0, b"bluestore block device", "Ceph BlueStore device"),
    (32, b"ORCLDISK", "Oracle ASM disk"),
    (0, b"XFSB", "XFS file system"),
    (0x438, b"\x53\xef", "ext2/3/4 file system"),
    (0x1_0040, b"_BHRfS_M", "Btrfs file system"),
    (0x1_0000, b"\x01\x16\x19\x70", "GFS2 file system"),
    (4096, b"OCFSV2", "OCFS2 file system"),
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
    (0, b"KDMV", "VMDK disk image"),
    (0, b"QFI\xfb", "QCOW2 disk image"),
    (0x10_0000, b"\x0d\xd0\x01\xc0", "VMFS datastore"),
    (512, b"EFI PART", "GPT partition table"),
    (4096, b"EFI PART", "GPT partition table (4 KiB blocks)"),
    (510, b"\x55\xaa", "MBR partition table or boot sector"),
];

/// `(offset in its block of 512 bytes, bytes, name)`: signatures near the end of a device that make it a member of
/// something larger.
const MEMBERS: &[(usize, &[u8], &str)] = &[
    (0, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "Linux RAID member (1.0)"),
    // Written in the byte order of its machine.
    (0, b"\xfc\x4e\x2b\xa9\0\0\0\0", "Linux RAID member (0.90)"),
    (0, b"\xa9\x2b\x4e\xfc\0\0\0\0", "Linux RAID member (0.90)"),
    (0, b"Intel Raid ISM Cfg Sig. ", "Intel RAID member"),
    (0, b"\xde\x11\xde\x11", "DDF RAID member"),
    (0, b"\x11\xde\x11\xde", "DDF RAID member"),
    (60, b"\x83\x74\x02\x6b", "DRBD device"),
    (60, b"\x83\x74\x02\x6c", "DRBD device"),
    (60, b"\x83\x74\x02\x6d", "DRBD device"),
    (4, NVLIST, ZFS),
];

/// The same for copies, and for blocks beside a superblock.
const COPIES: &[(usize, &[u8], &str)] = &[
    (0, b"EFI PART", "GPT partition table (backup)"),
    (0, b"SKUL\xba\xbe", LUKS),
    (0, b"LABELONE", LVM),
    (0, b"bitm", "bitmap of a Linux RAID"),
    (0, b"\x0c\xb1\xba\0\0\0\0\0", ZFS),
    (0, b"\0\0\0\0\0\xba\xb1\x0c", ZFS),
    // ZFS ends the blocks that it writes to its labels with its own checksum.
    (472, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02", ZFS),
];

/// The format that begins with these bytes, read from `offset` of a device, and the offset of its signature.
pub fn name(bytes: &[u8], offset: u64) -> Option<(u64, &'static str)> {
    SIGNATURES.iter().find_map(|(at, magic, name)| {
        let begin = usize::try_from(at.checked_sub(offset)?).ok()?;
        let found = bytes.get(begin..begin.checked_add(magic.len())?)?;
        (found == *magic).then_some((*at, *name))
    })
}

/// The format that a block of 512 bytes belongs to, wherever on a device it is.
pub fn name_of_block(block: &[u8]) -> Option<&'static str> {
    member(block).or_else(|| in_block(COPIES, block))
}

/// What a device with this block at one of `places_at_end` is a member of.
pub fn member(block: &[u8]) -> Option<&'static str> {
    in_block(MEMBERS, block)
}

/// Offsets of the blocks that make a device of this size a member of something larger: Linux RAID 0.90 and 1.0
/// (`md_p.h`, `super_1_load`), the last two labels of ZFS, DRBD, Intel's and DDF's RAID. The contents of such a device
/// may begin at its start, as if it were not a member.
pub fn places_at_end(size_bytes: u64) -> impl Iterator<Item = u64> {
    const KIB: u64 = 1024;
    // Each pair: the device size is rounded down to a multiple of the first; the block is the second before that.
    [
        (64 * KIB, 64 * KIB),
        (4 * KIB, 8 * KIB),
        (256 * KIB, 240 * KIB),
        (256 * KIB, 496 * KIB),
        (512, 4 * KIB),
        (512, 1024),
        (512, 512),
        (512, 257 * 512),
    ]
    .into_iter()
    .filter_map(move |(multiple, before)| (size_bytes / multiple * multiple).checked_sub(before))
}

fn in_block(signatures: &[(usize, &[u8], &'static str)], block: &[u8]) -> Option<&'static str> {
    signatures.iter().find_map(|(at, magic, name)| block.get(*at..)?.starts_with(magic).then_some(*name))
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
        for (at, magic, expected) in MEMBERS.iter().chain(COPIES) {
            let mut block = [0; 512];
            block[*at..*at + magic.len()].copy_from_slice(magic);
            assert_eq!(name_of_block(&block), Some(*expected));
        }
        assert_eq!(name_of_block(&[0; 512]), None);
    }

    #[test]
    fn superblocks_at_the_end_are_looked_for_where_their_formats_put_them() {
        const MIB: u64 = 1 << 20;
        // RAID 0.90: the last 64 KiB that begin at a multiple of 64 KiB; 1.0: at least 8 KiB before the end, at a
        // multiple of 4 KiB.
        let of = |size| places_at_end(size).collect::<Vec<_>>();
        assert_eq!(of(8 * MIB)[..2], [8 * MIB - 65536, 8 * MIB - 8192]);
        assert_eq!(of(8 * MIB + 68 * 1024 + 512)[..2], [8 * MIB, 8 * MIB + 60 * 1024]);
        // ZFS: 16 KiB into each of the last two labels of 256 KiB.
        assert_eq!(of(8 * MIB + 5000)[2..4], [8 * MIB - 245_760, 8 * MIB - 507_904]);
        assert_eq!(of(8 * MIB)[4..], [8 * MIB - 4096, 8 * MIB - 1024, 8 * MIB - 512, 8 * MIB - 257 * 512]);
        assert!(of(0).is_empty());
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
