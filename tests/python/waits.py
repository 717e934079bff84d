"""Waiting for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object], what: str, within_s: float = 180, seen: Callable[[], object] | None = None
) -> None:
    """`seen` is what a failure tells besides."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= until:
            told = "" if seen is None else f"; at the end: {seen()!r}"
            raise AssertionError(f"waited {within_s:g} s and too long for {what}{told}")
        time.sleep(0.02)
