"""Rules between the parts of a study. Each broken rule names its place in the file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address

from iotax.study.endpoint import EMBEDDED, HOSTS, KERNEL, SIM
from iotax.study.honoured import FIELDS, HOSTS_MEMORY, LAID_OUT, not_honoured, not_honoured_of_labels
from iotax.study.hosts import CLIENT, LEVEL, Cluster, Hosts
from iotax.study.media import impossible
from iotax.study.model import MODELLED, Level, Settings, Stream, Study, Vm, factor_names
from iotax.study.precondition import ROUNDS_MIN
from iotax.study.rules_events import broken_in_events
from iotax.study.rules_generators import broken_by_generators, counted_only
from iotax.study.rules_rounds import broken_in_rounds
from iotax.study.rules_sim import broken_in_sim
from iotax.study.source import Place
from iotax.study.topology import ON_HOSTS, Topology, refused, refused_in_loopback, refused_in_sim, refused_on_hosts
from iotax.study.varied import combinations as _combinations
from iotax.study.varied import own_place as _own_place
from iotax.study.varied import place as _place
from iotax.study.varied import values as _values
from iotax.trial import LevelValue
from iotax.units import format_size

CELLS_MAX = 100_000
"""Maximum trials of a study: more would run for weeks, which is surely a mistake."""

FRACTION_FACTORS_MAX = 10
"""With more than ten factors, the search for generators would take too long."""

ZONE_BYTES = 1 << 20
"""Parts of a volume shared by clients start at multiples of it."""

_LABEL = re.compile(r"[A-Za-z0-9._+ -]{1,40}")


def broken_rules(study: Study) -> Iterator[tuple[Place, str]]:
    yield from _lab(study)
    yield from not_honoured(study)
    yield from not_honoured_of_labels(study)
    yield from _topology(study)
    yield from _factors(study)
    yield from _baseline(study)
    yield from _floor(study)
    yield from _volume(study)
    yield from _modelled(study)
    yield from _reduced(study)
    yield from _precondition(study)
    yield from _pacing(study)
    yield from _streams(study)
    yield from _shared(study)
    yield from _durable(study)
    yield from broken_by_generators(study)
    yield from counted_only(study)
    yield from _design(study)
    yield from broken_in_rounds(study)
    yield from broken_in_events(study)
    yield from _search(study)
    yield from _links(study)
    yield from _cells(study)
    yield from published_rules(study)


def _lab(study: Study) -> Iterator[tuple[Place, str]]:
    """The protocols of each lab."""
    name = study.lab.name
    known = {"loopback": EMBEDDED, "vm": KERNEL, "hosts": HOSTS, "sim": SIM}[name]
    for label, endpoint in study.endpoints().items():
        place = ("factors", "protocol", label) if "protocol" in study.levels() else ("connection", "protocol")
        if name == "hosts" and endpoint.embedded and endpoint.protocol == "local":
            yield (
                place,
                "the hosts lab has no volume without a protocol; name a device or file of its initiators",
            )
        elif endpoint.kernel and name != "hosts":
            yield place, "a path of the kernel's own is made on the initiators of `lab: {hosts: …}`"
        elif endpoint.guest_disk and name != "hosts":
            yield place, f"the {name} lab finds no disk by its serial number; the initiators of `lab: {{hosts: …}}` do"
            continue
        elif endpoint.embedded and endpoint.protocol not in known:
            yield place, f"the {name} lab does not serve {endpoint.protocol}; it serves {', '.join(known)}"
        if not endpoint.embedded and study.lab.vm is not None:
            yield place, "the vm lab reaches no endpoint outside; say `lab: loopback`"
        if not endpoint.embedded and not endpoint.kernel and name == "sim":
            yield place, "the sim lab reaches no endpoint outside; say `lab: loopback`"
        if CLIENT in endpoint.uri and name != "hosts":
            yield place, f"{CLIENT} numbers the initiators of `lab: {{hosts: …}}`"
    if study.lab.hosts is not None:
        yield from _hosts(study, study.lab.hosts)
    if study.lab.sim is not None:
        yield from broken_in_sim(study, study.lab.sim)


def _hosts(study: Study, lab: Hosts) -> Iterator[tuple[Place, str]]:
    names = [host.name for host in lab.hosts()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        yield ("lab", "hosts"), f"{twice} is named twice: a host has one part"
    mine = [host.name for host in (*lab.initiator_hosts(), *lab.target_hosts())]
    for index, each in enumerate(lab.hypervisor_hosts()):
        strangers = [name for name in each.guests if name not in mine]
        if each.kind == "esxi" and strangers:
            place = ("lab", "hosts", "hypervisors", index, "guests")
            said = f"{strangers[0]} is not an initiator or target of this lab; name a guest as the inventory does"
            yield place, f"{said}, which are {', '.join(mine)}: their own CPU time is taken off esxtop's"
    embedded = any(endpoint.embedded for endpoint in study.endpoints().values())
    if embedded and not {*_values(study, "media")} <= {"memory", "model"}:
        yield _place(study, "media"), HOSTS_MEMORY
    if embedded and not lab.targets:
        yield ("lab", "hosts"), "an embedded protocol needs a host that serves it; name one under `targets:`"
    elif embedded and not _is_address(lab.target_hosts()[0].data_address or lab.target_hosts()[0].address or ""):
        yield (
            ("lab", "hosts", "targets"),
            "say the IP address on which the first one serves: {name: …, data_address: 10.0.0.5}",
        )
    for level in study.levels().get("clients", (Level("", study.load.clients or 1),)):
        if int(level.value) > len(lab.initiators):
            place = _place(study, "clients")
            yield place, f"{level.value} clients, but the lab has {len(lab.initiators)} initiators"
    yield from _kernels_own(study)
    yield from _seen_on_the_way(study, lab)
    yield from _hooks(study, lab)


def _seen_on_the_way(study: Study, lab: Hosts) -> Iterator[tuple[Place, str]]:
    open_to_all = [
        name
        for name, way in (("cluster", lab.cluster), ("relays", lab.relays))
        if isinstance(way, Cluster) and way.tls is None
    ]
    if not open_to_all:
        return
    reason = f"whoever sees the network would read the secret: over `{open_to_all[0]}:` it takes a scheduler at tls://"
    for name in ("chap", "dhchap"):
        if getattr(study.connection, name) is not None:
            yield ("connection", name), reason
        for label in (label for label, changes in study.setups().items() if name in changes):
            yield ("factors", "protocol", label, name), reason


def _hooks(study: Study, lab: Hosts) -> Iterator[tuple[Place, str]]:
    """Hosts and trials of hooks."""
    names = [host.name for host in lab.hosts()]
    for index, hook in enumerate(lab.hooks):
        place: Place = ("lab", "hosts", "hooks", index)
        if isinstance(hook.host, str) and hook.host not in names:
            others = "say {name: …, address: …} for another"
            yield (*place, "host"), f"the lab has no host {hook.host}; its hosts are {', '.join(names)}; {others}"
        if hook.levels and not hook.at.endswith(("trial", "level")):
            said = "say `at: before level` or `at: before trial`, or leave levels out"
            yield (*place, "levels"), f"{hook.at} is not of one treatment; {said}"
        if not hook.levels and hook.at in LEVEL:
            yield (*place, "levels"), f"{hook.at} needs the levels that it belongs to, such as {{protocol: FC}}"
        yield from _unknown_levels(study, hook.levels, (*place, "levels"))


_INITIATORS_OWN = ("initiator", "uid", "gid", "polling")


def _kernels_own(study: Study) -> Iterator[tuple[Place, str]]:
    """Settings of iotax's own initiators that a host's kernel does not take."""
    endpoints = study.endpoints()
    reason = "the kernel's initiator is as its host configures it; leave it out"
    for label, changes in study.setups().items():
        for name in (each for each in _INITIATORS_OWN if each in changes and endpoints[label].kernel):
            yield ("factors", "protocol", label, name), reason
    if all(endpoint.kernel for endpoint in endpoints.values()):
        for name in _INITIATORS_OWN:
            if name in study.levels() or name in study.connection.model_fields_set:
                yield _place(study, name), reason


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _precondition(study: Study) -> Iterator[tuple[Place, str]]:
    """Only volumes that are not the lab's own keep a state, and nothing may undo it."""
    asked = study.precondition
    if asked is None:
        return
    place: Place = ("precondition",)
    if study.lab.vm is not None:
        yield place, "the vm lab keeps its volume in memory, which has no state to bring about; leave it out"
    elif all(endpoint.embedded for endpoint in study.endpoints().values()):
        yield place, "the lab's own server is new in each run; name the device, file or endpoint to precondition"
    if 0 < asked.rounds_max < ROUNDS_MIN:
        yield (*place, "rounds_max"), f"a steady state is judged over {ROUNDS_MIN} rounds; say so many at least, or 0"
    if study.volume.refill != "never":
        yield ("volume", "refill"), "writing the pattern again undoes the preconditioning; leave it out"
    if "fio" in _values(study, "generator") and True in _values(study, "verify"):
        yield ("load", "verify"), "what fio lays out to verify undoes the preconditioning; say `verify: false`"
    if "pgbench" in _values(study, "generator"):
        yield place, "it would write over PostgreSQL's file system; leave it out"


_DIGESTS = ("header_digest", "data_digest")


def _topology(study: Study) -> Iterator[tuple[Place, str]]:
    """Topologies that a protocol cannot have, for every combination of levels that the design does not omit."""
    if study.lab.hosts is not None:
        yield from _topology_of_hosts(study)
    elif study.lab.vm is None:
        for label, changes in study.setups().items():
            for name in changes:
                if name in Topology.model_fields and (reason := getattr(FIELDS["topology"][name], study.lab.name)):
                    yield ("factors", "protocol", label, name), reason
        if study.lab.sim is not None:
            yield from _by_treatment(study, _refused_in_sim)
        else:
            yield from _by_treatment(study, lambda of: refused_in_loopback(of.endpoint, of.topology))
    else:
        yield from _topology_of_guests(study, study.lab.vm)


def _refused_in_sim(of: Settings) -> Iterator[tuple[str, str]]:
    assert of.sim is not None, "a simulated study"
    yield from refused_in_sim(of.endpoint.protocol, of.topology, of.sim.paths_to)


def _profile(study: Study, vm: Vm) -> Iterator[str]:
    """Limits of the plugin that counts instructions."""
    if vm.clock != "icount":
        yield "a profile counts instructions; say `clock: icount`"
    if study.design.slices is not None:
        yield "a profile is of one window of each trial, not of rounds; leave out `sessions`, `rounds` and `slice`"
    if max(each or 1 for each in _values(study, "clients")) > 1:
        yield "a profile is of one client; leave out `clients`"
    if {*_values(study, "generator")} != {"iotax"}:
        yield "a profile needs the window of iotax's own load generator; say `generator: iotax`"


def _topology_of_guests(study: Study, vm: Vm) -> Iterator[tuple[Place, str]]:
    if vm.profile:
        for reason in _profile(study, vm):
            yield ("lab", "vm", "profile"), reason
    if vm.cpus > 1 and vm.clock == "icount":
        yield ("lab", "vm", "cpus"), "icount counts the instructions of one processor; say `clock: host`"
    paths = [*_values(study, "paths"), *(each["paths"] for each in study.setups().values() if "paths" in each)]
    if max(each or 1 for each in _values(study, "clients")) > 1 and max(paths) > 1:
        reason = "the storage guest has one link to each of several clients; compare paths in a study of its own"
        yield _place(study, "clients"), reason

    if max(each or 1 for each in _values(study, "clients")) == 1 and "per client" in _values(study, "volumes"):
        yield _place(study, "volumes"), "one client has the volume to itself; say `clients: 2` or more under load"

    def of(settings: Settings) -> Iterator[tuple[str, str]]:
        digests = {name: getattr(settings.connection, name) for name in _DIGESTS}
        clients = settings.load.clients or 1
        yield from refused(settings.endpoint.protocol, settings.topology, digests, vm.guests, vm.cpus, clients)
        needed = clients * (settings.load.working_set or ZONE_BYTES)
        if clients > settings.volumes and needed > settings.volume.size:
            said = f"{clients} clients share a volume of {format_size(settings.volume.size)} and need"
            yield "clients", f"{said} {format_size(needed)}; say a larger `size:`, or a smaller `working_set:`"

    yield from _by_treatment(study, of)


def _topology_of_hosts(study: Study) -> Iterator[tuple[Place, str]]:
    for label, changes in study.setups().items():
        for name in (each for each in changes if each in Topology.model_fields and each not in ON_HOSTS):
            yield ("factors", "protocol", label, name), FIELDS["topology"][name].hosts
    yield from _by_treatment(study, lambda settings: refused_on_hosts(settings.endpoint, settings.topology))


def _by_treatment(study: Study, of: Callable[[Settings], Iterator[tuple[str, str]]]) -> Iterator[tuple[Place, str]]:
    """The refusals over all combinations of levels that the design does not omit, each once."""
    told = set()
    for treatment in _combinations(
        study, ("protocol", "clients", "size", "volumes", "working_set", "paths_to", *Topology.model_fields, *_DIGESTS)
    ):
        for name, reason in of(study.settings(treatment)):
            place = _topology_place(study, name, treatment)
            if (place, reason) not in told:
                told.add((place, reason))
                several = name in treatment and len(study.levels()[name]) > 1
                yield place, reason + ("; `exclude:` under design leaves a combination out" if several else "")


def _topology_place(study: Study, name: str, treatment: dict) -> Place:
    """Where the field's value comes from: a setup, a factor or its section."""
    label = str(treatment.get("protocol", ""))
    if name not in treatment and name in study.setups().get(label, {}):
        return ("factors", "protocol", label, name)
    return _place(study, name)


def _factors(study: Study) -> Iterator[tuple[Place, str]]:
    levels = study.levels()
    if not levels:
        yield ("factors",), "empty: name at least one field that varies, such as `protocol: [local, iscsi]`"
    for name, found in levels.items():
        labels = [level.label for level in found]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                yield ("factors", name, index), f"the level {label} is given twice"
            if name == "protocol" and not _LABEL.fullmatch(label):
                yield ("factors", name, label), "a label has letters, digits, dots, dashes and blanks, 40 at most"
        section = study.section(factor_names()[name])
        if name in section.model_fields_set:
            yield _own_place(name), "this is a factor too; leave it out here"
        for label, changes in study.setups().items():
            if name in changes:
                yield ("factors", "protocol", label, name), "this is a factor too; leave it out here"


def _baseline(study: Study) -> Iterator[tuple[Place, str]]:
    if not study.baseline:
        yield ("baseline",), "empty: name the level that counts as 100, such as `protocol: iscsi`"
    yield from _unknown_levels(study, study.baseline, ("baseline",))


def _floor(study: Study) -> Iterator[tuple[Place, str]]:
    if study.floor is None:
        return
    endpoints = study.endpoints() if "protocol" in study.levels() else {}
    if study.floor not in endpoints:
        yield ("floor",), f"not a level of protocol; its levels are {', '.join(endpoints) or 'none'}"
    elif endpoints[study.floor].protocol != "local":
        yield ("floor",), f"{study.floor} is reached over a protocol; a floor is the path of a file or device"


def _volume(study: Study) -> Iterator[tuple[Place, str]]:
    if study.volume.media == "file" and not study.volume.path:
        yield ("volume", "media"), "media: file needs `path:`, the file that holds the volume"
    if study.volume.path and "file" not in _values(study, "media"):
        yield ("volume", "path"), "nothing is kept there; say `media: file` too"
    if study.volume.refill != "never" and "pattern" not in _values(study, "fill"):
        yield ("volume", "refill"), "there is no pattern to restore; say `fill: pattern`"
    for endpoint in study.endpoints().values():
        if endpoint.uri == "" and endpoint.protocol == "local" and "null" in _values(study, "media"):
            yield _place(study, "media"), "a null volume has no bytes that `local` could reach; leave one of them out"
    if "null" in _values(study, "media") and True in _values(study, "verify"):
        yield _place(study, "media"), "a null volume forgets what is written; say `verify: false` under load"
    if "zeros" in _values(study, "fill") and True in _values(study, "verify"):
        yield (
            _place(study, "fill"),
            "a volume without the pattern has nothing to verify; say `verify: false` under load",
        )


def _reduced(study: Study) -> Iterator[tuple[Place, str]]:
    """Reducible data: conditions for the ratios to be those of the data."""
    volume = study.volume
    asked = [name for name in ("compress", "dedupe") if getattr(volume, name) > 1]
    if "dedupe_block" in volume.model_fields_set and "dedupe" not in asked:
        yield ("volume", "dedupe_block"), "no block repeats; say `dedupe:` too"
    if not asked:
        return
    place: Place = ("volume", asked[0])
    writes = {study.settings(treatment).writes for treatment in _combinations(study, ("read", "fill", "streams"))}
    if writes == {False}:
        yield place, "nothing is written; say `fill: pattern`, or leave it out"
    if "fio" in _values(study, "generator") and True in _values(study, "verify"):
        yield place, "what fio verifies, it wrote before with data of its own; say `verify: false` under load"
    if "dedupe" not in asked:
        return
    if study.load.oltp is not None:
        yield place, "a database's pages all differ; leave it out, or say `compress:`"
        return
    if volume.dedupe_block % 512:
        yield ("volume", "dedupe_block"), "no multiple of 512 bytes"
    for treatment in _combinations(study, ("block_size", "streams")):
        for access in study.settings(treatment).load.accesses():
            if access.read < 100 and access.block_size % volume.dedupe_block:
                size, block = format_size(access.block_size), format_size(volume.dedupe_block)
                yield (
                    ("volume", "dedupe_block"),
                    f"writes of {size} are not a multiple of blocks of {block}: storage that compares such blocks "
                    "finds none equal; say less",
                )
                return
    if study.precondition is not None and study.precondition.block_size % volume.dedupe_block:
        yield ("precondition", "block_size"), "no multiple of the blocks that repeat (`dedupe_block:`)"


def _modelled(study: Study) -> Iterator[tuple[Place, str]]:
    """Media modelled in real time, which only the lab's own server has."""
    if "model" not in _values(study, "media"):
        for name in MODELLED:
            if name in study.volume.model_fields_set or name in study.levels():
                yield _place(study, name), "it belongs to media that are a model; say `media: model` too"
        return
    told: dict[tuple[Place, str], None] = {}
    for treatment in _combinations(study, ("media", *MODELLED)):
        media = study.settings(treatment).volume.model
        for name, reason in impossible(media) if media else ():
            told[_place(study, name or "media"), reason] = None
    if study.lab.vm is not None:
        for treatment in _combinations(study, ("protocol", "media", "target", *MODELLED)):
            settings = study.settings(treatment)
            if settings.volume.model and settings.load.generator == "pgbench":
                told[_place(study, "media"), LAID_OUT] = None
            elif settings.volume.model and settings.topology.target != "iotax":
                reason = "only iotax's own target has media that are a model; say `target: iotax` under topology"
                told[_place(study, "media"), reason] = None
    yield from told
    for endpoint in study.endpoints().values():
        if endpoint.uri == "" and endpoint.protocol == "local":
            yield _place(study, "media"), "`local` reaches the memory below the model; leave one of them out"


def _pacing(study: Study) -> Iterator[tuple[Place, str]]:
    open_loop = any(rate is not None for rate in _values(study, "rate_iops"))
    given = study.load.model_fields_set | set(study.levels())
    # pgbench's clients have one transaction each in flight and count those that wait.
    if open_loop and "outstanding" not in given and _values(study, "generator") != ["pgbench"]:
        yield (
            _place(study, "rate_iops"),
            "an open loop needs `outstanding:` under load, the most in flight for each worker, such as 64: "
            "what finds no slot waits, and its wait counts",
        )
    for name in ("arrivals", "backlog"):
        if name in given and not open_loop and not (study.search and study.search.rate_max):
            yield _place(study, name), "means something in an open loop only; say `rate_iops:` too"


def _streams(study: Study) -> Iterator[tuple[Place, str]]:
    patterns = study.factors.streams or ({"": study.load.streams} if study.load.streams else {})
    for label, streams in patterns.items():
        place = ("factors", "streams", label) if label else ("load", "streams")
        if label and not _LABEL.fullmatch(label):
            yield place, "a label has letters, digits, dots, dashes and blanks, 40 at most"
        fewest = min(_values(study, "workers"))
        if fewest < len(streams):
            yield place, f"{len(streams)} streams need a worker each; say `workers: {len(streams)}` or more"
        yield from _shares(streams, place)
        for name, stream in streams.items():
            for block, size in itertools.product([stream.block_size or 512], _values(study, "size")):
                if block % 512 or size % block:
                    yield (
                        (*place, name, "block_size"),
                        f"{format_size(block)} is not a multiple of 512 bytes, "
                        f"or the volume's {format_size(size)} is not a multiple of it",
                    )


def _shared(study: Study) -> Iterator[tuple[Place, str]]:
    """A sequence shared by workers has no random part."""
    reason = "workers share a sequential stream; say `random: 0%` with it"
    patterns = study.factors.streams or ({"": study.load.streams} if study.load.streams else {})
    if not patterns and True in _values(study, "shared") and max(_values(study, "random")) > 0:
        yield _place(study, "random"), reason
    for label, streams in patterns.items():
        place: Place = ("factors", "streams", label) if label else ("load", "streams")
        for name, stream in streams.items():
            shared = [stream.shared] if stream.shared is not None else _values(study, "shared")
            random = [stream.random] if stream.random is not None else _values(study, "random")
            if True in shared and max(random) > 0:
                yield (*place, name, "random"), reason


def _durable(study: Study) -> Iterator[tuple[Place, str]]:
    """Only a load that writes can write durably, or flush."""
    patterns = study.factors.streams or ({"": study.load.streams} if study.load.streams else {})
    reads = [(read,) for read in _values(study, "read")]
    if patterns:
        own = _values(study, "read")
        reads = [tuple(min(own) if each.read is None else each.read for each in s.values()) for s in patterns.values()]
    if (
        all(min(each) < 100 for each in reads)
        or study.load.oltp is not None
        or "pgbench" in _values(study, "generator")
    ):
        return
    for name in ("durable", "fsync"):
        if any(_values(study, name)):
            yield (
                _place(study, name),
                "a load that only reads makes nothing durable; say `read:` below 100%, or leave it out",
            )


def _shares(streams: Mapping[str, Stream], place: Place) -> Iterator[tuple[Place, str]]:
    """Weights are relative to each other, so 70% beside 0.3, or beside a stream without a share, is a mistake."""
    shares = {name: stream.share for name, stream in streams.items() if "share" in stream.model_fields_set}
    silent = [name for name in streams if name not in shares]
    if shares and silent:
        yield (*place, silent[0]), "has no `share:`, while others have; give every stream one, or none"
    fractions = [name for name, share in shares.items() if share < 1]
    if fractions and any(share > 1 for share in shares.values()):
        yield (
            (*place, fractions[0], "share"),
            f"{shares[fractions[0]]:g} beside shares above 1: give all of them in percent, or all as fractions of 1",
        )


def _design(study: Study) -> Iterator[tuple[Place, str]]:
    design, levels = study.design, study.levels()
    for index, name in enumerate(design.hard_to_change):
        if name not in levels:
            yield ("design", "hard_to_change", index), f"{name} is not a factor of this study: {', '.join(levels)}"
    if design.hard_to_change and set(design.hard_to_change) >= set(levels):
        yield ("design", "hard_to_change"), "every factor is named: then none is left to vary within a whole plot"
    if design.fraction != "1" and design.runs is not None:
        yield ("design", "runs"), "a design is fractional or D-optimal; leave `fraction` or `runs` out"
    if design.fraction != "1":
        if design.exclude:
            yield ("design", "exclude"), "a fraction has no room for exclusions; say `runs:` for a D-optimal design"
        if odd := [name for name, found in levels.items() if len(found) != 2]:
            yield ("design", "fraction"), f"a fraction needs factors of two levels; {', '.join(odd)} has others"
        elif not 3 <= len(levels) <= FRACTION_FACTORS_MAX:
            yield (
                ("design", "fraction"),
                f"a fraction needs 3 to {FRACTION_FACTORS_MAX} factors, here are {len(levels)}",
            )
        elif 2 ** len(levels) // int(design.fraction[2:]) <= len(levels):
            yield ("design", "fraction"), f"too few runs to estimate {len(levels)} main effects; use a larger fraction"
    for index, combination in enumerate(design.exclude):
        for name, value in combination.items():
            if name not in levels:
                yield ("design", "exclude", index, name), f"not a factor of this study: {', '.join(levels)}"
            elif study.level(name, value) is None:
                labels = [level.label for level in levels[name]]
                yield ("design", "exclude", index, name), f"{value} is not a level; {name} has {', '.join(labels)}"
    if design.stop and design.stop.at_least > design.replicates:
        yield ("design", "stop", "at_least"), f"more than the {design.replicates} replicates there are at most"
    if design.stop and design.blocks != "replicate":
        yield ("design", "stop"), "needs `blocks: replicate`: the rule is asked after each complete block"


def _search(study: Study) -> Iterator[tuple[Place, str]]:
    search, levels = study.search, study.levels()
    if search is None:
        return
    if search.latency_max == 0:
        yield ("search", "latency_max"), "must be more than 0"
    if search.rate_max is None:
        if not {"workers", "outstanding"} & set(levels):
            yield ("search",), "needs `rate_max:`, or factors `workers` or `outstanding` to choose from"
        return
    if search.rate_min >= search.rate_max:
        yield ("search", "rate_min"), "not below rate_max"
    if "rate_iops" in levels or study.load.rate_iops is not None:
        yield _place(study, "rate_iops"), "the search sets the rate; leave it out"
    if "outstanding" not in study.load.model_fields_set and "outstanding" not in levels:
        yield ("search", "rate_max"), "needs `outstanding:` under load, the most in flight for each worker, such as 64"
    if study.design.stop or study.design.sentinels:
        yield ("design",), "a search for the knee has no replicates to stop at and no place for sentinels"


def _links(study: Study) -> Iterator[tuple[Place, str]]:
    for label in study.links:
        if label not in (labels := [level.label for level in study.levels().get("protocol", ())]):
            yield ("links", label), f"not a level of protocol; its levels are {', '.join(labels) or 'none'}"


def _cells(study: Study) -> Iterator[tuple[Place, str]]:
    """Rules between fields that may be factors, checked for every pair of their levels."""
    for block, size in itertools.product(_values(study, "block_size"), _values(study, "size")):
        if block % 512:
            yield _place(study, "block_size"), f"{format_size(block)} is not a multiple of 512 bytes"
        if size % block:
            yield _place(study, "size"), f"{format_size(size)} is not a multiple of the block size {format_size(block)}"
    for working_set, size in itertools.product(_values(study, "working_set"), _values(study, "size")):
        embedded = any(endpoint.embedded for endpoint in study.endpoints().values())
        if working_set is not None and embedded and working_set > size:
            yield (
                _place(study, "working_set"),
                f"the working set ({format_size(working_set)}) is larger than the volume ({format_size(size)})",
            )
    yield from _room(study)
    for threads, workers in itertools.product(_values(study, "threads"), _values(study, "workers")):
        if threads > workers:
            yield (
                _place(study, "threads"),
                f"{threads} threads cannot share {workers} workers; at most one for each worker",
            )
    if any(runtime == 0 for runtime in _values(study, "runtime")):
        yield _place(study, "runtime"), "nothing can be measured in no time"
    cells = study.design.replicates
    for found in study.levels().values():
        cells *= len(found)
    if cells > CELLS_MAX:
        yield ("factors",), f"{cells} trials are more than {CELLS_MAX}; leave out levels or replicates"


def _room(study: Study) -> Iterator[tuple[Place, str]]:
    """Every I/O in flight has its own place in the working set."""
    names = ("workers", "outstanding", "block_size")
    most = 1
    for name in names:
        most *= max(_values(study, name))
    for size in _values(study, "size"):
        least = min(working_set or size for working_set in _values(study, "working_set"))
        if most > least:
            yield (
                _place(study, "working_set" if study.load.working_set else "size"),
                f"{format_size(least)} cannot hold all I/Os in flight at once: {' × '.join(names)} "
                f"is {format_size(most)}",
            )


def published_rules(study: Study) -> Iterator[tuple[Place, str]]:
    """A published figure belongs to a treatment that the study has."""
    for at, published in enumerate(study.published):
        base = study.baseline if published.baseline is None else published.baseline
        if published.baseline is not None:
            yield from _unknown_levels(study, published.baseline, ("published", at, "baseline"))
        for index, figure in enumerate(published.figures):
            place: Place = ("published", at, "figures", index)
            yield from _unknown_levels(study, figure.of, (*place, "of"))
            if figure.relative is None and figure.absolute is None:
                yield place, "says nothing: give `relative:` (the baseline is 100), `absolute:`, or both"
            if figure.relative is None or not base:
                continue
            if not set(base) & set(figure.of):
                yield (
                    (*place, "of"),
                    f"a relative figure needs a level of {' or '.join(base)}, of which the baseline names one",
                )
            elif figure.relative != (100, 100) and all(
                name not in figure.of or _same_level(study, name, figure.of[name], value)
                for name, value in base.items()
            ):
                yield (*place, "relative"), "this treatment is the baseline itself, which is 100"


def _unknown_levels(study: Study, treatment: dict, place: Place) -> Iterator[tuple[Place, str]]:
    levels = study.levels()
    for name, value in treatment.items():
        if name not in levels:
            yield (*place, name), f"not a factor of this study; its factors are {', '.join(levels)}"
        elif study.level(name, value) is None:
            labels = [level.label for level in levels[name]]
            yield (*place, name), f"{value} is not a level of {name}; its levels are {', '.join(labels)}"


def _same_level(study: Study, name: str, one: LevelValue, other: LevelValue) -> bool:
    found = study.level(name, one)
    return found is not None and found == study.level(name, other)
