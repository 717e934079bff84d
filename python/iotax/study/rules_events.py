"""Events that cannot happen, or whose effect could not be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from iotax.protocols import with_access, with_paths, without_transport
from iotax.study.events import QUIET_NS, StudyEvent
from iotax.study.model import Settings, Study
from iotax.study.source import Place
from iotax.study.topology import Topology, have_own_connections, kind_of
from iotax.study.varied import combinations, values
from iotax.study.varied import place as place_of
from iotax.units import format_duration

_ACCESS_IN_GUESTS = ("nvme-tcp", "iscsi")
"""Protocols of which the target of Linux reports what the vm lab sets for one path."""
_SURVIVE_IN_GUESTS = ("nvme-tcp", "iscsi", "nfs3", "nfs4.1")
"""Protocols whose initiator in Linux connects again to a target that was killed."""
_FLAP_MIN_NS = 200_000_000
"""A guest on a busy machine takes tens of milliseconds to notice a cable."""


def broken_in_events(study: Study) -> Iterator[tuple[Place, str]]:
    if not study.events:
        for word in ("recovery_time", "iops_after"):
            if word in study.responses:
                place: Place = ("responses", study.responses.index(word))
                yield place, "nothing happens to recover from; add `events:`"
        return
    if study.design.slices is not None:
        yield ("events",), "an event needs a run of its own; leave out `rounds:` and `sessions:` under design"
    if study.search is not None:
        yield ("events",), "a search looks for a load that nothing disturbs; leave out one of the two"
    if study.lab.hosts is not None:
        yield from _on_hosts(study)
    else:
        yield from _of_commands(study)
        yield from _of_killed_targets(study)
        if study.lab.vm is not None:
            yield from _in_guests(study)
        else:
            yield from _of_targets(study)
            yield from _of_own_paths(study)
            yield from _of_networks(study)
            if study.lab.sim is not None:
                yield from _of_simulated_paths(study)
            yield from _of_access(study, with_access())
    if {*values(study, "generator")} - {"iotax"}:
        yield ("events",), "only iotax's own load tells when its window starts; say `generator: iotax`"
    for index, event in enumerate(study.events):
        yield from _in_window(study, index, event)
    yield from _one_at_a_time(study)


def _of_commands(study: Study) -> Iterator[tuple[Place, str]]:
    for index, event in enumerate(study.events):
        if event.do.command is not None:
            yield ("events", index, "do"), "commands run on hosts; say `lab: {hosts: …}`"


def _on_hosts(study: Study) -> Iterator[tuple[Place, str]]:
    hosts = study.lab.hosts
    assert hosts is not None, "a study of hosts"
    linux = [host for host in hosts.hypervisor_hosts() if host.kind == "linux"]
    names = [host.name for host in (*hosts.initiator_hosts(), *hosts.target_hosts(), *linux)]
    for index, event in enumerate(study.events):
        if event.do.command is None:
            reason = "on hosts an event is a command of your own: {command: …, undo: …, host: HOST}"
            yield ("events", index, "do"), reason
        elif event.do.host not in names:
            reason = f"{event.do.host} is not a Linux host of this lab; its hosts are {', '.join(names)}"
            yield ("events", index, "do", "host"), reason


def _of_targets(study: Study) -> Iterator[tuple[Place, str]]:
    """Only a process of the lab itself can freeze, and only if the load reaches it over a protocol."""
    for label, endpoint in study.endpoints().items():
        place: Place = ("factors", "protocol", label) if "protocol" in study.levels() else ("connection", "protocol")
        if not endpoint.embedded:
            yield place, "iotax did not start this target, and leaves it alone: leave out `events:` or this level"
        elif endpoint.protocol == "local":
            yield place, "local has no target that could stand still; leave it out"


def _of_own_paths(study: Study) -> Iterator[tuple[Place, str]]:
    treatments = combinations(study, ("protocol", "paths"))
    settings = [study.settings(each) for each in treatments]
    for index, event in enumerate(study.events):
        fewest = min(settings, key=lambda each: each.topology.paths)
        if max(event.do.path, default=0) > fewest.topology.paths:
            named = f"{fewest.endpoint.protocol} has `paths: {fewest.topology.paths}`"
            yield ("events", index, "do"), f"there is no path {max(event.do.path)}: {named}"


def _of_access(study: Study, able: Sequence[str]) -> Iterator[tuple[Place, str]]:
    """Only a target that reports the state of a path, to an initiator that has another, can change it."""
    treatments = combinations(study, ("protocol", "paths"))
    settings = [study.settings(each) for each in treatments]
    for index, event in enumerate(study.events):
        if event.do.access is None:
            continue
        place: Place = ("events", index, "do", "access")
        for protocol in dict.fromkeys(each.endpoint.protocol for each in settings):
            if protocol not in able:
                instead = f"compare {', '.join(able)} only, or say {{fail: path, path: {event.do.path[0]}}}"
                yield place, f"{protocol} reports no access states in this lab: {instead}"
        if any(each.topology.paths == 1 for each in settings):
            yield (
                place,
                "with one path no other could carry the I/O; say `paths: 2` and a `path_policy:` under topology",
            )


def _of_networks(study: Study) -> Iterator[tuple[Place, str]]:
    for index, event in enumerate(study.events):
        if event.do.slow is not None or event.do.lose is not None:
            here = "no network lies between processes of one machine"
            why = here if study.lab.sim is None else "a simulated link keeps its delay and its losses"
            instead = f"say `lab: vm`, or {{fail: path, path: {event.do.path[0]}}}"
            yield ("events", index, "do"), f"{why}; {instead}"


def _of_killed_targets(study: Study) -> Iterator[tuple[Place, str]]:
    killing = [index for index, event in enumerate(study.events) if event.do.kill is not None]
    if not killing:
        return
    able = with_paths() if study.lab.vm is None else _SURVIVE_IN_GUESTS
    for treatment in combinations(study, ("protocol", "paths", "paths_to", "dhchap", "media")):
        settings = study.settings(treatment)
        if settings.endpoint.protocol not in able:
            reason = f"{settings.endpoint.protocol} does not survive it here: compare {', '.join(able)} only"
        elif study.lab.vm is None:
            reason = _not_connected_again(settings)
        else:
            reason = "the volume is in its target's memory; leave out `media: model`" if settings.volume.model else ""
        if reason:
            yield ("events", killing[0], "do"), reason
            return


def _not_connected_again(settings: Settings) -> str:
    """Why iotax's initiators or target do not survive the target's death; empty if they do."""
    if settings.topology.paths == 1:
        return "only initiators with several paths connect again: say `paths: 2` under topology"
    if settings.sim is not None and settings.sim.paths_to != "owner":
        return "with `paths_to:` the connections of a path are not its own, and nobody opens them again"
    if settings.connection.dhchap is not None:
        return "a target that authenticates over NVMe/TCP cannot be killed; leave `dhchap:` out"
    return ""


def _of_simulated_paths(study: Study) -> Iterator[tuple[Place, str]]:
    """Only a path with connections of its own can be affected by itself."""
    of_paths = [index for index, event in enumerate(study.events) if event.do.path]
    for treatment in combinations(study, ("protocol", "paths", "paths_to")):
        settings = study.settings(treatment)
        assert settings.sim is not None, "a simulated study"
        if settings.sim.path_failures is not None:
            yield ("lab", "sim", "path_failures"), "the events say what fails; leave one of the two out"
            return
        protocol = settings.endpoint.protocol
        if of_paths and not have_own_connections(protocol, settings.topology, settings.sim.paths_to):
            reason = f"each connection of {protocol} uses all paths here; say `path_failures:` under `lab: {{sim: …}}`"
            yield ("events", of_paths[0], "do"), reason
            return


def _in_guests(study: Study) -> Iterator[tuple[Place, str]]:
    vm = study.lab.vm
    assert vm is not None, "a study in guests"
    if vm.clock == "icount":
        yield ("lab", "vm", "clock"), "an event takes real time, and icount counts instructions; say `clock: host`"
    if vm.guests == 1:
        yield ("events",), "both halves stand in one kernel (`guests: 1`); say `guests: 2`"
    if max(each or 1 for each in values(study, "clients")) > 1:
        yield place_of(study, "clients"), "events are for one initiator guest; leave out `clients`"
    yield from _of_access(study, _ACCESS_IN_GUESTS)
    treatments = combinations(study, ("protocol", *Topology.model_fields))
    reasons = (reason for each in treatments for reason in _of_path(study, study.settings(each)))
    yield from ((("events",), reason) for reason in dict.fromkeys(reasons))


def _of_path(study: Study, settings: Settings) -> Iterator[str]:
    """Why an event cannot happen to this path between two guests."""
    protocol, topology = settings.endpoint.protocol, settings.topology
    if protocol == "local" or protocol in without_transport():
        yield f"{protocol} has no target of its own and no cable; leave it out"
    elif topology.by_hypervisor:
        yield f"with `attach: {topology.attach}` the hypervisor reaches the target over no cable of the guests"
    elif topology.encryption == "tls":
        yield "a lost connection takes the count of what TLS encrypted with it; leave out `encryption: tls`"
    else:
        for event in study.events:
            if max(event.do.path, default=0) > topology.paths:
                yield f"there is no path {max(event.do.path)}: {protocol} has `paths: {topology.paths}`"
            if event.do.access == "non-optimized" and protocol == "iscsi":
                yield "dm-multipath without its daemon does not leave such a path; say {access: inaccessible, path: 1}"
            if event.do.access is not None and topology.target != "kernel":
                yield f"{kind_of(topology.target)} changes no access states here; leave out `target:` or `access:`"
            if (event.do.slow or event.do.lose) and (topology.link_rate or topology.link_delay):
                yield "`link_rate` and `link_delay` shape the paths already; leave them out, or `slow:` and `lose:`"


def _in_window(study: Study, index: int, event: StudyEvent) -> Iterator[tuple[Place, str]]:
    first, last = event.at
    quiet = format_duration(QUIET_NS)
    if first > last:
        yield ("events", index, "at"), "the range ends before it starts"
    elif first < QUIET_NS:
        yield ("events", index, "at"), f"throughput before it must be known; say {quiet} or later"
    if last + event.lasts + QUIET_NS > min(values(study, "runtime")):
        needed = format_duration(last + event.lasts + QUIET_NS)
        reason = f"recovery could not be seen: the window must last {quiet} beyond it, {needed} at least"
        yield ("events", index, "at"), f"{reason}; say a longer `runtime:` under load"
    if event.do.every is not None and not _FLAP_MIN_NS <= event.do.every <= event.lasts:
        reason = f"a path that flaps fails at least once, and not more often than every {format_duration(_FLAP_MIN_NS)}"
        yield ("events", index, "do", "every"), f"{reason}; say {format_duration(_FLAP_MIN_NS)} up to its `for:`"
    if not event.lasts:
        yield ("events", index, "for"), "it is undone at once; say how long it lasts"


def _one_at_a_time(study: Study) -> Iterator[tuple[Place, str]]:
    ordered = sorted(enumerate(study.events), key=lambda each: each[1].at)
    for (_, before), (index, event) in pairwise(ordered):
        if before.at[1] + before.lasts + QUIET_NS > event.at[0]:
            quiet = format_duration(QUIET_NS)
            yield ("events", index, "at"), f"the event before it may not be over; leave {quiet} between them"
