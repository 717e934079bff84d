"""A lab honours or refuses each field of a study; it ignores none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from iotax.labs.generators.base import HostJob
from iotax.labs.generators.command.generator import COMMAND
from iotax.labs.generators.fio.job import Target, run_job
from iotax.labs.generators.pgbench import client_options, server_options
from iotax.labs.load import run_document
from iotax.labs.server import serve_document
from iotax.labs.sim.lab import simulate_document
from iotax.labs.vm.database import window
from iotax.labs.vm.topology import environment
from iotax.study import Settings, Study
from iotax.study.command import PLACEHOLDERS
from iotax.study.database import scale
from iotax.study.honoured import FIELDS
from iotax.study.model import LABS, SECTIONS
from iotax.study.rules import broken_rules

SAMPLES: dict[str, Any] = {
    "block_size": "8KiB", "read": "50%", "random": "50%", "outstanding": 2, "workers": 2, "threads": 2,
    "shared": True,
    "oltp": {"checkpoint": "200ms"},
    "working_set": "512KiB", "warmup": "2s", "runtime": "3s", "verify": False, "rate_iops": 100, "arrivals": "poisson",
    "backlog": 7, "streams": {"a": {"read": "25%"}}, "generator": "fio", "size": "2MiB", "media": "file",
    "path": "/srv/volume", "fill": "zeros", "refill": "trial", "delay": "1ms", "burn": "1ms", "protocol": "iscsi",
    "initiator": "iqn.2000-01.x:me", "header_digest": True, "data_digest": True, "polling": "auto",
    "chap": {"user": "me", "secret_env": "S"}, "dhchap": {"secret_env": "S"}, "mtu": 9000, "link_rate": "100Mbit",
    "link_delay": "1ms", "paths": 2, "path_policy": "round-robin", "nconnect": 2, "io_queues": 2,
    "queue_depth": 64, "attach": "nvme", "uid": 7, "gid": 7, "clients": 2, "target": "iotax", "kernel": "6.12",
    "target_kernel": "6.12", "aio": "threads", "disk_cache": "writeback", "disk_queues": 1, "iothread": True,
    "servers": 4, "service": "1ms", "distribution": "exponential", "seek": "5ms", "rpm": 7200, "cache": "64KiB",
    "destage": "25%", "parity": 1, "raid_group": 2, "volumes": "per client", "transactions": 100,
    "compress": 2, "dedupe": "3:1", "dedupe_block": "512B",
    "durable": True, "fsync": 8, "profile": True, "encryption": "ipsec",
    "keep_alive": "5s", "replacement_timeout": "20s", "reconnect_delay": "5s", "timeo": "2s", "path_retry": "at-once",
    "command": {"run": "x {device} {seconds}", "format": "fio"},
    "p99": "4ms", "service_times": ["1ms", "3ms"], "collect": "5ms", "collect_every": "64KiB",
}  # fmt: skip
"""For each field a value that is not its default."""

OPEN = {"rate_iops": 100, "outstanding": 4}
BESIDE: dict[str, dict[str, dict[str, Any]]] = {
    "backlog": {"load": OPEN},
    "arrivals": {"load": OPEN},
    "rate_iops": {"load": {"outstanding": 4}},
    "threads": {"load": {"workers": 2}},
    "media": {"volume": {"path": "/srv/volume"}},
    "path": {"volume": {"media": "file"}},
    "fill": {"load": {"verify": False}},
    "path_policy": {"topology": {"paths": 2}},
    "path_retry": {"topology": {"paths": 2, "path_policy": "fixed"}},
    "aio": {"topology": {"attach": "vduse"}},
    "disk_cache": {"topology": {"attach": "vduse", "aio": "threads"}},
    "disk_queues": {"topology": {"attach": "vduse"}},
    "iothread": {"topology": {"attach": "virtio-blk"}},
    "volumes": {"load": {"clients": 2}},
    "transactions": {"load": {"generator": "pgbench"}},
    "oltp": {"volume": {"size": "16MiB"}},
    "command": {"load": {"generator": "command", "verify": False}},
    "shared": {"load": {"random": "0%"}},
    "durable": {"load": {"read": "50%"}},
    "fsync": {"load": {"read": "50%"}},
    "servers": {"volume": {"media": "model", "service": "2ms"}},
    "service": {"volume": {"media": "model"}},
    "distribution": {"volume": {"media": "model", "service": "2ms"}},
    "p99": {"volume": {"media": "model", "service": "2ms", "distribution": "lognormal"}},
    "service_times": {"volume": {"media": "model"}},
    "collect": {"volume": {"media": "model", "service": "2ms", "collect_every": "64KiB"}},
    "collect_every": {"volume": {"media": "model", "service": "2ms", "collect": "5ms"}},
    "dedupe_block": {"volume": {"dedupe": 3}},
    "seek": {"volume": {"media": "model", "rpm": 15000}},
    "rpm": {"volume": {"media": "model", "seek": "3ms"}},
    "cache": {"volume": {"media": "model", "seek": "3ms", "rpm": 15000}},
    "destage": {"volume": {"media": "model", "seek": "3ms", "rpm": 15000}},
    "parity": {"volume": {"media": "model", "seek": "3ms", "rpm": 15000, "servers": 4}},
    "raid_group": {"volume": {"media": "model", "seek": "3ms", "rpm": 15000, "servers": 4, "parity": 1}},
}
"""Other settings that a field requires."""

WHERE: dict[str, tuple[str, Any]] = {
    "loopback": ("loopback", ["iscsi", "nvme-tcp"]),
    "vm": ("vm", ["nvme-tcp", "iscsi"]),
    "endpoint": ("loopback", {"a": "iscsi://h/iqn.2000-01.x:y/0", "b": "nvme-tcp://h/nqn.2000-01.x:y?ns=1"}),
    "fio": ("loopback", ["iscsi", "local"]),
    "hosts": (
        {"hosts": {"initiators": ["h1", "h2"], "targets": [{"name": "t", "address": "10.0.0.5"}]}},
        ["iscsi", "nvme-tcp"],
    ),
    "sim": ("sim", ["iscsi", "nvme-tcp"]),
    "pgbench": ("vm", ["nvme-tcp", "iscsi"]),
    "command": ({"hosts": {"initiators": ["h1", "h2"]}}, {"a": "kernel:nfs://h/export/file"}),
}

OF_NFS = ("uid", "gid")
WHERE_NFS: dict[str, Any] = {
    "loopback": ["nfs3", "local"],
    "vm": ["nfs3", "nfs4.1"],
    "endpoint": {"a": "nfs://h/export/file", "b": "nfs://h/export/other"},
    "fio": ["nfs3", "local"],
    "hosts": ["nfs3", "iscsi"],
    "sim": ["nfs3", "iscsi"],
    "pgbench": ["nfs3", "nfs4.1"],
}
"""Levels of `protocol` for fields that only NFS has."""
_NVME = "kernel:nvme-tcp://h/nqn.2000-01.x:y?ns=1&portals=i"
WHERE_KERNEL = {
    "mtu": _NVME, "path_policy": _NVME, "io_queues": _NVME, "nconnect": "kernel:nfs://h/export/file",
    "queue_depth": "kernel:iscsi://h/iqn.2000-01.x:y/0",
}  # fmt: skip
"""Kernel paths of a host, for fields that no other endpoint has there."""


def study(where: str, section: str, field: str, value: Any, *, beside: bool = True) -> Study:
    lab, protocols = WHERE[where]
    protocols = WHERE_NFS[where] if field in OF_NFS else protocols
    if where == "hosts" and field in WHERE_KERNEL:
        protocols = {"a": WHERE_KERNEL[field]}
    baseline = next(iter(protocols))
    document: dict[str, Any] = {
        "name": "x", "question": "?", "lab": lab, "volume": {"size": "160MiB" if where == "pgbench" else "1MiB"},
        "factors": {"protocol": protocols},
        "baseline": {"protocol": baseline}, "load": {}, "connection": {}, "topology": {},
    }  # fmt: skip
    if where in ("fio", "pgbench", "command"):
        document["load"]["generator"] = where
    if where == "command":
        run = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        document["load"] |= {"verify": False, "command": {"run": run, "format": "fio"}}
    for name, fields in BESIDE.get(field, {}).items() if beside else ():
        document[name] |= fields
    document[section] |= {field: value}
    return Study.model_validate(yaml.safe_load(yaml.safe_dump(document)))


def test_every_field_stands_in_the_table() -> None:
    models = {**SECTIONS, **{f"lab: {name}": model for name, model in LABS.items()}}
    assert {name: set(rows) for name, rows in FIELDS.items()} == {
        name: set(model.model_fields) for name, model in models.items()
    }


BASED_ON = {"fio": "loopback", "endpoint": "loopback", "pgbench": "vm", "command": "hosts"}
"""The lab behind names that are not labs."""
CASES = [
    (section, field, where)
    for section in SECTIONS
    for field in FIELDS[section]
    for where in WHERE
    if where != "command" or section == "load"  # nothing else differs from other loads of hosts
]


@pytest.mark.parametrize(("section", "field", "where"), CASES)
def test_a_field_is_refused_with_its_reason_or_reaches_what_runs(section: str, field: str, where: str) -> None:
    row = FIELDS[section][field]
    given = study(where, section, field, SAMPLES[field])
    own = getattr(row, where) or (row.fio_here if where == "fio" else "")
    if reason := getattr(row, BASED_ON.get(where, where)) or own:
        assert ((section, field), reason) in list(broken_rules(given))
        return
    if (where, field) in (("pgbench", "arrivals"), ("command", "verify")):  # the other value is refused
        return
    if field == "protocol":  # it is a factor here, and each level is its own endpoint
        return
    without = study(where, section, field, SAMPLES[field])
    default = SECTIONS[section].model_fields[field].default
    plain = without.model_copy(update={section: getattr(without, section).model_copy(update={field: default})})
    assert told(given, where) != told(plain, where), "the lab tells nobody of it"


def told(of: Study, where: str) -> list[Any]:
    """Everything that a lab sends to servers and loads."""
    return [_told(of.settings({"protocol": level.value}), where) for level in of.levels()["protocol"]]


def _told(settings: Settings, where: str) -> tuple[Any, ...]:
    served = serve_document(settings.volume, driver="auto", threads=1, cpus=[], paths=settings.topology.paths)
    if settings.load.generator == "fio":
        return (
            served,
            run_job(settings, Target("libaio", ()), seed=1, cpus=range(settings.load.threads)),
            *_volume(settings),
        )
    if settings.load.generator == "pgbench":
        load = settings.load
        options = server_options(settings), client_options(settings, 1), load.generator, load.workers, load.verify
        length = load.warmup, window(load, "/dev/sda", ""), scale(load, settings.volume)
        return *options, *length, *_guests(settings)
    if settings.load.command is not None:
        load = settings.load.model_copy(update={"working_set": settings.load.working_set or settings.volume.size})
        given = replace(settings, load=load)
        job = HostJob(given, "/dev/sda", {}, seed=1, offset_bytes=0, longest_s=1, client=1)
        return (*COMMAND.host_job(job), load.clients)
    asked = run_document(settings, "e", seed=1, driver="auto", cpus=[], watch_pids={})
    if where == "vm":
        return asked | {"options": {}}, *_guests(settings)
    if where == "hosts" and settings.endpoint.kernel:
        paths = pytest.importorskip("iotax.labs.hosts.paths", reason="the extra `hosts` is not installed")
        return paths.words(settings.endpoint.uri, settings)
    if where == "sim":
        beside = Study.model_validate(_SIM)
        assert beside.lab.sim is not None
        return (simulate_document(beside, settings, 1, {"initiator": {}, "target": {}}),)
    if where == "hosts":
        return asked, served, settings.load.clients, *_volume(settings)
    return asked, served if where == "loopback" else None, *_volume(settings)


_SIM = {
    "name": "x", "question": "?", "lab": "sim", "factors": {"protocol": ["iscsi"]}, "baseline": {"protocol": "iscsi"},
}  # fmt: skip


def _guests(settings: Settings) -> tuple[Any, ...]:
    return environment(settings, 2), settings.topology.kernels, settings.volume.size, *_volume(settings)


def _volume(settings: Settings) -> tuple[Any, ...]:
    """Settings that the labs use themselves: whether and when to fill, and what fio verifies after its run."""
    return settings.volume.fill, settings.volume.refill, settings.load.verify and settings.load.generator == "fio"


@pytest.mark.parametrize("field", ["initiator", "header_digest", "data_digest", "chap", "dhchap"])
def test_a_setting_of_the_connection_needs_a_protocol_that_knows_it(field: str) -> None:
    only_nfs = Study.model_validate(
        {
            "name": "x",
            "question": "?",
            "volume": {"size": "1MiB"},
            "factors": {"protocol": ["local", "nfs3"]},
            "baseline": {"protocol": "nfs3"},
            "connection": {field: SAMPLES[field]},
        }
    )
    [(place, reason)] = broken_rules(only_nfs)
    assert place == ("connection", field)
    assert reason.startswith("no protocol of this study has")


def test_two_labs_are_one_too_many() -> None:
    both = study("vm", "load", "outstanding", 2).model_dump(mode="json", exclude_defaults=True)
    both["lab"] = {"vm": {}, "loopback": {"threads": 2}}
    assert (("lab", "loopback"), "a study runs in one lab; leave `loopback:` or `vm:` out") in list(
        broken_rules(Study.model_validate(both))
    )


def test_threads_of_a_server_that_serves_nothing_are_refused() -> None:
    found = study("endpoint", "load", "outstanding", 2).model_dump(mode="json", exclude_defaults=True)
    found["lab"] = {"loopback": {"threads": 2}}
    assert [place for place, _ in broken_rules(Study.model_validate(found))] == [("lab", "loopback", "threads")]
