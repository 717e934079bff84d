"""The topology of a trial: told to the guests, looked for in what their kernels say; and how its paths are used."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from iotax.labs.generators import generator_of
from iotax.labs.server import volume_document
from iotax.labs.vm.image import own_target
from iotax.labs.vm.kernel import is_commit, is_folder, release_in
from iotax.labs.vm.packages import STOCK
from iotax.labs.vm.tree import commit_of
from iotax.protocols import of_family
from iotax.study import Settings
from iotax.study.fields import kind_of
from iotax.study.model import format_level
from iotax.study.topology import Topology
from iotax.trial import Paths, PathUse
from iotax.units import parse_bit_rate, parse_duration

_DIGESTS = ("header_digest", "data_digest")
_SEEN = {"target": "on the target's port", "target_kernel": "in the storage guest"}
_KERNELS = ("kernel", "target_kernel")
_DURATIONS = ("link_delay", "keep_alive", "replacement_timeout", "reconnect_delay", "timeo")
_ROUNDED = 0.01
_EVEN = ("round-robin",)
"""Policies that promise every path an equal share."""


def environment(settings: Settings, guests: int) -> str:
    """Settings of the links and the connection, as the guests' scripts read them."""
    topology, connection = settings.topology, settings.connection
    digest = {"iscsi": "CRC32C"}.get(settings.endpoint.protocol, "1")
    words = [
        f"MTU={topology.mtu}",
        f"NCONNECT={topology.nconnect}",
        f"IO_QUEUES={topology.io_queues}",
        f"PATHS={topology.paths}",
        f"PATH_POLICY={topology.path_policy or ''}",
        f"ENCRYPTION={topology.encryption if topology.encryption != 'none' else ''}",
        f"LINK_RATE={topology.link_rate or ''}",
        f"LINK_DELAY={topology.link_delay // 1000 or ''}",  # in µs, as fine as netem goes
        f"HEADER_DIGEST={digest if connection.header_digest else ''}",
        f"DATA_DIGEST={digest if connection.data_digest else ''}",
        f"KEEP_ALIVE={_seconds(topology.keep_alive)}",
        f"REPLACEMENT_TIMEOUT={_seconds(topology.replacement_timeout)}",
        f"RECONNECT_DELAY={_seconds(topology.reconnect_delay)}",
        f"TIMEO={'' if topology.timeo is None else topology.timeo // 100_000_000}",  # in tenths of a second
        f"ATTACH={topology.attach if topology.attach != 'guest' else ''}",
        f"AIO={topology.aio}",
        f"DISK_CACHE={topology.disk_cache}",
        f"DISK_QUEUES={topology.disk_queues or ''}",
        f"IOTHREAD={1 if topology.iothread else ''}",  # no script reads it, but another value is another path
        f"SERVER={kind_of(topology.target) if topology.target != 'kernel' else ''}",
        f"SERVER_PROGRAM={own_target(Path(topology.target)) if '/' in topology.target else ''}",
        f"ONE_GUEST={1 if guests == 1 else ''}",
        f"FILE_SYSTEM={1 if generator_of(settings).database else ''}",
        f"CLIENTS={settings.load.clients or 1}",
        f"VOLUMES={settings.volumes}",
        f"MODELLED='{json.dumps(volume_document(settings.volume)) if settings.volume.model else ''}'",
    ]
    return "".join(f"{word}; " for word in words)


def _seconds(duration_ns: int | None) -> str:
    return "" if duration_ns is None else str(duration_ns // 1_000_000_000)


def of_clients(environment: str, clients: int) -> list[str]:
    """The same for each of so many initiators."""
    return [environment] if clients == 1 else [f"{environment}CLIENT={number}; " for number in range(clients)]


def facts_of(lines: Iterable[str]) -> dict[str, str]:
    """`FACT NAME=VALUE` of a guest, the values as a study would write them."""
    found = {}
    for line in lines:
        if line.startswith("FACT "):
            name, _, value = line.removeprefix("FACT ").partition("=")
            found[name] = {"0": "off", "1": "on"}.get(value, value) if name in _DIGESTS else value
    return found


_QEMUS = ("attach", "iothread")
"""What no kernel reports: QEMU refuses what it cannot do."""


OF_A_DISK = ("disk_queues",)
"""What a guest sees of a disk that the hypervisor attaches."""


def mismatches(settings: Settings, facts: dict[str, str], only: Collection[str] | None = None) -> list[str]:
    """What was asked for and the guests' kernels do not have. A default that they do not report does not matter.
    `only`: the names that count; all, when not given."""
    asked = {name: getattr(settings.topology, name) for name in Topology.model_fields if name not in _QEMUS}
    asked["target"] = kind_of(settings.topology.target)
    asked |= {name: getattr(settings.connection, name) for name in _DIGESTS}
    if "target_kernel" in facts:
        asked["target_kernel"] = settings.topology.kernels.storage
    default = {name: field.default for name, field in Topology.model_fields.items()}
    return [
        f"{name} is {facts.get(name, 'not to be found')}{_read(name, facts)} {_SEEN.get(name, 'in the initiator')}, "
        f"{format_level(name, value)} was asked for"
        for name, value in asked.items()
        if (only is None or name in only)
        and (name in facts or value != default.get(name, False))
        and not _same(name, value, facts.get(name, ""))
    ]


def _read(name: str, facts: dict[str, str]) -> str:
    """How the guest came to say so, if it tells."""
    read = facts.get(f"{name}_read")
    return f" ({read})" if read else ""


def _same(name: str, asked: Any, found: str) -> bool:
    """The kernel keeps rates and delays in units of its own."""
    if name in _KERNELS:
        if is_commit(asked):
            return found.endswith(f"-{commit_of(asked).short}")
        if is_folder(asked):
            return found == release_in(Path(asked))
        return asked == STOCK or re.match(rf"{re.escape(asked)}(?!\d)", found) is not None
    parse = {"link_rate": parse_bit_rate}.get(name, parse_duration if name in _DURATIONS else None)
    if parse is None:
        return format_level(name, asked) == found
    return bool(found) and math.isclose(parse(found), asked or 0, rel_tol=_ROUNDED)


def path_uses(lines: Iterable[str]) -> dict[str, PathUse]:
    """`PATH NAME IOS BYTES` of a guest, in its order."""
    found = {}
    for line in lines:
        if matched := re.fullmatch(r"PATH (\S+) (\d+) (\d+)", line):
            found[matched[1]] = PathUse(name=matched[1], ios=int(matched[2]), bytes=int(matched[3]))
    return found


def paths_used(settings: Settings, before: dict[str, PathUse], after: dict[str, PathUse]) -> Paths | None:
    """What went over each path in between; None where there was but one."""
    if len(after) < 2:
        return None
    # The Linux RPC client deals requests to the connections of a mount in turn.
    policy = "round-robin" if settings.endpoint.protocol in of_family("nfs") else settings.topology.path_policy or ""
    none = PathUse(name="", ios=0, bytes=0)
    used = [
        use.model_copy(
            update={
                "ios": use.ios - before.get(name, none).ios,
                "bytes": use.bytes - before.get(name, none).bytes,
            }
        )
        for name, use in after.items()
    ]
    return Paths(policy=policy, even=policy in _EVEN, used=used)
