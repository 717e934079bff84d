"""How fast this machine's initiator is on iotax's own target: the study's loads, each for a moment, on a small volume
in memory. The target shares the processors with the initiator, so each rate is a lower bound of what the initiator can
do. The study's own targets are not touched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iotax.labs.base import CheckItem, Progress, Step, TrialFailed
from iotax.labs.held import Holdings
from iotax.labs.load import run_document, run_load
from iotax.labs.server import Server, Servers, serve_document
from iotax.study import Settings
from iotax.study.connection import CREDENTIALS
from iotax.study.endpoint import EMBEDDED, Endpoint
from iotax.study.model import Load
from iotax.units import counted, format_percent, format_size, show_minutes, show_rate

LOADS_MAX = 8
"""Loads measured at once: with starting and connecting, about 10 s."""
LOAD_NS = 1_200_000_000
"""What each takes, about."""
_WARMUP_NS = 250_000_000
_RUNTIME_NS = 750_000_000
_VOLUME_BYTES = 64 << 20
_VOLUME_BYTES_MAX = 1 << 30
_UNLIMITED = {"rate_iops": None, "arrivals": "constant", "backlog": Load().backlog}
_SUBJECT = "initiator"


@dataclass(frozen=True)
class Reached:
    """The rates of one load on iotax's own target."""

    rate_iops: float
    rate_bytes_per_s: float


@dataclass
class OwnTarget:
    """What came of a measurement, by settings of `on_own_target`."""

    reached: list[tuple[Settings, Reached]] = field(default_factory=list)
    failed: list[tuple[Settings, str]] = field(default_factory=list)
    left_out: int = 0
    """Loads beyond the number that was allowed."""

    def of(self, settings: Settings) -> Reached | None:
        """For the settings of a treatment; None if its load was not measured."""
        asked = on_own_target(settings)
        return next((found for own, found in self.reached if own == asked), None)


def on_own_target(settings: Settings) -> Settings | None:
    """The same load as fast as it can on iotax's own target; None if a load is not iotax's, is not made of I/Os, or
    does not go over a network to a target that iotax did not start."""
    endpoint, load = settings.endpoint, settings.load
    if endpoint.embedded or endpoint.kernel or endpoint.protocol not in EMBEDDED or endpoint.protocol == "local":
        return None
    if load.generator != "iotax" or load.database or load.rate_iops == 0:
        return None
    in_flight_bytes = load.workers * load.outstanding * max(each.block_size for each in load.accesses())
    size_bytes = min(settings.working_set_bytes, max(_VOLUME_BYTES, min(in_flight_bytes, _VOLUME_BYTES_MAX)))
    moment = {"working_set": None, "warmup": _WARMUP_NS, "runtime": _RUNTIME_NS}
    return Settings(
        load=load.model_copy(update=_UNLIMITED | moment),
        volume=settings.volume.model_copy(update={"size": size_bytes, "refill": "never"}),
        connection=settings.connection.model_copy(update={"protocol": None, **dict.fromkeys(CREDENTIALS)}),
        endpoint=Endpoint(endpoint.protocol),
        topology=settings.topology,
    )


def measure(
    program: Path,
    asked: Iterable[Settings],
    progress: Progress,
    *,
    driver: str,
    load_cpus: Sequence[int],
    serve_cpus: Sequence[int],
    loads_max: int,
) -> OwnTarget:
    """Measures each load of these treatments once, at most `loads_max`, but one of each protocol: first those with the
    most outstanding I/Os, and of these the smallest and the largest blocks. A load that fails is not an obstacle to
    others."""
    distinct: list[Settings] = []
    for each in map(on_own_target, asked):
        if each is not None and each not in distinct:
            distinct.append(each)
    protocols = {each.endpoint.protocol for each in distinct}
    chosen = _extremes(distinct)[: max(loads_max, len(protocols))]
    found = OwnTarget(left_out=len(distinct) - len(chosen))
    # As many threads as the load has: the target should not be the slower end for want of them.
    threads = max((each.load.threads for each in chosen), default=1)

    def start(settings: Settings, *, cpus: list[int], expect: object, destroy: bool) -> Server:
        del expect, destroy  # of file volumes
        polling = settings.connection.polling
        document = serve_document(settings.volume, driver=driver, threads=threads, cpus=cpus, polling=polling)
        return Server(program, settings.volume, document)

    if chosen:
        takes = show_minutes(len(chosen) * LOAD_NS / 1e9)
        progress(Step(f"measuring the initiator on iotax's own target, about {takes}"))
    # Servers are few if those with equal volumes follow each other.
    chosen.sort(key=lambda each: (each.volume.size, each.connection.polling))
    with contextlib.closing(Servers(start, Holdings(), lambda _: False, together=False)) as servers:
        for settings in chosen:
            try:
                server = servers.serve(settings, list(serve_cpus)[:threads])
                document = run_document(
                    settings,
                    server.endpoint(settings.endpoint.protocol),
                    seed=1,
                    driver=driver,
                    cpus=list(load_cpus)[: settings.load.threads],
                    watch_pids={},
                )
                result = run_load(program, document, lambda _: None).result
                found.reached.append((settings, Reached(result.rate_iops, result.rate_bytes_per_s)))
            except TrialFailed as failed:
                found.failed.append((settings, failed.reason))
    return found


def _extremes(distinct: list[Settings]) -> list[Settings]:
    """The protocols in turns, each with its most telling loads first."""
    blocks = _from_both_ends(sorted({_block_bytes(each) for each in distinct}))
    by_protocol: dict[str, list[Settings]] = {}
    for each in sorted(distinct, key=lambda each: (-_outstanding(each), blocks.index(_block_bytes(each)))):
        by_protocol.setdefault(each.endpoint.protocol, []).append(each)
    ranked = [(rank, each) for own in by_protocol.values() for rank, each in enumerate(own)]
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def _from_both_ends(values: Sequence[int]) -> list[int]:
    return [values[at // 2] if at % 2 == 0 else values[-1 - at // 2] for at in range(len(values))]


def _block_bytes(settings: Settings) -> int:
    return max(each.block_size for each in settings.load.accesses())


def _outstanding(settings: Settings) -> int:
    return settings.load.workers * settings.load.outstanding


def explained(found: OwnTarget) -> list[CheckItem]:
    """The measurement as findings of a check."""
    items = [
        CheckItem(
            "ok",
            _SUBJECT,
            f"{_said(settings)}: {show_rate(each.rate_iops)} IOPS, {each.rate_bytes_per_s / 1e6:.0f} MB/s",
        )
        for settings, each in found.reached
    ]
    items += [
        CheckItem("warning", _SUBJECT, f"{_said(settings)}: not measured: {why}") for settings, why in found.failed
    ]
    if found.left_out:
        items.append(
            CheckItem(
                "warning",
                _SUBJECT,
                f"{counted(found.left_out, 'load')} left out to save time: loads with the most outstanding I/Os come "
                "first, and of these the smallest and largest blocks",
            )
        )
    if found.reached:
        items.append(
            CheckItem(
                "ok",
                _SUBJECT,
                "these are rates on iotax's own target on this machine: a lower bound, as both share its processors; "
                "no network card takes part. If your target comes near them, the initiator may be the bottleneck",
            )
        )
    return items or [
        CheckItem(
            "warning",
            _SUBJECT,
            "not measured: this study has no external target that iotax's own initiator reaches",
        )
    ]


def _said(settings: Settings) -> str:
    """ "nvme-tcp, 4KiB random reads, 2 workers × 16 outstanding, data digest"."""
    load = settings.load
    words = [settings.endpoint.protocol, ", ".join(_accesses(load))]
    workers = f"{load.workers} workers × " if load.workers > 1 else ""
    words.append(f"{workers}{load.outstanding} outstanding")
    return ", ".join([*words, *_more(settings)])


def _accesses(load: Load) -> Iterator[str]:
    """ "4KiB random reads", "64KiB 70% reads, 30% random"."""
    for each in load.accesses():
        kinds = {100: "reads", 0: "writes"}
        kind = kinds.get(each.read, f"{format_percent(each.read)} reads")
        order = {100: "random", 0: "sequential"}.get(each.random)
        size = format_size(each.block_size)
        yield (
            f"{size} {order} {kind}"
            if order and each.read in kinds
            else f"{size} {kind}, {order or format_percent(each.random) + ' random'}"
        )


def _more(settings: Settings) -> Iterator[str]:
    """Other settings by which loads may differ, where they are not the usual ones."""
    load, connection = settings.load, settings.connection
    if load.threads > 1:
        yield f"{load.threads} threads"
    if load.durable:
        yield "durable"
    if load.fsync:
        yield f"fsync after {load.fsync}"
    if not load.verify:
        yield "unverified"
    if connection.polling != "never":
        yield f"polling {connection.polling}"
    for name in ("header_digest", "data_digest"):
        if getattr(connection, name):
            yield name.replace("_", " ")
