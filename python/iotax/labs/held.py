"""Keeps a study's local file or block device open, from its check to the study's end.

While it is open, it keeps its identity: no other file can take its place unnoticed. A locked file and a claimed device
keep other runs, file systems and volume managers away. The engine gets its identity as `judged`, fio gets its
descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from pathlib import Path

from iotax.engine import EngineError

_FLOCK = "hhqqi4x"
"""`struct flock`: kind, whence, start, length, process."""
_RELEASE_WAITS_S = [2**power / 1000 for power in range(12)]
"""Four seconds in all, as in the engine."""
_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class Held:
    """Raises EngineError of kind `in_use` if others use it, OSError if it cannot be opened."""

    def __init__(self, path: Path, *, writes: bool, locks: bool = True) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_NONBLOCK
        if writes and stat.S_ISBLK(path.stat().st_mode):
            flags |= os.O_EXCL
        try:
            self._descriptor = _once_released(path, flags)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise EngineError("in_use", "is in use: a file system or another program holds it", str(path)) from None
            raise
        if locks:
            self._lock(fcntl.LOCK_EX if writes else fcntl.LOCK_SH)
        self.identity = _identity(os.fstat(self._descriptor))
        self.touched()

    def _lock(self, kind: int) -> None:
        if kind == fcntl.LOCK_EX and self._locked_by_others():
            self.close()
            raise EngineError("in_use", "another program has locked bytes of it", str(self.path))
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            # Others: a file system without locks.
            if error.errno in _BUSY:
                self.close()
                message = "another program has locked it, perhaps another run of iotax"
                raise EngineError("in_use", message, str(self.path)) from None

    def _locked_by_others(self) -> bool:
        """Whether another process locks any byte, as a virtual machine does of its image (fcntl(2))."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        with contextlib.suppress(OSError):
            found, *_ = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked))
            return found != fcntl.F_UNLCK
        return False

    @property
    def descriptor_path(self) -> str:
        """A path by which other processes of this user reach this file while it is held."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def check_in_place(self) -> None:
        """Raises EngineError of kind `swapped` where the name leads elsewhere by now."""
        with contextlib.suppress(OSError):
            if _identity(self.path.stat()) == self.identity:
                return
        raise EngineError(
            "swapped", "is another file than the one that was judged; nothing was written to it", str(self.path)
        )

    def touched(self) -> None:
        """The current contents are known to be correct."""
        self._state = self._look()

    def changed(self) -> bool:
        """Whether the file was written to since. Unknown for devices."""
        return self._look() != self._state

    def _look(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return (0, 0) if stat.S_ISBLK(status.st_mode) else (status.st_size, status.st_mtime_ns)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


class Holdings:
    """What a study holds, by endpoint."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def hold(self, uri: str, *, writes: bool) -> None:
        """Holds `local:` endpoints; those that are written come first, since two names of one file are one file.
        Endpoints that cannot be opened are not held, and the engine gives the reason. Raises EngineError."""
        if not uri.startswith("local:") or uri in self._held:
            return
        path = Path(uri.removeprefix("local:"))
        with contextlib.suppress(OSError):
            here = _identity(path.stat())
            same = next((each for each in self._held.values() if each.identity == here), None)
            self._held[uri] = same or Held(path, writes=writes)

    def keep(self, uri: str, lent: str) -> None:
        """Holds what a server made or opened and lends as `lent`: the server locks it, and this keeps its identity."""
        if uri not in self._held:
            self._held[uri] = Held(Path(lent.removeprefix("local:")), writes=False, locks=False)

    def identity(self, uri: str) -> dict[str, int] | None:
        return self._held[uri].identity if uri in self._held else None

    def descriptor_path(self, uri: str) -> str | None:
        return self._held[uri].descriptor_path if uri in self._held else None

    def changed(self, uri: str) -> bool:
        """Whether it was written to. Raises EngineError if another file has taken its place."""
        if uri not in self._held:
            return False
        self._held[uri].check_in_place()
        return self._held[uri].changed()

    def touched(self, uri: str) -> None:
        if uri in self._held:
            self._held[uri].touched()

    def close(self) -> None:
        for each in {id(each): each for each in self._held.values()}.values():
            each.close()
        self._held.clear()


def _once_released(path: Path, flags: int) -> int:
    """Waits a few seconds for a device that is held alone.

    An io_uring of a process that was killed lets go of its files some time after the process has ended.
    """
    for wait_s in _RELEASE_WAITS_S:
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(wait_s)
    return os.open(path, flags)


def _identity(status: os.stat_result) -> dict[str, int]:
    """The identity in the form of the engine's `judged`."""
    if stat.S_ISBLK(status.st_mode):
        return {"device": status.st_rdev, "inode": 0}
    return {"device": status.st_dev, "inode": status.st_ino}
