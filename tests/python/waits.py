"""Waiting for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], what: str, within_s: float = 30) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, f"waited too long for {what}"
        time.sleep(0.02)
