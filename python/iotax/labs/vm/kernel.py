"""Kernels in folders, and kernels unpacked on the host: an emulated processor spends half of its boot on that.

The packed image is laid out by Linux's Documentation/arch/x86/boot.rst; what is in it starts by itself where it has the
PVH entry point (Documentation/arch/x86/xen-pvh, a note of type 18 by the name Xen), which QEMU goes by.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from pathlib import Path

from iotax.labs.vm.elf import notes
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Package

_SETUP_SECTORS, _MAGIC, _VERSION, _PAYLOAD = 0x1F1, 0x202, 0x206, 0x248
_PAYLOAD_SINCE = 0x208
_SECTOR_BYTES = 512
_PVH_ENTRY = ("Xen", 18)


def unpacked(image: bytes) -> bytes | None:
    """The kernel in a packed one; None if the packing is unknown or the kernel has no such entry point."""
    import lzma  # noqa: PLC0415 - not every Python has it, and only guests need it

    if image[_MAGIC : _MAGIC + 4] != b"HdrS" or struct.unpack_from("<H", image, _VERSION)[0] < _PAYLOAD_SINCE:
        return None
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = ((image[_SETUP_SECTORS] or 4) + 1) * _SECTOR_BYTES + offset
    payload = image[start : start + length]
    if payload[:6] == b"\xfd7zXZ\0":
        packing = lzma.LZMADecompressor()
    elif payload[:2] == b"\x1f\x8b":
        packing = zlib.decompressobj(zlib.MAX_WBITS | 16)
    else:
        return None
    try:
        kernel = packing.decompress(payload)  # behind which stands its length, which nobody needs here
        return kernel if packing.eof and _PVH_ENTRY in notes(kernel) else None
    except (lzma.LZMAError, zlib.error, ValueError, struct.error):
        return None


def is_folder(release: str) -> bool:
    """Whether a study's `kernel:` is a folder; reading the study makes its path absolute."""
    return release.startswith("/") and not is_commit(release)


def is_commit(release: str) -> bool:
    """Whether it is TREE@COMMIT, of a kernel that the lab builds. A folder may have such a name too."""
    return release.startswith("/") and "@" in release and not Path(release).is_dir()


def release_in(folder: Path) -> str:
    """The release of the kernel in a folder. Raises VmFault if there is none, or several."""
    found = sorted((folder / "boot").glob("vmlinuz-*"))
    if len(found) != 1:
        raise VmFault(
            "kernel",
            f"{folder}/boot holds {len(found)} files vmlinuz-RELEASE, and one is needed: run `make dir-pkg` in the "
            "kernel's source and name its tar-install, or unpack a package with `dpkg -x linux-image-*.deb DIR`",
        )
    return found[0].name.removeprefix("vmlinuz-")


def own_kernel(folder: Path) -> Package:
    """The kernel in a folder, as the kernel's `make dir-pkg` or an unpacked package leaves it. Raises VmFault."""
    release = release_in(folder)
    modules = [place for lib in ("lib", "usr/lib") if (place := folder / lib / "modules" / release).is_dir()]
    if not modules:
        raise VmFault("kernel", f"{folder} holds Linux {release} but no lib/modules/{release}: install its modules too")
    digest = hashlib.sha256((folder / "boot" / f"vmlinuz-{release}").read_bytes())
    for path in sorted(path for place in modules for path in place.rglob("*.ko*")):
        state = path.stat()
        digest.update(f"{path.relative_to(folder)} {state.st_size} {state.st_mtime_ns}\n".encode())
    return Package(f"Linux {release}", release, digest.hexdigest(), folder, ())
