"""pgbench's log of transactions (`pgbench -l`), a line for each.

`client transaction latency_us script epoch us [schedule_lag_us]`: the time is that of its end; with `-R` its latency
begins when it was scheduled, and the lag is the part before it began (PostgreSQL, pgbench, "Per-Transaction Logging").
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS_MIN = 6
_EXACT_MAX = 20_000
"""Distinct latencies that are kept as they are; of more, three digits."""
_EPOCH_MIN = 1_000_000_000


class Aggregated(ValueError):  # noqa: N818 - what the log is, not a bug
    """A log of --aggregate-interval, which has no transactions."""


@dataclass(frozen=True)
class Transaction:
    ended_us: int
    """Since 1970."""
    latency_us: int | None
    """None if it failed or was skipped."""
    lag_us: int | None = None
    """Of an open loop: from when it was scheduled to its beginning."""
    failed: bool = False


def transaction_of(line: bytes) -> Transaction:
    """Raises ValueError if the line is none."""
    words = line.split()
    if len(words) < COLUMNS_MIN:
        raise ValueError(f"{len(words)} columns where at least {COLUMNS_MIN} are expected")
    ended_us = int(words[4]) * 1_000_000 + int(words[5])
    if words[2] in (b"failed", b"skipped"):
        return Transaction(ended_us, None, failed=words[2] == b"failed")
    if int(words[0]) >= _EPOCH_MIN:
        raise Aggregated
    lag_us = int(words[6]) if len(words) > COLUMNS_MIN and words[6].isdigit() else None
    return Transaction(ended_us, int(words[2]), lag_us)


def grouped(counts: dict[int, int]) -> dict[int, int]:
    """Latency → how many; with three digits, rounded up, where there are very many values."""
    if len(counts) <= _EXACT_MAX:
        return counts
    found: dict[int, int] = {}
    for value, count in counts.items():
        unit = 10 ** max(0, len(str(value)) - 3)
        rounded = -(-value // unit) * unit
        found[rounded] = found.get(rounded, 0) + count
    return found
