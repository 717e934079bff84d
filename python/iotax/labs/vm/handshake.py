"""The daemon that shakes hands for the kernel's TLS: the distribution's, or else one that the user built."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PACKAGE, PROGRAM = "ktls-utils", "tlshd"
OWN_START = f"/opt/{PROGRAM}/run"
"""What starts the user's own in a guest."""
MISSING = (
    "TLS needs the program tlshd, which is not there. Debian 13 has ktls-utils; on older systems build "
    "https://github.com/oracle/ktls-utils (autoreconf, ./configure, make install)"
)
_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
"""A user's PATH may lack them."""


def own_daemon() -> Path | None:
    """The one that is installed on this machine."""
    found = shutil.which(PROGRAM, path=os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS)))
    return Path(found) if found else None
