"""`iotax sim what-if`: a simulated study before and after a change, side by side."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis.limits import Bottleneck, bottleneck
from iotax.cli import options
from iotax.cli.console import console, height, say, steps
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import load
from iotax.cli.options import JsonFile, Long, StudyName
from iotax.cli.screen import LINES
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
from iotax.wording.trust import SIMULATED_BRIEF

_AS_IT_IS = "as it is"
_NOTHING = "the load"
"""Shown where no resource is the limit."""


@dataclass(frozen=True)
class _Pair:
    name: str
    now: Bottleneck
    then: Bottleneck | None
    """None if there was nothing to change."""


def what_if(
    name: StudyName,
    hosts: Annotated[
        float | None,
        typer.Option(
            parser=options.times, metavar="xN", help="Multiply the number of clients by N.", show_default=False
        ),
    ] = None,
    link: Annotated[
        int | None,
        typer.Option(
            parser=options.link, metavar="RATE", help="Give every link this rate, such as 25GbE.", show_default=False
        ),
    ] = None,
    mtu: Annotated[
        int | None,
        typer.Option(
            min=576, max=9216, metavar="BYTES", help="Give every link this MTU, such as 9000.", show_default=False
        ),
    ] = None,
    media: Annotated[
        float | None,
        typer.Option(parser=options.times, metavar="xN", help="Make media N times as fast.", show_default=False),
    ] = None,
    trunk: Annotated[
        int | None,
        typer.Option(
            parser=options.link,
            metavar="RATE",
            help="Put two switches between clients and target, with a trunk of this rate between them.",
            show_default=False,
        ),
    ] = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Show what limits a simulated study, now and after a change.

    Simulates each treatment once as in the study and once with the changes. Keeps nothing.
    """
    change = Change(hosts, link, mtu, media, trunk)
    judged(document, Path(name))
    study, _ = load(name)
    if reason := change.reason_against(study):
        leave(Exit.USAGE, reason)
    asked = treatments(study)
    title = f"{study.name}: {study.question}"
    if document != STDOUT:
        say(title)
        sys.stdout.flush()
    pairs = []
    try:
        program = find_engine()
        with steps(len(asked)) as step:
            for treatment in asked:
                levels = {factor: level.value for factor, level in zip(study.levels(), treatment, strict=True)}
                label = "/".join(level.label for level in treatment)
                step(label)
                now = _simulated(study, levels, Change(), program)
                then = _simulated(study, levels, change, program) if change.words else None
                pairs.append(_Pair(label, now, then))
    except (EngineError, TrialFailed) as error:
        leave(Exit.LAB, f"a treatment could not be simulated: {error}")
    if document != STDOUT:
        if long:
            _print_all(pairs, change)
        else:
            _print_screen(pairs, change, LINES - height(title))
    if document is not None:
        write_document(document, _document(study, pairs, change), Path(name))


def _simulated(study: Study, levels: dict[str, LevelValue], change: Change, program: Path) -> Bottleneck:
    """One replicate of a treatment, with the costs as in their table."""
    changed = change.of_study(study)
    settings = change.of_settings(changed.settings(levels))
    lab = settings.sim
    assert lab is not None, "a simulated study"
    first = Trial(id="what-if", study=study.name, treatment=levels, block=1, replicate=1, order=1)
    costs = table_costs(read_costs(lab.costs), settings.endpoint.protocol)
    document = simulate_document(changed, settings, trial_seed(study, first), costs)
    result = simulate(program, document, lambda _: None).result
    return bottleneck(result.rate_iops, utilisation(result, settings, lab), held(result, settings, lab))


def _print_screen(pairs: list[_Pair], change: Change, lines: int) -> None:
    """At most this many lines: the limits and how many treatments they limit, then the treatments that change most."""
    above = [f"Limits now: {_limits([pair.now for pair in pairs])}."]
    changed = [pair.then for pair in pairs if pair.then is not None]
    if changed:
        above.append(f"Limits then, with {change.words}: {_limits(changed)}.")
    below = (
        "A limit is busy 95 % of the time or more. Where nothing is, the load limits: more outstanding I/Os or a "
        "higher rate would get more."
    )
    more = "{:,} more treatments; --long shows all, and what limits next."
    room = lines - sum(map(height, (SIMULATED_BRIEF, *above, below, more))) - 1
    shown = sorted(pairs, key=_moved)[:room] if len(pairs) > room else pairs
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("treatment", overflow="fold")
    if changed:
        titles = ("IOPS now", "limited by", "IOPS then", "change", "limited by")
    else:
        titles = ("IOPS", "limited by", "next limit", "rise until then")
    for title in titles:
        table.add_column(title, justify="left" if "limit" in title else "right", no_wrap=True)
    for pair in shown:
        now = [escape(pair.name), show_rate(pair.now.rate_iops), pair.now.limit or _NOTHING]
        if pair.then is None:
            table.add_row(*now, pair.now.next or "–", _rise(pair.now) or "–")
        else:
            then = [show_rate(pair.then.rate_iops), _gain(pair.then, pair.now), pair.then.limit or _NOTHING]
            table.add_row(*now, *then)
    say(SIMULATED_BRIEF)
    for line in above:
        console().print(Text(line, style="bold"), soft_wrap=True)
    console().print(table)
    if len(shown) < len(pairs):
        say(more.format(len(pairs) - len(shown)))
    say(below)


def _limits(found: list[Bottleneck]) -> str:
    """ "the load (15 of 18 treatments), link (3)"."""
    counts = Counter(each.limit or _NOTHING for each in found).most_common()
    of = f" of {counted(len(found), 'treatment')}"
    return ", ".join(f"{name} ({count}{of if index == 0 else ''})" for index, (name, count) in enumerate(counts))


def _moved(pair: _Pair) -> tuple[bool, float]:
    """First those with another limit than before, then those that gain or lose most."""
    if pair.then is None:
        return pair.now.limit is None, 0.0
    share = pair.then.rate_iops / pair.now.rate_iops - 1 if pair.now.rate_iops else 0.0
    return pair.then.limit == pair.now.limit, -abs(share)


def _print_all(pairs: list[_Pair], change: Change) -> None:
    out = console()
    out.print(Text(SIMULATED, style="yellow"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("treatment", "", "IOPS", "", "limited by", "then by", "rise"):
        table.add_column(title, justify="right" if title == "IOPS" else "left", overflow="fold")
    for pair in pairs:
        table.add_row(escape(pair.name), _AS_IT_IS, *_row(pair.now, None))
        if pair.then is not None:
            table.add_row("", change.words, *_row(pair.then, pair.now))
    out.print(table)
    for sentence in _sentences(pairs, change):
        say(sentence)


def _row(found: Bottleneck, before: Bottleneck | None) -> list[str]:
    limit = _named(found, found.limit) if found.limit else _NOTHING
    then = _named(found, found.next) if found.next else "nothing modelled"
    most = f"at most {rise}" if (rise := _rise(found)) else ""
    return [show_rate(found.rate_iops), _gain(found, before) if before else "", limit, then, most]


def _gain(found: Bottleneck, before: Bottleneck) -> str:
    return f"{_signed(found.rate_iops / before.rate_iops - 1)} %" if before.rate_iops else ""


def _rise(found: Bottleneck) -> str:
    return "" if found.rise_max is None else f"{_signed(found.rise_max)} %"


def _signed(share: float) -> str:
    """In whole percentages."""
    return f"{100 * share:+,.0f}".replace("-0", "+0").replace("-", "−")


def _named(found: Bottleneck, resource: str) -> str:
    return f"{resource} ({100 * found.utilisation[resource]:.0f} % busy)"


def _sentences(pairs: list[_Pair], change: Change) -> Iterator[str]:
    if change.words and all(pair.then for pair in pairs):
        changed = [pair for pair in pairs if pair.then and pair.then.limit != pair.now.limit]
        yield f"With {change.words}, the limit of {len(changed)} of {counted(len(pairs), 'treatment')} changes."
    yield (
        "Limited by: the resource that was 95 % busy or more. Where no resource was, the fullest queue, a link that "
        "waited for credits, or one busy port of many; else the load: more outstanding I/Os or a higher rate "
        "would get more. Rise: how far the rate can rise until the next resource is fully busy, if the first no "
        "longer limits."
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
            "trunk_rate_bits_per_s": change.trunk_rate,
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
