"""pgbench: the log of `-l`, which has every transaction exactly, or the text that it prints at its end.

A log has `client transaction latency_us script epoch us [schedule_lag_us]`; each of pgbench's threads has a file of
its own, and all files of one process are one run. With `-R` a latency begins when the transaction was scheduled.
"""

from __future__ import annotations

import re
from pathlib import Path

from iotax.imports.measured import WORKERS, Measured, bins_direction, no_direction
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import Direction, LevelValue

PROGRAM = "pgbench"
_EXACT_MAX = 20_000
"""Distinct latencies that are kept as they are; of more, three digits."""
_LOG_NAME = re.compile(r"^(.*?\.\d+)(\.\d+)?$")
_EPOCH_MIN = 1_000_000_000


def read(path: Path, notes: Notes) -> list[Measured]:
    """Raises Unreadable."""
    with path.open("rb") as file:
        head = file.readline(4096).split()
    if len(head) >= 5 and all(word.lstrip(b"-").isdigit() for word in head[:2]):
        return [_log(path, notes)]
    return [_printed(path)]


def _log(path: Path, notes: Notes) -> Measured:
    counts: dict[int, int] = {}
    first_us = last_us = sum_us = failed = skipped = 0
    with path.open("rb") as file:
        for line, text in enumerate(file, start=1):
            words = text.split()
            if len(words) < 6:
                if not text.endswith(b"\n"):
                    notes.add(path, "the last line is cut off: left out", line=line)
                    continue
                raise Unreadable(path, f"{len(words)} columns where at least 6 are meant", line=line)
            if words[2] in (b"failed", b"skipped"):
                failed += words[2] == b"failed"
                skipped += words[2] == b"skipped"
                continue
            try:
                latency_us, at_us = int(words[2]), int(words[4]) * 1_000_000 + int(words[5])
            except ValueError:
                raise Unreadable(path, f"found {text[:80]!r} where numbers are meant", line=line) from None
            if int(words[0]) >= _EPOCH_MIN:
                raise Unreadable(path, "a log of --aggregate-interval: log transactions, with -l alone", line=line)
            first_us = min(first_us or at_us - latency_us, at_us - latency_us)
            last_us, sum_us = max(last_us, at_us), sum_us + latency_us
            counts[latency_us] = counts.get(latency_us, 0) + 1
    if not counts or last_us <= first_us:
        raise Unreadable(path, "no transaction in it")
    if skipped:
        notes.add(path, f"{skipped} transactions were skipped for being late (-L)")
    worst_us = max(counts)
    stream = bins_direction(
        {value * 1000: count for value, count in _grouped(counts).items()},
        0,
        digits=3,
        sum_ns=sum_us * 1000,
        worst_ns=worst_us * 1000,
    )
    name = _LOG_NAME.match(path.name)
    return Measured(
        path=path,
        program=PROGRAM,
        version="",
        read=stream,
        write=no_direction(),
        duration_ns=(last_us - first_us) * 1000,
        start_unix_ns=first_us * 1000,
        errors=failed,
        unit="transaction",
        together=str(path.with_name(name[1])) if name else "",
    )


def _grouped(counts: dict[int, int]) -> dict[int, int]:
    """With three digits, rounded up, where there are very many values."""
    if len(counts) <= _EXACT_MAX:
        return counts
    found: dict[int, int] = {}
    for value, count in counts.items():
        unit = 10 ** max(0, len(str(value)) - 3)
        rounded = -(-value // unit) * unit
        found[rounded] = found.get(rounded, 0) + count
    return found


_FIELDS = {
    "transactions": r"^number of transactions actually processed: (\d+)",
    "tps": r"^tps = ([\d.]+) \((?:without initial|excluding connections)",
    "latency_ms": r"^latency average = ([\d.]+) ms",
    "clients": r"^number of clients: (\d+)",
    "scale": r"^scaling factor: ([\d.]+)",
    "failed": r"^number of failed transactions: (\d+)",
    "rate": r"^rate limit schedule lag",
}


def _printed(path: Path) -> Measured:
    text = text_of(path)
    found = {name: match for name, form in _FIELDS.items() if (match := re.search(form, text, re.MULTILINE))}
    if "transactions" not in found or "tps" not in found:
        raise Unreadable(path, "neither a log of `pgbench -l` nor what pgbench prints at its end", at="tps")
    ios = int(found["transactions"][1])
    tps = number(path, found["tps"][1], at="tps")
    if not ios or not tps:
        raise Unreadable(path, "no transaction was processed", at="tps")
    mean_ms = number(path, found["latency_ms"][1], at="latency average") if "latency_ms" in found else None
    version = re.search(r"^pgbench \((?:PostgreSQL\) )?([\d.]+)", text, re.MULTILINE)
    settings: dict[str, LevelValue] = {}
    if "clients" in found:
        settings[WORKERS] = int(found["clients"][1])
    if "scale" in found:
        settings["scale"] = int(float(found["scale"][1]))
    clients = settings.get(WORKERS)
    return Measured(
        path=path,
        program=PROGRAM,
        version=version[1] if version else "",
        read=Direction(
            ios=ios,
            bytes=0,
            latency="none" if mean_ms is None else "mean",
            latency_sum_ns=round((mean_ms or 0) * 1e6 * ios),
            latency_min_ns=0,
            latency_max_ns=0,
        ),
        write=no_direction(),
        duration_ns=round(ios / tps * 1e9),
        settings=settings,
        workers=clients if isinstance(clients, int) else None,
        per_worker=1 if clients else None,
        loop="unknown" if "rate" in found else "closed",
        errors=int(found["failed"][1]) if "failed" in found else None,
        unit="transaction",
        notes=["only a mean latency is printed: log transactions with pgbench -l for percentiles"],
    )
