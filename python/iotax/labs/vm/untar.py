"""Members of tar archives into a folder, and never out of it, on every Python that iotax runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import Any


def extract(files: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes one member below the folder, without its owner and times. Raises tarfile.TarError."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise tarfile.TarError(f"{member.name} would stand outside its folder")
    # Filters came with Python 3.11.4; Debian 12 has 3.11.2.
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    files.extract(member, folder, set_attrs=False, **options)
