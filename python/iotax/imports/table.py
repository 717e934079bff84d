"""A table with a row for each run, as benchmarks without a format of their own print it, or a spreadsheet exports it:
which column is what, the user says.

Comma-, semicolon- or tab-separated, with a line of titles. HammerDB, SLOB, sio_ntap and a lab's own sheets are read so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, RATE, WORKERS, Measured, no_direction, readable
from iotax.imports.naming import PatternError, level_of
from iotax.imports.problems import Notes, Unreadable, number, rows_of, small, start_of, text_of, whole
from iotax.imports.processors import ROLES
from iotax.records import CpuTime
from iotax.trial import Direction, LevelValue

PROGRAM = "table"
_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_RATES = {"iops": ("I/O", 1.0), "tps": ("transaction", 1.0), "tpm": ("transaction", 1 / 60)}
"""What a rate is called → what it counts, and how many a second one of it is."""
_BYTES = {"mib_per_s": float(1 << 20), "mb_per_s": 1e6}
_LATENCY = re.compile(r"latency(?:_p(?P<percent>\d{1,2}(?:\.\d{1,3})?)|_(?P<max>max))?_(?P<unit>s|ms|us|ns)")
_CPU = re.compile(rf"cpu_(?P<role>{'|'.join(ROLES)})_cores")
_COUNTS = (WORKERS, OUTSTANDING)
_FIGURES = ("duration_s", "start", RATE, BLOCK_SIZE, *_COUNTS, *_RATES, *_BYTES)
_SEPARATORS = ",;\t"


@dataclass(frozen=True)
class Column:
    """What stands in a column, and under which title; or a number that holds for every row."""

    name: str
    title: str

    @property
    def is_figure(self) -> bool:
        return self.name in _FIGURES or bool(_LATENCY.fullmatch(self.name) or _CPU.fullmatch(self.name))


def given_columns(words: Sequence[str]) -> tuple[Column, ...]:
    """Of `--column NAME=TITLE`. Raises PatternError."""
    found: dict[str, Column] = {}
    for word in words:
        name, equals, title = word.partition("=")
        name, title = name.strip(), title.strip()
        if not equals or not title or not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            raise PatternError(f"--column {word}: write NAME=TITLE, such as 'iops=IO/s' or 'protocol=Path'")
        if name in found:
            raise PatternError(f"--column {word}: {name} is named twice")
        if re.match(r"latency|cpu_", name) and not Column(name, title).is_figure:
            raise PatternError(
                f"--column {word}: {name} is not a figure that a table can hold; write latency_ms, latency_p99_ms or "
                f"latency_max_ms (or _s, _us, _ns), or cpu_ROLE_cores, where ROLE is one of {', '.join(ROLES)}"
            )
        found[name] = Column(name, title)
    rates = [name for name in _RATES if name in found]
    if len(rates) != 1:
        raise PatternError(f"a table needs one rate: --column iops=TITLE, or one of {', '.join(list(_RATES)[1:])}")
    if "duration_s" not in found:
        raise PatternError(
            "a table needs how long a run measured: --column duration_s=TITLE, or a number of seconds for all rows"
        )
    return tuple(found.values())


def read(path: Path, notes: Notes, columns: Sequence[Column] = ()) -> list[Measured]:
    """One result for each row; rows of one treatment are its replicates. Raises Unreadable."""
    if not columns:
        raise Unreadable(path, "say what its columns are: --column iops=TITLE --column duration_s=TITLE …")
    text = text_of(path).splitlines()
    at = next((at for at, line in enumerate(text) if line.strip()), None)
    if at is None:
        raise Unreadable(path, "it is empty")
    separator = max(_SEPARATORS, key=text[at].count)
    header: list[str] = []
    found: list[tuple[int, Mapping[str, str]]] = []
    for line, cells in rows_of(path, text, separator):
        if not any(cell.strip() for cell in cells):
            continue
        if not header:
            header = _header(path, line, [cell.strip() for cell in cells], columns)
        elif len(cells) > len(header) or not cells:
            raise Unreadable(path, f"{len(cells)} columns where the titles are {len(header)}", line=line)
        else:
            found.append((line, dict(zip(header, [cell.strip() for cell in cells], strict=False))))
    if not found:
        raise Unreadable(path, "no row below the titles")
    titles = [each.title for each in columns if each.is_figure]
    decimal = _decimal(path, [cells[title] for _, cells in found for title in titles if title in cells])
    return readable(enumerate(found, start=1), lambda each: _row(path, each[0], *each[1], columns, decimal), notes)


def _decimal(path: Path, figures: Sequence[str]) -> str:
    """The decimal mark of a table, by the figures that leave no doubt; empty if none has. Raises Unreadable."""

    def some(mark: str, group: str) -> bool:
        part, sure = rf"\d{{1,3}}(\{group}\d{{3}})", rf"\d+\{mark}(?!\d{{3}}$)\d+"
        return any(re.fullmatch(rf"{sure}|{part}+\{mark}\d+|{part}{{2,}}", each) for each in figures)

    points, commas = some(".", ","), some(",", ".")
    if points and commas:
        raise Unreadable(path, "it has figures with decimal points and others with decimal commas: write all alike")
    return "." if points else "," if commas else ""


def _plain(path: Path, line: int, name: str, text: str, decimal: str) -> str:
    """A figure as Python reads it. Raises Unreadable if its comma may stand for thousands or for decimals."""
    if "," not in text and decimal != ",":
        return text
    if not decimal:
        may = f"{text.replace(',', '')} or {text.replace(',', '.')}"
        raise Unreadable(path, f"{text!r} may be {may}: write it without a comma", line=line, at=name)
    group = "." if decimal == "," else ","
    grouped = re.fullmatch(rf"\d{{1,3}}(\{group}\d{{3}})+(\{decimal}\d+)?", text)
    return (text.replace(group, "") if grouped else text).replace(decimal, ".")


def _header(path: Path, line: int, titles: list[str], columns: Sequence[Column]) -> list[str]:
    """The titles, each of which stands once."""
    for column in columns:
        if titles.count(column.title) > 1:
            raise Unreadable(path, f"{titles.count(column.title)} columns have this title", line=line, at=column.title)
        if column.title not in titles and not _constant(column):
            known = ", ".join(title for title in titles if title)
            raise Unreadable(path, f"no column has this title; there are {known}", line=line, at=column.title)
    return titles


def _constant(column: Column) -> bool:
    return column.is_figure and re.fullmatch(r"\d+(\.\d+)?", column.title) is not None


def _row(
    path: Path, run: int, line: int, cells: Mapping[str, str], columns: Sequence[Column], decimal: str
) -> Measured:
    texts = {each.name: cells.get(each.title, each.title if _constant(each) else "") for each in columns}
    given = {each.name for each in columns if each.title not in cells and _constant(each)}

    def figure(name: str) -> float:
        text = texts[name]
        found = number(path, text if name in given else _plain(path, line, name, text, decimal), line=line, at=name)
        if found < 0:
            raise Unreadable(path, f"found {text!r}, which is below 0", line=line, at=name)
        return found

    present = {name for name, text in texts.items() if text}
    for needed in ("duration_s", *(name for name in _RATES if name in texts)):
        if needed not in present:
            raise Unreadable(path, "the cell is empty", line=line, at=needed)
    rate = next(name for name in _RATES if name in texts)
    unit, each_s = _RATES[rate]
    duration_ns = round(figure("duration_s") * 1e9)
    ios = round(figure(rate) * each_s * duration_ns / 1e9)
    if not ios:
        raise Unreadable(path, "no read or write completed", line=line, at=rate)
    settings: dict[str, LevelValue] = {
        each.name: level_of(each.name, texts[each.name])
        for each in columns
        if each.name in present and (not each.is_figure or each.name == BLOCK_SIZE)
    }
    counts = {name: whole(path, figure(name), line=line, at=name) for name in _COUNTS if name in present}
    settings |= {name: count for name, count in counts.items() if name not in given}
    size = settings.get(BLOCK_SIZE)
    moved_bytes = ios * size if isinstance(size, int) else 0
    for name in (name for name in _BYTES if name in present):
        moved_bytes = round(figure(name) * _BYTES[name] * duration_ns / 1e9)
    asked_iops = figure(RATE) if RATE in present else None
    if asked_iops:
        settings[RATE] = round(asked_iops)
    stream, percentiles = _latency(ios, moved_bytes, texts, figure)
    return Measured(
        path=path,
        program=PROGRAM,
        version="",
        run=run,
        read=stream,
        write=no_direction(),
        duration_ns=duration_ns,
        start_unix_ns=_start(path, line, texts["start"]) if "start" in present else None,
        percentiles=percentiles,
        settings=settings,
        workers=counts.get(WORKERS),
        per_worker=counts.get(OUTSTANDING),
        rate_iops=asked_iops or None,
        cpu=[
            _cpu(match["role"], round(figure(name) * duration_ns), duration_ns)
            for name in sorted(present)
            if (match := _CPU.fullmatch(name))
        ],
        unit=unit,
        notes=["a table does not tell reads from writes: all are shown as reads"] if unit == "I/O" else [],
    )


def _cpu(word: str, busy_ns: int, window_ns: int) -> CpuTime:
    role, layer = ROLES[word]
    return CpuTime(role=role, layer=layer, busy_ns=busy_ns, window_ns=window_ns)


def _latency(
    ios: int, moved_bytes: int, texts: Mapping[str, str], figure: Callable[[str], float]
) -> tuple[Direction, list[tuple[float, int]]]:
    """Of all I/Os: mean, maximum and percentiles, as far as there are columns."""
    mean_ns, worst_ns = math.nan, 0
    percentiles = []
    for name, text in texts.items():
        match = _LATENCY.fullmatch(name)
        if not match or not text:
            continue
        value_ns = figure(name) * _NS[match["unit"]]
        if match["percent"]:
            percentiles.append((float(match["percent"]), round(value_ns)))
        elif match["max"]:
            worst_ns = round(value_ns)
        else:
            mean_ns = value_ns
    known = not math.isnan(mean_ns)
    stream = Direction(
        ios=ios,
        bytes=moved_bytes,
        latency="mean" if known else "none",
        latency_sum_ns=round(mean_ns * ios) if known else 0,
        latency_min_ns=0,
        latency_max_ns=worst_ns,
    )
    return stream, sorted(percentiles)


def _start(path: Path, line: int, text: str) -> int:
    """Seconds since 1970, or a date and time; without a zone in UTC."""
    if (seconds := small(text)) is not None:
        return seconds * 10**9
    if (found := start_of(text)) is None:
        raise Unreadable(
            path, f"found {text[:80]!r} where a time is expected, such as 2026-05-01T10:00:00Z", line=line, at="start"
        )
    return found
