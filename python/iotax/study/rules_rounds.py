"""What must hold of a study by rounds: what can be measured in slices, and what one session can hold at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from iotax.study.endpoint import kernel_path
from iotax.study.hosts import CLIENT, LEVEL, Hosts
from iotax.study.model import Slices, Study, Vm, factor_names
from iotax.study.source import Place
from iotax.study.topology import ON_HOSTS, Topology
from iotax.study.varied import place as _place
from iotax.study.varied import values as _values
from iotax.units import format_duration

SLICE_MIN_NS = 20_000_000
_DIGESTS = ("header_digest", "data_digest")


def broken_in_rounds(study: Study) -> Iterator[tuple[Place, str]]:
    """What can be measured in slices: loads of one server that keeps running, by the engine."""
    design = study.design
    if (slices := design.slices) is None:
        return
    place = ("design", "rounds")
    if design.sessions != design.replicates:
        yield ("design", "replicates"), "sessions are the replicates of a design by rounds; leave this out"
    for name in ("warmup", "runtime"):
        if name in study.load.model_fields_set or name in study.levels():
            word = "settle" if name == "warmup" else "slice"
            yield _place(study, name), f"rounds measure slices; say `{word}:` under design in place of this"
    if slices.slice_ns < SLICE_MIN_NS:
        yield ("design", "slice"), "a slice is 20 ms or longer: CPU clocks at its edges are not read more exactly"
    if study.lab.vm is not None:
        yield from _rounds_of_guests(study, study.lab.vm)
    if study.lab.hosts is not None:
        yield from _rounds_of_hosts(study, study.lab.hosts)
    yield from _searched_in_rounds(study, slices)
    for name in {"fio", "command"} & {*_values(study, "generator")}:
        yield place, f"{'fio' if name == 'fio' else 'a command'} starts anew for each trial; say `replicates:`"
    if study.volume.refill == "trial":
        yield ("volume", "refill"), "a round has no time to fill the volume before each slice; say `refill: block`"
    for name in study.levels():
        of_server = _is_of_server(name)
        if of_server and "file" in _values(study, "media"):
            yield (
                place,
                f"{name} takes a server for each level, and a file is behind one server at a time; say `replicates:`",
            )
    if "always" in _values(study, "polling"):
        yield place, "`polling: always` keeps its processor from the other treatments of a round; say `polling: auto`"
    if design.sentinels:
        yield ("design", "sentinels"), "rounds hold every treatment; leave this out"
    if design.hard_to_change and study.lab.vm is None and study.lab.hosts is None:
        yield ("design", "hard_to_change"), "on this machine a session holds every treatment; leave this out"
    if design.blocks != "replicate":
        yield ("design", "blocks"), "sessions are the blocks of a design by rounds; leave this out"


_ONE_BOOT = "all treatments of a session are connected at once in one boot of the guests, where"
_NOT_AT_ONCE = {
    "kernel": "one kernel runs",
    "target_kernel": "one kernel runs",
    "encryption": "a link is encrypted in one way",
    "mtu": "a link has one MTU",
    "link_rate": "a link has one rate",
    "link_delay": "a link has one delay",
    "nconnect": "mounts of one server share its connections",
    "size": "all protocols serve one volume",
}
"""Fields that keep two treatments from being connected at once, and why."""


def _rounds_of_guests(study: Study, vm: Vm) -> Iterator[tuple[Place, str]]:
    """What guests can hold connected at once. A difference that they cannot takes runs, or a study for each level."""
    place = ("design", "rounds")
    if vm.guests > 1 and vm.clock == "icount":
        yield (
            ("lab", "vm", "clock"),
            "guests that count instructions have clocks that run apart, and a session has one schedule; say "
            "`guests: 1`, or `clock: host`",
        )

    apart = {"paths", "attach", "aio", "disk_cache", "disk_queues", "iothread", "target"}
    for name in (*(each for each in Topology.model_fields if each not in apart), *_DIGESTS, "size"):
        if len(levels := _at_once(study, name)) > 1:
            reason = _NOT_AT_ONCE.get(name, "every path is connected alike")
            at = _place(study, name) if name in study.levels() else place
            yield at, f"{_ONE_BOOT} {reason}: {name} has {len(levels)} levels; {_instead(study, name)}"
    if max(_of_labels(study, "paths")) > 1:
        yield place, f"{_ONE_BOOT} the paths of one protocol would be taken for another's; say `replicates:`"
    if any(each != "guest" for each in _of_labels(study, "attach")):
        yield place, "turns in guests have no disk that the hypervisor attaches; say `replicates:`"
    if "model" in _of_labels(study, "media") or any(each != "kernel" for each in _of_labels(study, "target")):
        yield place, "a server that is a program has one protocol at a time in guests; say `replicates:`"
    if max(each or 1 for each in _of_labels(study, "clients")) > 1:
        yield place, "turns in guests have one initiator; say `replicates:`"
    if "pgbench" in _of_labels(study, "generator"):
        yield place, "a database starts anew for each trial; say `replicates:`"
    if study.search is not None:
        yield ("search",), "a search in turns runs on loopback only; say `replicates:`"


_BETWEEN_SLICES = frozenset({"before trial", "after trial"})
"""Moments that a session does not have."""


def _rounds_of_hosts(study: Study, lab: Hosts) -> Iterator[tuple[Place, str]]:
    """What hosts can hold connected at once."""
    place: Place = ("design", "rounds")
    hard = study.design.hard_to_change
    kernel = [endpoint.uri for endpoint in study.endpoints().values() if endpoint.kernel]
    for name in (*ON_HOSTS, *_DIGESTS):
        levels = _at_once(study, name)
        if kernel and len(levels) > 1:
            at = _place(study, name) if name in study.levels() else place
            yield (
                at,
                "all treatments of a session are connected at once, and a host's kernel connects a target in one way: "
                f"{name} has {len(levels)} levels; {_instead(study, name)}",
            )
    for kind, target in _named_twice(kernel) if "protocol" not in hard else ():
        yield (
            place,
            f"all treatments of a session are connected at once, and a host's kernel connects {target} once, for "
            f"{kind}: name it in one endpoint, or say `hard_to_change: [protocol]`",
        )
    embedded = any(endpoint.embedded for endpoint in study.endpoints().values())
    for name in filter(_is_of_server, study.levels()):
        if embedded and len(_at_once(study, name)) > 1:
            said = f"all treatments of a session share the server of the lab; {_instead(study, name)}"
            yield _place(study, name), said
    if lab.hypervisors:
        yield ("lab", "hosts", "hypervisors"), "a hypervisor is read over runs, not over slices; say `replicates:`"
    for index, hook in enumerate(lab.hooks):
        at = ("lab", "hosts", "hooks", index)
        if hook.at in _BETWEEN_SLICES:
            yield at, f"a session has no {hook.at}: its treatments take turns; say `at: before block`, or `replicates:`"
        elif hook.at in LEVEL and (free := [name for name in hook.levels if name not in hard]):
            yield at, f"within a session {free[0]} takes turns; say `hard_to_change: [{free[0]}]`"
    if "pgbench" in _values(study, "generator"):
        yield place, "a database starts anew for each trial; say `replicates:`"
    if study.search is not None:
        yield ("search",), "a search in turns runs on loopback only; say `replicates:`"


def _instead(study: Study, name: str) -> str:
    """A factor may be one of whole plots, each a session of its own."""
    plots = f"say `hard_to_change: [{name}]` for a session of each, or" if name in study.levels() else "say"
    return f"{plots} `replicates:`"


def _named_twice(uris: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Protocol and target of paths that a kernel does not tell apart: it knows a session by its target's name."""
    seen: set[tuple[str, str]] = set()
    for uri in uris:
        path = kernel_path(uri.replace(CLIENT, "1"))
        at = path.kind, f"{path.name} LUN {path.unit}" if path.kind == "fc" else path.name
        if path.kind != "nfs" and at in seen:
            yield at
        seen.add(at)


def _at_once(study: Study, name: str) -> list[Any]:
    """The most values of a field that meet in one session: a whole plot has one level of what is hard to change."""
    hard = study.design.hard_to_change
    own = [study.setups().get(label, {}) for label in study.endpoints()]
    met = [[changes] for changes in own] if "protocol" in hard else [own]
    values = _values(study, name)[:1] if name in hard else _values(study, name)
    found = [dict.fromkeys(changes.get(name, value) for changes in some for value in values) for some in met]
    return list(max(found, key=len))


def _of_labels(study: Study, name: str) -> list[Any]:
    """All values that a field has, those that levels of `protocol` have of their own included."""
    own = (study.setups().get(label, {}) for label in study.endpoints())
    return list(dict.fromkeys(changes.get(name, value) for changes in own for value in _values(study, name)))


def _is_of_server(name: str) -> bool:
    return factor_names()[name] == "volume" or name == "polling"


def _searched_in_rounds(study: Study, slices: Slices) -> Iterator[tuple[Place, str]]:
    """A rate that is too high by the search's precision must show it within one slice, which begins without a queue."""
    search = study.search
    if search is None or search.rate_max is None:
        return
    least_ns = search.latency_max * 100 / search.precision
    if slices.slice_ns < least_ns:
        yield (
            ("design", "slice"),
            f"a slice begins without a queue, and a rate {search.precision:g} % too high is behind by "
            f"{format_duration(search.latency_max)} only after {format_duration(math.ceil(least_ns))}: say so much at "
            "least, or `replicates:`",
        )
