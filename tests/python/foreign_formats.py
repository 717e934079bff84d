"""Bytes that volume managers, RAIDs and encryption write to their devices, for a guard that must recognise them.

Written byte by byte from each format's description, so no tools and no kernel support are needed.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
SIZE = 8 * MIB
POOL_SIZE = 64 * MIB
"""The minimum size of a ZFS device."""
_ID = uuid.UUID(int=0x10A7A_0001_0002_0003_0004)
_MD_MAGIC = 0xA92B4EFC
_UBERBLOCK = 0x00BAB10C
_LABEL_BYTES = 256 * KIB


@dataclass(frozen=True)
class Format:
    """Pieces of a device that otherwise contains zeros."""

    title: str
    """Name in the guard's message."""
    pieces: dict[int, bytes]
    at_bytes: int
    """Offset in the guard's message."""
    blkid: str = ""
    """libblkid's name; empty if it does not know the format."""
    size_bytes: int = SIZE

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(self.size_bytes)
            for at, piece in self.pieces.items():
                file.seek(at)
                file.write(piece)


def lvm2(sector: int) -> dict[int, bytes]:
    """A label in one of the first four sectors, and the start of a metadata area (lvm2: lib/format_text/layout.h)."""
    area = struct.pack("<QQ", 4 * KIB, MIB - 4 * KIB)
    header = b"0123456789abcdefghijklmnopqrstuv" + struct.pack("<Q", SIZE) + struct.pack("<QQ", MIB, 0) + bytes(16)
    body = (struct.pack("<I8s", 32, b"LVM2 001") + header + area + bytes(16)).ljust(512 - 20, b"\0")
    label = struct.pack("<8sQI", b"LABELONE", sector, _lvm_checksum(body)) + body
    metadata = (b" LVM2 x[5A%r0N*>" + struct.pack("<IQQ", 1, 4 * KIB, MIB - 4 * KIB)).ljust(512 - 4, b"\0")
    return {512 * sector: label, 4 * KIB: struct.pack("<I", _lvm_checksum(metadata)) + metadata}


def _lvm_checksum(data: bytes) -> int:
    return zlib.crc32(data, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def raid_0_90(order: str) -> dict[int, bytes]:
    """In the last whole 64 KiB at a multiple of 64 KiB, in the machine's byte order (linux: md_p.h)."""
    at = SIZE // (64 * KIB) * (64 * KIB) - 64 * KIB
    words = [_MD_MAGIC, 0, 90, 0, 0, 1, 1_600_000_000, 1, at // KIB, 2, 2, 0, 0, 2, 3, 4]
    return {at: struct.pack(f"{order}16I", *words)}


def raid_1(at: int, data_sector: int, bitmap_sector: int = 0) -> dict[int, bytes]:
    """Versions 1.x differ only in their place. `bitmap_sector` counts from the superblock (linux: md_p.h)."""
    shape = struct.pack("<QIIQIIi", 1_600_000_000, 1, 0, 4 * MIB // 512, 0, 2, bitmap_sector)
    array = struct.pack("<IIII16s32s", _MD_MAGIC, 1, int(bitmap_sector != 0), 0, _ID.bytes, b"host:0") + shape
    device = struct.pack("<QQQQII16s8s", data_sector, 4 * MIB // 512, at // 512, 0, 0, 0, _ID.bytes, b"")
    state = struct.pack("<QQQII32s", 1_600_000_000, 17, 2**64 - 1, 0, 128, b"")
    block = bytearray(array.ljust(128, b"\0") + device + state + struct.pack("<128H", 0, 1, *[0xFFFF] * 126))
    total = sum(struct.unpack(f"<{len(block) // 4}I", block))
    block[216:220] = struct.pack("<I", (total & 0xFFFFFFFF) + (total >> 32))
    bitmap = {at + 512 * bitmap_sector: struct.pack("<4sI16s", b"bitm", 4, _ID.bytes)} if bitmap_sector else {}
    return {at: bytes(block)} | bitmap


def zfs(labels: tuple[int, ...]) -> dict[int, bytes]:
    """Labels 0 and 1 are at the start, 2 and 3 at the end. Each has a list of names and values in XDR, and a ring of
    uberblocks (ZFS On-Disk Specification, chapter 1)."""
    places = (0, _LABEL_BYTES, POOL_SIZE - 2 * _LABEL_BYTES, POOL_SIZE - _LABEL_BYTES)
    listed = struct.pack(">BBHII", 1, 1, 0, 0, 1) + _number(b"version", 5000) + _number(b"state", 0)
    listed += _number(b"txg", 7) + _number(b"pool_guid", 77) + _number(b"guid", 78) + bytes(8)
    ring = {slot: struct.pack("<QQQQQ", _UBERBLOCK, 5000, slot, 155, 1_600_000_000) for slot in range(4, 8)}
    pieces: dict[int, bytes] = {}
    for label in labels:
        pieces[places[label] + 16 * KIB] = listed
        pieces |= {places[label] + 128 * KIB + slot * KIB: block for slot, block in ring.items()}
    return pieces


def _number(name: bytes, value: int) -> bytes:
    """A name and a 64-bit number in XDR."""
    body = struct.pack(">I", len(name)) + name.ljust((len(name) + 3) // 4 * 4, b"\0") + struct.pack(">IIQ", 8, 1, value)
    return struct.pack(">II", 8 + len(body), 32) + body


def luks2_second_header() -> dict[int, bytes]:
    """LUKS2 after its first header was overwritten (LUKS2 On-Disk Format Specification §2)."""
    at = 16 * KIB
    head = struct.pack(">6sHQQ", b"SKUL\xba\xbe", 2, at, 1) + bytes(48) + b"sha256".ljust(32, b"\0") + bytes(64)
    return {at: head + str(_ID).encode().ljust(40, b"\0") + bytes(48) + struct.pack(">Q", at)}


def drbd() -> dict[int, bytes]:
    """In the last 4 KiB (DRBD 9: drbd_meta_data.h)."""
    # Newer versions of blkid want the size of the bitmap's unit, too.
    layout = struct.pack(">IiIiIIIiII", 8, 8, 67, -8, 4096, 0, 1, 0, 1, 8)
    return {SIZE - 4 * KIB: struct.pack(">QQ32sQII", SIZE // 512, 5, b"", 6, 0, 0x8374026D) + layout}


_MIRRORED = b"\x53\xef"
"""ext4's magic number, at offset 1080. A mirror with its superblock at the end starts like a disk without RAID."""
_RAID_1_0 = SIZE - 8 * KIB
_RAID_0_90 = SIZE - 64 * KIB
_INTEL = b"Intel Raid ISM Cfg Sig. 1.3.00"
_LAST_LIST = POOL_SIZE - _LABEL_BYTES + 16 * KIB
ZFS = "ZFS pool member"
RAID_0_90, RAID_1_0 = "Linux RAID member (0.90)", "Linux RAID member (1.0)"
RAID = "linux_raid_member"

FORMATS: dict[str, Format] = {
    "lvm2-in-sector-0": Format("LVM2 physical volume", lvm2(0), 0, "LVM2_member"),
    "lvm2-in-sector-1": Format("LVM2 physical volume", lvm2(1), 512, "LVM2_member"),
    "lvm2-in-sector-3": Format("LVM2 physical volume", lvm2(3), 1536, "LVM2_member"),
    "raid-0.90": Format(RAID_0_90, raid_0_90("<"), _RAID_0_90, RAID),
    "raid-0.90-of-another-byte-order": Format(RAID_0_90, raid_0_90(">"), _RAID_0_90, RAID),
    "raid-0.90-below-a-file-system": Format(RAID_0_90, {1080: _MIRRORED} | raid_0_90("<"), _RAID_0_90, RAID),
    "raid-1.0": Format(RAID_1_0, raid_1(_RAID_1_0, 0), _RAID_1_0, RAID),
    "raid-1.0-with-a-bitmap": Format(RAID_1_0, raid_1(_RAID_1_0, 0, -16), _RAID_1_0, RAID),
    "raid-1.0-below-a-file-system": Format(RAID_1_0, {1080: _MIRRORED} | raid_1(_RAID_1_0, 0), _RAID_1_0, RAID),
    "raid-1.1": Format("Linux RAID member (1.1)", raid_1(0, 2048), 0, RAID),
    "raid-1.2": Format("Linux RAID member (1.2)", raid_1(4 * KIB, 2048), 4 * KIB, RAID),
    "intel-raid": Format("Intel RAID member", {SIZE - 1024: _INTEL}, SIZE - 1024, "isw_raid_member"),
    "ddf-raid": Format("DDF RAID member", {SIZE - 512: b"\xde\x11\xde\x11"}, SIZE - 512, "ddf_raid_member"),
    "zfs": Format(ZFS, zfs((0, 1, 2, 3)), _LAST_LIST, "zfs_member", POOL_SIZE),
    "zfs-whose-first-labels-are-gone": Format(ZFS, zfs((2, 3)), _LAST_LIST, "zfs_member", POOL_SIZE),
    "zfs-whose-last-labels-are-gone": Format(ZFS, zfs((0, 1)), 16 * KIB, "zfs_member", POOL_SIZE),
    "luks1": Format("LUKS encrypted volume", {0: b"LUKS\xba\xbe\0\x01aes"}, 0, "crypto_LUKS"),
    "luks2-second-header": Format("LUKS encrypted volume", luks2_second_header(), 16 * KIB, "crypto_LUKS"),
    "dm-integrity": Format("dm-integrity device", {0: b"integrt\0\x04"}, 0, "DM_integrity"),
    "dm-verity": Format("dm-verity hashes", {0: b"verity\0\0" + struct.pack("<II", 1, 1)}, 0, "DM_verity_hash"),
    "dm-snapshot": Format("dm-snapshot store", {0: b"SnAp" + struct.pack("<III", 1, 1, 8)}, 0, "DM_snapshot_cow"),
    # Starts with a checksum, which the guard does not verify (linux: dm-thin-metadata.c).
    "dm-thin": Format("dm-thin metadata", {0: struct.pack("<IIQ16sQI", 1, 0, 0, b"", 27022010, 2)}, 0),
    "vdo": Format("VDO device", {0: b"dmvdo001" + struct.pack("<I", 5)}, 0, "vdo"),
    "drbd": Format("DRBD device", drbd(), SIZE - 4 * KIB, "drbd"),
    "bluestore": Format("Ceph BlueStore device", {0: b"bluestore block device\n"}, 0, "ceph_bluestore"),
    "oracle-asm": Format("Oracle ASM disk", {32: b"ORCLDISKVOL1"}, 32),
}
