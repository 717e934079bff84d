"""`iotax sim what-if`: a simulated study as it is and as it would be, side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis.bottleneck import Bottleneck, bottleneck
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import load
from iotax.design.plan import trial_seed
from iotax.design.treatments import treatments
from iotax.engine import EngineError, find_engine
from iotax.labs.base import TrialFailed
from iotax.labs.sim.costs import table_costs
from iotax.labs.sim.lab import simulate, simulate_document
from iotax.labs.sim.what_if import Change, held, utilisation
from iotax.study import Study
from iotax.study.sim import read_costs
from iotax.trial import LevelValue, Trial
from iotax.units import counted, show_rate
from iotax.wording import SIMULATED

_AS_IT_IS = "as it is"


@dataclass(frozen=True)
class _Pair:
    name: str
    now: Bottleneck
    then: Bottleneck | None
    """None where nothing was to change."""


def what_if(name: str, change: Change, document: Path | None) -> None:
    judged(document, Path(name))
    study, _ = load(name)
    if reason := change.reason_against(study):
        leave(Exit.USAGE, reason)
    asked = treatments(study)
    if document != STDOUT:
        echo(f"{study.name}: {study.question}")
        sys.stdout.flush()
    pairs = []
    try:
        program = find_engine()
        for number, treatment in enumerate(asked, start=1):
            levels = {factor: level.value for factor, level in zip(study.levels(), treatment, strict=True)}
            label = "/".join(level.label for level in treatment)
            echo(f"{number}/{len(asked)} {label}", err=True)
            now = _simulated(study, levels, Change(), program)
            then = _simulated(study, levels, change, program) if change.words else None
            pairs.append(_Pair(label, now, then))
    except (EngineError, TrialFailed) as error:
        leave(Exit.LAB, f"a treatment could not be simulated: {error}")
    if document != STDOUT:
        _print(pairs, change)
    if document is not None:
        write_document(document, _document(study, pairs, change), Path(name))


def _simulated(study: Study, levels: dict[str, LevelValue], change: Change, program: Path) -> Bottleneck:
    """One replicate of a treatment, with the costs as their table has them."""
    changed = change.of_study(study)
    settings = change.of_settings(changed.settings(levels))
    lab = settings.sim
    assert lab is not None, "a simulated study"
    first = Trial(id="what-if", study=study.name, treatment=levels, block=1, replicate=1, order=1)
    costs = table_costs(read_costs(lab.costs), settings.endpoint.protocol)
    document = simulate_document(changed, settings, trial_seed(study, first), costs)
    result = simulate(program, document, lambda _: None).result
    return bottleneck(result.rate_iops, utilisation(result, settings, lab), held(result, settings, lab))


def _print(pairs: list[_Pair], change: Change) -> None:
    out = console()
    out.print(Text(SIMULATED, style="yellow"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("treatment", "", "IOPS", "", "limited by", "then by", "rise"):
        table.add_column(title, justify="right" if title == "IOPS" else "left")
    for pair in pairs:
        table.add_row(escape(pair.name), _AS_IT_IS, *_row(pair.now, None))
        if pair.then is not None:
            table.add_row("", change.words, *_row(pair.then, pair.now))
    out.print(table)
    for sentence in _sentences(pairs, change):
        say(sentence)


def _row(found: Bottleneck, before: Bottleneck | None) -> list[str]:
    rise = f"{100 * (found.rate_iops / before.rate_iops - 1):+.0f} %" if before and before.rate_iops else ""
    limit = _named(found, found.limit) if found.limit else "the load itself"
    then = _named(found, found.next) if found.next else "nothing modelled"
    most = f"at most {100 * found.rise_max:+.0f} %" if found.rise_max is not None else ""
    return [show_rate(found.rate_iops), rise, limit, then, most]


def _named(found: Bottleneck, resource: str) -> str:
    return f"{resource} ({100 * found.utilisation[resource]:.0f} % busy)"


def _sentences(pairs: list[_Pair], change: Change) -> Iterator[str]:
    if change.words and all(pair.then for pair in pairs):
        changed = [pair for pair in pairs if pair.then and pair.then.limit != pair.now.limit]
        yield f"With {change.words} something else limits {len(changed)} of {counted(len(pairs), 'treatment')}."
    yield (
        "Limited by: what was 95 % busy or more; queues as full, a link that waited for credits, or one port of many, "
        "where nothing else was; the load itself where nothing was at all, so that only more outstanding I/Os or a "
        "higher rate would ask more. Rise: how far the rate could go up until the next is fully busy, if the first no "
        "longer limited."
    )
    yield "One replicate of each treatment, with the costs as their table has them."


def _document(study: Study, pairs: list[_Pair], change: Change) -> dict[str, Any]:
    return {
        "simulated": True,
        "study": study.name,
        "change": {
            "hosts": change.hosts,
            "link_rate_bits_per_s": change.link_rate,
            "mtu": change.mtu,
            "media": change.media,
        },
        "treatments": [
            {
                "treatment": pair.name,
                "as_it_is": _found_document(pair.now),
                "what_if": _found_document(pair.then) if pair.then else None,
            }
            for pair in pairs
        ],
    }


def _found_document(found: Bottleneck) -> dict[str, Any]:
    return {
        "rate_iops": found.rate_iops,
        "utilisation": dict(found.utilisation),
        "limit": found.limit,
        "next": found.next,
        "rise_max_percent": None if found.rise_max is None else 100 * found.rise_max,
    }
