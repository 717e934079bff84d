"""CPU that a monitor recorded beside the runs, joined with them by time: JSON of sadf and mpstat, text of sar and
mpstat, CSV of esxtop -b."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

from iotax.imports import sar_text
from iotax.imports.json_text import Fields, read_documents
from iotax.imports.naming import PatternError
from iotax.imports.problems import Notes, Unreadable, head_of, lines_of, number, rows_of
from iotax.records import CpuTime, Role

COVERED_MIN = 0.8
"""Share of a run that samples must cover; less, and the run has no figure."""
_TOTAL = re.compile(r"^\\\\(?P<host>[^\\]+)\\Physical Cpu\(_Total\)\\% Util Time$")
_ONE = re.compile(r"^\\\\[^\\]+\\Physical Cpu\(\d+\)\\% Util Time$")
_ESXTOP_TIME = "%m/%d/%Y %H:%M:%S"


@dataclass(frozen=True)
class CpuSample:
    """How busy a machine was over an interval."""

    start_unix_ns: int
    end_unix_ns: int
    busy_share: float


@dataclass(frozen=True)
class Recorded:
    """What one monitor recorded of one machine."""

    role: Role
    host: str
    processors: int
    samples: Sequence[CpuSample]

    def during(self, start_unix_ns: int, end_unix_ns: int) -> CpuTime | None:
        """Busy time over a run; None where the samples do not cover it."""
        covered = busy = 0.0
        for sample in self.samples:
            shared = min(end_unix_ns, sample.end_unix_ns) - max(start_unix_ns, sample.start_unix_ns)
            if shared > 0:
                covered += shared
                busy += shared * sample.busy_share
        window_ns = end_unix_ns - start_unix_ns
        if covered < COVERED_MIN * window_ns:
            return None
        return CpuTime(
            host=self.host,
            role=self.role,
            layer="machine",
            busy_ns=round(busy / covered * window_ns * self.processors),
            window_ns=window_ns,
            processors=self.processors,
        )


def recorded(word: str, notes: Notes) -> Recorded:
    """Of `ROLE=FILE`. Raises Unreadable, and PatternError where the word is not of that form."""
    role, equals, name = word.partition("=")
    roles = [each for each in get_args(Role) if each in ("initiator", "target", "hypervisor")]
    if not equals or role not in roles or not name:
        raise PatternError(f"--cpu {word}: write ROLE=FILE, where ROLE is {', '.join(roles)}")
    path = Path(name)
    head = head_of(path).lstrip()
    if head.startswith("{"):
        host, processors, samples = _sysstat(path, notes)
    elif sar_text.recognised(head):
        host, processors, samples = _sar(path, notes)
    else:
        host, processors, samples = _esxtop(path)
    if not samples or not processors:
        raise Unreadable(path, "no interval with CPU in it")
    return Recorded(role, host, processors, samples)  # ty: ignore[invalid-argument-type]


def _sysstat(path: Path, notes: Notes) -> tuple[str, int, list[CpuSample]]:
    hosts = read_documents(path, notes)[0].part("sysstat").parts("hosts")
    if not hosts:
        raise Unreadable(path, "no `sysstat` with hosts: name what `sadf -j` or `mpstat -o JSON` wrote")
    host = hosts[0]
    samples: list[CpuSample] = []
    previous: datetime | None = None
    for each in host.parts("statistics"):
        loads = each.parts("cpu-load") or each.parts("cpu-load-all")
        whole = next((load for load in loads if load.text("cpu") in ("all", "-1")), None)
        end = _end(path, host, each, notes)
        if previous is not None:
            end = _past_midnight(end, previous)
        seconds = _interval_s(each, end, previous)
        previous = end
        if whole is None or seconds <= 0:
            continue
        end_ns = round(end.timestamp() * 1e9)
        idle = whole.positive("idle") + whole.positive("iowait", 0) + whole.positive("steal", 0)
        samples.append(CpuSample(end_ns - round(seconds * 1e9), end_ns, max(0.0, 1 - idle / 100)))
    return host.text("nodename"), host.whole("number-of-cpus", 0), samples


def _sar(path: Path, notes: Notes) -> tuple[str, int, list[CpuSample]]:
    printed = sar_text.read(path, lambda text: _iso(path, text), _past_midnight, notes)
    samples = [
        CpuSample(round(begin.timestamp() * 1e9), round(end.timestamp() * 1e9), share)
        for begin, end, share in printed.shares
    ]
    return printed.host, printed.processors, samples


def _end(path: Path, host: Fields, statistic: Fields, notes: Notes) -> datetime:
    """sadf says dates and UTC; mpstat a time of day, and the date once."""
    if isinstance(statistic.values.get("timestamp"), dict):
        stamp = statistic.part("timestamp")
        text = f"{stamp.text('date')} {stamp.text('time')}"
        if not stamp.number("utc", 0):
            notes.add(path, "times are local ones, taken as UTC: write it with `sadf -j -U` or TZ=UTC")
    else:
        notes.add(path, "times have no zone: taken as UTC. Record with TZ=UTC S_TIME_FORMAT=ISO")
        text = f"{_iso(path, host.text('date'))} {statistic.text('timestamp')}"
    # mpstat writes the time of day as the locale does.
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %I:%M:%S %p"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise Unreadable(path, f"found {text!r} where date and time are meant", at="timestamp")


def _past_midnight(end: datetime, previous: datetime) -> datetime:
    """mpstat gives the date of its beginning only: a time of day long before the one above it is of the next day."""
    half_a_day = timedelta(hours=12)
    if end >= previous - half_a_day:
        return end
    end += timedelta(days=(previous.date() - end.date()).days)
    return end if end >= previous - half_a_day else end + timedelta(days=1)


def _iso(path: Path, text: str) -> str:
    for form in ("%Y-%m-%d", "%m/%d/%y", "%m/%d/%Y"):
        try:
            return datetime.strptime(text, form).date().isoformat()
        except ValueError:
            continue
    raise Unreadable(path, f"found {text!r} where a date is meant: record with S_TIME_FORMAT=ISO", at="date")


def _interval_s(statistic: Fields, end: datetime, previous: datetime | None) -> float:
    """mpstat does not say its interval: it is the time since the last, and a second for the first."""
    dated = isinstance(statistic.values.get("timestamp"), dict)
    if dated and (interval := statistic.part("timestamp").positive("interval", 0)):
        return interval
    return (end - previous).total_seconds() if previous is not None else 1.0


def _esxtop(path: Path) -> tuple[str, int, list[CpuSample]]:
    """Streams: 300 MB and 50,000 columns are normal, of which one is wanted."""
    rows = rows_of(path, (text for _, text in lines_of(path)))
    _, header = next(rows, (1, []))
    columns = esxtop_columns(header)
    if columns is None:
        raise Unreadable(
            path,
            "neither a column “Physical Cpu(_Total)\\% Util Time” of esxtop -b, nor sar, sadf or mpstat",
            line=1,
        )
    host, total, processors = columns
    if not processors:
        raise Unreadable(path, "no columns of single processors: record with esxtop -a", line=1)
    return host, processors, list(_esxtop_samples(path, rows, total))


def esxtop_columns(header: list[str]) -> tuple[str, int, int] | None:
    """Of `esxtop -b`: the host, the column of all its processors' use in percent, and how many there are."""
    if not header or not header[0].startswith("(PDH-CSV"):
        return None
    for at, name in enumerate(header):
        if match := _TOTAL.match(name):
            return match["host"], at, sum(1 for each in header if _ONE.match(each))
    return None


def _esxtop_samples(path: Path, rows: Iterator[tuple[int, list[str]]], total: int) -> Iterator[CpuSample]:
    previous: int | None = None
    for line, row in rows:
        if len(row) <= total:
            continue  # the last line of a recording that was killed
        try:
            at = datetime.strptime(row[0], _ESXTOP_TIME).replace(tzinfo=UTC)
        except ValueError:
            raise Unreadable(path, f"found {row[0]!r} where MM/DD/YYYY HH:MM:SS is meant", line=line) from None
        end_ns = round(at.timestamp() * 1e9)
        if previous is not None and end_ns > previous:
            # Each row is of the interval that ends with it; the first one's is not known.
            share = number(path, row[total], line=line, at="Physical Cpu(_Total)") / 100
            yield CpuSample(previous, end_ns, share)
        previous = end_ns
