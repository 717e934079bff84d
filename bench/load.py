"""What is asked of a pair of target and initiator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VOLUME_BYTES = 512 << 20


@dataclass(frozen=True)
class Load:
    """One connection, one block size, reads or writes, random or sequential."""

    direction: Literal["read", "write"]
    depth: int
    block_bytes: int = 4096
    random: bool = True

    def __str__(self) -> str:
        order = "random" if self.random else "sequential"
        return f"{self.block_bytes // 1024}K {order} {self.direction}, depth {self.depth}"

    @property
    def fio_rw(self) -> str:
        """fio's word for it."""
        return f"rand{self.direction}" if self.random else self.direction


@dataclass(frozen=True)
class Timing:
    """Seconds of warm-up and of the measured window."""

    warmup_s: float
    window_s: float
