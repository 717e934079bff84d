"""What fio's options mean: as a job file has them, and as fio's JSON repeats them beside the results.

fio's own rules (HOWTO): a value for reads, writes and trims may be three, `8k,64k`; a synchronous engine has one I/O in
flight; `k`, `m`, `g` are binary; the later of `rwmixread` and `rwmixwrite` counts; a rate is of each job, and of its
reads and its writes apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from iotax.imports.measured import BLOCK_SIZE, MIXED, OUTSTANDING, RATE, WORKERS
from iotax.imports.problems import level_of, small
from iotax.trial import LevelValue

DEFAULT_ENGINE = "psync"
"""On Linux."""
_SYNCHRONOUS = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "libhdfs", "libpmem", "dev-dax",
                "libiscsi", "http", "sg", "mtd", "net", "gfapi", "libzbc", "libcufile", "ime_sync", "ime_psync",
                "falloc", "ftruncate", "exec", "cpuio", "filecreate", "filestat", "filedelete")  # fmt: skip
"""Engines with one I/O in flight, whatever `iodepth` says (FIO_SYNCIO)."""
_IN_PROCESS = ("nfs", "libiscsi", "http", "rbd", "rados", "libblkio", "gfapi", "null", "cpuio", "spdk", "libnfs")
"""Engines that bring their protocol with them; the others go through the kernel."""
_POLLS = "spdk"
"""In the name of engines all of whose work is done by fio's own threads."""
_SECONDS = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1, "sec": 1, "": 1, "m": 60, "h": 3600,
            "d": 86400}  # fmt: skip
_MIXES = {"read": (100, 0), "write": (0, 0), "randread": (100, 100), "randwrite": (0, 100), "rw": (50, 0),
          "readwrite": (50, 0), "randrw": (50, 100)}  # fmt: skip
"""fio's `rw` → percent of reads, percent at random places."""
_DEFAULT_BLOCK = 4096
_SIZE = re.compile(r"(0x[0-9a-f]+|\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)(b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_OTHER_NAMES = {
    "blocksize": "bs",
    "readwrite": "rw",
    "blocksize_range": "bsrange",
    "iodepth_": "iodepth",
    "timeout": "runtime",
    "io_limit": "io_size",
    "iosize": "io_size",
    "blockalign": "ba",
    "numjob": "numjobs",
    "rate_iop": "rate_iops",
}


def known_name(name: str) -> str:
    return _OTHER_NAMES.get(name, name)


@dataclass(frozen=True)
class Job:
    """One job's options, by the names that fio prefers."""

    options: Mapping[str, str]

    @property
    def engine(self) -> str:
        return self.options.get("ioengine", DEFAULT_ENGINE).partition(":")[0]

    @property
    def synchronous(self) -> bool:
        return self.engine in _SYNCHRONOUS

    @property
    def depth(self) -> int | None:
        """I/Os in flight of each clone; None if it is not a number."""
        return 1 if self.synchronous else small(self.options.get("iodepth", "1"))

    @property
    def clones(self) -> int | None:
        return small(self.options.get("numjobs", "1"))

    @property
    def kind(self) -> str:
        """`rw`, without what follows a colon."""
        return self.options.get("rw", "read").partition(":")[0]

    @property
    def mixed(self) -> bool:
        return self.kind in ("rw", "readwrite", "randrw")

    @property
    def read_percent(self) -> float | None:
        """None of a kind that is neither reads nor writes, or where it is not a number."""
        if self.kind not in _MIXES:
            return None
        if not self.mixed:
            return _MIXES[self.kind][0]
        # The later of the two counts.
        given = next((name for name in reversed(list(self.options)) if name in ("rwmixread", "rwmixwrite")), None)
        share = small(self.options[given]) if given else 50
        if share is None or share > 100:
            return None
        return 100 - share if given == "rwmixwrite" else share

    @property
    def random_percents(self) -> tuple[float, float] | None:
        """Of reads and of writes, as far as there are any; None if it is not a number."""
        if self.kind not in _MIXES:
            return None
        whole = _MIXES[self.kind][1]
        if not whole:
            return 0, 0
        found = [small(text) for text in per_direction(self.options.get("percentage_random", "100"), "100")]
        if any(each is None or each > 100 for each in found):
            return None
        return (found[0] or 0, found[1] or 0)

    @property
    def reads(self) -> bool:
        return bool(self.read_percent)

    @property
    def writes(self) -> bool:
        return self.read_percent is not None and self.read_percent < 100

    def of_directions(self, pair: Sequence[Any]) -> list[Any]:
        """Of (reads', writes'), those that the job has; each once."""
        return list(dict.fromkeys(value for value, has in zip(pair, (self.reads, self.writes), strict=True) if has))

    @property
    def block_sizes(self) -> list[int] | None:
        """In bytes, of the directions that the job has, the reads' first; several where they differ or where one has
        several. None if it cannot be told."""
        default = str(_DEFAULT_BLOCK)
        if "bssplit" in self.options:
            parts = per_direction(self.options["bssplit"], default)
            sizes = [[each.partition("/")[0] for each in part.split(":")] for part in parts]
        elif "bsrange" in self.options:
            parts = per_direction(self.options["bsrange"], default)
            sizes = [re.split(r"[-:]", part) for part in parts]
        else:
            sizes = [[part] for part in per_direction(self.options.get("bs", default), default)]
        found = [size_of(text) for own in self.of_directions([tuple(each) for each in sizes]) for text in own]
        return None if None in found or not found else list(dict.fromkeys(size for size in found if size is not None))

    @property
    def rate(self) -> float | None:
        """I/Os a second of all its clones together; 0 where none is set, None if it cannot be told."""
        clones, sizes = self.clones, self.block_sizes
        if not {"rate", "rate_iops"} & set(self.options):
            return 0.0
        if clones is None or self.read_percent is None:
            return None
        if "rate_iops" in self.options:
            pair = [size_of(text) for text in per_direction(self.options["rate_iops"], "0")]
        else:
            if sizes is None or len(sizes) != 1:
                return None
            rates = [size_of(text) for text in per_direction(self.options["rate"], "0")]
            pair = [None if rate is None else rate / sizes[0] for rate in rates]
        own = [value for value, has in zip(pair, (self.reads, self.writes), strict=True) if has]
        # A direction without a rate goes as fast as it can.
        return None if not all(own) else clones * sum(value for value in own if value)

    @property
    def held_mix(self) -> bool:
        """Whether the rates of reads and writes, which fio paces apart, are in the ratio of its mix."""
        if not self.mixed or "rate_iops" not in self.options:
            return True
        reads, writes = (size_of(text) or 0 for text in per_direction(self.options["rate_iops"], "0"))
        return not reads + writes or abs(100 * reads / (reads + writes) - (self.read_percent or 0)) < 1

    @property
    def by_chance(self) -> bool:
        return self.options.get("rate_process") == "poisson"

    @property
    def pauses(self) -> bool:
        """Whether the job waits between its I/Os, so that fewer than `iodepth` are outstanding."""
        return re.fullmatch(r"0*[a-z]*", self.options.get("thinktime", "0")) is None


def per_direction(text: str, default: str) -> tuple[str, str]:
    """(reads', writes') of what may be given for reads, writes and trims: one without a comma after it holds for what
    follows too (HOWTO, blocksize)."""
    parts = [part.strip() for part in text.split(",")]
    reads = parts[0] or default
    writes = reads if len(parts) == 1 else parts[1] or default
    return reads, writes


def size_of(text: str) -> int | None:
    """Bytes, or a plain number, as fio writes it; None if it is none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or len(text) > 24:
        return None
    # With its default kb_base=1024, `k` is 1024 and `ki` 1000.
    base = 1000 if found[3] and found[2] else 1024
    digits = found[1]
    value = int(digits, 16) if digits.lower().startswith("0x") else float(digits) if "." in digits else int(digits)
    return round(value * base ** _POWERS[found[2].lower()])


def seconds_of(text: str) -> float | None:
    """None if it is not a time."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)\s*([a-z]*)", text.strip().lower())
    return float(found[1]) * _SECONDS[found[2]] if found and found[2] in _SECONDS else None


@dataclass(frozen=True)
class Asked:
    """Of the jobs that ran together; None if they differ or do not say."""

    workers: int | None
    per_worker: int | None
    rate_iops: float | None
    ramp_ns: int | None
    engine: str
    stack: Literal["user", "kernel", "unknown"]
    loop: Literal["open", "closed", "unknown"] = "unknown"
    by_chance: bool = False
    pauses: bool = False
    settings: dict[str, LevelValue] = field(default_factory=dict)

    @property
    def all_in_its_threads(self) -> bool:
        """Whether the time of fio's own threads is all that an I/O costs the initiator: no kernel is on its way."""
        return _POLLS in self.engine


def asked_of(rows: Sequence[Mapping[str, Any]], given: object) -> Asked:
    """`given` are the global options: a mapping, or a list of them."""
    shared: dict[str, Any] = {}
    for each in given if isinstance(given, list) else [given]:
        shared |= each if isinstance(each, Mapping) else {}
    options = [_known_names(shared, row.get("job options")) for row in rows]
    if not any(options):
        return Asked(None, None, None, None, "", "unknown")
    jobs = [Job(each) for each in options]
    engines = {each.get("ioengine", "") for each in options}
    engine = engines.pop() if len(engines) == 1 else ""
    depths = {job.depth for job in jobs}
    per_worker = depths.pop() if len(depths) == 1 else None
    clones = _clones(rows, options)
    workers = sum(known) if (known := [each for each in clones if each is not None]) and None not in clones else None
    rates = [_rate(job, own) for job, own in zip(jobs, clones, strict=True)]
    held = all(rates)
    settings: dict[str, LevelValue] = {}
    for name, value in (
        (BLOCK_SIZE, _block_size(jobs, options)),
        ("rw", _common(options, "rw", "read")),
        (OUTSTANDING, per_worker),
        (WORKERS, workers),
        ("ioengine", engine or None),
        ("rwmixread", _read_percent(jobs)),
        (RATE, _common(options, "rate_iops", None)),
    ):
        if value is not None:
            settings[name] = _level(value)
    return Asked(
        workers,
        per_worker,
        sum(rate for rate in rates if rate) if held else None,
        _ramp_ns(options),
        engine,
        "user" if engine.startswith(_IN_PROCESS) or _POLLS in engine else "kernel",
        "open" if held else "closed" if not any(rate is None or rate for rate in rates) else "unknown",
        any(job.by_chance for job in jobs),
        any(job.pauses for job in jobs),
        settings,
    )


def _known_names(shared: Mapping[str, Any], own: object) -> dict[str, str]:
    """A job's option counts, and stands after those of all jobs."""
    found = {known_name(name): str(value) for name, value in shared.items()}
    for name, value in own.items() if isinstance(own, Mapping) else ():
        found.pop(known_name(name), None)
        found[known_name(name)] = str(value)
    return found


def _block_size(jobs: Sequence[Job], options: Sequence[Mapping[str, str]]) -> LevelValue | None:
    sizes = [job.block_sizes for job in jobs]
    known = {size for each in sizes if each is not None for size in each}
    if None not in sizes and len(known) == 1:
        return known.pop()
    return MIXED if any({"bssplit", "bsrange"} & set(each) for each in options) else _common(options, "bs", "4k")


def _read_percent(jobs: Sequence[Job]) -> str | None:
    shares = dict.fromkeys(job.read_percent for job in jobs if job.mixed)
    stated = any({"rwmixread", "rwmixwrite"} & set(job.options) for job in jobs)
    return "+".join(f"{share:g}" for share in shares if share is not None) or None if stated else None


def _clones(rows: Sequence[Mapping[str, Any]], options: Sequence[Mapping[str, str]]) -> list[int | None]:
    """Of each row: clones that are reported apart are rows of their own; reported together their times add up. None
    if a row is of several jobs, of which fio repeats the options of the first."""
    found: list[int | None] = []
    for row, own in zip(rows, options, strict=True):
        clones = small(own.get("numjobs")) or 1
        apart = "group_reporting" not in own and sum(r.get("jobname") == row.get("jobname") for r in rows) >= clones
        longest, spent = _runtime_ms(row), row.get("job_runtime")
        hidden = isinstance(spent, int | float) and longest and abs(spent / longest - clones) > 0.3 * clones
        found.append(None if not apart and hidden else 1 if apart else clones)
    return found


def _runtime_ms(row: Mapping[str, Any]) -> float:
    sides = [row[name] for name in ("read", "write", "mixed") if isinstance(row.get(name), Mapping)]
    times = [side["runtime"] for side in sides if isinstance(side.get("runtime"), int | float)]
    return max(times, default=0)


def _rate(job: Job, clones: int | None) -> float | None:
    """Of the jobs of one row."""
    rate, own = job.rate, job.clones
    return None if rate is None or clones is None or not own else rate / own * clones


def _common(options: Sequence[Mapping[str, str]], name: str, default: str | None) -> str | None:
    """The value that all share; all values where they differ."""
    values = dict.fromkeys(each.get(name, default) for each in options)
    return "+".join(value for value in values if value is not None) or None


def _level(value: LevelValue) -> LevelValue:
    return level_of(value) if isinstance(value, str) else value


def _ramp_ns(options: Sequence[Mapping[str, str]]) -> int | None:
    ramps = {each.get("ramp_time", "0") for each in options}
    seconds = seconds_of(ramps.pop()) if len(ramps) == 1 else None
    return None if seconds is None else round(seconds * 1e9)
