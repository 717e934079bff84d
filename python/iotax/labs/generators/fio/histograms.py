"""Reads fio's histogram logs for a window set by others: on a host, where engines measure CPU beside it. A row has the
I/Os completed since the row before, by completion latency. A row that lies partly in the window counts in proportion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotax.imports.fio_histogram import bin_middle
from iotax.imports.measured import bins_direction
from iotax.labs.base import TrialFailed
from iotax.labs.generators.fio.job import Group
from iotax.trial import Direction

_DIGITS = 2
STEPS = 50
"""Rows in a window: at its two edges a part of one is estimated."""
_STEP_MIN_MS = 100


def step_ms(runtime_ns: int) -> int:
    """Between two rows. fio keeps all of them in memory, some 30 kB for each worker."""
    return max(_STEP_MIN_MS, runtime_ns // 1_000_000 // STEPS)


@dataclass(frozen=True)
class Row:
    begin_ms: float
    end_ms: float
    block_size_bytes: int
    counts: Mapping[int, int]
    """Number of fio's bin → I/Os."""

    def within(self, begin_ms: float, end_ms: float) -> Counter[int]:
        """The I/Os of its part of a window; their sum is the nearest whole number to that part of all."""
        covered = min(self.end_ms, end_ms) - max(self.begin_ms, begin_ms)
        share = max(0.0, covered) / (self.end_ms - self.begin_ms)
        if share >= 1:
            return Counter(self.counts)
        parts = {at: count * share for at, count in self.counts.items()}
        found = Counter({at: int(part) for at, part in parts.items()})
        lacking = round(sum(parts.values())) - found.total()
        most = sorted(parts, key=lambda at: int(parts[at]) - parts[at])[:lacking]
        return found + Counter(most)


def rows_of(lines: Sequence[str]) -> dict[tuple[int, int], list[Row]]:
    """(job, direction) → its rows, of lines `JOB END_MS DIRECTION BLOCK BIN:COUNT…`. The first of each has no
    known begin and is left out. Raises ValueError."""
    found: dict[tuple[int, int], list[Row]] = {}
    last_ms: dict[tuple[int, int], int] = {}
    for line in lines:
        job, end_ms, direction, block, *bins = line.split()
        key, at_ms = (int(job), int(direction)), int(end_ms)
        counts = {int(at): int(count) for at, _, count in (each.partition(":") for each in bins)}
        if key in last_ms and at_ms > last_ms[key]:
            found.setdefault(key, []).append(Row(last_ms[key], at_ms, int(block), counts))
        last_ms[key] = at_ms
    return found


def directions(
    lines: Sequence[str], groups: Sequence[Group], begin_ms: float, end_ms: float
) -> list[tuple[Direction, Direction]]:
    """Reads and writes of each group over the window. Raises TrialFailed if the logs do not cover it."""
    try:
        rows = rows_of(lines)
    except ValueError:
        raise TrialFailed("fio's histogram logs are in an unknown form") from None
    found = []
    for group in groups:
        jobs = range(group.first_worker + 1, group.first_worker + group.workers + 1)
        for job in jobs:
            _raise_uncovered(job, [each for way in (0, 1) for each in rows.get((job, way), [])], begin_ms, end_ms)
        found.append(
            tuple(
                _direction([each for job in jobs for each in rows.get((job, way), [])], begin_ms, end_ms)
                for way in (0, 1)
            )
        )
    return [(one, other) for one, other in found]


def _raise_uncovered(job: int, rows: Sequence[Row], begin_ms: float, end_ms: float) -> None:
    first_ms, last_ms = min((r.begin_ms for r in rows), default=end_ms), max((r.end_ms for r in rows), default=begin_ms)
    if first_ms > begin_ms:
        raise TrialFailed(f"fio's job {job} began {first_ms - begin_ms:.0f} ms after the window did")
    if last_ms < end_ms:
        raise TrialFailed(f"fio's job {job} tells of nothing in the last {end_ms - last_ms:.0f} ms of the window")


def _direction(rows: Sequence[Row], begin_ms: float, end_ms: float) -> Direction:
    counts: Counter[int] = Counter()
    moved_bytes = 0
    for row in rows:
        own = row.within(begin_ms, end_ms)
        counts.update({bin_middle(at): count for at, count in own.items()})
        moved_bytes += own.total() * row.block_size_bytes
    return bins_direction(counts, moved_bytes, digits=_DIGITS)
