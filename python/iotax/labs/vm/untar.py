"""Members of tar archives into a folder, and never out of it, on every Python that iotax runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import Any


def extract(files: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes one member below the folder, without its owner and times. Raises tarfile.TarError.

    A link may name any file, as packages' links do. Nothing is written through a link that leads out of the folder, and
    no hard link is made to a file outside. Python's own filters check that from 3.11.4 on only; Debian 12 has 3.11.2.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise tarfile.TarError(f"{member.name} would stand outside its folder")
    if member.ischr() or member.isblk() or member.isfifo():
        raise tarfile.TarError(f"{member.name} is not a file, folder or link")
    top = folder.resolve()
    # An existing entry may be a link: a folder on the way, or the file itself.
    if not _within(folder / path, top) and not (member.issym() and _within((folder / path).parent, top)):
        raise tarfile.TarError(f"{member.name} would be written through a link out of its folder")
    if member.islnk() and not _within(folder / member.linkname.lstrip("/"), top):
        raise tarfile.TarError(f"{member.name} links to {member.linkname}, outside its folder")
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    files.extract(member, folder, set_attrs=False, **options)


def _within(path: Path, top: Path) -> bool:
    """Whether it is inside the folder, with links followed."""
    try:
        return path.resolve().is_relative_to(top)
    except (OSError, RuntimeError):  # links that lead to each other
        return False
