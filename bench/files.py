"""Files of the volume's size that are served or read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from bench.load import VOLUME_BYTES
from bench.process import UnavailableError

_MEMORY = Path("/dev/shm")  # noqa: S108
_PIECE_BYTES = 1 << 20


@contextlib.contextmanager
def memory_folder() -> Generator[Path]:
    """A folder on a file system in memory for the files of peers, so that none of them waits for a disk."""
    if not _MEMORY.is_dir():
        raise UnavailableError(f"{_MEMORY} is not there")
    with tempfile.TemporaryDirectory(prefix="iotax-bench-", dir=_MEMORY) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def write_zeros(path: Path) -> None:
    _write(path, bytes(_PIECE_BYTES))


def write_random(path: Path) -> None:
    _write(path, os.urandom(_PIECE_BYTES))


def read_through(path: Path) -> None:
    """Reads a whole file, so that it is in the page cache."""
    with path.open("rb") as file:
        while file.read(_PIECE_BYTES):
            pass


def _write(path: Path, piece: bytes) -> None:
    """Writes the file through to its disk, so that nothing is written back during a measurement."""
    with path.open("wb") as file:
        for _ in range(VOLUME_BYTES // _PIECE_BYTES):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
