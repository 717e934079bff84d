"""The tables of vdbench as rows under the flatfile's names: flatfile.html, summary.html and its terminal's text.

The flatfile's header names its columns. The summary's stands on two lines, with the date on the first; it says whether
MB are of 2²⁰ or 10⁶ bytes, and a line `Starting RD=` names each run, what rate was asked for, and its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from iotax.imports.problems import Notes, Unreadable

MAXIMUM = 999_988
"""What `reqrate` says for "as fast as it goes", or a little more."""
FORMATS_DISK = ("format_for", "SD_format")
"""Runs that only write the disk or its files for those that measure."""
_MIB = 1 << 20
_TAG = re.compile(r"<[^>]*>")
_START = re.compile(r"Starting RD=(?P<name>[^;\s]+)(?P<words>.*)")
_HEAD = re.compile(r"^\s*(?P<date>[A-Z][a-z]{2} \d{2}, \d{4})\s+interval\s+i/o\s")
_STAMP = re.compile(r"(?P<time>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)-(?P<zone>\S+)")
_DISTRIBUTION = re.compile(r"Vdbench distribution: (\S+)")
_SUMMARY_NAMES = {
    "i/o rate": "rate", "bytes i/o": "bytes/io", "read pct": "read%", "resp time": "resp", "read resp": "read_resp",
    "write resp": "write_resp", "resp max": "resp_max", "read max": "read_max", "write max": "write_max",
}  # fmt: skip
"""What the two lines say → the flatfile's name."""


@dataclass(frozen=True)
class Row:
    """One interval, or the mean over several."""

    line: int
    values: Mapping[str, str]
    date: str = ""
    """As the summary writes it; empty in a flatfile, which may have a column `timestamp`."""

    @property
    def unix_s(self) -> float | None:
        """When it ended; None where no date is known. Times of any zone but UTC are taken as UTC."""
        stamped = _STAMP.fullmatch(self.values.get("timestamp", ""))
        if stamped is not None:
            text, form = stamped["time"], "%m/%d/%Y-%H:%M:%S"
        elif self.date and "tod" in self.values:
            text, form = f"{self.date} {self.values['tod'].partition('.')[0]}", "%b %d, %Y %H:%M:%S"
        else:
            return None
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None

    @property
    def zone(self) -> str:
        """That the time is of; empty where it is not said."""
        stamped = _STAMP.fullmatch(self.values.get("timestamp", ""))
        return stamped["zone"] if stamped is not None else ""


@dataclass
class Tables:
    """Run → its rows, in the order of the file."""

    runs: dict[str, list[Row]] = field(default_factory=dict)
    version: str = ""
    mb_bytes: int = _MIB


def tables_of(path: Path, text: str, notes: Notes) -> Tables:
    """Raises Unreadable."""
    if any(_HEAD.match(_TAG.sub("", line)) for line in text.splitlines()):
        return _summary(path, text, notes)
    return _flatfile(path, text)


def _flatfile(path: Path, text: str) -> Tables:
    header: list[str] = []
    found = Tables()
    for line, content in enumerate(text.splitlines(), start=1):
        words = content.split()
        if "Interval" in words and "resp" in words:
            header = [word for word in words if word != "*"]
        elif header and words and not content.startswith(("*", "<")):
            if len(words) != len(header):
                raise Unreadable(path, f"{len(words)} columns where the header names {len(header)}", line=line)
            values = dict(zip(header, words, strict=True))
            if missing := [name for name in ("Run", "Interval", "rate", "MB/sec", "resp") if name not in values]:
                raise Unreadable(path, f"the header has no column {missing[0]}", at=missing[0])
            if not values["Run"].startswith(FORMATS_DISK):
                found.runs.setdefault(values["Run"], []).append(Row(line, values))
    if not header:
        raise Unreadable(
            path, "no line names columns (Run, Interval, rate, resp): name vdbench's flatfile.html or summary.html"
        )
    return found


def _summary(path: Path, text: str, notes: Notes) -> Tables:
    found = Tables()
    name, asked, date, first = "", {}, "", []
    header: list[str] = []
    unit_line = 0
    for line, tagged in enumerate(text.splitlines(), start=1):
        content = _TAG.sub("", tagged)
        if distribution := _DISTRIBUTION.search(content):
            found.version = distribution[1].removeprefix("vdbench")
        elif start := _START.search(content):
            name, asked, header = start["name"], _asked(start["words"]), []
        elif head := _HEAD.match(content):
            date, first = head["date"], content[head.start("date") + len(head["date"]) :].split()[1:]
        elif first:
            header, own = _columns(path, first, content.split(), line)
            if unit_line and own != found.mb_bytes:
                raise Unreadable(path, f"MB are of another size from here on than in line {unit_line}", line=line)
            found.mb_bytes, unit_line, first = own, line, []
        elif header and (row := _values(content, header, line, path, notes)) and not name.startswith(FORMATS_DISK):
            row |= asked | {"xfersize": row.get("bytes/io", "")}
            found.runs.setdefault(name or "rd", []).append(Row(line, row, date))
    return found


def _columns(path: Path, first: list[str], second: list[str], line: int) -> tuple[list[str], int]:
    """Names by both lines of a header, and the bytes of its MB."""
    if len(first) != len(second):
        raise Unreadable(path, f"{len(second)} words below a header of {len(first)}", line=line)
    pairs = [" ".join(pair) for pair in zip(first, second, strict=True)]
    sizes = {"MB/sec 1024**2": _MIB, "MB/sec 1000**2": 1_000_000}
    unit = next((each for each in pairs if each in sizes), None)
    if unit is None:
        raise Unreadable(path, "the header does not say how many bytes an MB has (1024**2, 1000**2)", line=line)
    return ["MB/sec" if each == unit else _SUMMARY_NAMES.get(each, each) for each in pairs], sizes[unit]


def _values(content: str, header: list[str], line: int, path: Path, notes: Notes) -> dict[str, str] | None:
    """None where the line is none of the table."""
    words = content.split()
    if len(words) < 2 or not re.fullmatch(r"\d+:\d\d:\d\d\.\d+", words[0]) or not re.match(r"\d+$|avg_\d", words[1]):
        return None
    if len(words) != len(header) + 2:
        notes.add(path, f"{len(words) - 2} columns where the header names {len(header)}: left out", line=line)
        return None
    return {"tod": words[0], "Interval": words[1], **dict(zip(header, words[2:], strict=True))}


def _asked(words: str) -> dict[str, str]:
    """What a run was asked for, by the line that announces it."""
    rate = re.search(r"I/O rate: (\d+)", words)
    threads = re.search(r"\bthreads=(\d+)\b", words)
    known = {"reqrate": rate[1] if rate else str(MAXIMUM) if re.search(r"I/O rate: \w+ MAX", words) else ""}
    return known | {"threads": threads[1] if threads else ""}
