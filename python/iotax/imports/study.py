"""A campaign as a study with its trials: what the notebook keeps and the analysis reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from iotax.imports.campaign import Campaign, Placed
from iotax.imports.measured import Measured
from iotax.imports.naming import PatternError, level_of
from iotax.imports.problems import Notes, text_of
from iotax.imports.processors import Busy, Monitors, Recorded
from iotax.study.fields import RESPONSE_WORDS, Responses
from iotax.study.imported import Imported, ImportedStudy, beyond_cells
from iotax.study.model import Design
from iotax.study.read import builtin_study, read_published
from iotax.study.source import StudyError
from iotax.trial import Background, LevelValue, Trial, TrialResult
from iotax.units import counted


@dataclass(frozen=True)
class Wanted:
    """What the command line says of the study; empty if it says nothing."""

    name: str
    question: str = ""
    baseline: Mapping[str, str] | None = None
    floor: str = ""
    margin: float = 5.0
    published: str = ""
    """A file with published figures, or a built-in study's name."""
    responses: Sequence[str] = ()
    """What is compared, the primary first; by what the files hold when not given."""


@dataclass(frozen=True)
class Kept:
    """One result, as it goes into the notebook."""

    trial: Trial
    result: TrialResult


@dataclass(frozen=True)
class Read:
    """A campaign as a study, its results and what the machines did between them."""

    study: ImportedStudy
    kept: list[Kept]
    backgrounds: list[Background]


def study_of(campaign: Campaign, wanted: Wanted, recorded: Sequence[Recorded] = ()) -> Read:
    """Raises PatternError if two results claim one place, the baseline is not among them, or published figures fit
    no
    treatment; Unreadable where these cannot be read."""
    placed = campaign.placed
    # Where it is a guess when something ran, no time is known to be free of load.
    guessed = any(each.start == "guessed" for each in placed)
    monitors = Monitors(recorded, [] if guessed else [_busy(each.measured) for each in placed])
    factors = _factors([each.treatment for each in placed])
    if too_many := beyond_cells(factors):
        raise PatternError(
            f"the results have {too_many}. Take fewer settings as factors, with --by or --name-pattern (where * "
            "stands for what is none), or import fewer files"
        )
    replicates = _replicates(placed, factors)
    programs = Counter(f"{each.measured.program} {each.measured.version}".strip() for each in placed)
    study = ImportedStudy(
        name=_plain_name(wanted.name),
        question=wanted.question or _question(factors),
        imported=Imported(programs=sorted(programs), files=campaign.files, digest=campaign.digest, factors=factors),
        design=Design(replicates=max(replicates.values(), default=1), blocks="none"),
        baseline=_baseline(factors, wanted.baseline),
        floor=wanted.floor or None,
        margin=wanted.margin,
    )
    if wanted.floor and study.level("protocol", wanted.floor) is None:
        raise PatternError(f"--floor {wanted.floor}: no level of protocol; there are {_levels(factors, 'protocol')}")
    kept, used = [], Counter[tuple]()
    for order, each in enumerate(placed, start=1):
        treatment = {name: each.treatment.get(name, "unknown") for name in factors}
        used[_key(treatment)] += 1
        replicate = each.replicate or used[_key(treatment)]
        labels = [_label(study, name, treatment[name]) for name in factors]
        trial = Trial(
            id="/".join([*labels, f"r{replicate}"]),
            study=study.name,
            treatment=treatment,
            block=each.block,
            replicate=replicate,
            order=order,
        )
        kept.append(Kept(trial, _beside(each, monitors, campaign.notes)))
    _refuse_twins(kept)
    if wanted.responses:
        study = study.model_copy(update={"responses": _responses(wanted.responses)})
    elif any(each.result.cpu_ns("hypervisor") is not None for each in kept):
        study = study.model_copy(update={"responses": list(_OF_HYPERVISORS)})
    if wanted.published:
        study = _with_published(study, wanted.published)
    for remark in _of_idle(monitors, recorded):
        campaign.notes.add(None, remark)
    return Read(study, kept, _by_block(monitors.idle, kept))


_OF_HYPERVISORS = ("cpu_hypervisor", "iops", "latency", "cpu_per_io")
"""What a campaign answers whose hypervisors were recorded with their guests: no other question is answered so."""


def _responses(words: Sequence[str]) -> list[str]:
    """Raises PatternError."""
    try:
        return [*TypeAdapter(Responses).validate_python([*words])]
    except ValidationError as error:
        wrong = next((word for word in words if word in str(error)), words[0])
        raise PatternError(f"--response {wrong}: no response; there are {', '.join(RESPONSE_WORDS)}") from None


def _with_published(study: ImportedStudy, source: str) -> ImportedStudy:
    """Raises PatternError, with every figure that fits no treatment."""
    path = Path(source)
    try:
        text = text_of(path) if path.is_file() else builtin_study(source)
        found = read_published(source, text, study)
    except StudyError as error:
        raise PatternError(str(error)) from None
    return study.model_copy(update={"published": found.published})


def _busy(measured: Measured) -> Busy:
    """Some programs stamp the begin of the warm-up, others its end."""
    start_ns, warmup_ns = measured.start_unix_ns or 0, measured.warmup_ns or 0
    return Busy(start_ns - warmup_ns, start_ns + warmup_ns + measured.duration_ns)


def _beside(placed: Placed, monitors: Monitors, notes: Notes) -> TrialResult:
    """The result with what monitors recorded while it ran."""
    start_ns, end_ns = placed.measured.start_unix_ns, placed.measured.end_unix_ns
    if monitors.any and placed.start == "guessed":
        notes.add(
            placed.files[0],
            "no CPU was joined, since it is not known when it ran: say so with --at, such as --at written where the "
            "file has the time at which the run ended",
        )
        return placed.measured.result(placed.files, start=placed.start)
    if start_ns is None or end_ns is None:
        return placed.measured.result(placed.files, start=placed.start)
    for name in monitors.missing(start_ns, end_ns):
        notes.add(placed.files[0], f"no CPU of {name} was recorded while it ran")
    series = monitors.series(start_ns, end_ns)
    return placed.measured.result(placed.files, monitors.beside(start_ns, end_ns), placed.start, series)


def _of_idle(monitors: Monitors, recorded: Sequence[Recorded]) -> list[str]:
    """What is known of the machines without load."""
    if not recorded:
        return []
    if not monitors.idle:
        return [
            "Background: the monitors cover no time between runs, so what machines do without load is in their CPU."
        ]
    whole_ns = sum(idle.duration_ns for idle in monitors.idle)
    spent: dict[str, int] = {}
    for part in (part for idle in monitors.idle for part in idle.cpu):
        name = f"{part.host or part.role}{' without its guests' if part.guests_ns is not None else ''}"
        spent[name] = spent.get(name, 0) + part.own_ns
    cores = ", ".join(f"{name} {busy_ns / whole_ns:.3g}" for name, busy_ns in spent.items())
    return [
        f"Background, from {whole_ns / 1e9:.0f} s between runs ({counted(len(monitors.idle), 'gap')}), in busy "
        f"processors: {cores}. It is taken off the CPU per I/O of the runs."
    ]


def _by_block(idle: Sequence[Background], kept: Sequence[Kept]) -> list[Background]:
    """Each in the block of the run that follows it; after the last run in that one's."""
    runs = sorted((each.result.window.start_unix_ns, each.trial.block) for each in kept)
    found = []
    for each in idle:
        later = [block for start_ns, block in runs if start_ns >= each.started_unix_ns]
        found.append(each.model_copy(update={"block": later[0] if later else runs[-1][1]}))
    return found


def remarks(placed: Sequence[Placed]) -> list[str]:
    """What a reader of the figures must know of the campaign as a whole."""
    found = []
    versions = _grouped(placed, lambda each: each.measured.version)
    programs = _grouped(placed, lambda each: each.measured.program)
    units = _grouped(placed, lambda each: each.measured.counted_in)
    if len(programs) == 1 and len(versions) > 1:
        found.append(
            f"Files of several versions of {placed[0].measured.program} are mixed ({_listed(versions)}): a "
            "difference may be the program's."
        )
    if len(programs) > 1:
        found.append(f"Results of several programs are mixed ({_listed(programs)}).")
    if len(units) > 1:
        found.append(f"Files in different units are mixed ({_listed(units)}): all were converted.")
    runs = _grouped(placed, lambda each: _key(each.treatment))
    if alone := {key: own for key, own in runs.items() if len(own) == 1}:
        which = "Every treatment has" if len(alone) == len(runs) else f"{len(alone)} of {len(runs)} treatments have"
        files = _files([each for own in alone.values() for each in own])
        found.append(f"{which} one replicate only ({files}): no interval can be given. Run it again.")
    return found


_Group = TypeVar("_Group", bound=Hashable)


def _grouped(placed: Sequence[Placed], by: Callable[[Placed], _Group]) -> dict[_Group, list[Placed]]:
    """In a fixed order, whatever that of the files."""
    found: dict[_Group, list[Placed]] = {}
    for each in placed:
        found.setdefault(by(each), []).append(each)
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _listed(groups: Mapping[str, Sequence[Placed]]) -> str:
    return "; ".join(f"{name or 'unknown'}: {_files(own)}" for name, own in groups.items())


def _files(placed: Sequence[Placed]) -> str:
    more = f" and {len(placed) - 1} more" if len(placed) > 1 else ""
    return f"{placed[0].files[0]}{more}"


def _factors(treatments: Sequence[Mapping[str, LevelValue]]) -> dict[str, list[LevelValue]]:
    """Levels in the order of the files; numbers by size."""
    names = dict.fromkeys(name for treatment in treatments for name in treatment)
    found: dict[str, list[LevelValue]] = {}
    for name in names:
        levels = list(dict.fromkeys(treatment.get(name, "unknown") for treatment in treatments))
        numbers = [level for level in levels if isinstance(level, int | float)]
        found[name] = sorted(numbers) + [level for level in levels if not isinstance(level, int | float)]
    return found


def _baseline(factors: Mapping[str, list[LevelValue]], wanted: Mapping[str, str] | None) -> dict[str, LevelValue]:
    if not wanted:
        # What is the same in all files compares nothing.
        varied = [name for name, levels in factors.items() if len(levels) > 1] or list(factors)
        first = "protocol" if "protocol" in varied else varied[0]
        return {first: factors[first][0]}
    found: dict[str, LevelValue] = {}
    for name, text in wanted.items():
        level = next(
            (each for each in factors.get(name, ()) if text == str(each) or level_of(name, text) == each), None
        )
        if level is None:
            known = f"there are {_levels(factors, name)}" if name in factors else f"factors are {', '.join(factors)}"
            raise PatternError(f"--baseline {name}={text}: no such level; {known}")
        found[name] = level
    return found


def _levels(factors: Mapping[str, list[LevelValue]], name: str) -> str:
    return ", ".join(map(str, factors.get(name, ()))) or "none"


def _question(factors: Mapping[str, list[LevelValue]]) -> str:
    varied = [name.replace("_", " ") for name, levels in factors.items() if len(levels) > 1]
    return f"How do results differ by {' and '.join(varied)}?" if varied else "What was measured?"


def _replicates(placed: Sequence[Placed], factors: Mapping[str, object]) -> Counter[tuple]:
    return Counter(_key({name: each.treatment.get(name, "unknown") for name in factors}) for each in placed)


def _key(treatment: Mapping[str, LevelValue]) -> tuple:
    return tuple(treatment.items())


def _label(study: ImportedStudy, factor: str, value: LevelValue) -> str:
    level = next(each for each in study.levels()[factor] if each.value == value)
    return level.label.replace("/", "_")


def _refuse_twins(kept: Sequence[Kept]) -> None:
    seen: dict[str, Kept] = {}
    for each in kept:
        other = seen.setdefault(each.trial.id, each)
        if other is not each:
            files = [_file(one.result) for one in (other, each)]
            raise PatternError(
                f"{files[0]} and {files[1]} are both replicate {each.trial.replicate} of one treatment "
                f"({each.trial.id}): name what differs, with --factor, --name-pattern or --by"
            )


def _file(result: TrialResult) -> str:
    return result.origin.files[0] if result.origin else ""


def _plain_name(name: str) -> str:
    """What a study may be called."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:64]
    return plain if plain and plain[0].isalnum() else "imported"
