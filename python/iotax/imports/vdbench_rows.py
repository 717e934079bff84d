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

from iotax.imports.problems import Notes, Unreadable, number, small

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
_FLATFILE_NAMES = {
    name.lower(): name
    for name in ("tod", "Run", "Interval", "reqrate", "rate", "MB/sec", "bytes/io", "read%", "resp", "read_resp",
                 "write_resp", "resp_max", "read_max", "write_max", "xfersize", "threads", "rdpct", "timestamp",
                 "read_rate", "write_rate", "read_resp_max", "write_resp_max")
}  # fmt: skip
"""As they are called here: file-system workloads write some with a capital."""
_FILES_SUMMARY = ".ReqstdOps"
_OTHERS_MIN = 0.01
"""Share of operations that are neither reads nor writes; more is told."""


@dataclass(frozen=True)
class Row:
    """One interval, or the mean over several."""

    line: int
    values: Mapping[str, str]
    date: str = ""
    """As the summary writes it; empty in a flatfile, which may have a column `timestamp`."""

    @property
    def unix_s(self) -> float | None:
        """When it ended; None if no date is known. Times of any zone but UTC are taken as UTC."""
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
        """That the time is of; empty if it is not said."""
        stamped = _STAMP.fullmatch(self.values.get("timestamp", ""))
        return stamped["zone"] if stamped is not None else ""


@dataclass
class Run:
    """One run definition, or one turn of its loops (forthreads=, …), which all have its name."""

    name: str
    rows: list[Row] = field(default_factory=list)
    at: int = 1
    """Which of the runs of this name."""


@dataclass
class Tables:
    """Runs in the order of the file."""

    runs: list[Run] = field(default_factory=list)
    version: str = ""
    mb_bytes: int = _MIB

    def begin(self, name: str) -> None:
        self.runs.append(Run(name, at=1 + sum(each.name == name for each in self.runs)))

    def add(self, name: str, row: Row) -> None:
        """To the last run, or to a new one where the name is another or intervals count from the beginning again."""
        last = self.runs[-1] if self.runs else None
        at = small(row.values["Interval"])
        before = (
            next((known for each in reversed(last.rows) if (known := small(each.values["Interval"]))), 0) if last else 0
        )
        if last is None or last.name != name or (at is not None and at <= before):
            self.begin(name)
        self.runs[-1].rows.append(row)


def tables_of(path: Path, text: str, notes: Notes) -> Tables:
    """Raises Unreadable."""
    if any(_HEAD.match(_TAG.sub("", line)) for line in text.splitlines()):
        return _summary(path, text, notes)
    return _flatfile(path, text, notes)


def _flatfile(path: Path, text: str, notes: Notes) -> Tables:
    header: list[str] = []
    found = Tables()
    for line, content in enumerate(text.splitlines(), start=1):
        words = content.split()
        named = [_FLATFILE_NAMES.get(word.lower(), word) for word in words if word != "*"]
        if "Interval" in named and "resp" in named and "Run" in named:
            header = named
        elif header and words and not content.startswith(("*", "<")):
            if len(words) != len(header):
                raise Unreadable(path, f"{len(words)} columns where the header names {len(header)}", line=line)
            values = dict(zip(header, words, strict=True))
            if "read_rate" in values:
                values = _files(path, line, values, notes)
            if missing := [name for name in ("Run", "Interval", "rate", "MB/sec", "resp") if name not in values]:
                raise Unreadable(path, f"the header has no column {missing[0]}", at=missing[0])
            if not values["Run"].startswith(FORMATS_DISK):
                found.add(values["Run"], Row(line, values))
    if not header and _FILES_SUMMARY in text:
        raise Unreadable(path, "the summary of a file-system workload: name the flatfile.html beside it")
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
            if not name.startswith(FORMATS_DISK):
                found.begin(name)
        elif head := _HEAD.match(content):
            date, first = head["date"], content[head.start("date") + len(head["date"]) :].split()[1:]
        elif first:
            header, own = _columns(path, first, content.split(), line)
            if unit_line and own != found.mb_bytes:
                raise Unreadable(path, f"MB are of another size from here on than in line {unit_line}", line=line)
            found.mb_bytes, unit_line, first = own, line, []
        elif header and (row := _values(content, header, line, path, notes)) and not name.startswith(FORMATS_DISK):
            row |= asked | {"xfersize": row.get("bytes/io", "")}
            found.add(name or "rd", Row(line, row, date))
    found.runs = [run for run in found.runs if run.rows]
    return found


def _files(path: Path, line: int, values: dict[str, str], notes: Notes) -> dict[str, str]:
    """A row of a file-system workload (fsd=, fwd=) as one of a device: its reads and writes. Its other file
    operations count in its own rate only."""

    def figure(column: str) -> float:
        text = values.get(column, "0")
        return number(path, text, line=line, at=column) if text != "n/a" else 0.0

    reads, writes = figure("read_rate"), figure("write_rate")
    rate = reads + writes
    made = {
        "rate": str(rate),
        "read%": str(100 * reads / rate if rate else 100),
        "resp": str((reads * figure("read_resp") + writes * figure("write_resp")) / rate if rate else 0),
        "read_max": values.get("read_resp_max", "n/a"),
        "write_max": values.get("write_resp_max", "n/a"),
        "bytes/io": values.get("xfersize", "n/a"),
        "reqrate": values.get("reqrate", "n/a") if values.get("reqrate", "").lower() != "max" else str(MAXIMUM),
    }
    others = figure("rate") - rate
    if others > _OTHERS_MIN * figure("rate"):
        made["reqrate"] = "n/a"
        notes.add(path, "a file-system workload: reads and writes count, opens, creates and the like do not", at="rate")
    return values | made


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
    """None if the line is none of the table."""
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
