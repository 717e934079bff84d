"""One result as a file holds it, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from iotax.imports.problems import Notes, Unreadable
from iotax.merged import merged_directions
from iotax.records import CpuTime, CpuUse, Facts, Origin
from iotax.soundness import MOST, unsound_direction, unsound_percentile
from iotax.trial import (
    Checks,
    CpuSecond,
    Direction,
    Histogram,
    LevelValue,
    Open,
    Outstanding,
    Second,
    TrialResult,
    Window,
)

BLOCK_SIZE, OUTSTANDING, WORKERS, RATE = "block_size", "outstanding", "workers", "rate_iops"
"""Settings that every format calls by these names, as studies do; others keep the program's own."""
MIXED = "mixed"
"""What a setting is called that has several values in one run."""
_SAME_SIZE = 0.01
"""Share by which the mean size of an I/O may be off the block size that was asked for: the last one may be short."""

_TOGETHER_MIN = 0.9
"""Share of the longest part that all must have run together; less is not a load that ever was."""
_PIECES = 64
"""Into which a wide bin is spread."""
_COUNT_MAX = MOST
_YEARS_NS = 10 * 366 * 86_400 * 10**9
"""Longer is not a run."""


@dataclass(frozen=True)
class Measured:
    """What one program measured in one run. Times in ns, sizes in bytes."""

    path: Path
    program: str
    version: str
    read: Direction
    write: Direction
    duration_ns: int
    part: str = ""
    """Which of a run's results; empty if it has one."""
    run: int = 1
    """Which of the runs that were appended to one file. Runs of one treatment are its replicates."""
    start_unix_ns: int | None = None
    """None if the file does not say it, and it does not follow from what the file says."""
    sync: Direction | None = None
    """Flushes that the program timed."""
    percentiles: Sequence[tuple[float, int]] = ()
    """Of reads and writes together."""
    settings: Mapping[str, LevelValue] = field(default_factory=dict)
    """What may be a factor: block_size, outstanding, workers, rw and what else the file says."""
    workers: int | None = None
    per_worker: int | None = None
    rate_iops: float | None = None
    """That was asked for."""
    by_chance: bool = False
    """Whether I/Os of an open loop arrive at random: then only the mean of the number offered is known."""
    loop: Literal["open", "closed", "unknown"] = "unknown"
    errors: int | None = None
    start_skew_ns: int | None = None
    warmup_ns: int | None = None
    stack: Literal["user", "kernel", "unknown"] = "unknown"
    driver: str = ""
    cpu: Sequence[CpuTime] = ()
    series: Sequence[Second] = ()
    unit: str = "I/O"
    notes: Sequence[str] = ()
    counted_in: str = ""
    """The units of the file, where the program's differ by version or option."""
    together: str = ""
    """Of results that are one run's, measured on several machines or by several programs at once: the same text."""
    alike: str = ""
    """What parts of one run have in common besides, so that others under that text are runs of their own."""
    apart_if: str = ""
    """What is to be said where such parts were added up, since the files cannot tell whether they are one run's."""
    parts: tuple[Path, ...] = ()
    """The files, where there are several."""

    @property
    def end_unix_ns(self) -> int | None:
        return None if self.start_unix_ns is None else self.start_unix_ns + self.duration_ns

    def result(
        self,
        files: Sequence[Path],
        more_cpu: Sequence[CpuTime] = (),
        start: Literal["said", "told", "guessed"] = "said",
        cpu_series: Sequence[CpuSecond] = (),
    ) -> TrialResult:
        """As the notebook keeps it. `more_cpu` and its series were recorded by others at the same time; `start` is
        how it
        is known when that was."""
        ios = self.read.ios + self.write.ios
        held = None
        if self.rate_iops:
            offered = round(self.rate_iops * self.duration_ns / 1e9)
            held = Open(
                rate_iops=self.rate_iops,
                arrivals="poisson" if self.by_chance else "constant",
                offered=offered,
                achieved=ios / max(1, offered),
                offered_sd=math.sqrt(offered) if self.by_chance else 0.0,
            )
        known_sum = self.read.latency_sum_ns + self.write.latency_sum_ns
        return TrialResult(
            generator=self.program,
            engine_version=self.version,
            driver=self.driver,
            endpoint="",
            window=Window(start_unix_ns=self.start_unix_ns or 0, start_ns=0, duration_ns=self.duration_ns),
            read=self.read,
            write=self.write,
            sync=self.sync,
            percentiles=list(self.percentiles),
            open=held,
            cpu=CpuUse([*(part.model_copy(update={"meter": self.program}) for part in self.cpu), *more_cpu]),
            series=list(self.series),
            cpu_series=list(cpu_series),
            # No program here samples the number in flight: by Little's law.
            outstanding=Outstanding(
                workers=self.workers, per_worker=self.per_worker, mean=known_sum / max(1, self.duration_ns)
            ),
            checks=Checks(errors=self.errors, start_skew_ns=self.start_skew_ns, clock=self.program),
            facts=Facts(lab="elsewhere", stack=self.stack, threads=self.workers, warmup_ns=self.warmup_ns),
            origin=Origin(
                program=self.program,
                version=self.version,
                files=tuple(str(path) for path in files),
                part=self.part,
                start=start,
                loop=self.loop,
                unit=self.unit,
                settings={name: str(value) for name, value in self.settings.items()},
                notes=tuple(self.notes),
            ),
        )

    def checked(self) -> Measured:
        """Itself. Raises Unreadable if a figure can be no result of any run, whatever its file says."""
        for name, value, most in (
            ("duration", self.duration_ns, _YEARS_NS),
            ("workers", self.workers or 1, _COUNT_MAX),
            ("outstanding", self.per_worker or 1, _COUNT_MAX),
            ("rate", self.rate_iops or 1, _COUNT_MAX),
        ):
            if not 0 < value < most:
                raise Unreadable(self.path, f"{value:g} is not a possible value", at=name)
        for name, value in (("start", self.start_unix_ns), ("errors", self.errors), ("warm-up", self.warmup_ns)):
            if value is not None and not 0 <= value < _COUNT_MAX:
                raise Unreadable(self.path, f"{value:g} is not a possible value", at=name)
        for name, stream in (("reads", self.read), ("writes", self.write), ("flushes", self.sync)):
            if stream is not None and (wrong := unsound_direction(stream)):
                raise Unreadable(self.path, wrong, at=name)
        if not self.read.ios + self.write.ios:
            raise Unreadable(self.path, "no read or write completed")
        for pair in self.percentiles:
            if wrong := unsound_percentile(*pair):
                raise Unreadable(self.path, wrong, at="percentiles")
        for part in self.cpu:
            if not 0 <= part.busy_ns < _COUNT_MAX:
                raise Unreadable(self.path, f"{part.busy_ns:g} ns is not a possible value", at="CPU")
        return self


def no_direction() -> Direction:
    """Of a direction in which there was no I/O."""
    return Direction(ios=0, bytes=0, latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)


def mean_direction(ios: int, size_bytes: int, mean_ms: float, worst_ms: float) -> Direction:
    """Of a program that gives mean and maximum in ms alone; NaN where it gives no maximum."""
    if not ios:
        return no_direction()
    return Direction(
        ios=ios,
        bytes=size_bytes,
        latency="mean",
        latency_sum_ns=round(mean_ms * 1e6 * ios),
        latency_min_ns=0,
        latency_max_ns=0 if math.isnan(worst_ms) else round(worst_ms * 1e6),
    )


def block_size_of(asked: LevelValue | None, size_bytes: float, ios: float) -> LevelValue | None:
    """What the block size was, by what was moved too: a file may say the first of several."""
    if not isinstance(asked, int) or isinstance(asked, bool) or not ios or not size_bytes:
        return asked
    return asked if abs(size_bytes / ios - asked) <= _SAME_SIZE * asked else MIXED


_Part = TypeVar("_Part")


def readable(parts: Iterable[_Part], read: Callable[[_Part], Measured], notes: Notes) -> list[Measured]:
    """Results of a file's parts. What is wrong with one of them costs the others nothing: it is told. Raises Unreadable
    if none can be read."""
    found, problems = [], []
    for each in parts:
        try:
            found.append(read(each).checked())
        except Unreadable as problem:
            problems.append(problem)
    if problems and not found:
        raise problems[0]
    for problem in problems:
        notes.add(None, f"{problem}: left out")
    return found


def reads_and_writes(whole: Direction, mix: str) -> tuple[Direction, Direction, list[str]]:
    """Of a program that reports both together: reads, writes, and what is to be said of a mix in SPDK's words."""
    if mix.endswith("write"):
        return no_direction(), whole, []
    mixed = mix in ("rw", "randrw")
    return whole, no_direction(), ["reads and writes were reported together: all are shown as reads"] if mixed else []


def together(parts: Sequence[Measured]) -> Measured:
    """One run that several machines, or threads with files of their own, measured at once."""
    first = parts[0]
    if len(parts) == 1:
        return first
    starts = [each.start_unix_ns for each in parts if each.start_unix_ns is not None]
    skew_ns = max(starts) - min(starts) if len(starts) == len(parts) else None
    longest_ns = max(each.duration_ns for each in parts)
    shared_ns = min(each.duration_ns for each in parts) - (skew_ns or 0)
    said = list(dict.fromkeys(remark for each in parts for remark in each.notes))
    if shared_ns < _TOGETHER_MIN * longest_ns:
        said.append(
            f"its {len(parts)} files, {first.path.name} to {parts[-1].path.name}, ran together for only "
            f"{max(0, shared_ns) / 1e9:.1f} of {longest_ns / 1e9:.1f} s: "
            "their sum is not a rate that was ever reached"
        )
    depths = {each.per_worker for each in parts}
    return replace(
        first,
        read=merged_directions([each.read for each in parts]),
        write=merged_directions([each.write for each in parts]),
        sync=merged_directions(syncs) if (syncs := [each.sync for each in parts if each.sync is not None]) else None,
        duration_ns=longest_ns,
        start_unix_ns=min(starts) if skew_ns is not None else None,
        percentiles=(),
        workers=_sum([each.workers for each in parts]),
        per_worker=depths.pop() if len(depths) == 1 else None,
        rate_iops=_sum([each.rate_iops for each in parts]),
        errors=_sum([each.errors for each in parts]),
        start_skew_ns=skew_ns,
        cpu=_cpu_together([part for each in parts for part in each.cpu]),
        series=(),
        notes=tuple(said),
        parts=tuple(each.path for each in parts),
    )


def _cpu_together(parts: Sequence[CpuTime]) -> list[CpuTime]:
    found: dict[tuple[str, str], CpuTime] = {}
    for part in parts:
        key = (part.role, part.layer)
        if key in found:
            other = found[key]
            part = part.model_copy(  # noqa: PLW2901
                update={
                    "busy_ns": part.busy_ns + other.busy_ns,
                    "user_ns": _sum([part.user_ns, other.user_ns]),
                    "system_ns": _sum([part.system_ns, other.system_ns]),
                    "processors": _sum([part.processors, other.processors]),
                }
            )
        found[key] = part
    return list(found.values())


_Number = TypeVar("_Number", int, float)


def _sum(values: Sequence[_Number | None]) -> _Number | None:
    """None if one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Bin:
    """I/Os that took longer than one bound and no longer than another; None if it has no upper one."""

    low_ns: int
    high_ns: int | None
    count: int


def bins_direction(
    counts: Mapping[int, int],
    size_bytes: int,
    *,
    digits: int,
    sum_ns: int | None = None,
    worst_ns: int | None = None,
    edges_ns: Sequence[int] = (),
) -> Direction:
    """Of counts by latency in ns, where nothing else is known: mean and extremes are those of the bins."""
    pairs = sorted((value, count) for value, count in counts.items() if count)
    ios = sum(count for _, count in pairs)
    return Direction(
        ios=ios,
        bytes=size_bytes,
        latency_sum_ns=sum(value * count for value, count in pairs) if sum_ns is None else sum_ns,
        latency_min_ns=pairs[0][0] if pairs else 0,
        latency_max_ns=(pairs[-1][0] if pairs else 0) if worst_ns is None else worst_ns,
        histogram=Histogram(significant_digits=digits, counts=pairs, edges_ns=list(edges_ns)),
    )


def spread(bins: Sequence[Bin], least_ns: int = 0, worst_ns: int = 0) -> tuple[dict[int, int], list[int]]:
    """(value → count, the bins' bounds) of bins so wide that a bound would be no estimate: each one's I/Os are spread
    evenly over it, as far as the fastest and the slowest (0 where they are not known) allow."""
    counts: dict[int, int] = {}
    edges: set[int] = set()
    for each in bins:
        if not each.count:
            continue
        top_ns = max(worst_ns, each.low_ns + 1) if each.high_ns is None else each.high_ns
        edges |= {each.low_ns, top_ns}
        low_ns = min(max(each.low_ns, least_ns), top_ns)
        high_ns = max(low_ns, min(top_ns, worst_ns)) if worst_ns else top_ns
        pieces = min(each.count, _PIECES)
        for at in range(pieces):
            value_ns = low_ns + round((high_ns - low_ns) * (at + 1) / pieces)
            own = each.count * (at + 1) // pieces - each.count * at // pieces
            counts[value_ns] = counts.get(value_ns, 0) + own
    return counts, sorted(edges)
