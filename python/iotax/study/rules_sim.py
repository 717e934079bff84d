"""Rules for the simulated lab: impossible setups, each with its place in the file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

from iotax.protocols import with_paths
from iotax.study.endpoint import SIM
from iotax.study.media import MediaModel, impossible
from iotax.study.model import Settings, Study
from iotax.study.sim import CostsError, Sim, Zone, read_costs
from iotax.study.source import Place
from iotax.study.topology import FIBRE_CHANNEL_FRAMES
from iotax.study.varied import combinations, values
from iotax.study.varied import place as place_of
from iotax.units import format_duration


def broken_in_sim(study: Study, lab: Sim) -> Iterator[tuple[Place, str]]:
    """Impossible setups and measurements."""
    yield from _costs(study)
    rates = [study.setups().get(label, {}).get("link_rate") for label in study.endpoints()]
    if None in values(study, "link_rate") and None in rates:
        yield place_of(study, "link_rate"), "a simulated link has a rate; say `link_rate: 10Gbit` under topology"
    if lab.media is not None:
        yield from _sim_media(lab.media)
    for clients in values(study, "clients"):
        if lab.controllers > (clients or 1):
            place = ("lab", "sim", "controllers")
            yield place, f"{lab.controllers} controllers share out {clients or 1} clients: one would have none"
    yield from _sim_fabrics(study, lab)
    yield from _switches(study, lab)
    yield from _partners(study, lab)
    if lab.zones is not None:
        yield from _zones(study, lab, lab.zones)
    if study.design.slices is not None:
        yield ("design",), "the sim lab runs each trial on its own; leave sessions, rounds, slice and settle out"
    if study.precondition is not None:
        yield ("precondition",), "simulated media have no state to bring about; leave it out"


def _sim_fabrics(study: Study, lab: Sim) -> Iterator[tuple[Place, str]]:
    """Queues, credits, and failing paths."""
    protocols = [endpoint.protocol for endpoint in study.endpoints().values()]
    if ("credits" in study.levels() or lab.credits is not None) and not set(protocols) & set(FIBRE_CHANNEL_FRAMES):
        yield place_of(study, "credits"), "only Fibre Channel has credits; leave them out, or name fcp or fc-nvme"
    for name, given in (("loss", lab.loss), ("port_buffer", lab.port_buffer)):
        if (name in study.levels() or given is not None) and set(protocols) <= set(FIBRE_CHANNEL_FRAMES):
            yield place_of(study, name), "only Ethernet loses segments; leave it out, or name nfs3, iscsi or nvme-tcp"
    setups = study.setups()
    depths = [setups.get(label, {}).get("queue_depth") for label in study.endpoints()]
    queued = any(depth is not None for depth in (*values(study, "queue_depth"), *depths))
    apart = [place_of(study, "luns")] if "luns" in study.levels() or lab.luns > 1 else []
    apart += [("factors", "protocol", label, "luns") for label, own in setups.items() if own.get("luns", 1) > 1]
    for place in [] if queued else apart:
        yield place, "LUNs differ in their queues alone; say `queue_depth: 32` under topology too"
    if lab.path_failures is None:
        if lab.path_noticed:
            yield ("lab", "sim", "path_noticed"), "no path fails; say `path_failures:` too"
        return
    if own := sorted({*protocols} & {*with_paths()}):
        reason = f"each path of {' and '.join(own)} has connections of its own; say `events:`, or compare others"
        yield ("lab", "sim", "path_failures"), reason
    paths = {
        setups.get(label, {}).get("paths", paths) for label in study.endpoints() for paths in values(study, "paths")
    }
    for index, failure in enumerate(lab.path_failures):
        place = ("lab", "sim", "path_failures", index)
        if failure.path > min(paths):
            yield (*place, "path"), f"there are {min(paths)} paths; say `paths: {max(2, failure.path)}` under topology"
        if failure.back is not None and failure.back <= failure.at:
            yield (*place, "back"), "a path comes back after it has failed"
        if any(failure.at >= runtime for runtime in values(study, "runtime")):
            yield (*place, "at"), "it would fail after all is measured; say an earlier time or a longer `runtime:`"
    for at, until in _without_paths(lab, set(range(1, min(paths) + 1))):
        reason = f"no path is left from {format_duration(at)}{f' to {format_duration(until)}' if until else ' on'}"
        yield ("lab", "sim", "path_failures"), f"{reason}; each client keeps one"


def _without_paths(lab: Sim, paths: Set[int]) -> Iterator[tuple[int, int | None]]:
    """Time in ns from which all of these paths have failed or are not yet used again."""
    spans: list[tuple[int, int, float]] = [
        (failure.path, failure.at, float("inf") if failure.back is None else failure.back + lab.path_noticed)
        for failure in lab.path_failures or ()
    ]
    for _, begin, _ in spans:
        away = {path: end for path, at, end in spans if at <= begin < end}
        if paths <= away.keys():
            end = min(away.values())
            yield begin, None if end == float("inf") else int(end)
            return


def _switches(study: Study, lab: Sim) -> Iterator[tuple[Place, str]]:
    """Trunks without two switches, and fabrics without a port of each target."""
    for name, given in (("trunk_rate", lab.trunk_rate), ("trunk_credits", lab.trunk_credits)):
        if (name in study.levels() or given is not None) and 2 not in values(study, "switches"):
            yield place_of(study, name), "a trunk joins two switches; say `switches: 2` too"
    protocols = {endpoint.protocol for endpoint in study.endpoints().values()}
    has_credits = "trunk_credits" in study.levels() or lab.trunk_credits is not None
    if has_credits and not protocols & set(FIBRE_CHANNEL_FRAMES):
        reason = "only Fibre Channel has credits; leave them out, or name fcp or fc-nvme"
        yield place_of(study, "trunk_credits"), reason
    paths = max(_paths(study, with_switches=True), default=1)
    if paths > lab.target_ports:
        reason = (
            f"each of {paths} paths has a fabric of its own, with a port of each target; say `target_ports: {paths}`"
        )
        yield ("lab", "sim", "target_ports"), reason


def _paths(study: Study, *, with_switches: bool = False) -> set[int]:
    """Numbers of paths in all treatments."""
    found = set()
    for treatment in combinations(study, ("protocol", "paths", "switches")):
        settings = study.settings(treatment)
        if not with_switches or (settings.sim is not None and settings.sim.switches):
            found.add(settings.topology.paths)
    return found


def _partners(study: Study, lab: Sim) -> Iterator[tuple[Place, str]]:
    """Paths through missing partners, and takeovers of missing controllers or that leave clients without a path."""
    found: dict[tuple[Place, str], None] = {}
    forwards = False
    for treatment in combinations(study, ("protocol", *_OF_PARTNERS, "loss", "port_buffer", "queue_depth")):
        settings = study.settings(treatment)
        assert settings.sim is not None, "a simulated study"
        forwards |= settings.sim.paths_to != "owner"
        found |= dict.fromkeys(_without_partner(study, settings, settings.sim))
    yield from found
    for name in _INTERCONNECT:
        if not forwards and (name in study.levels() or getattr(lab, name) is not None):
            yield place_of(study, name), "nothing crosses the interconnect; say `paths_to: partner` too"


_INTERCONNECT = ("interconnect_rate", "interconnect_delay", "interconnect_cpu")
_OF_PARTNERS = ("paths_to", "takeover", *_INTERCONNECT)


def _without_partner(study: Study, settings: Settings, lab: Sim) -> Iterator[tuple[Place, str]]:
    """Settings that one treatment cannot have."""
    forwards, gone = lab.paths_to != "owner", lab.takeover
    own = "paths_to" in study.setups().get(settings.label, {})
    here = ("factors", "protocol", settings.label, "paths_to") if own else place_of(study, "paths_to")
    if not forwards and gone == "none":
        return
    if lab.controllers % 2:
        reason = "controllers 1 and 2 are partners, 3 and 4, and so on; say `controllers: 2`"
        yield here if forwards else place_of(study, "takeover"), reason
    elif gone != "none" and gone > lab.controllers:
        yield place_of(study, "takeover"), f"there are {lab.controllers} controllers"
    elif gone != "none" and (left := next((c for c in range(1, lab.controllers + 1) if not any(lab.ends(c))), None)):
        alone = f"clients of controller {left} reach it through controller {gone} alone, which is gone"
        yield place_of(study, "takeover"), f"{alone}; {_OTHER_WAY}"
    if not forwards:
        return
    if missing := [f"`{name}:`" for name in _INTERCONNECT if getattr(lab, name) is None]:
        *first, last = missing
        said = f"{', '.join(first)} and {last}" if first else last
        yield here, f"a partner forwards over an interconnect; say your array's {said} too"
    if lab.path_failures is not None:
        yield ("lab", "sim", "path_failures"), "only paths to a volume's owner fail; leave it out, or `paths_to:`"
    if settings.endpoint.protocol not in FIBRE_CHANNEL_FRAMES:
        for name in ("loss", "port_buffer"):
            if getattr(lab, name) is not None:
                yield (
                    place_of(study, name),
                    "only paths to a volume's owner lose segments; leave it out, or `paths_to:`",
                )
    if lab.paths_to == "both" and gone != "none" and lab.controllers > 2 and settings.topology.queue_depth is not None:
        reason = "queues of LUNs are alike on all clients, but those of the lost controller have fewer paths"
        yield place_of(study, "takeover"), f"{reason}; say `controllers: 2`"


_OTHER_WAY = "say `paths_to: both`, or leave the combination out by `exclude:` under design"


def _zones(study: Study, lab: Sim, zones: Mapping[str, Zone]) -> Iterator[tuple[Place, str]]:
    """Zones with unknown members, and clients that see nothing."""
    here = ("lab", "sim", "zones")
    if 0 in values(study, "switches"):
        yield here, "switches keep zones; say `switches: 1` too, or 2"
    counts = {clients or 1 for clients in values(study, "clients")}
    ports = lab.controllers * lab.target_ports
    for name, zone in zones.items():
        for field, numbers, last in (("clients", zone.clients, min(counts)), ("ports", zone.ports, ports)):
            for index, number in enumerate(numbers):
                if number > last:
                    there = f"there are {last}" if last > 1 else "there is 1"
                    yield (*here, name, field, index), f"zone {name} names {field[:-1]} {number}, but {there}"
    paths = _paths(study)
    worlds = [study.settings(treatment).sim for treatment in combinations(study, ("protocol", *_OF_PARTNERS))]
    for clients, world in itertools.product(sorted(counts), worlds):
        assert world is not None, "a simulated study"
        for client in range(1, clients + 1):
            if reason := _unseen(world, zones, paths, client, clients):
                yield here, f"client {client} {reason}"
                return


def _unseen(lab: Sim, zones: Mapping[str, Zone], paths: Set[int], client: int, clients: int) -> str:
    """Why a client does not see a port that it must reach; empty if it does."""
    controller = (client - 1) // -(-clients // lab.controllers) + 1
    shared = {port for zone in zones.values() if client in zone.clients for port in zone.ports}
    for end in filter(None, lab.ends(controller)):
        own = range((end - 1) * lab.target_ports + 1, end * lab.target_ports + 1)
        seen = [port - own[0] for port in own if port in shared]
        if not seen:
            whose = "its controller" if end == controller else f"controller {end}"
            its = f" of {whose}, {own[0]} to {own[-1]}" if len(own) < lab.controllers * lab.target_ports else ""
            return f"shares no zone with a target port{its}"
        if reason := _without_zoned_paths(lab, paths, seen):
            return f"has {reason}"
    return ""


def _without_zoned_paths(lab: Sim, counts: Set[int], seen: Sequence[int]) -> str:
    """For a client that sees only some fabrics, all of whose paths fail. `seen`: fabrics of its controller, from 0."""
    for count in sorted(counts):
        left = {port % count + 1 for port in seen}
        for at, until in _without_paths(lab, left) if len(left) < count else ():
            span = f"from {format_duration(at)}{f' to {format_duration(until)}' if until else ' on'}"
            return f"path {' and '.join(map(str, sorted(left)))} alone, and none is left {span}"
    return ""


def _sim_media(media: MediaModel) -> Iterator[tuple[Place, str]]:
    place = ("lab", "sim", "media")
    for name, reason in impossible(media):
        yield ((*place, name) if name else place), reason
    if (media.cache is None) != (media.data is None):
        said, other = ("cache", "data") if media.data is None else ("data", "cache")
        yield (*place, said), f"what share a cache answers is its size over that of the data; say `{other}:` too"


def _costs(study: Study) -> Iterator[tuple[Place, str]]:
    setups, unread = study.setups(), set()
    for name in study.cost_tables():
        try:
            read_costs(name)
        except CostsError as error:
            unread.add(name)
            own = next((label for label, changes in setups.items() if changes.get("costs") == name), None)
            yield place_of(study, "costs") if own is None else ("factors", "protocol", own, "costs"), str(error)
    asked = {}
    for treatment in combinations(study, ("protocol", "costs")):
        settings = study.settings(treatment)
        assert settings.sim is not None, "a simulated study"
        asked[settings.label, settings.endpoint.protocol, settings.sim.costs] = None
    for label, protocol, name in asked:
        if name in unread or protocol not in SIM or protocol in (told := read_costs(name).protocols):
            continue
        at = ("factors", "protocol", label) if "protocol" in study.levels() else ("connection", "protocol")
        hint = "; `exclude:` under design leaves a combination out" if len(study.cost_tables()) > 1 else ""
        yield at, f"{name} has no costs of {protocol}; it has {', '.join(told)}{hint}"
