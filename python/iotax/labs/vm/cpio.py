"""Writes newc cpio archives, which the kernel unpacks as its first root.

The format: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import stat
from typing import BinaryIO

_TRAILER = "TRAILER!!!"


class CpioWriter:
    """Equal calls give equal bytes: every time is 0, every owner root, inodes count up."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._inode = out, 0
        self._folders: set[str] = set()

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFREG | mode, data)

    def folder(self, path: str) -> None:
        self._parents(f"{path}/x")

    def link(self, path: str, target: str) -> None:
        self._parents(path)
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def device(self, path: str, major: int, minor: int) -> None:
        """A character device."""
        self._parents(path)
        self._entry(path, stat.S_IFCHR | 0o600, b"", major, minor)

    def close(self) -> None:
        self._entry(_TRAILER, 0, b"")

    def _parents(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            folder = "/".join(parts[:end])
            if folder not in self._folders:
                self._folders.add(folder)
                self._entry(folder, stat.S_IFDIR | 0o755, b"")

    def _entry(self, path: str, mode: int, data: bytes, major: int = 0, minor: int = 0) -> None:
        self._inode += 1
        name = path.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._out.write(_padded(header + name))
        self._out.write(_padded(data))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
