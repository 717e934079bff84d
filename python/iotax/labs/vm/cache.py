"""The cache of downloaded packages and built images: $IOTAX_CACHE, else the user's cache directory.

Every entry is named by its content and moved to its place in one step, so that a killed build leaves nothing that looks
complete. An entry has the checksums of its files, so that a damaged one is replaced. A process keeps the entries it
uses by a lock on that file, which ends with the process; `prune` does not remove such entries.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from iotax.labs.vm.fault import VmFault

_CHECKSUMS = "checksums.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_kept: dict[Path, int] = {}
"""Descriptors of locks, open until this process ends."""


def cache_root() -> Path:
    """The cache of the vm lab; made when it is not there."""
    if named := os.environ.get("IOTAX_CACHE"):
        root = Path(named)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iotax"
    root = root.expanduser().absolute() / "vm"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VmFault("cache", f"{root} cannot be made: {error.strerror}; name another place in IOTAX_CACHE") from error
    return root


def need_space(root: Path, wanted_bytes: int) -> None:
    """Raises VmFault if the disk has less than that free."""
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < wanted_bytes:
        raise VmFault(
            "disk space",
            f"{root} has {free_bytes >> 20} MiB free and {wanted_bytes >> 20} MiB are needed; "
            "make room or name another place in IOTAX_CACHE",
        )


@contextlib.contextmanager
def locked(root: Path, report: Callable[[str], None]) -> Generator[None]:
    """One builder at a time; the second finds what the first built. Raises VmFault if the disk is full."""
    try:
        with (root / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"waiting for another run that fills {root}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        if error.errno in _FULL:
            raise VmFault(
                "disk space", f"{root} is full ({error.strerror}); make room or name another place in IOTAX_CACHE"
            ) from error
        raise


@contextlib.contextmanager
def new_entry(place: Path) -> Generator[Path]:
    """A folder to build in, which becomes `place` when nothing went wrong and vanishes when something did."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent, ignore_cleanup_errors=True) as folder:
        entry = Path(folder) / "entry"
        entry.mkdir()
        yield entry
        (entry / _CHECKSUMS).write_text(json.dumps(_checksums(entry)))
        if place.exists():
            shutil.rmtree(place)
        entry.rename(place)


def sound(place: Path) -> bool:
    """Whether an entry is there with every file as it was made."""
    try:
        return json.loads((place / _CHECKSUMS).read_text()) == _checksums(place)
    except (OSError, ValueError):
        return False


def keep(place: Path) -> None:
    """Marks an entry as used now, and as in use until this process ends. For whoever holds `locked`."""
    lock = os.open(place / _CHECKSUMS, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if place in _kept:  # of an entry that may have been made anew since
        os.close(_kept[place])
    _kept[place] = lock
    os.utime(place)


def by_use(folder: Path) -> list[Path]:
    """Entries, the one used last first."""
    return sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)


def prune(entries: Iterable[Path]) -> None:
    """Removes entries that no process keeps. Call while holding `locked`."""
    for entry in entries:
        if not _in_use(entry):
            shutil.rmtree(entry, ignore_errors=True)


def _in_use(entry: Path) -> bool:
    try:
        with (entry / _CHECKSUMS).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # left by a killed build
    return False


def _checksums(entry: Path) -> dict[str, str]:
    """Path → SHA-256 of every file."""
    found: dict[str, str] = {}
    for file in entry.rglob("*"):
        if file.is_file() and not file.is_symlink() and file != entry / _CHECKSUMS:
            with file.open("rb") as data:
                found[str(file.relative_to(entry))] = hashlib.file_digest(data, "sha256").hexdigest()
    return found
