"""What tests with virtual machines need. If it is missing they are skipped, with CI=true they fail."""

from __future__ import annotations

from pathlib import Path

import needed
from iotax.labs.vm.qemu import PROGRAM

_PACKAGES = {PROGRAM: "qemu-system-x86", "apt-get": "apt", "cc": "build-essential", "nm": "binutils"}


def require(*programs: str) -> Path:
    """Returns the engine, if it, QEMU, apt and these programs are installed."""
    for program in (PROGRAM, "apt-get", *programs):
        needed.program(program, _PACKAGES.get(program, ""))
    return needed.engine()
