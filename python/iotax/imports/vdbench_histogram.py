"""vdbench's histogram.html: counts of I/Os by response time, of each run as a whole; bounds in ms."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from iotax.imports.measured import Bin
from iotax.imports.problems import Notes, Unreadable, number, text_of, whole

NAME = "histogram.html"
_TAG = re.compile(r"<[^>]*>")
_START = re.compile(r"Starting RD=(?P<name>[^;\s]+)")
_TITLES = {
    "Only reads done for this workload:": "read",
    "Only writes done for this workload:": "write",
    "Reads:": "read",
    "Writes:": "write",
}
_BIN = re.compile(r"^\s*(?P<low>[\d.]+) <\s+(?P<high>[\d.]+|max)\s+(?P<count>[\d,.\u00a0\u202f]+)\s+[\d.]+\s+[\d.]+")


@dataclass
class Counts:
    """Of one run, its reads and its writes."""

    read: list[Bin] = field(default_factory=list)
    write: list[Bin] = field(default_factory=list)


def counts_beside(path: Path, notes: Notes) -> dict[tuple[str, int], Counts]:
    """(run's name, which of that name) → its counts, of the histogram in the same folder; empty if there is none, or
    none that can be read."""
    beside = path.with_name(NAME)
    if not beside.is_file():
        return {}
    try:
        return counts_of(beside)
    except Unreadable as problem:
        notes.add(None, f"{problem}; without it there are no percentiles")
        return {}


def counts_of(path: Path) -> dict[tuple[str, int], Counts]:
    """The same. Raises Unreadable."""
    found: dict[tuple[str, int], Counts] = {}
    begun: Counter[str] = Counter()
    run, own = ("", 1), None
    for line, tagged in enumerate(text_of(path).splitlines(), start=1):
        content = _TAG.sub("", tagged)
        if start := _START.search(content):
            begun[start["name"]] += 1
            run, own = (start["name"], begun[start["name"]]), None
        elif content.strip() in _TITLES:
            own = getattr(found.setdefault(run, Counts()), _TITLES[content.strip()])
        elif content.strip() == "Reads and writes:":
            own = None  # both stand apart below
        elif own is not None and (row := _BIN.match(content)):
            high_ns = None if row["high"] == "max" else _ns(path, row["high"], line)
            count = whole(path, re.sub(r"\D", "", row["count"]), line=line, at="count")
            own.append(Bin(_ns(path, row["low"], line), high_ns, count))
        elif own is not None and " < " in content and "min(ms)" not in content:
            raise Unreadable(path, f"found {content.strip()[:60]!r} where a bin is expected", line=line)
    if not found:
        raise Unreadable(path, "no run with a histogram in it", line=1)
    return found


def _ns(path: Path, text_ms: str, line: int) -> int:
    return round(number(path, text_ms, line=line, at="ms") * 1e6)
