"""vdbench's histogram.html: counts of I/Os by response time, of each run as a whole; bounds in ms."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from iotax.imports.problems import Notes, Unreadable, number, text_of

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


@dataclass(frozen=True)
class Bin:
    """I/Os from one bound to another; the last has no upper one."""

    low_ns: int
    high_ns: int | None
    count: int


@dataclass
class Counts:
    """Of one run, its reads and its writes."""

    read: list[Bin] = field(default_factory=list)
    write: list[Bin] = field(default_factory=list)

    def of(self, side: str, worst_ns: int) -> dict[int, int]:
        """Upper bound in ns → I/Os. None took longer than the slowest, where that is known (not 0)."""
        found: dict[int, int] = {}
        for each in self.read if side == "read" else self.write:
            known = [bound for bound in (each.high_ns, worst_ns) if bound]
            at_ns = max(each.low_ns, min(known, default=0))
            if each.count:
                found[at_ns] = found.get(at_ns, 0) + each.count
        return found


def counts_beside(path: Path, notes: Notes) -> dict[str, Counts]:
    """Run → its counts, of the histogram in the same folder; empty where there is none, or none that can be read."""
    beside = path.with_name(NAME)
    if not beside.is_file():
        return {}
    try:
        return counts_of(beside)
    except Unreadable as problem:
        notes.add(None, f"{problem}; without it there are no percentiles")
        return {}


def counts_of(path: Path) -> dict[str, Counts]:
    """Run → its counts. Raises Unreadable."""
    found: dict[str, Counts] = {}
    run, own = "", None
    for line, tagged in enumerate(text_of(path).splitlines(), start=1):
        content = _TAG.sub("", tagged)
        if start := _START.search(content):
            run, own = start["name"], None
        elif content.strip() in _TITLES:
            own = getattr(found.setdefault(run, Counts()), _TITLES[content.strip()])
        elif content.strip() == "Reads and writes:":
            own = None  # both stand apart below
        elif own is not None and (row := _BIN.match(content)):
            high_ns = None if row["high"] == "max" else _ns(path, row["high"], line)
            own.append(Bin(_ns(path, row["low"], line), high_ns, int(re.sub(r"\D", "", row["count"]))))
        elif own is not None and " < " in content and "min(ms)" not in content:
            raise Unreadable(path, f"found {content.strip()[:60]!r} where a bin is meant", line=line)
    if not found:
        raise Unreadable(path, "no run with a histogram in it", line=1)
    return found


def _ns(path: Path, text_ms: str, line: int) -> int:
    return round(number(path, text_ms, line=line, at="ms") * 1e6)
