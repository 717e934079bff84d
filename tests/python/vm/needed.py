"""What tests with virtual machines need. If it is missing they are skipped, with CI=true they fail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from iotax.engine import EngineError, find_engine
from iotax.labs.vm.qemu import PROGRAM

_PACKAGES = {PROGRAM: "qemu-system-x86", "apt-get": "apt", "cc": "build-essential", "nm": "binutils"}


def require(*programs: str) -> Path:
    """Returns the engine, if it, QEMU, apt and these programs are installed."""
    for program in (PROGRAM, "apt-get", *programs):
        if shutil.which(program) is None:
            missing(f"{program} is not there (package {_PACKAGES.get(program, program)})")
    try:
        return find_engine()
    except EngineError as error:
        missing(str(error))


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
