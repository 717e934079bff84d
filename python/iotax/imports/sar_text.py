"""What `sar -u`, or mpstat, prints: a table of shares in percent, with a time of day on each line and the date once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from iotax.imports.problems import Notes, Unreadable, lines_of, number

_BANNER = re.compile(r"^(?P<system>\S+) \S+ \((?P<host>[^)]*)\)\s+(?P<date>\S+)\s+\S+\s+\((?P<cpus>\d{1,6}) CPU\)")
_TIME = re.compile(r"^(?P<time>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))?\s+(?P<rest>.*)$")
_ALL = ("all", "-1")
_IDLE = ("%idle", "%iowait", "%steal")
"""Shares in which the machine does no work of its own."""


def recognised(head: str) -> bool:
    """Whether a file begins as sysstat's text does."""
    return any(_BANNER.match(line) for line in head.splitlines()[:10])


@dataclass
class Printed:
    """What the text says of one machine."""

    host: str = ""
    processors: int = 0
    shares: list[tuple[datetime, datetime, float]] = field(default_factory=list)
    """(begin, end, busy share) of each interval, taken as UTC."""


def read(
    path: Path, day_of: Callable[[str], str], past_midnight: Callable[[datetime, datetime], datetime], notes: Notes
) -> Printed:
    """`day_of` reads a date, `past_midnight` moves a time of day to the day after the one before it. Raises
    Unreadable."""
    found = Printed()
    day = ""
    columns: Sequence[str] = ()
    previous: datetime | None = None
    for line, text in lines_of(path):
        if banner := _BANNER.match(text):
            found.host, found.processors, day = banner["host"], int(banner["cpus"]), day_of(banner["date"])
            previous, columns = None, ()
            continue
        row = _TIME.match(text)
        if row is None:
            if not text.strip() or text.startswith("Average"):
                columns = ()
            continue
        at = _moment(path, line, day, row)
        if previous is not None:
            at = past_midnight(at, previous)
        words = row["rest"].split()
        if "CPU" in words and "%idle" in words:
            # Its time is the begin of the first interval below it.
            columns, previous = words, at
        elif columns and len(words) == len(columns) and previous is not None:
            values = dict(zip(columns, words, strict=True))
            if values["CPU"] in _ALL and at > previous:
                idle = sum(number(path, values.get(name, "0").replace(",", "."), line=line, at=name) for name in _IDLE)
                found.shares.append((previous, at, min(1.0, max(0.0, 1 - idle / 100))))
                previous = at
    if found.shares:
        notes.add(path, "times have no zone: taken as UTC. Record with TZ=UTC, or export with `sadf -j -U`")
    return found


def _moment(path: Path, line: int, day: str, row: re.Match[str]) -> datetime:
    if not day:
        raise Unreadable(path, "times without the line `Linux … (HOST) DATE` above them", line=line)
    text, form = f"{day} {row['time']}", "%Y-%m-%d %H:%M:%S"
    if row["half"]:
        text, form = f"{text} {row['half']}", "%Y-%m-%d %I:%M:%S %p"
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        raise Unreadable(path, f"found {text!r} where date and time are expected", line=line) from None
