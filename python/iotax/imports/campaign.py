"""Many files as one campaign: each result gets its treatment, and what does not fit together is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from iotax.imports.formats import Format
from iotax.imports.measured import Measured, together
from iotax.imports.naming import BLOCK, REPLICATE, NamePattern, PatternError, level_of, run_number
from iotax.imports.problems import Notes, Unreadable
from iotax.trial import LevelValue

PART = "job"
"""The factor that tells apart what one file holds, where nothing else does."""
UNNAMED = ("protocol", "unknown")
"""The only factor and its only level, where nothing at all was named."""
_CLOSE = 1.01
"""Runs of one treatment whose settings differ by less are alike: some programs round."""


@dataclass(frozen=True)
class Naming:
    """How results get their treatments."""

    factors: Mapping[str, str] = field(default_factory=dict)
    """The same for all files."""
    pattern: NamePattern | None = None
    by: Sequence[str] = ()
    """Settings within the files that are factors."""


@dataclass(frozen=True)
class Placed:
    """A result in its place. Of a run that several programs or machines measured together: all its parts."""

    measured: Measured
    files: tuple[Path, ...]
    treatment: dict[str, LevelValue]
    replicate: int | None
    block: int


@dataclass(frozen=True)
class Campaign:
    placed: list[Placed]
    notes: Notes
    unreadable: list[str]
    """A sentence for each file that gave nothing."""
    files: int
    digest: str


def read_campaign(form: Format, paths: Sequence[Path], naming: Naming) -> Campaign:
    """Reads every file. Raises PatternError where a name does not say what it should."""
    notes, unreadable, found = Notes(), [], []
    digest = hashlib.sha256(form.name.encode())
    files = _distinct(each for path in paths for each in form.files(path))
    for path in files:
        try:
            results = form.read(path, notes)
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except Unreadable as problem:
            unreadable.append(str(problem))
        except OSError as error:
            unreadable.append(f"{path}: cannot be read: {error.strerror or error}")
        else:
            found += [(result, _named(path, naming)) for result in results]
    placed = _placed(_parts_together(found), naming, notes)
    for each in placed:
        for remark in each.measured.notes:
            notes.add(None, _of_all(remark, placed, each))
    return Campaign(_with_starts(placed, notes), notes, unreadable, len(files), digest.hexdigest()[:16])


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Each file once, though it was named twice."""
    return list({path.resolve(): path for path in paths}.values())


def _parts_together(found: list[tuple[Measured, dict[str, str]]]) -> list[tuple[Measured, dict[str, str]]]:
    """With the parts of one run as one result; named as the first of them."""
    runs: dict[object, list[tuple[Measured, dict[str, str]]]] = {}
    for at, (result, values) in enumerate(found):
        # Each thread's file has a number of its own, which names no replicate.
        runs.setdefault((result.together, result.part) if result.together else at, []).append((result, values))
    return [(together([result for result, _ in parts]), parts[0][1]) for parts in runs.values()]


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
    own = _own_factors(results, given, naming, notes)
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
    results: Sequence[Measured], given: Sequence[Mapping[str, LevelValue]], naming: Naming, notes: Notes
) -> list[str]:
    """Settings within the files that tell treatments apart: those that were asked for, or, where nobody named any
    factor, all that vary. Where factors were named, what else varies within a treatment is told."""
    settings = list(dict.fromkeys(name for result in results for name in result.settings))
    unknown = [name for name in naming.by if name not in settings and name != PART]
    if unknown and results:
        raise PatternError(f"--by {unknown[0]}: the files say {', '.join(settings) or 'no settings'}")
    chosen = list(naming.by)
    free = not naming.by and not any(given)
    for name in settings:
        if name in chosen:
            continue
        varying = _varies_within(results, given, chosen, name)
        if varying and free:
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
    results: Sequence[Measured], given: Sequence[Mapping[str, LevelValue]], chosen: Sequence[str], name: str
) -> tuple[str, list[str]] | None:
    """A treatment in which the setting has several values, and these; None where it has one in each."""
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


def _with_starts(placed: list[Placed], notes: Notes) -> list[Placed]:
    """In the order in which they ran, by when their files were written where nothing better is known."""
    found = []
    for each in placed:
        result = each.measured
        if result.start_unix_ns is None:
            written_ns = result.path.stat().st_mtime_ns
            notes.add(
                None, "The files do not say when runs began: they stand in the order in which files were written."
            )
            result = replace(result, start_unix_ns=written_ns - result.duration_ns)
        found.append(replace(each, measured=result))
    return sorted(found, key=lambda each: each.measured.start_unix_ns or 0)
