"""The load on a pair of target and initiator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VOLUME_BYTES = 512 << 20


@dataclass(frozen=True)
class Load:
    """One connection, one block size, reads or writes, random or sequential."""

    direction: Literal["read", "write", "mixed"]
    """Mixed means half reads."""
    depth: int
    block_bytes: int = 4096
    random: bool = True

    def __str__(self) -> str:
        order = "random" if self.random else "sequential"
        size = f"{self.block_bytes >> 10}K" if self.block_bytes < 1 << 20 else f"{self.block_bytes >> 20}M"
        return f"{size} {order} {self.direction}, depth {self.depth}"

    @property
    def fio_rw(self) -> str:
        """The name in fio and SPDK."""
        direction = "rw" if self.direction == "mixed" else self.direction
        return f"rand{direction}" if self.random else direction


@dataclass(frozen=True)
class Timing:
    """Warm-up and measured window, in seconds."""

    warmup_s: float
    window_s: float
