"""Rules for each load generator: fio, pgbench, commands of the user's, and iotax's own database."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from iotax.study.database import BUFFERS_MIN, DATABASE_PAGES, LOG_IO_BYTES, buffers_bytes, database_fault
from iotax.study.endpoint import GUEST_DISK, KERNEL_PREFIX
from iotax.study.hosts import CLIENT
from iotax.study.model import Study
from iotax.study.source import Place
from iotax.study.varied import place as _place
from iotax.study.varied import values as _values
from iotax.units import format_size

_OF_DATABASES = ("transactions", "cpu_per_transaction", "disk_iops")
_NO_DATABASE = "only databases have it; say `oltp: {}` under load, or in the vm lab `generator: pgbench`"
_OF_IO = {"iops": "transactions", "cpu_per_io": "cpu_per_transaction"}


def broken_by_generators(study: Study) -> Iterator[tuple[Place, str]]:
    generators = _values(study, "generator")
    yield from _fio(study)
    yield from _command(study)
    if "pgbench" in generators:
        yield from _pgbench(study)
        return
    if study.load.oltp is not None:
        yield from _oltp(study)
        return
    if study.load.transactions is not None and study.lab.vm is not None:
        yield ("load", "transactions"), _NO_DATABASE
    for index, each in enumerate(study.responses):
        if each in _OF_DATABASES:
            yield ("responses", index), _NO_DATABASE
    for index, source in enumerate(study.published):
        if source.response in _OF_DATABASES:
            yield ("published", index, "response"), _NO_DATABASE


def _counts_transactions(study: Study) -> Iterator[tuple[Place, str]]:
    given = "responses" in study.model_fields_set
    for index, each in enumerate(study.responses):
        if each in _OF_IO:
            where: Place = ("responses", index) if given else ("responses",)
            yield where, f"a database counts transactions, not I/Os; say `responses: [{_OF_IO[each]}]` for {each}"
    if study.search is not None:
        yield ("search",), "a search holds rates of I/Os; leave it out"


def counted_only(study: Study) -> Iterator[tuple[Place, str]]:
    """Responses without a ratio: most runs have no slow I/O, and some do not recover in time."""
    stop = study.design.stop
    for word, said in (
        ("slow_ios", "slow_ios is counted, not compared"),
        ("recovery_time", "recovery_time is compared by events, not by runs"),
    ):
        if study.responses[0] == word:
            yield ("responses", 0), f"{said}; name another one first, e.g. longest_gap"
        if stop is not None and stop.response == word:
            yield ("design", "stop", "response"), f"{said}; name another one, e.g. longest_gap"


_OWN_IOS = ("read", "random", "shared", "streams", "outstanding", "durable", "fsync")


def _oltp(study: Study) -> Iterator[tuple[Place, str]]:
    """Settings of iotax's own database."""
    yield from _counts_transactions(study)
    for name in _OWN_IOS:
        if name in study.levels() or name in study.load.model_fields_set:
            yield _place(study, name), "transactions choose their own I/Os, and a client has one; leave it out"
    if max(_values(study, "threads")) > 1:
        yield _place(study, "threads"), "the clients of a database share one thread; say 1, or leave it out"
    if study.design.slices is not None:
        yield ("design", "rounds"), "a slice has no whole checkpoint; say `replicates:`"
    assert study.load.oltp is not None, "a load of transactions"
    if study.load.oltp.checkpoint > min(_values(study, "runtime")):
        yield ("load", "oltp", "checkpoint"), "the window is shorter, so it would have no checkpoint; say less"
    # Hosts share a volume, each with its own database in an equal part.
    sharing = 1 if study.lab.hosts is None else max(each or 1 for each in _values(study, "clients"))
    for size, block in itertools.product(_values(study, "size"), _values(study, "block_size")):
        for working_set in _values(study, "working_set"):
            pages = (working_set or size // sharing) // block
            if not DATABASE_PAGES[0] <= pages <= DATABASE_PAGES[1]:
                place = _place(study, "working_set" if working_set else "size")
                yield place, f"a database has {DATABASE_PAGES[0]} to {DATABASE_PAGES[1]} pages of `block_size:`"
            if buffers_bytes(study.load.oltp, working_set or size // sharing) < BUFFERS_MIN * block:
                yield ("load", "oltp", "memory"), f"buffers hold {BUFFERS_MIN} pages at least; say more"
    if max(_values(study, "block_size")) > LOG_IO_BYTES:
        yield _place(study, "block_size"), f"a page has {format_size(LOG_IO_BYTES)} at most"


def _pgbench(study: Study) -> Iterator[tuple[Place, str]]:
    """Settings of pgbench's database."""
    place = _place(study, "generator")
    if study.lab.name == "loopback":
        yield place, "this machine's kernel may have no initiator; say `lab: vm`, or `oltp: {}` with iotax's own"
    if _values(study, "generator") != ["pgbench"]:
        yield place, "transactions do not compare with I/Os; give pgbench a study of its own"
    yield from _counts_transactions(study)
    for name in ("size", "working_set", "verify"):
        if name in study.levels():
            yield ("factors", name), "the database is laid out once; give it one value"
    if "rate_iops" in study.levels() or study.load.rate_iops is not None:
        if _values(study, "arrivals") != ["poisson"]:
            yield _place(study, "arrivals"), "pgbench's transactions arrive by chance; say `arrivals: poisson`"
        yield from _never_idle(study, "pgbench")
    timed = "runtime" in study.load.model_fields_set or "runtime" in study.levels()
    if study.load.transactions is not None and timed:
        yield _place(study, "runtime"), "the window ends with the last of its transactions; leave one of both out"
    setups = study.setups().values()
    if "attach" in study.levels() or study.topology.attach != "guest" or any("attach" in each for each in setups):
        yield _place(study, "attach"), "the guest itself mounts the database's file system; leave it out"
    targets = {*_values(study, "target"), *(each.get("target", "kernel") for each in setups)}
    if targets != {"kernel"}:
        yield _place(study, "target"), "a database's file system is served by the kernel's targets; leave it out"
    if study.lab.hosts is not None:
        yield from _databases_of_hosts(study)
    elif max(each or 1 for each in _values(study, "clients")) > 1:
        if _values(study, "volumes") != ["per client"]:
            yield (
                _place(study, "clients"),
                "each guest has a database of its own; say `volumes: per client` under volume",
            )
        if study.load.transactions is not None:
            yield _place(study, "clients"), "of several guests each would end at a time of its own; say `runtime:`"
    if fault := database_fault(study.load, study.volume, max(_values(study, "workers"))):
        yield _place(study, "working_set" if study.load.working_set else "size"), fault


def _databases_of_hosts(study: Study) -> Iterator[tuple[Place, str]]:
    """A file system belongs to one host, which has a device or mounts it."""
    assert study.lab.hosts is not None, "a study of hosts"
    yield from _beyond_kernels(study, "PostgreSQL", (KERNEL_PREFIX, GUEST_DISK, "local:/dev/"))
    several = max(each or len(study.lab.hosts.initiator_hosts()) for each in _values(study, "clients")) > 1
    for label, endpoint in study.endpoints().items():
        if several and CLIENT not in endpoint.uri and endpoint.uri.startswith((KERNEL_PREFIX, GUEST_DISK)):
            yield (
                _of_label(study, label),
                f"each host has a database of its own; say {CLIENT} where their volumes differ",
            )


def _never_idle(study: Study, program: str) -> Iterator[tuple[Place, str]]:
    if 0 in _values(study, "rate_iops"):
        yield _place(study, "rate_iops"), f"{program} has no load of 0; leave that to `generator: iotax`"


def _alone_on_hosts(study: Study, program: str) -> Iterator[tuple[Place, str]]:
    """It can load only paths of a host's kernel, and leaves data there that iotax does not know."""
    if len(_values(study, "generator")) > 1:
        yield _place(study, "generator"), f"on hosts each program leaves other data: give {program} a study of its own"
    if True in _values(study, "verify"):
        yield _place(study, "verify"), f"on hosts the data of {program} are not checked; say `verify: false`"
    yield from _beyond_kernels(study, program, (KERNEL_PREFIX, GUEST_DISK, "local:"))


def _beyond_kernels(study: Study, program: str, forms: tuple[str, ...]) -> Iterator[tuple[Place, str]]:
    for label, endpoint in study.endpoints().items():
        if not endpoint.uri.startswith(forms):
            said = f"{program} needs a path of the host's kernel: say kernel:iscsi://…, guest-disk://…, or local:/dev/…"
            yield _of_label(study, label), said


def _of_label(study: Study, label: str) -> Place:
    return ("factors", "protocol", label) if "protocol" in study.factors else _place(study, "protocol")


def _fio(study: Study) -> Iterator[tuple[Place, str]]:
    """Settings of fio in general; the lab checks what this machine's fio can reach."""
    if "fio" not in _values(study, "generator"):
        return
    yield from _never_idle(study, "fio")
    if study.lab.vm is not None:
        if True in _values(study, "verify"):
            said = "fio checks data in a pass of its own, too long for a guest; say `verify: false`"
            yield _place(study, "verify"), said
        if max(each or 1 for each in _values(study, "clients")) > 1:
            yield _place(study, "clients"), "fio runs in one guest; say `workers:` for more of its jobs"
    if study.lab.hosts is not None:
        yield from _alone_on_hosts(study, "fio")
    for name in ("read", "random"):
        if any(percent != int(percent) for percent in _values(study, name)):
            yield _place(study, name), "fio takes whole percents"


_TOLD = ("block_size", "read", "random", "outstanding", "workers", "threads", "rate_iops")
"""Settings of a load that a command hears of by their placeholders alone."""


def _command(study: Study) -> Iterator[tuple[Place, str]]:
    """A command of the user's, which iotax starts and whose result it reads."""
    place, command = _place(study, "generator"), study.load.command
    if "command" not in _values(study, "generator"):
        if command is not None:
            yield ("load", "command"), "it needs `generator: command`"
        return
    if command is None:
        yield place, "say what to start: `command: {run: …, format: …}` under load"
        return
    yield from _never_idle(study, "a command")
    yield from _alone_on_hosts(study, "a command")
    used = set(command.used())
    for name in _TOLD:
        if name not in used and (name in study.levels() or name in study.load.model_fields_set):
            yield (
                _place(study, name),
                f"the command has no {{{name}}}, so this would change nothing; put it into `run:`, or leave this out",
            )
    if study.search is not None and study.search.rate_max is not None and "rate_iops" not in used:
        yield ("search", "rate_max"), "the command has no {rate_iops}, so it cannot hold the rates of a search"
    if "seconds" not in used and ("runtime" not in used or (max(_values(study, "warmup")) and "warmup" not in used)):
        yield (
            ("load", "command", "run"),
            "it has no {seconds}, so it does not know how long to run; put it there, or {warmup} and {runtime}",
        )
