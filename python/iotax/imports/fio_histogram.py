"""fio's histogram logs (`write_hist_log`): `ms, direction, block size, counts…`, one row per interval and direction.

The number of columns tells the unit: fio 2 has 19 groups of bins and µs, fio 3 has 29 and ns. `log_hist_coarseness`
halves the columns as often as it says.
"""

from __future__ import annotations

import re
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, Measured, bins_direction
from iotax.imports.problems import Notes, Unreadable, lines_of

PROGRAM = "fio"
_HEAD = 3
_PER_GROUP = 64
_GROUPS = {29: 1, 19: 1000}
"""Groups of bins → ns of their unit."""
_READ, _WRITE = 0, 1
_COUNT_MAX = 10**15
_NAME = re.compile(r"^(.*)_clat_hist(?:\.\d+)?\.log$")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result. The logs of a run's clones, which do the same, are one run. Raises Unreadable."""
    counts: tuple[dict[int, int], dict[int, int]] = ({}, {})
    sizes: set[int] = set()
    values: list[int] = []
    unit = ""
    first_ms = last_ms = 0
    times: tuple[list[int], list[int]] = ([], [])
    for line, text in lines_of(path):
        if not text.strip():
            continue
        row = _row(path, line, text)
        if row and not values:
            values, unit = _values(path, len(row) - _HEAD, line)
        if len(row) != len(values) + _HEAD:
            if text.endswith("\n"):
                message = f"{len(row)} columns where the first line has {len(values) + _HEAD}"
                raise Unreadable(path, message, line=line)
            notes.add(path, "the last line is cut off: left out", line=line)
            continue
        at_ms, direction, size = row[:_HEAD]
        if direction not in (_READ, _WRITE):
            continue  # trims
        sizes.add(size)
        if at_ms not in times[direction][-1:]:
            times[direction].append(at_ms)
        first_ms, last_ms = min(first_ms or at_ms, at_ms), max(last_ms, at_ms)
        own = counts[direction]
        for at, count in enumerate(row[_HEAD:]):
            if count:
                own[values[at]] = own.get(values[at], 0) + count
    if not sum(map(len, counts)):
        raise Unreadable(path, "no I/O in it")
    # A row stands at the end of its interval: the first began an interval before it.
    longest = max(times, key=len)
    interval_ms = (longest[-1] - longest[0]) / (len(longest) - 1) if len(longest) > 1 else last_ms
    duration_ms = last_ms - first_ms + interval_ms
    if duration_ms <= 0:
        raise Unreadable(path, "all rows stand at time 0: it lasted no time", line=1)
    kinds = "+".join(word for word, own in zip(("read", "write"), counts, strict=True) if own)
    does = f"{kinds} {sorted(sizes)}"
    size = sizes.pop() if len(sizes) == 1 else 0
    if sizes:
        notes.add(path, "blocks of several sizes: no bandwidth can be had of counts alone")
    streams = [bins_direction(own, size * sum(own.values()), digits=2) for own in counts]
    name = _NAME.match(path.name)
    return [
        Measured(
            path=path,
            program=PROGRAM,
            version="",
            read=streams[_READ],
            write=streams[_WRITE],
            duration_ns=round(duration_ms * 1e6),
            settings={"rw": kinds} | ({BLOCK_SIZE: size} if size else {}),
            notes=[
                "latency is completion latency (clat), and its mean that of the bins",
                "a log lacks what fio did after its last whole interval: rates are those of the intervals logged",
            ],
            counted_in=unit,
            together=str(path.with_name(name[1])) if name else "",
            # A log counts its time from its own job's beginning, so jobs that did different things, which may have
            # run one after another, are results of their own.
            alike=does,
            apart_if="added up as clones of one job. If they are of jobs that ran one after another (stonewall), "
            "import them apart, with --by job",
        )
    ]


def _row(path: Path, line: int, text: str) -> list[int]:
    """Its numbers; none of a line that is cut off."""
    try:
        row = [int(cell) for cell in text.split(",")]
    except ValueError:
        row = [-1]
    if all(0 <= number < _COUNT_MAX for number in row):
        return row
    if text.endswith("\n"):
        raise Unreadable(path, f"found {text[:60]!r} where counts are expected", line=line)
    return []


def _values(path: Path, columns: int, line: int) -> tuple[list[int], str]:
    """The middle of each column's bin, in ns, and the unit of the file. Raises Unreadable."""
    for groups, unit_ns in _GROUPS.items():
        bins = groups * _PER_GROUP
        for coarseness in range(7):
            stride = 1 << coarseness
            if bins // stride == columns:
                middles = [bin_middle(at) for at in range(bins)]
                values = [unit_ns * middles[at * stride + stride // 2] for at in range(columns)]
                return values, "ns" if unit_ns == 1 else "µs"
    raise Unreadable(path, f"{columns} bins: fio 3 has 1,856, fio 2 has 1,216, or a half, a quarter … of it", line=line)


def bin_middle(at: int) -> int:
    """Of fio's bin number `at`: 64 bins a group, exact in the first two, twice as wide in each further one."""
    if at < 2 * _PER_GROUP:
        return at
    group, within = divmod(at, _PER_GROUP)
    width = 1 << (group - 1)
    return (_PER_GROUP + within) * width + width // 2
