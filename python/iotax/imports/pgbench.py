"""pgbench: the log of `-l`, which has every transaction exactly, or the text that it prints at its end.

Each of pgbench's threads has a log of its own, and all logs of one process are one run. A log has a line for each
transaction, `client transaction latency_us script epoch us [schedule_lag_us]`: the time is that of its end; with `-R`
its latency begins when it was scheduled, and the lag is the part before it began (PostgreSQL, pgbench,
"Per-Transaction Logging").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from iotax.imports.measured import WORKERS, Measured, bins_direction, no_direction, readable
from iotax.imports.problems import Notes, Unreadable, head_of, lines_of, number, runs_of, text_of, whole
from iotax.trial import Direction, LevelValue

PROGRAM = "pgbench"
_BEGIN = re.compile(r"^(pgbench \(|starting vacuum|transaction type:)")
_RESULT = re.compile(r"^tps = ")
_LATENCY_MAX_US = 32 * 86_400 * 10**6
_END_MAX_US = 10**17
_LOG_NAME = re.compile(r"^(.*?\.\d+)(\.\d+)?$")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for a log, or for each run in a text. Raises Unreadable."""
    head = head_of(path).partition("\n")[0].split()
    if len(head) >= 5 and all(word.lstrip("-").isdigit() for word in head[:2]):
        return [_log(path, notes)]
    runs = enumerate(runs_of(text_of(path), _BEGIN, _RESULT), start=1)
    return readable(runs, lambda each: _printed(path, *each), notes)


def _log(path: Path, notes: Notes) -> Measured:
    counts: dict[int, int] = {}
    first_us = last_us = sum_us = failed = skipped = 0
    for line, text in lines_of(path):
        if len(text.split()) < COLUMNS_MIN and not text.endswith("\n"):
            notes.add(path, "the last line is cut off: left out", line=line)
            continue
        each = _transaction(path, line, text.encode())
        if each.latency_us is None:
            failed += each.failed
            skipped += not each.failed
            continue
        began_us = each.ended_us - each.latency_us
        first_us = min(first_us or began_us, began_us)
        last_us, sum_us = max(last_us, each.ended_us), sum_us + each.latency_us
        counts[each.latency_us] = counts.get(each.latency_us, 0) + 1
    if not counts or last_us <= first_us:
        raise Unreadable(path, "no transaction in it")
    if skipped:
        notes.add(path, f"{skipped} transactions were skipped for being late (-L)")
    worst_us = max(counts)
    stream = bins_direction(
        {value * 1000: count for value, count in grouped(counts).items()},
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


def _transaction(path: Path, line: int, text: bytes) -> Transaction:
    if len(words := text.split()) < COLUMNS_MIN:
        raise Unreadable(path, f"{len(words)} columns where at least {COLUMNS_MIN} are expected", line=line)
    try:
        found = transaction_of(text)
    except Aggregated:
        raise Unreadable(path, "a log of --aggregate-interval: log transactions, with -l alone", line=line) from None
    except ValueError:
        raise Unreadable(path, f"found {text[:80]!r} where numbers are expected", line=line) from None
    # Within a month of each other, and before the year 5000.
    if not 0 <= (found.latency_us or 0) < _LATENCY_MAX_US or not 0 < found.ended_us < _END_MAX_US:
        raise Unreadable(path, f"found {text[:80]!r}, whose times are not possible", line=line)
    return found


_FIELDS = {
    "transactions": r"^number of transactions actually processed: (\d+)",
    "tps": r"^tps = ([\d.]+) \((?:without initial|excluding connections)",
    "latency_ms": r"^latency average\s*[=:]\s*([\d.]+) ms",
    "clients": r"^number of clients: (\d+)",
    "scale": r"^scaling factor: ([\d.]+)",
    "failed": r"^number of failed transactions: (\d+)",
    "rate": r"^rate limit schedule lag",
}


def _printed(path: Path, run: int, text: str) -> Measured:
    found = {name: match for name, form in _FIELDS.items() if (match := re.search(form, text, re.MULTILINE))}
    if "transactions" not in found or "tps" not in found:
        raise Unreadable(path, "neither a log of `pgbench -l` nor what pgbench prints at its end", at="tps")
    ios = whole(path, found["transactions"][1], at="number of transactions")
    tps = number(path, found["tps"][1], at="tps")
    if not ios or not tps:
        raise Unreadable(path, "no transaction was processed", at="tps")
    mean_ms = number(path, found["latency_ms"][1], at="latency average") if "latency_ms" in found else None
    version = re.search(r"^pgbench \((?:PostgreSQL\) )?([\d.]+)", text, re.MULTILINE)
    settings: dict[str, LevelValue] = {}
    if "clients" in found:
        settings[WORKERS] = whole(path, found["clients"][1], at="number of clients")
    if "scale" in found:
        settings["scale"] = int(number(path, found["scale"][1], at="scaling factor"))
    clients = settings.get(WORKERS)
    return Measured(
        path=path,
        program=PROGRAM,
        version=version[1] if version else "",
        run=run,
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
        errors=whole(path, found["failed"][1], at="number of failed transactions") if "failed" in found else None,
        unit="transaction",
        notes=["only a mean latency is printed: log transactions with pgbench -l for percentiles"],
    )


COLUMNS_MIN = 6
_EXACT_MAX = 20_000
"""Distinct latencies that are kept as they are; of more, three digits."""
_EPOCH_MIN = 1_000_000_000


class Aggregated(ValueError):  # noqa: N818 - what the log is, not a bug
    """A log of --aggregate-interval, which has no transactions."""


@dataclass(frozen=True)
class Transaction:
    ended_us: int
    """Since 1970."""
    latency_us: int | None
    """None if it failed or was skipped."""
    lag_us: int | None = None
    """Of an open loop: from when it was scheduled to its beginning."""
    failed: bool = False


def transaction_of(line: bytes) -> Transaction:
    """Raises ValueError if the line is none."""
    words = line.split()
    if len(words) < COLUMNS_MIN:
        raise ValueError(f"{len(words)} columns where at least {COLUMNS_MIN} are expected")
    ended_us = int(words[4]) * 1_000_000 + int(words[5])
    if words[2] in (b"failed", b"skipped"):
        return Transaction(ended_us, None, failed=words[2] == b"failed")
    if int(words[0]) >= _EPOCH_MIN:
        raise Aggregated
    lag_us = int(words[6]) if len(words) > COLUMNS_MIN and words[6].isdigit() else None
    return Transaction(ended_us, int(words[2]), lag_us)


def grouped(counts: dict[int, int]) -> dict[int, int]:
    """Latency → how many; with three digits, rounded up, where there are very many values."""
    if len(counts) <= _EXACT_MAX:
        return counts
    found: dict[int, int] = {}
    for value, count in counts.items():
        unit = 10 ** max(0, len(str(value)) - 3)
        rounded = -(-value // unit) * unit
        found[rounded] = found.get(rounded, 0) + count
    return found
