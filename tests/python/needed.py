"""What a test needs of the machine. If it is missing the test is skipped; with CI=true it fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from iotax.engine import EngineError, find_engine

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing(reason: str) -> NoReturn:
    """Skips the test; with CI=true it fails instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, package: str = "") -> str:
    """The path of a program. `package` is Debian's, if its name is another."""
    return shutil.which(name, path=PATH) or missing(f"{name} is not installed (Debian package {package or name})")


def engine() -> Path:
    """The real engine."""
    try:
        return find_engine()
    except EngineError as error:
        missing(str(error))
