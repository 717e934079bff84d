"""CPU that a monitor recorded beside the runs: sadf -j, mpstat -o JSON and esxtop -b, joined with runs by time."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from iotax.imports.naming import PatternError
from iotax.imports.problems import Notes, Unreadable, number
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
    try:
        with path.open("rb") as file:
            head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError as error:
        raise Unreadable(path, f"cannot be read: {error.strerror or error}") from None
    host, processors, samples = _sysstat(path, notes) if head.startswith(b"{") else _esxtop(path)
    if not samples or not processors:
        raise Unreadable(path, "no interval with CPU in it")
    return Recorded(role, host, processors, samples)  # ty: ignore[invalid-argument-type]


def _sysstat(path: Path, notes: Notes) -> tuple[str, int, list[CpuSample]]:
    try:
        host = json.loads(path.read_text(encoding="utf-8"))["sysstat"]["hosts"][0]
        statistics = host["statistics"]
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise Unreadable(path, "the JSON ends in the middle: end mpstat with Ctrl-C once only", line=line) from None
    except (LookupError, TypeError):
        raise Unreadable(path, "no `sysstat` with hosts: name what `sadf -j` or `mpstat -o JSON` wrote") from None
    samples: list[CpuSample] = []
    previous: datetime | None = None
    for each in statistics:
        loads = each.get("cpu-load") or each.get("cpu-load-all") or []
        whole = next((load for load in loads if str(load.get("cpu")) in ("all", "-1")), None)
        end = _end(path, host, each["timestamp"], notes)
        if previous is not None:
            end = _past_midnight(end, previous)
        seconds = _interval_s(each["timestamp"], end, previous)
        previous = end
        if whole is None or seconds <= 0:
            continue
        end_ns = round(end.timestamp() * 1e9)
        idle = float(whole["idle"]) + float(whole.get("iowait", 0)) + float(whole.get("steal", 0))
        samples.append(CpuSample(end_ns - round(seconds * 1e9), end_ns, max(0.0, 1 - idle / 100)))
    return str(host.get("nodename", "")), int(host.get("number-of-cpus", 0)), samples


def _end(path: Path, host: dict[str, Any], stamp: object, notes: Notes) -> datetime:
    """sadf says dates and UTC; mpstat a time of day, and the date once."""
    if isinstance(stamp, dict):
        text = f"{stamp['date']} {stamp['time']}"
        if not stamp.get("utc"):
            notes.add(path, "times are local ones, taken as UTC: write it with `sadf -j -U` or TZ=UTC")
    else:
        notes.add(path, "times have no zone: taken as UTC. Record with TZ=UTC S_TIME_FORMAT=ISO")
        text = f"{_iso(path, str(host.get('date', '')))} {stamp}"
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


def _interval_s(stamp: object, end: datetime, previous: datetime | None) -> float:
    """mpstat does not say its interval: it is the time since the last, and a second for the first."""
    if isinstance(stamp, dict) and stamp.get("interval"):
        return float(stamp["interval"])
    return (end - previous).total_seconds() if previous is not None else 1.0


def _esxtop(path: Path) -> tuple[str, int, list[CpuSample]]:
    """Streams: 300 MB and 50,000 columns are normal, of which one is wanted."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.reader(file)
        columns = esxtop_columns(next(rows, []))
        if columns is None:
            raise Unreadable(path, "no column “Physical Cpu(_Total)\\% Util Time”: no output of esxtop -b", line=1)
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


def _esxtop_samples(path: Path, rows: Iterator[list[str]], total: int) -> Iterator[CpuSample]:
    previous: int | None = None
    for line, row in enumerate(rows, start=2):
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
