"""The assumptions of a simulated study, figure by figure, and the same study with one of them smaller or larger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iotax.labs.sim.costs import TURN_CV, table_costs
from iotax.study import Study
from iotax.study.media import MediaModel
from iotax.study.sim import Sim, read_costs
from iotax.units import format_bit_rate, format_percent, format_size, show_time

_FIGURES = {
    "wake": "waking a thread",
    "turn": "a turn",
    "send": "a send",
    "io": "an I/O",
    "kib": "a KiB",
    "segment": "a segment",
    "kib_sent": "a KiB sent",
    "wake_short": "waking a thread that has just fallen asleep",
    "wake_delay": "until a woken thread is at work",
}
_MEDIA = {
    "service": ("media: service time", show_time),
    "collect": ("media: garbage collection", show_time),
    "seek": ("media: seek", show_time),
    "rpm": ("media: turns a minute", str),
    "cache": ("media: read cache", format_size),
    "destage": ("media: what a write costs later", format_percent),
}
_DELAY = "link_delay"
_OF_LAB = {
    "coalesce": ("adapters: interrupt coalescing", show_time),
    "interconnect_delay": ("interconnect: delay", show_time),
    "interconnect_rate": ("interconnect: rate", format_bit_rate),
    "interconnect_cpu": ("interconnect: CPU per message", show_time),
}
_MICROSECOND_NS = 1000


@dataclass(frozen=True)
class Assumption:
    """Figures of cost tables that share a side, a kind of work and a source; or one field of the study."""

    name: str
    value: str
    """The value in the study, for reading."""
    source: str = ""
    """The cost's source; empty for assumptions from the study's file."""
    costs: frozenset[tuple[str, str, str, str]] = frozenset()
    """Table, protocol, side, figure; no side for the variation of turns."""
    field: str = ""
    """A field of `media`, `link_delay`, or a field of the lab."""

    def in_study(self, study: Study, times: float) -> Study:
        """The study with its field so many times as large."""
        lab = study.lab.sim
        if self.field == _DELAY:
            delay_ns = round(study.topology.link_delay * times / _MICROSECOND_NS) * _MICROSECOND_NS
            return study.model_copy(update={"topology": study.topology.model_copy(update={_DELAY: delay_ns})})
        if lab is not None and self.field in _OF_LAB:
            return _with(study, lab.model_copy(update={self.field: round(getattr(lab, self.field) * times)}))
        if not self.field or lab is None or lab.media is None:
            return study
        update = {self.field: _times(lab.media, self.field, times)}
        if self.field == "service" and lab.media.p99:
            update["p99"] = _times(lab.media, "p99", times)
        return _with(study, lab.model_copy(update={"media": lab.media.model_copy(update=update)}))

    def of_costs(self, lab: Sim, protocol: str, times: float) -> dict[str, dict[str, int]]:
        """Side → the costs of its threads, as the table has them but for these."""

        def own(side: str, name: str) -> float:
            return times if (lab.costs, protocol, side, name) in self.costs else 1.0

        return table_costs(read_costs(lab.costs), protocol, own)


def assumptions(study: Study) -> list[Assumption]:
    """The assumptions of a study of this lab: every cost that is not 0, and, unless they are factors, media, the links'
    delay, the adapters' coalescing and the interconnect. Costs from the same source are one assumption: they are right
    or wrong together."""
    lab = study.lab.sim
    assert lab is not None, "a study of this lab"
    found = _cost_assumptions(study)
    if lab.media is not None:
        values = {name: getattr(lab.media, name) for name in _MEDIA}
        found += [
            Assumption(title, show(values[name]), field=name)
            for name, (title, show) in _MEDIA.items()
            if values[name] and name not in study.levels()
        ]
    if study.topology.link_delay and _DELAY not in study.levels():
        found.append(Assumption("link: delay", show_time(study.topology.link_delay), field=_DELAY))
    for name, (title, show) in _OF_LAB.items():
        if (value := getattr(lab, name)) and name not in study.levels():
            found.append(Assumption(title, show(value), field=name))
    return found


def _with(study: Study, lab: Sim) -> Study:
    return study.model_copy(update={"lab": study.lab.model_copy(update={"sim": lab})})


def _cost_assumptions(study: Study) -> list[Assumption]:
    protocols = dict.fromkeys(endpoint.protocol for endpoint in study.endpoints().values())
    tables = study.cost_tables()
    together: dict[tuple[str, str, str], dict[tuple[str, str], int]] = {}
    for table in tables:
        known = read_costs(table).protocols
        for protocol in (each for each in protocols if each in known):
            for side, costs in known[protocol].by_name().items():
                for figure, cost in costs.figures().items():
                    if cost.ns:
                        together.setdefault((side, figure, cost.source), {})[table, protocol] = cost.ns
    return _turn_cvs(tables, list(protocols)) + [
        Assumption(
            _name(side, figure, of, tables),
            _span(of),
            source,
            frozenset((table, protocol, side, figure) for table, protocol in of),
        )
        for (side, figure, source), of in together.items()
    ]


def _turn_cvs(tables: list[str], protocols: list[str]) -> list[Assumption]:
    together: dict[tuple[int, str], list[str]] = {}
    for table in tables:
        cv = read_costs(table).turn_cv
        if cv is not None and cv.percent:
            together.setdefault((cv.percent, cv.source), []).append(table)
    return [
        Assumption(
            "how much turns vary" + (f" ({', '.join(of)})" if len(of) < len(tables) else ""),
            f"{percent} %",
            source,
            frozenset((table, protocol, "", TURN_CV) for table in of for protocol in protocols),
        )
        for (percent, source), of in together.items()
    ]


def _name(side: str, figure: str, of: Mapping[tuple[str, str], int], tables: list[str]) -> str:
    """ "an I/O, target: fcp, iscsi"; with its table where others have another."""
    found = dict.fromkeys(table for table, _ in of)
    protocols = ", ".join(dict.fromkeys(protocol for _, protocol in of))
    where = f" ({', '.join(found)})" if len(found) < len(tables) else ""
    return f"{_FIGURES[figure]}, {side}: {protocols}{where}"


def _span(of: Mapping[tuple[str, str], int]) -> str:
    low, high = min(of.values()), max(of.values())
    return show_time(low) if low == high else f"{show_time(low)} to {show_time(high)}"


def _times(media: MediaModel, name: str, times: float) -> float:
    value = getattr(media, name) * times
    return min(100.0, value) if name == "destage" else max(1, round(value))
