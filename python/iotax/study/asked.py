"""The settings that all trials of a study share, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iotax.study.command import Command
from iotax.study.connection import Chap, DhChap
from iotax.study.database import memory_bytes, size_bytes
from iotax.study.fields import Section
from iotax.study.model import MODELLED, Link, Stream, Study, format_level
from iotax.study.sim import OF_SIM, Sim
from iotax.units import format_duration, format_ratio, format_size

_SIM = tuple(name for name in Sim.model_fields if name != "media")
_SIM_ALWAYS = ("costs", "vms", "cores", "target_cores", "threads", "controllers", "target_ports")
"""Settings listed for every simulated study, given or not."""
_COMMAND_LETTERS = 60
"""Of a command, in a line about it."""
_REFILLED = {
    "never": "never refilled",
    "block": "refilled before each block",
    "trial": "refilled before each trial",
}


def asked(study: Study) -> list[str]:
    """One line for each part of the study; a field that is a factor has all its levels."""
    found = [
        ("Load", _load(study) if study.load.command is None else _command(study, study.load.command)),
        ("Mix", _mix(study) if study.load.command is None else ()),
        ("Volume", _volume(study)),
        ("Endpoints", _endpoints(study)),
        ("Preconditioning", _precondition(study)),
        ("Connection", _changed(study, study.connection)),
        ("Topology", _changed(study, study.topology)),
        ("Lab", _lab(study)),
        ("Links", (_link(label, link) for label, link in study.links.items())),
        ("Compared", _compared(study)),
    ]
    lines = [(title, "; ".join(words)) for title, words in found]
    return [f"{title}: {words}." for title, words in lines if words]


def _load(study: Study) -> Iterator[str]:
    load = study.load
    said = _Said(study, load)
    if database := load.database:
        yield f"{said('workers')} clients on {said.count('thread')}"
    else:
        yield f"{said.count('worker')} × {said('outstanding')} outstanding on {said.count('thread')}"
    if database and ("rate_iops" in study.levels() or load.rate_iops is not None):
        yield f"open loop of {said('rate_iops')} transactions/s, {said('arrivals')} arrivals"
    elif "rate_iops" in study.levels() or load.rate_iops is not None:
        yield f"open loop of {said('rate_iops')} IOPS, {said('arrivals')} arrivals, backlog {said('backlog')}"
    elif study.search is not None and study.search.rate_max is not None:
        yield f"open loop at the rates of the search, {said('arrivals')} arrivals, backlog {said('backlog')}"
    else:
        yield "closed loop"
    if slices := study.design.slices:
        yield f"measured in {slices.rounds} slices of {format_duration(slices.slice_ns)} a session"
    else:
        yield f"warm-up {said('warmup')}, measured {said('runtime')}"
    if load.oltp is not None:
        yield f"database and log in {said('working_set') if _given(study, load, 'working_set') else 'the whole volume'}"
        memory = format_size(load.oltp.memory) if load.oltp.memory else "half of that"
        yield f"buffers of {memory}; a checkpoint every {format_duration(load.oltp.checkpoint)}"
        yield {"on": "reads verified", "off": "reads not verified"}.get(said("verify"), "reads verified or not")
        return
    if database:
        yield f"PostgreSQL's database of {format_size(size_bytes(load, study.volume))}"
        yield f"with {format_size(memory_bytes(load, study.volume))} of memory for it and its cached pages"
        yield "a checkpoint in every window"
        return
    if _given(study, load, "working_set"):
        yield f"working set {said('working_set')}"
    if _given(study, load, "durable"):
        yield {"on": "writes durable", "off": "writes not durable"}.get(said("durable"), "writes durable or not")
    if _given(study, load, "fsync"):
        yield f"a worker flushes after {said('fsync')} of its writes (0: never)"
    yield {"on": "reads verified", "off": "reads not verified"}.get(said("verify"), "reads verified or not")
    if _given(study, load, "generator"):
        yield f"generator {said('generator')}"


def _command(study: Study, command: Command) -> Iterator[str]:
    said = _Said(study, study.load)
    yield f"a command, {_first_words(command.run)}, whose result is read as {command.format}"
    for name in sorted({*command.used()} & {*study.load.__class__.model_fields} - {"warmup", "runtime"}):
        yield f"{name} {said(name)}"
    yield f"warm-up {said('warmup')}, measured {said('runtime')}"


def _first_words(run: str) -> str:
    line = next(line.strip() for line in run.splitlines() if line.strip())
    return line if len(line) <= _COMMAND_LETTERS else f"{line[: _COMMAND_LETTERS - 1]}…"


def _mix(study: Study) -> Iterator[str]:
    if study.load.oltp is not None:
        said = _Said(study, study.load)
        yield f"transactions after pgbench's, on pages of {said('block_size')}: dependent reads, then a durable commit"
        return
    if study.load.generator == "pgbench":
        yield "pgbench's own transaction: three updates, a query and an insert, as prepared statements"
        return
    said = _Said(study, study.load)
    named = study.factors.streams or ({"": study.load.streams} if study.load.streams else {})
    if not named:
        yield f"blocks of {said('block_size')}, {said('read')} read, {said('random')} random"
        if _given(study, study.load, "shared"):
            yield {"on": "all workers go on with one stream"}.get(
                said("shared"), "one stream for all workers or one each"
            )
    for label, streams in named.items():
        yield (f"{label}: " if label else "") + " + ".join(
            _stream(name, stream, said, streams) for name, stream in streams.items()
        )


def _stream(name: str, stream: Stream, said: _Said, beside: Mapping[str, Stream]) -> str:
    def own(field: str) -> str:
        value = getattr(stream, field)
        return said(field) if value is None else format_level(field, value)

    mix = f"{own('block_size')}, {own('read')} read, {own('random')} random"
    mix += ", one stream for its workers" if stream.shared else ""
    if len(beside) == 1:
        return mix
    if "share" in stream.model_fields_set:
        mix += f", share {100 * stream.share / sum(each.share for each in beside.values()):.3g}%"
    return f"{name} ({mix})"


def _volume(study: Study) -> Iterator[str]:
    volume = study.volume
    said = _Said(study, volume)
    embedded = any(endpoint.embedded for endpoint in study.endpoints().values())
    media = said("media") + (f" {volume.path}" if volume.path else "")
    yield f"{said('size')}, {media}" if embedded else f"{said('size')} of each endpoint"
    filled = "a file system with the database" if study.load.generator == "pgbench" else said("fill")
    yield f"filled with {filled}, {_REFILLED[volume.refill]}"
    if volume.compress > 1:
        yield f"data that compress {format_ratio(volume.compress)}"
    if volume.dedupe > 1:
        yield f"blocks of {format_size(volume.dedupe_block)} that repeat {format_ratio(volume.dedupe)}"
    if model := [f"{name} {said(name)}" for name in MODELLED if _given(study, volume, name)]:
        yield f"media modelled with {', '.join(model)}"
    for name in ("delay", "burn"):
        if _given(study, volume, name):
            yield f"{name} {said(name)} for each operation"


def _endpoints(study: Study) -> Iterator[str]:
    setups = study.setups()
    for label, endpoint in study.endpoints().items():
        own = ", ".join(f"{name} {_value(name, value)}" for name, value in setups.get(label, {}).items())
        target = endpoint.uri or endpoint.protocol
        if target != label or own:
            yield f"{label} is {target}" + (f" with {own}" if own else "")


def _precondition(study: Study) -> Iterator[str]:
    asked = study.precondition
    if asked is None:
        return
    passes = "once" if asked.passes == 1 else f"{asked.passes} times"
    yield f"{format_level('read', asked.fill)} of each volume filled {passes}"
    if asked.rounds_max:
        writes = f"random writes of {format_size(asked.block_size)}, {asked.workers} × {asked.outstanding} outstanding"
        yield f"{writes}, in rounds of {format_duration(asked.round)} until steady, at most {asked.rounds_max}"


def _changed(study: Study, section: Section) -> Iterator[str]:
    """Lines for parts that differ from their defaults."""
    for name in type(section).model_fields:
        if name != "protocol" and _given(study, section, name):
            yield f"{name} {_Said(study, section)(name)}"


def _lab(study: Study) -> Iterator[str]:
    if (hosts := study.lab.hosts) is not None:
        names = {"initiators": hosts.initiator_hosts(), "targets": hosts.target_hosts()}
        names["hypervisors"] = hosts.hypervisor_hosts()
        parts = [f"{role} {', '.join(host.name for host in found)}" for role, found in names.items() if found]
        yield f"hosts ({'; '.join(parts)}; driver {hosts.driver})"
        return
    if (sim := study.lab.sim) is not None:
        said = _Said(study, sim)
        fields = [
            name for name in _SIM if name in _SIM_ALWAYS or name in study.levels() or name in sim.model_fields_set
        ]
        if all("costs" in study.setups().get(label, {}) for label in study.endpoints()):
            fields.remove("costs")
        own = [f"{field} {said(field) if field in OF_SIM else _of_sim(field, getattr(sim, field))}" for field in fields]
        media = sim.media.model_dump(mode="json") if sim.media else {}
        if sim.media and sim.media.service_times:
            media["service_times"] = _times(sim.media.service_times)
        kept = " ".join(f"{field} {value}" for field, value in media.items()) or "memory"
        yield f"sim ({', '.join([*own, f'media {kept}'])})"
        return
    name, lab = study.lab.name, getattr(study.lab, study.lab.name)
    values = {field: getattr(lab, field) for field in type(lab).model_fields}
    switches = {True: "on", False: "off"}
    own = ", ".join(
        f"{field} {switches[value] if isinstance(value, bool) else value}" for field, value in values.items()
    )
    yield f"{name} ({own})"


def _of_sim(name: str, value: Any) -> str:
    if name == "path_failures":
        spans = (f"{each.path} at {format_duration(each.at)}" + _back(each.back) for each in value or ())
        return "; ".join(spans) or "none"
    return format_duration(value) if name == "path_noticed" else str(value)


def _back(back: int | None) -> str:
    return f", back at {format_duration(back)}" if back is not None else ""


def _times(times_ns: Sequence[int]) -> str:
    return f"{len(times_ns)} of mean {format_duration(round(sum(times_ns) / len(times_ns)))}"


def _link(label: str, link: Link) -> str:
    return f"{label} over {link.label}" + ("" if link.rate.endswith("GFC") else f", MTU {link.mtu}")


def _compared(study: Study) -> Iterator[str]:
    yield ", ".join(study.responses)
    base = ", ".join(f"{name} {level.label}" for name in study.baseline if (level := study.baseline_level(name)))
    yield f"baseline {base}"
    yield f"equivalent within {format_level('read', study.margin)}"
    if study.exclude:
        yield f"runs left out by {', '.join(study.exclude)}"


class _Said:
    """The words for a field of a section: its value, or its levels."""

    def __init__(self, study: Study, section: Section) -> None:
        self._levels, self._section = study.levels(), section

    def __call__(self, name: str) -> str:
        if name not in self._levels:
            return _value(name, getattr(self._section, name))
        *first, last = [level.label for level in self._levels[name]]
        return f"{', '.join(first)} or {last}" if first else last

    def count(self, thing: str) -> str:
        """`1 worker`, `2 or 8 workers`."""
        number = self(f"{thing}s")
        return f"{number} {thing}" if number == "1" else f"{number} {thing}s"


def _value(name: str, value: Any) -> str:
    if name == "service_times":
        return _times(value)
    if isinstance(value, Chap):
        return f"as {value.user}" + (", mutual" if value.mutual else "")
    if isinstance(value, DhChap):
        return "both ways" if value.controller else "one way"
    return format_level(name, value)


def _given(study: Study, section: Section, name: str) -> bool:
    """Whether the field is a factor or not its default."""
    return name in study.levels() or getattr(section, name) != type(section).model_fields[name].default
