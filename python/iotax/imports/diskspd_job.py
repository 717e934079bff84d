"""A command line or an XML profile of DiskSpd as a study: what iotax can ask of every protocol, and what it leaves out.

Defaults are DiskSpd's own: blocks of 64 KiB, reads, one thread and two I/Os in flight for each target, 10 s after 5 s.
"""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as Xml  # nosec: entities are refused where it is read
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iotax.imports import diskspd_text
from iotax.imports.diskspd import root_of
from iotax.imports.job_study import OWN_VOLUME, Pattern, Step, of_steps, study_text
from iotax.imports.problems import Unreadable, head_of, small, text_of
from iotax.units import format_duration, format_size

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECOND_NS = 1_000_000_000
_SILENT = re.compile(r"-(L|D\d*|R\w*|I\w*|z\d*|p|v|N|S\w*|Z\w*|n|i\d+|j\d+|a\S*|e\S*|y\S*|C\d+)$")
"""Options that say how to measure, or what of the host to use; a study has its own ways, or nothing to choose."""
PROGRAM = re.compile(r"^(?:\S*[\\/])?diskspd(?:\.exe)?\s", re.IGNORECASE)
"""How a command line begins."""
_LINE = re.compile(r"^\s*(?:&\s*|@)?((?:\S*[\\/])?diskspd(?:\.exe)?\s.*)$", re.IGNORECASE | re.MULTILINE)
"""One in a script."""


@dataclass(frozen=True)
class _Target:
    block_bytes: int = 64 << 10
    write_percent: int = 0
    random_percent: int = 0
    outstanding: int = 2
    threads: int = 1
    shared: bool = False
    """Its threads go on with one sequence (-si)."""
    rate: str = ""
    """Of a thread: `100i` is IOPS, `100` bytes per ms; empty if it goes as fast as it can."""

    def stream(self) -> dict[str, Any]:
        return {
            "block_size": format_size(self.block_bytes),
            "read": f"{100 - self.write_percent}%",
            "random": f"{self.random_percent}%",
        } | ({"shared": True} if self.shared else {})

    @property
    def rate_iops(self) -> float | None:
        """Of all its threads."""
        if not self.rate:
            return None
        iops = float(self.rate[:-1]) if self.rate.endswith("i") else float(self.rate) * 1000 / self.block_bytes
        return iops * self.threads or None


@dataclass(frozen=True)
class _Job:
    targets: Sequence[_Target]
    threads: int = 0
    """That serve all targets (-F); 0 where each target has its own."""
    per_thread: int = 0
    """I/Os in flight of such a thread to all targets together (-O); 0 where it has so many to each."""
    duration_s: int = 10
    warmup_s: int = 5
    size_bytes: int = 0
    notes: list[str] = field(default_factory=list)


def study_of_diskspd(source: str, name: str) -> tuple[str, list[str]]:
    """(YAML of a study, what DiskSpd is asked that the study does not). Raises Unreadable.

    `source` is a command line, or the path of a profile, of a result, which repeats its profile, or of a text with
    command
    lines, each of which becomes a treatment.
    """
    if PROGRAM.match(source):
        return _study(_of_line(source, Path("diskspd")), name, "diskspd")
    jobs = _of_file(Path(source))
    known_by = Path(source).name
    return _study(jobs[0], name, known_by) if len(jobs) == 1 else _several(jobs, name, known_by)


def is_diskspd_file(path: Path) -> bool:
    """A profile, a result, or a text with command lines. Raises Unreadable."""
    if not path.is_file():
        return False
    head = head_of(path)
    return (
        "<Profile" in head or "<Results" in head or bool(_LINE.search(head)) or diskspd_text.recognised(text_of(path))
    )


def _of_line(line: str, path: Path, number: int | None = None) -> _Job:
    try:
        words = shlex.split(line.replace("\\", "/"))
    except ValueError as error:
        raise Unreadable(path, f"the command line cannot be read: {error}", line=number) from None
    return _of_words(words[1:])


def _of_file(path: Path) -> list[_Job]:
    """One for each run of a printed result, or for each command line of a text; else that of the profile."""
    text = text_of(path)
    if "<Profile" in text or "<Results" in text:
        return [_of_profile(path, text)]
    if diskspd_text.recognised(text):
        return [_of_root(path, root) for root in diskspd_text.roots_of(path, text)]
    lines = [
        (number, found[1]) for number, each in enumerate(text.splitlines(), start=1) if (found := _LINE.match(each))
    ]
    if not lines:
        raise Unreadable(path, "no `<Profile>` or `<Results>` of DiskSpd in it, no printed result and no command line")
    return [_of_line(line, path, number) for number, line in lines]


def _several(jobs: Sequence[_Job], name: str, known_by: str) -> tuple[str, list[str]]:
    """What runs one after another, as treatments."""
    notes = [note for job in jobs for note in job.notes] + [f"targets: {OWN_VOLUME}"]
    steps = []
    for at, job in enumerate(jobs, start=1):
        load = _load(job, notes)
        patterns = [
            Pattern(each.block_bytes, 100 - each.write_percent, each.random_percent, each.threads)
            for each in job.targets
        ]
        alike = len({(each.block_bytes, each.read_percent, each.random_percent) for each in patterns}) == 1
        own = patterns[:1] if alike else patterns
        said = ", ".join(dict.fromkeys(_named(each) for each in own))
        steps.append(Step(f"{at} {said}", own, load["workers"], load["outstanding"], load.get("rate_iops")))
    if any(target.shared for job in jobs for target in job.targets):
        notes.append("-si: threads of a study have a sequence each, unless you say `shared: true`")
    times = {(job.warmup_s, job.duration_s) for job in jobs}
    if len(times) > 1:
        notes.append("runs differ in their times (-W, -d): the study takes those of the first")
    asked = {"warmup": jobs[0].warmup_s, "runtime": jobs[0].duration_s}
    load, factors = of_steps(steps, asked, notes)
    size = max(job.size_bytes for job in jobs)
    volume = {"size": format_size(size)} if size else {}
    return study_text(name, known_by, volume, load, factors), list(dict.fromkeys(notes))


def _named(pattern: Pattern) -> str:
    order = "random" if pattern.random_percent == 100 else "sequential" if not pattern.random_percent else "mixed"
    what = {100: "read", 0: "write"}.get(pattern.read_percent, f"{pattern.read_percent:g} read")
    return f"{format_size(pattern.block_bytes)} {order} {what}"


def _study(job: _Job, name: str, known_by: str) -> tuple[str, list[str]]:
    notes = [*job.notes, f"targets: {OWN_VOLUME}"]
    load = job.targets[0].stream() | _load(job, notes)
    load |= {
        "warmup": format_duration(job.warmup_s * _SECOND_NS),
        "runtime": format_duration(job.duration_s * _SECOND_NS),
    }
    if len({tuple(target.stream().items()) for target in job.targets}) > 1:
        load["streams"] = {
            f"target-{at}": target.stream() | {"share": target.threads}
            for at, target in enumerate(job.targets, start=1)
        }
    return study_text(name, known_by, {"size": format_size(job.size_bytes)} if job.size_bytes else {}, load), notes


def _load(job: _Job, notes: list[str]) -> dict[str, Any]:
    """Workers, what each has outstanding, and their rate."""
    outstanding, workers = job.targets[0].outstanding, sum(target.threads for target in job.targets)
    if job.threads:
        workers = job.threads
        outstanding = job.per_thread or sum(target.outstanding for target in job.targets)
    elif len({target.outstanding for target in job.targets}) > 1:
        notes.append("targets differ in outstanding I/Os (-o): every worker of a study has the same")
    load: dict[str, Any] = {"outstanding": outstanding, "workers": workers}
    rates = [target.rate_iops for target in job.targets]
    known = [rate for rate in rates if rate is not None]
    if known and len(known) == len(rates):
        load["rate_iops"] = round(sum(known))
    elif known:
        notes.append("only some targets have a rate (-g): the study is a closed loop")
    return load


_REDIRECTION = re.compile(r"\d*(?:>>?|<)(?:&\d)?")
_NEXT_COMMAND = ("|", "&", "&&", "||", ";")


def _before_the_shell(words: Sequence[str]) -> list[str]:
    """Without what is the shell's: where output goes, and commands that follow."""
    own: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _NEXT_COMMAND:
            break
        found = _REDIRECTION.match(word)
        if found is None:
            own.append(word)
        elif found.end() == len(word) and "&" not in word:
            next(rest, None)  # the file stands apart
    return own


def _of_words(words: Sequence[str]) -> _Job:
    given: dict[str, str] = {}
    files, left_out = [], []
    for word in _before_the_shell(words):
        if not word.startswith("-"):
            files.append(word)
        elif option := re.fullmatch(r"-(b|o|O|t|F|w|d|W|g|c|r|s)(.*)", word):
            given[option[1]] = option[2]
        elif not _SILENT.match(word):
            left_out.append(word)
    if not files:
        raise _wrong("it names no target")
    block = _bytes(given.get("b") or "64K", "-b")
    shared = _number(given["F"], "-F") if "F" in given else 0
    threads = shared or _number(given.get("t") or "1", "-t")
    target = _Target(
        block_bytes=block,
        write_percent=_number(given.get("w") or "0", "-w"),
        random_percent=_random_percent(given),
        outstanding=_number(given.get("o") or "2", "-o"),
        threads=threads,
        shared=given.get("s", "").startswith("i") and "r" not in given and threads > 1,
        rate=given.get("g", ""),
    )
    if not re.fullmatch(r"(\d{1,12}i?)?", target.rate):
        raise _wrong(f"-g{target.rate}: a number of bytes per ms, or of I/Os per second with an i, is expected")
    return _Job(
        [target] * len(files),
        shared,
        _number(given["O"], "-O") if shared and given.get("O") else 0,
        _number(given.get("d") or "10", "-d"),
        _number(given.get("W") or "5", "-W"),
        _bytes(given["c"], "-c", block) if given.get("c") else 0,
        [f"{word}: nothing in a study corresponds to it" for word in left_out],
    )


def _random_percent(given: dict[str, str]) -> int:
    """`-r` and `-rALIGNMENT` are all random, `-rsPERCENT` a share."""
    if "r" not in given:
        return 0
    share = re.fullmatch(r"s(\d{1,3})", given["r"])
    return int(share[1]) if share else 100


def _bytes(text: str, option: str, block_bytes: int = 0) -> int:
    """With K, M, G or T, which are binary; `b` counts blocks."""
    match = re.fullmatch(r"(\d{1,15})([KMGTB]?)", text.upper())
    if not match:
        raise _wrong(f"{option}{text}: a size such as 8K is expected")
    size = int(match[1]) * (block_bytes if match[2] == "B" else _UNITS[match[2]])
    if not 0 < size < 1 << 62:
        raise _wrong(f"{option}{text}: a size such as 8K is expected")
    return size


def _number(text: str, option: str) -> int:
    if (number := small(text)) is None:
        raise _wrong(f"{option}{text[:40]}: a whole number is expected")
    return number


def _wrong(message: str) -> Unreadable:
    return Unreadable(Path("diskspd"), message)


def _of_profile(path: Path, text: str) -> _Job:
    begin = min((at for at in (text.find("<Profile"), text.find("<Results")) if at >= 0), default=-1)
    if begin < 0:
        raise Unreadable(path, "no `<Profile>` or `<Results>` of DiskSpd in it")
    return _of_root(path, root_of(path, text, begin))


def _of_root(path: Path, root: Xml.Element) -> _Job:
    spans = root.findall("TimeSpans/TimeSpan") or root.findall("Profile/TimeSpans/TimeSpan")
    targets = spans[0].findall("Targets/Target") if spans else []
    if not targets:
        raise Unreadable(path, "it names no target", at="TimeSpans/TimeSpan/Targets/Target")
    span = _Element(path, spans[0])
    own = [_target(_Element(path, each)) for each in targets]
    shared = span.number("ThreadCount", 0)
    if shared:
        own = [replace(each, threads=shared) for each in own]
    per_thread = span.number("RequestCount", 0) if shared else 0
    notes = ["later time spans are left out: one study each"] if len(spans) > 1 else []
    size = max(_Element(path, each).number("FileSize", 0) for each in targets)
    return _Job(own, shared, per_thread, span.number("Duration", 10), span.number("Warmup", 5), size, notes)


@dataclass(frozen=True)
class _Element:
    path: Path
    element: Xml.Element

    def number(self, name: str, default: int) -> int:
        text = (self.element.findtext(name) or "").strip()
        number = small(text) if text else default
        if number is None:
            message = f"found {text[:40]!r} where a whole number is expected"
            raise Unreadable(self.path, message, at=f"{self.element.tag}/{name}")
        return number


def _target(target: _Element) -> _Target:
    share = 100 if target.number("Random", 0) else 0
    rate = target.number("Throughput", 0)
    unit = target.element.find("Throughput")
    in_iops = unit is not None and unit.get("unit", "").upper() == "IOPS"
    interlocked = (target.element.findtext("InterlockedSequential") or "").strip().lower() == "true"
    threads, random_percent = max(1, target.number("ThreadsPerFile", 1)), target.number("RandomRatio", share)
    return _Target(
        block_bytes=target.number("BlockSize", 64 << 10),
        write_percent=target.number("WriteRatio", 0),
        random_percent=random_percent,
        outstanding=target.number("RequestCount", 2),
        threads=threads,
        shared=interlocked and not random_percent and threads > 1,
        rate=f"{rate}{'i' if in_iops else ''}" if rate else "",
    )
