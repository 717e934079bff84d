"""Parameter files of vdbench and configurations of Iometer as studies: what they run one after another becomes factors.

vdbench: storage, workload and run definitions (`sd=`, `wd=`, `rd=`) with their defaults and `for…` loops; threads are
those
of each storage definition. Iometer: the assigned access specifications of its disk workers, in turn, and its cycling of
outstanding I/Os. What a study cannot ask is told.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iotax.imports.job_study import OWN_VOLUME, Converted, Pattern, Step, of_steps, study_text
from iotax.imports.problems import Unreadable, head_of, small, text_of
from iotax.units import COMPRESS_MAX, DEDUPE_MAX, format_size

_SECTOR = 512
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_STEPS_MAX = 1000
_DEFINES = ("sd", "wd", "rd", "hd", "fsd", "fwd")
_IOMETER_SUFFIX = ".icf"


def is_parameter_file(path: Path) -> bool:
    """By its name, or by the run definition that it has near its beginning. Raises Unreadable."""
    if not path.is_file():
        return False
    return path.suffix.lower() == _IOMETER_SUFFIX or bool(re.search(r"^\s*(?:sd|wd|rd)=", head_of(path), re.M))


def study_of_parameters(path: Path, name: str) -> Converted:
    """The study, and what the file asks that the study does not. Raises Unreadable."""
    if path.suffix.lower() == _IOMETER_SUFFIX:
        return _of_iometer(path, name)
    return _of_vdbench(path, name)


# --- vdbench


@dataclass(frozen=True)
class _Definition:
    """One `KEY=NAME,parameter=value,…`, and where it stands."""

    path: Path
    line: int
    kind: str
    name: str
    values: Mapping[str, str]

    def wrong(self, option: str, message: str) -> Unreadable:
        return Unreadable(self.path, message, line=self.line, at=option)

    def text(self, *options: str) -> str | None:
        """Of the first of these that is given: vdbench has several names for some."""
        return next((self.values[option] for option in options if option in self.values), None)

    def listed(self, *options: str) -> list[str]:
        """The values of `(a,b,c)`, or the one; empty if nothing is said."""
        text = self.text(*options)
        return [] if text is None else [each.strip() for each in text.strip("()").split(",") if each.strip()]

    def number(self, option: str, text: str, most: float = 1e15) -> float:
        found = small(text.rstrip("%"))
        if found is None or not 0 <= found <= most:
            raise self.wrong(option, f"found {text!r} where a number is expected")
        return found

    def size(self, option: str, text: str) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)b?", text.lower())
        if found is None or len(text) > 24:
            raise self.wrong(option, f"found {text!r} where a size such as 4k is expected")
        return round(float(found[1]) * _UNITS[found[2]])


@dataclass
class _Parameters:
    defined: list[_Definition] = field(default_factory=list)
    general: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What stands outside of any definition, with its line."""

    def of(self, kind: str) -> list[_Definition]:
        """Those of a kind, each with the defaults that stand above it."""
        found, defaults = [], dict[str, str]()
        for each in self.defined:
            if each.kind != kind:
                continue
            if each.name == "default":
                defaults |= each.values
            else:
                found.append(_Definition(each.path, each.line, kind, each.name, defaults | dict(each.values)))
        return found


def _of_vdbench(path: Path, name: str) -> Converted:
    parameters, notes = _parameters(path), list[str]()
    if parameters.of("fsd") or parameters.of("fwd"):
        raise Unreadable(path, "it loads a file system (fsd, fwd): a study reads and writes one volume")
    storages, workloads, runs = (parameters.of(kind) for kind in ("sd", "wd", "rd"))
    for kind, found in (("sd", storages), ("wd", workloads), ("rd", runs)):
        if not found:
            raise Unreadable(path, f"it has no {kind}= definition")
    steps = [step for run in runs for step in _steps(run, workloads, storages, notes)]
    if len(steps) > _STEPS_MAX:
        raise Unreadable(path, f"it runs {len(steps)} loads: more than {_STEPS_MAX} are not a study")
    times = {
        field_name: {round(run.number(option, text)) for run in runs if (text := run.text(option)) is not None}
        for field_name, option in (("runtime", "elapsed"), ("warmup", "warmup"))
    }
    for field_name, found in times.items():
        if len(found) > 1:
            notes.append(f"{field_name} differs between runs: the study takes that of the first")
    first = {
        field_name: round(runs[0].number(option, text))
        for field_name, option in (("runtime", "elapsed"), ("warmup", "warmup"))
        if (text := runs[0].text(option)) is not None
    }
    notes += _left_out(parameters)
    hosts = [each.name for each in parameters.of("hd") if each.name != "default"]
    if len(hosts) > 1:
        notes.append(f"hosts ({', '.join(hosts)}): the load is that of one; name them under lab: hosts, and `clients`")
    notes.append(f"lun: {OWN_VOLUME}")
    load, factors = of_steps(_named_apart(steps), first, notes)
    volume = _volume(storages) | _reduced(parameters, notes)
    return Converted(study_text(name, path.name, volume, load, factors), list(dict.fromkeys(notes)))


def _parameters(path: Path) -> _Parameters:
    found = _Parameters()
    for line, content in _statements(text_of(path)):
        pairs = [(key.strip().lower(), value.strip()) for key, value in _pairs(content)]
        if not pairs:
            continue
        (kind, name), *rest = pairs
        if kind in _DEFINES:
            found.defined.append(_Definition(path, line, kind, name, dict(rest)))
        else:
            found.general |= {key: (line, value) for key, value in pairs}
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; one that ends with a comma, or whose successor is indented, goes on in the next."""
    began, whole = 0, ""
    for line, content in enumerate(text.splitlines(), start=1):
        if re.match(r"\s*(?:[*#/]|$)", content):
            continue
        if whole and not whole.endswith(",") and not content[:1].isspace():
            yield began, whole
            whole = ""
        began = began if whole else line
        whole = (whole + ("," if whole and not whole.endswith(",") else "") + content.strip()).rstrip()
    if whole:
        yield began, whole


def _pairs(statement: str) -> Iterator[tuple[str, str]]:
    """`a=1,b=(2,3)` without splitting what is in parentheses."""
    for each in re.split(r",(?![^()]*\))", statement):
        key, equals, value = each.partition("=")
        if equals:
            yield key, value


_LOOPS = {
    "forxfersize": "xfersize",
    "forrdpct": "rdpct",
    "forseekpct": "seekpct",
    "forthreads": "threads",
}


def _steps(
    run: _Definition, workloads: Sequence[_Definition], storages: Sequence[_Definition], notes: list[str]
) -> Iterator[Step]:
    """One for each combination of what the run loops over."""
    chosen = [each for each in workloads if _matches(each.name, run.listed("wd"))]
    if not chosen:
        raise run.wrong("wd", f"found {run.text('wd')!r}, which names no workload definition above")
    loops = {own: run.listed(loop) for loop, own in _LOOPS.items() if run.listed(loop)}
    unknown = [loop for loop in ("forhitarea", "forwhpct", "forrhpct", "forcompratio") if run.text(loop)]
    notes += [f"{loop} ({run.name}): nothing in a study corresponds to it" for loop in unknown]
    rates = run.listed("iorate", "forrate") or ["max"]
    for rate, *values in itertools.product(rates, *loops.values()):
        own = dict(zip(loops, values, strict=True))
        yield _step(run, chosen, storages, own, rate, notes)


def _step(
    run: _Definition,
    workloads: Sequence[_Definition],
    storages: Sequence[_Definition],
    own: Mapping[str, str],
    rate: str,
    notes: list[str],
) -> Step:
    skews = [each.text("skew") for each in workloads]
    given = [each.number("skew", skew) for each, skew in zip(workloads, skews, strict=True) if skew is not None]
    rest = (100 - sum(given)) / max(1, skews.count(None))
    patterns: list[Pattern] = []
    for each, skew in zip(workloads, skews, strict=True):
        share = each.number("skew", skew) if skew is not None else rest
        patterns += _patterns(each, run, own, max(share, 0.0), notes)
    patterns = [each for each in patterns if each.share > 0] or patterns[:1]
    used = [
        each for each in storages if any(_matches(each.name, workload.listed("sd") or ["*"]) for workload in workloads)
    ]
    count = len(used or storages)
    threads_text = own.get("threads") or run.text("threads") or (used or storages)[0].text("threads") or "8"
    threads = max(1, round(run.number("threads", threads_text, 1e6)))
    held = None
    if rate.lower() in ("curve", "max"):
        if rate.lower() == "curve":
            notes.append(
                f"iorate=curve ({run.name}): the study is a closed loop; say `search: {{rate_max: …}}` for a curve"
            )
    else:
        held = round(run.number("iorate", rate)) or None
    name = ", ".join([run.name, *(f"{key} {value}" for key, value in own.items())])
    return Step(name, patterns, count, threads, held)


def _patterns(
    workload: _Definition, run: _Definition, own: Mapping[str, str], share: float, notes: list[str]
) -> list[Pattern]:
    read = workload.number(
        "rdpct", own.get("rdpct") or run.text("rdpct") or workload.text("rdpct", "readpct") or "100", 100
    )
    seek = own.get("seekpct") or run.text("seekpct") or workload.text("seekpct", "seek") or "100"
    words = {"random": 100.0, "rand": 100.0, "seq": 0.0, "sequential": 0.0, "eof": 0.0, "seqnz": 0.0}
    random = words[seek.lower()] if seek.lower() in words else workload.number("seekpct", seek, 100)
    unknown = [option for option in ("rhpct", "whpct", "hitarea", "stride", "range") if workload.text(option)]
    notes += [f"{option} ({workload.name}): nothing in a study corresponds to it" for option in unknown]
    text = own.get("xfersize") or run.text("xfersize") or workload.text("xfersize") or "4k"
    parts = [each.strip() for each in text.strip("()").split(",")]
    if len(parts) == 1:
        return [Pattern(_whole(workload, parts[0], notes), read, random, share)]
    if len(parts) % 2:
        size = _whole(workload, parts[0], notes)
        notes.append(f"xfersize={text} ({workload.name}): a range of sizes: the study takes {format_size(size)}")
        return [Pattern(size, read, random, share)]
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    return [
        Pattern(_whole(workload, size, notes), read, random, share * workload.number("xfersize", of_all, 100) / 100)
        for size, of_all in pairs
    ]


def _whole(workload: _Definition, text: str, notes: list[str]) -> int:
    size = workload.size("xfersize", text)
    whole = max(1, -(-size // _SECTOR)) * _SECTOR
    if whole != size:
        notes.append(f"xfersize: {size} bytes are not a multiple of {_SECTOR}: the study takes {format_size(whole)}")
    return whole


def _matches(name: str, wanted: Sequence[str]) -> bool:
    """`sd*` names all that begin so, `sd1-sd4` those between; `*` all."""
    for each in wanted:
        low, dash, high = each.partition("-")
        if dash and (found := re.fullmatch(r"(.*?)(\d+)", low)) and (end := re.fullmatch(r"(.*?)(\d+)", high)):
            own = re.fullmatch(re.escape(found[1]) + r"(\d+)", name)
            if own and int(found[2]) <= int(own[1]) <= int(end[2]):
                return True
        elif re.fullmatch(re.escape(each).replace(r"\*", ".*"), name):
            return True
    return False


def _volume(storages: Sequence[_Definition]) -> dict[str, str]:
    sizes = [each.size("size", text) for each in storages if (text := each.text("size"))]
    return {"size": format_size(sum(sizes))} if sizes and len(sizes) == len(storages) and all(sizes) else {}


def _reduced(parameters: _Parameters, notes: list[str]) -> dict[str, float]:
    found = {}
    for option, name, most in (("compratio", "compress", COMPRESS_MAX), ("dedupratio", "dedupe", DEDUPE_MAX)):
        said = parameters.general.get(option)
        ratio = small(said[1]) if said else None
        if said and (ratio is None or not 1 <= ratio <= most):
            notes.append(f"{option}={said[1]}: a study takes 1 to {most:g}: left out")
        elif ratio is not None and ratio > 1:
            found[name] = ratio
    return found


_KNOWN = {"compratio", "dedupratio", "messagescan", "create_anchors", "report", "histogram", "formatsds", "monitor"}


def _left_out(parameters: _Parameters) -> list[str]:
    return [f"{name}={value}: nothing in a study corresponds to it" for name, (_, value) in parameters.general.items()
            if name not in _KNOWN]  # fmt: skip


def _named_apart(steps: Sequence[Step]) -> list[Step]:
    """Loads of one name are numbered."""
    names = [each.name for each in steps]
    return [
        each
        if names.count(each.name) == 1
        else Step(f"{each.name} {at}", each.patterns, each.workers, each.outstanding, each.rate_iops)
        for at, each in enumerate(steps, start=1)
    ]


# --- Iometer


def _of_iometer(path: Path, name: str) -> Converted:
    """A line that begins with `'` says what the next ones are."""
    notes: list[str] = []
    blocks = _blocks(path)
    specs = _specifications(path, blocks)
    workers, managers = _workers(path, blocks), sum(title == "Manager ID, manager name" for title, _, _ in blocks)
    if not workers:
        raise Unreadable(path, "it has no disk worker with targets: assign some in Iometer and save it again")
    first = workers[0]
    if any((each.outstanding, each.specs) != (first.outstanding, first.specs) for each in workers):
        notes.append("workers differ in outstanding I/Os or access specifications: the study takes those of the first")
    chosen = [spec for spec in first.specs if spec in specs] or list(specs)
    if not chosen:
        raise Unreadable(path, "it has no access specification")
    depths = _cycled(path, blocks) or [first.outstanding]
    per_worker = [depth * max(1, first.targets) for depth in depths]
    if first.targets > 1:
        notes.append(f"{first.targets} targets a worker: its outstanding I/Os on all of them are those of the study")
    steps = [Step(spec, specs[spec], len(workers), depth) for spec in chosen for depth in per_worker]
    if len(depths) > 1:
        steps = [
            Step(f"{each.name} {each.outstanding}", each.patterns, each.workers, each.outstanding) for each in steps
        ]
    if managers > 1:
        notes.append(
            f"{managers} managers: the load is that of all together; name hosts under lab: hosts, and `clients`"
        )
    notes.append(f"targets: {OWN_VOLUME}")
    times = {"runtime": _seconds(path, blocks), "warmup": _ramp_s(path, blocks)}
    load, factors = of_steps(steps, times, notes)
    size = first.sectors * _SECTOR
    volume = {"size": format_size(size)} if size else {}
    return Converted(study_text(name, path.name, volume, load, factors), list(dict.fromkeys(notes)))


_Block = tuple[str, int, list[str]]
"""Title, line and rows."""


def _blocks(path: Path) -> list[_Block]:
    found: list[_Block] = []
    for line, content in enumerate(text_of(path).splitlines(), start=1):
        text = content.strip()
        if text.startswith("'"):
            found.append((text.strip("'= ").strip(), line, []))
        elif found and text:
            found[-1][2].append(text)
    if not any(title.startswith("size,") for title, _, _ in found):
        raise Unreadable(path, "no access specifications: not an Iometer configuration")
    return found


def _specifications(path: Path, blocks: Sequence[_Block]) -> dict[str, list[Pattern]]:
    found: dict[str, list[Pattern]] = {}
    name = ""
    for title, line, rows in blocks:
        if title.startswith("Access specification name"):
            name = rows[0].rpartition(",")[0].strip() if rows and "," in rows[0] else (rows[0] if rows else "")
        elif title.startswith("size,") and name:
            found[name] = [_access(path, line + at, row) for at, row in enumerate(rows, start=1)]
    return {each: patterns for each, patterns in found.items() if patterns and all(p.block_bytes for p in patterns)}


def _access(path: Path, line: int, row: str) -> Pattern:
    """`size,% of size,% reads,% random,delay,burst,align,reply`."""
    cells = [small(each) for each in row.split(",")[:4]]
    size, share, read, random = [*cells, None, None, None, None][:4]
    if None in (size, share, read, random) or not (0 <= read <= 100 and 0 <= random <= 100 and 0 <= size <= 1 << 30):  # ty: ignore[unsupported-operator]
        raise Unreadable(path, f"found {row!r} where size, % of size, % reads and % random are expected", line=line)
    assert size is not None and share is not None and read is not None and random is not None
    return Pattern(math.ceil(size / _SECTOR) * _SECTOR, read, random, share)


@dataclass(frozen=True)
class _Worker:
    outstanding: int
    specs: tuple[str, ...]
    targets: int
    sectors: int


def _workers(path: Path, blocks: Sequence[_Block]) -> list[_Worker]:
    """Disk workers that have a target."""
    found: list[_Worker] = []
    kind, outstanding, sectors, targets = "", 1, 0, 0
    specs: tuple[str, ...] = ()
    for title, line, rows in blocks:
        first = rows[0] if rows else ""
        if title == "Worker":
            kind, outstanding, sectors, targets, specs = "", 1, 0, 0, ()
        elif title == "Worker type":
            kind = first
        elif title.startswith("Number of outstanding IOs"):
            outstanding = _whole_number(path, first.partition(",")[0], line + 1, "outstanding I/Os")
        elif title.startswith("Disk maximum size"):
            sectors = _whole_number(path, first.partition(",")[0], line + 1, "maximum size")
        elif title == "Assigned access specs":
            specs = tuple(rows)
        elif title == "Target":
            targets += 1
        elif title == "End worker" and kind == "DISK" and targets:
            found.append(_Worker(max(1, outstanding), specs, targets, sectors))
    return found


def _cycled(path: Path, blocks: Sequence[_Block]) -> list[int]:
    """Outstanding I/Os, where the test goes through several; empty if it does not."""
    kinds = [rows[0] for title, _, rows in blocks if title == "Test Type" and rows]
    if not kinds or "OUTSTANDING" not in kinds[0].upper():
        return []
    at = next((at for at, (title, _, _) in enumerate(blocks) if title == "Queue Depth Cycling"), None)
    rows = [row for _, _, rows in blocks[at : at + 2] for row in rows] if at is not None else []
    cells = re.split(r"[\s,]+", rows[0]) if rows else []
    if len(cells) < 4:
        return []
    line = blocks[at or 0][1] + 1
    start, end, step = (_whole_number(path, each, line, "Queue Depth Cycling") for each in cells[:3])
    exponential = cells[3].upper().startswith("EXP")
    found, depth = [], max(1, start)
    while depth <= end and len(found) < 64:
        found.append(depth)
        depth = depth * max(2, step) if exponential else depth + max(1, step)
    return found


def _seconds(path: Path, blocks: Sequence[_Block]) -> int:
    at = next((at for at, (title, _, _) in enumerate(blocks) if title == "Run Time"), None)
    if at is None:
        return 0
    rows = [row for _, _, rows in blocks[at : at + 2] for row in rows]
    cells = rows[0].split() if rows else []
    hours, minutes, seconds, *_ = [
        *(_whole_number(path, each, blocks[at][1] + 1, "Run Time") for each in cells[:3]), 0, 0, 0
    ]  # fmt: skip
    return 3600 * hours + 60 * minutes + seconds


def _ramp_s(path: Path, blocks: Sequence[_Block]) -> int:
    found = [(line, rows[0]) for title, line, rows in blocks if title.startswith("Ramp Up Time") and rows]
    return _whole_number(path, found[0][1], found[0][0] + 1, "Ramp Up Time") if found else 0


def _whole_number(path: Path, text: str, line: int, at: str) -> int:
    if not text.strip().isdecimal() or len(text) > 18:
        raise Unreadable(path, f"found {text!r} where a whole number is expected", line=line, at=at)
    return int(text)
