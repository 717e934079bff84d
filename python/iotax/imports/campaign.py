"""Many files as one campaign: each result gets its treatment, and what does not fit together is told."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from iotax.imports.formats import Format
from iotax.imports.measured import Measured, together
from iotax.imports.naming import BLOCK, REPLICATE, NamePattern, PatternError, level_of, run_number
from iotax.imports.problems import Notes, Unreadable, start_of
from iotax.trial import LevelValue
from iotax.units import counted

PART = "job"
"""The factor that tells apart what one file holds, where nothing else does."""
UNNAMED = ("protocol", "unknown")
"""The only factor and its only level, where nothing at all was named."""
_CLOSE = 1.01
"""Runs of one treatment whose settings differ by less are alike: some programs round."""
_APART_MIN = 0.5
"""Share of what a file's runs took by which it must be younger than the one before, where both have their own times."""


WRITTEN = "written"
"""`--at written`: runs ended when their files were written."""


@dataclass(frozen=True)
class Times:
    """What the command line says of when runs began whose files do not say it."""

    written: bool = False
    all_ns: int | None = None
    of_ns: Mapping[Path, int] = field(default_factory=dict)

    def tells(self, path: Path) -> bool:
        return self.written or self.all_ns is not None or path.resolve() in self.of_ns

    def begin_ns(self, path: Path) -> int | None:
        """When the first of a file's runs began; None if it was not given."""
        return self.of_ns.get(path.resolve(), self.all_ns)


@dataclass(frozen=True)
class Naming:
    """How results get their treatments."""

    factors: Mapping[str, str] = field(default_factory=dict)
    """The same for all files."""
    pattern: NamePattern | None = None
    by: Sequence[str] = ()
    """Settings within the files that are factors."""
    at: Times = field(default_factory=Times)


@dataclass(frozen=True)
class Placed:
    """A result in its place. Of a run that several programs or machines measured together: all its parts."""

    measured: Measured
    files: tuple[Path, ...]
    treatment: dict[str, LevelValue]
    replicate: int | None
    block: int
    start: Literal["said", "told", "guessed"] = "said"
    """How it is known when it ran."""


@dataclass(frozen=True)
class Campaign:
    placed: list[Placed]
    notes: Notes
    unreadable: list[str]
    """A sentence for each file that gave nothing."""
    files: int
    digest: str


def read_campaign(form: Format, paths: Sequence[Path], naming: Naming) -> Campaign:
    """Reads every file. Raises PatternError if a name does not say what it should."""
    notes, unreadable, found = Notes(), [], []
    digest = hashlib.sha256(f"{form.name}{form.columns or ''}".encode())
    files = _distinct(each for path in paths for each in form.files(path))
    for path in files:
        try:
            results = form.read(path, notes)
            digest.update(_digest(path))
        except Unreadable as problem:
            unreadable.append(str(problem))
        else:
            found += [(result, _named(path, naming)) for result in results]
    placed = _placed(_in_order(_parts_together(found, naming, notes)), naming, notes)
    for each in placed:
        for remark in each.measured.notes:
            notes.add(None, _of_all(remark, placed, each))
    placed = _with_starts(placed, naming.at, notes)
    return Campaign(placed, notes, unreadable, len(files), digest.hexdigest()[:16])


def _digest(path: Path) -> bytes:
    """Raises Unreadable."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise Unreadable(path, f"cannot be read: {error.strerror or error}") from None


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Each file once, though it was named twice."""
    return list({path.resolve(): path for path in paths}.values())


def _parts_together(
    found: list[tuple[Measured, dict[str, str]]], naming: Naming, notes: Notes
) -> list[tuple[Measured, dict[str, str]]]:
    """With the parts of one run as one result; named as the first of them. Files whose names give a factor different
    levels are not parts of one run, and with `--by job` none are."""
    runs: dict[object, list[tuple[Measured, dict[str, str]]]] = {}
    for at, (result, values) in enumerate(found):
        # Each thread's file has a number of its own, which names no replicate.
        levels = tuple(sorted((name, text) for name, text in values.items() if name != REPLICATE))
        alone = not result.together or PART in naming.by
        key = at if alone else (result.together, result.run, result.part, result.alike, levels)
        runs.setdefault(key, []).append((result, values))
    made = []
    for parts in runs.values():
        results = [result for result, _ in parts]
        whole = together(results)
        if PART in naming.by and whole.together and not whole.part:
            whole = replace(whole, part=whole.path.name)
        if len(parts) > 1 and results[0].apart_if:
            notes.add(None, f"{whole.path} and {counted(len(parts) - 1, 'other file')}: {results[0].apart_if}")
        made.append((whole, parts[0][1]))
    return made


def _in_order(found: list[tuple[Measured, dict[str, str]]]) -> list[tuple[Measured, dict[str, str]]]:
    """In the order in which they ran: by what the files say; else files as they were written, and within a file as they
    stand there. Files that were written closer together than the runs took were copied: then they stay as named."""
    results = [result for result, _ in found]
    if all(result.start_unix_ns is not None for result in results):
        return sorted(found, key=lambda each: each[0].start_unix_ns or 0)
    files: dict[Path, list[tuple[Measured, dict[str, str]]]] = {}
    for each in found:
        files.setdefault(each[0].path, []).append(each)
    written_ns = {path: _written_ns(path) for path in files}
    times = sorted(written_ns, key=lambda path: written_ns[path])
    apart = all(
        written_ns[after] - written_ns[before] >= _APART_MIN * sum(each.duration_ns for each, _ in files[after])
        for before, after in itertools.pairwise(times)
    )
    return [each for path in (times if apart else files) for each in files[path]]


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _named(path: Path, naming: Naming) -> dict[str, str]:
    if naming.pattern is None:
        return dict(naming.factors)
    values = naming.pattern.values(path.resolve())
    if values is None:
        raise PatternError(f"{path}: its name does not match {naming.pattern.pattern}; `*` matches anything")
    return {**naming.factors, **values}


def _placed(found: list[tuple[Measured, dict[str, str]]], naming: Naming, notes: Notes) -> list[Placed]:
    given = [
        {name: level_of(name, text) for name, text in values.items() if name not in (REPLICATE, BLOCK)}
        for _, values in found
    ]
    results = [result for result, _ in found]
    replicates = [values.get(REPLICATE) for _, values in found]
    own = _own_factors(results, given, replicates, naming, notes)
    placed = []
    for (result, values), treatment in zip(found, given, strict=True):
        whole = treatment | {name: _setting(result, name) for name in own if name not in treatment}
        placed.append(
            Placed(
                result,
                result.parts or (result.path,),
                whole or dict([UNNAMED]),
                run_number(values, REPLICATE, result.path),
                run_number(values, BLOCK, result.path) or 1,
            )
        )
    return placed


def _setting(result: Measured, name: str) -> LevelValue:
    return result.part if name == PART else result.settings.get(name, "unknown")


def _own_factors(
    results: Sequence[Measured],
    given: Sequence[Mapping[str, LevelValue]],
    replicates: Sequence[str | None],
    naming: Naming,
    notes: Notes,
) -> list[str]:
    """Settings within the files that distinguish treatments: those of `--by`; without it, all that vary within a
    treatment, unless the files' names say that these results are replicates. A note names those that vary all the
    same."""
    settings = list(dict.fromkeys(name for result in results for name in result.settings))
    unknown = [name for name in naming.by if name not in settings and name != PART]
    if unknown and results:
        raise PatternError(f"--by {unknown[0]}: the files say {', '.join(settings) or 'no settings'}")
    chosen = list(naming.by)
    named = any(given)
    runs = [{**levels, REPLICATE: number} for levels, number in zip(given, replicates, strict=True)]
    for name in settings:
        if name in chosen:
            continue
        varying = _varies_within(results, given, chosen, name)
        if varying and not naming.by and (not named or _varies_within(results, runs, chosen, name)):
            chosen.append(name)
        elif varying:
            treatment, values = varying
            notes.add(
                None,
                f"differing settings within one treatment{treatment}: {name} is {', '.join(values)}. Where that is "
                f"meant, make it a factor: --by {name}",
            )
    if _varies_within(results, given, chosen, PART):
        chosen.append(PART)
    return chosen


def _varies_within(
    results: Sequence[Measured], given: Sequence[Mapping[str, LevelValue | None]], chosen: Sequence[str], name: str
) -> tuple[str, list[str]] | None:
    """A treatment in which the setting has several values, and these; None if it has one in each."""
    of: dict[tuple, dict[LevelValue, Path]] = {}
    for result, named in zip(results, given, strict=True):
        treatment = (*named.items(), *((each, _setting(result, each)) for each in chosen))
        of.setdefault(treatment, {}).setdefault(_setting(result, name), result.path)
    for treatment, values in of.items():
        if len(values) > 1 and not _alike(values):
            said = ", ".join(f"{factor} {level}" for factor, level in treatment)
            return (f" ({said})" if said else ""), [f"{value} in {path}" for value, path in values.items()]
    return None


def _alike(values: Iterable[LevelValue]) -> bool:
    numbers = [value for value in values if isinstance(value, int | float) and value]
    return len(numbers) == len(list(values)) and max(numbers) <= min(numbers) * _CLOSE


def _of_all(remark: str, placed: Sequence[Placed], one: Placed) -> str:
    """Said once for all results, with the file where it is not true of all."""
    same = [each for each in placed if remark in each.measured.notes]
    if len(same) == len(placed):
        return f"{remark[:1].upper()}{remark[1:]}."
    first = same[0].measured
    name = f"{first.path}, {first.part}" if first.part else str(first.path)
    more = f" and {len(same) - 1} more" if len(same) > 1 else ""
    return f"{name}{more}: {remark}." if one in same else remark


def _with_starts(placed: list[Placed], at: Times, notes: Notes) -> list[Placed]:
    """With times for those whose files say none: as whoever imports them said, or guessed by the file's own time."""
    files: dict[Path, list[Placed]] = {}
    for each in placed:
        if each.measured.start_unix_ns is None:
            files.setdefault(each.measured.path, []).append(each)
    if at.all_ns is not None and len(files) > 1:
        first, second = list(files)[:2]
        raise PatternError(
            f"--at TIME is of one file, and {first} and {second} have no times: write FILE=TIME for each"
        )
    starts: dict[int, tuple[int, Literal["told", "guessed"]]] = {}
    for path, own in files.items():
        begin_ns = at.begin_ns(path)
        if begin_ns is None:
            # The last of them ended when the file was written.
            begin_ns = max(0, _written_ns(path) - sum(each.measured.duration_ns for each in own))
        for each in own:
            starts[id(each)] = begin_ns, "told" if at.tells(path) else "guessed"
            begin_ns += each.measured.duration_ns
    guessed = [each for each in placed if starts.get(id(each), (0, ""))[1] == "guessed"]
    if guessed:
        which = "The files do not say when runs began"
        if len(guessed) < len(placed):
            which = f"{_first_of([each.measured.path for each in guessed])}: it is not said when runs began"
        notes.add(None, f"{which}: times are guessed from when the files were written. Give them with --at.")
    return [
        replace(each, measured=replace(each.measured, start_unix_ns=starts[id(each)][0]), start=starts[id(each)][1])
        if id(each) in starts
        else each
        for each in placed
    ]


def _first_of(paths: Sequence[Path]) -> str:
    some = list(dict.fromkeys(paths))
    return f"{some[0]} and {len(some) - 1} more" if len(some) > 1 else str(some[0])


def given_times(words: Sequence[str]) -> Times:
    """Of `--at written`, `--at TIME` and `--at FILE=TIME`. Raises PatternError."""
    written, all_ns, of_ns = False, None, {}
    for word in words:
        name, equals, text = word.rpartition("=")
        if word == WRITTEN:
            written = True
        elif equals:
            of_ns[Path(name).resolve()] = _time_ns(word, text)
        else:
            all_ns = _time_ns(word, text)
    return Times(written, all_ns, of_ns)


def _time_ns(word: str, text: str) -> int:
    if (found := start_of(text)) is None:
        raise PatternError(f"--at {word}: write TIME or FILE=TIME, such as 2026-05-01T10:00:00Z, or `{WRITTEN}`")
    return found
