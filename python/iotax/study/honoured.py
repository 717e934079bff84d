"""Which fields each lab honours, and why it refuses the others: a field stands in this table or a test fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from iotax.protocols import knowing, known
from iotax.study.endpoint import Endpoint
from iotax.study.model import LABS, SECTIONS, Study, sections_of_fields
from iotax.study.sim import OF_SIM
from iotax.study.source import Place
from iotax.study.varied import place, values


@dataclass(frozen=True)
class Row:
    """Where a field means something. A text is the reason why it is refused there; empty, it is honoured."""

    loopback: str = ""
    vm: str = ""
    hosts: str = ""
    sim: str = ""
    endpoint: str = ""
    """Of an endpoint that the study names itself, on the loopback and the hosts lab."""
    fio: str = ""
    """Where fio makes the load."""
    fio_here: str = ""
    """Where it does in the loopback lab, with initiators of its own; in the other labs it uses the kernels' paths."""
    pgbench: str = ""
    """Where a database does."""
    command: str = ""
    """Where a command of the user's does."""
    protocols: tuple[str, ...] = ()
    """Those that know it; empty: all."""
    harmless: tuple[Any, ...] = ()
    """Values that ask for nothing, and may stand anywhere."""
    vm_too: tuple[Any, ...] = ()
    """Values that the vm lab honours all the same."""
    hosts_too: tuple[Any, ...] = ()
    """The same of the hosts lab."""


_NO_NETWORK = "the loopback lab has no network to shape; say `lab: vm`"
_KERNEL_NAMES = "the guests' initiators have names of their own"
_SERVERS_OWN = "no effect here: no protocol of this study is served by the lab's own server; remove it"
_FIO_CONNECTS = "fio's own initiator takes no such setting; leave it to `generator: iotax`"
HOSTS_MEMORY = "a target of the hosts lab serves from memory; name the endpoint of a server of your own"
_DATABASES = "only pgbench ends by their count; say `runtime:`, or `generator: pgbench` in the vm lab"
_TABLES = "PostgreSQL chooses its own I/Os; leave it out"
_TABLES_DATA = "PostgreSQL writes what pgbench makes up; leave it out"
_DISKS = "it belongs to disks that kernels of hosts have; say `lab: {hosts: …}`, with kernel:iscsi:// or kernel:fc://"
_REAL_NETWORK = "the hosts lab takes the network as it is; say `lab: vm`"
_ONE_MACHINE = "this lab has one initiator; say `lab: {hosts: …}`"
_SIM_ONE_CONNECTION = "the sim lab has one connection for each worker; say `lab: vm`"
_SIMULATED = "it belongs to simulated machines; say `lab: {sim: {}}`"
_SIM_NO_HYPERVISOR = "simulated guests reach the target themselves; a hypervisor's costs belong to the table of costs"
_SIM_NO_SECRETS = "the simulated targets ask for no login; say `lab: loopback`"
_SIM_MEMORY = "a simulated volume is memory; say `lab: {sim: {media: {servers: 8, service: 100us}}}`"
_VM_MEMORY = "the vm lab keeps its volume in memory"
LAID_OUT = "a database is laid out on a volume that no model holds; leave it out"
_NAMES_PORTALS = "an endpoint names its portals itself, as iscsi://HOST,HOST/IQN/LUN does; leave this out"
_KERNELS_RETRY = "the kernels decide this themselves; say `lab: loopback`"
_LINK = Row(loopback=_NO_NETWORK, hosts=_REAL_NETWORK, endpoint=_NO_NETWORK)
_VIRTUAL_DISK = Row(sim=_SIM_NO_HYPERVISOR, loopback=_NO_NETWORK, hosts=_REAL_NETWORK, endpoint=_NO_NETWORK)
_OF_HOSTS_TOO = Row(loopback=_NO_NETWORK, sim=_SIM_ONE_CONNECTION)
"""What the rules of the topology say of each path."""
_SIM_DURABLE = "simulated media keep what they are given, and the table of costs has no flushes; leave it out"
_FIO_FLUSHES = "not every engine of fio writes durably and flushes; leave it to `generator: iotax`"
_COMMANDS = "a command of your own takes no such setting; write it into `run:`"
_ONLY_HOSTS = "a command loads paths of hosts; say `lab: {hosts: …}`"
_EVERYWHERE = Row()
_KERNEL = Row(
    loopback="this machine runs the kernel that it runs; say `lab: vm`",
    hosts="the hosts run the kernels that they run; say `lab: vm`",
    sim="a simulation runs no kernel; say `lab: vm`",
    harmless=(None,),
)
_TIMEOUT = Row(
    loopback="iotax's own initiators wait as long as the run; say `lab: vm`",
    hosts="the hosts keep their own timeouts; say `lab: vm`",
    sim="simulated initiators have no such timeout; leave it out",
    harmless=(None,),
)
_MODEL = Row(sim=_SIM_MEMORY, endpoint=_SERVERS_OWN, pgbench=LAID_OUT, harmless=(None,))
_LOGIN = knowing("initiator")
_USER = Row(
    vm="the guests' mounts are root's; say `lab: loopback`",
    fio=_FIO_CONNECTS,
    protocols=knowing("uid"),
    harmless=(None,),
)

FIELDS: Mapping[str, Mapping[str, Row]] = {
    "load": {
        "block_size": Row(pgbench=_TABLES),
        "read": Row(pgbench=_TABLES),
        "random": Row(pgbench=_TABLES),
        "shared": Row(
            sim="simulated workers have a stream each; leave it out",
            fio="fio's jobs have a stream each; leave it to `generator: iotax`",
            pgbench=_TABLES,
            command=_COMMANDS,
            harmless=(False,),
        ),
        "outstanding": Row(pgbench="a client has one transaction at a time; say `workers:` for more clients"),
        "workers": _EVERYWHERE,
        "threads": _EVERYWHERE,
        "clients": Row(loopback=_ONE_MACHINE, harmless=(None, 1)),
        "working_set": _EVERYWHERE,
        "warmup": _EVERYWHERE,
        "runtime": _EVERYWHERE,
        "transactions": Row(loopback=_DATABASES, hosts=_DATABASES, sim=_DATABASES, fio=_DATABASES, harmless=(None,)),
        "verify": _EVERYWHERE,
        "durable": Row(sim=_SIM_DURABLE, fio=_FIO_FLUSHES, pgbench=_TABLES, command=_COMMANDS, harmless=(False,)),
        "fsync": Row(sim=_SIM_DURABLE, fio=_FIO_FLUSHES, pgbench=_TABLES, command=_COMMANDS, harmless=(0,)),
        "rate_iops": _EVERYWHERE,
        "arrivals": Row(command=_COMMANDS),
        "backlog": Row(
            fio="fio keeps no backlog: what is late, it issues late; leave it to `generator: iotax`",
            pgbench="pgbench keeps no backlog: what is late, it begins late, and counts its delay; leave it out",
            command=_COMMANDS,
        ),
        "streams": Row(pgbench=_TABLES, command=_COMMANDS),
        "oltp": Row(
            vm="in the guests pgbench loads a database; say `generator: pgbench`",
            sim="simulated machines have no database; say `lab: loopback`",
            fio="fio has no transactions; leave it to `generator: iotax`",
            command="a command has no transactions of iotax's; leave it to `generator: iotax`",
            harmless=(None,),
        ),
        "generator": Row(
            hosts_too=("fio", "pgbench", "command"),
            sim="the sim lab loads with iotax only; say `lab: loopback`",
            harmless=("iotax",),
        ),
        "command": Row(loopback=_ONLY_HOSTS, vm=_ONLY_HOSTS, sim=_ONLY_HOSTS, harmless=(None,)),
    },
    "volume": {
        "size": _EVERYWHERE,
        "media": Row(
            vm=_VM_MEMORY,
            vm_too=("model",),
            sim=_SIM_MEMORY,
            endpoint=_SERVERS_OWN,
            harmless=("memory",),
        ),
        "path": Row(
            vm=_VM_MEMORY,
            hosts=HOSTS_MEMORY,
            sim=_SIM_MEMORY,
            endpoint=_SERVERS_OWN,
            harmless=(None,),
        ),
        "fill": Row(pgbench="pgbench writes its own tables; leave it out"),
        "refill": Row(
            hosts="the hosts lab writes the pattern once; leave it out",
            sim="each simulated trial begins with a fresh volume; leave it out",
            harmless=("never",),
        ),
        "compress": Row(pgbench=_TABLES_DATA, harmless=(1.0,)),
        "dedupe": Row(pgbench=_TABLES_DATA, harmless=(1.0,)),
        "dedupe_block": Row(pgbench=_TABLES_DATA, harmless=(4096,)),
        "delay": Row(
            vm="the kernels' targets wait for nothing on purpose; say `lab: loopback`, or `link_delay:` under topology",
            endpoint=_SERVERS_OWN,
            harmless=(0,),
        ),
        "burn": Row(
            vm="the kernels' targets burn nothing on purpose; say `lab: loopback`",
            endpoint=_SERVERS_OWN,
            harmless=(0,),
        ),
        "volumes": Row(
            loopback=_ONE_MACHINE,
            hosts="where each initiator has a volume of its own, the endpoint says so: nfs://10.0.1.5/vol/data{client}",
            sim="simulated clients share one volume, each in a part of its own; leave it out",
            harmless=("shared",),
        ),
        "servers": replace(_MODEL, harmless=(1,)),
        "service": _MODEL,
        "distribution": replace(_MODEL, harmless=("constant",)),
        "p99": _MODEL,
        "service_times": _MODEL,
        "collect": _MODEL,
        "collect_every": _MODEL,
        "seek": _MODEL,
        "rpm": _MODEL,
        "cache": _MODEL,
        "destage": _MODEL,
        "parity": _MODEL,
        "raid_group": _MODEL,
    },
    "connection": {
        "protocol": _EVERYWHERE,
        "initiator": Row(vm=_KERNEL_NAMES, fio=_FIO_CONNECTS, protocols=_LOGIN, harmless=(None,)),
        "header_digest": Row(fio=_FIO_CONNECTS, protocols=_LOGIN, harmless=(False,)),
        "data_digest": Row(fio=_FIO_CONNECTS, protocols=_LOGIN, harmless=(False,)),
        "polling": Row(
            vm="the kernels wait as they do; say `lab: loopback`",
            sim="simulated threads sleep when idle; say `lab: loopback`",
            fio=_FIO_CONNECTS,
            harmless=("never",),
        ),
        "chap": Row(
            vm="the guests' targets ask for no login; say `lab: loopback`",
            sim=_SIM_NO_SECRETS,
            fio=_FIO_CONNECTS,
            protocols=knowing("chap"),
            harmless=(None,),
        ),
        "dhchap": Row(
            vm="the guests' controllers ask for no login; say `lab: loopback`",
            sim=_SIM_NO_SECRETS,
            fio=_FIO_CONNECTS,
            protocols=knowing("dhchap"),
            harmless=(None,),
        ),
        "uid": _USER,
        "gid": _USER,
    },
    "topology": {
        "mtu": Row(loopback=_NO_NETWORK),
        "link_rate": _LINK,
        "link_delay": _LINK,
        "paths": Row(hosts=_REAL_NETWORK, endpoint=_NAMES_PORTALS, fio_here=_FIO_CONNECTS),
        "path_policy": Row(fio_here=_FIO_CONNECTS),
        "path_retry": Row(
            vm=_KERNELS_RETRY,
            hosts=_KERNELS_RETRY,
            fio=_FIO_CONNECTS,
            harmless=("when-safe",),
        ),
        "nconnect": _OF_HOSTS_TOO,
        "io_queues": _OF_HOSTS_TOO,
        "queue_depth": Row(loopback=_DISKS, vm=_DISKS, harmless=(None,)),
        "attach": _VIRTUAL_DISK,
        "aio": _VIRTUAL_DISK,
        "disk_cache": _VIRTUAL_DISK,
        "disk_queues": replace(_VIRTUAL_DISK, harmless=(None,)),
        "iothread": replace(_VIRTUAL_DISK, harmless=(False,)),
        "target": Row(
            loopback="the loopback lab serves with iotax; name the endpoint of another server under protocol",
            hosts="the hosts lab serves with iotax; name the endpoint of another server under protocol",
            sim="the simulated targets are iotax's own; say `lab: vm`",
        ),
        "kernel": _KERNEL,
        "target_kernel": _KERNEL,
        "keep_alive": replace(_TIMEOUT, loopback="", sim="", fio_here=_FIO_CONNECTS),
        "replacement_timeout": _TIMEOUT,
        "reconnect_delay": _TIMEOUT,
        "timeo": _TIMEOUT,
        "encryption": Row(
            loopback="nothing leaves this machine, so there is no link to encrypt; say `lab: vm`",
            hosts="the hosts lab takes the network as it is, encrypted or not; say `lab: vm`",
            sim="the tables of costs know no encryption; say `lab: vm`",
        ),
    },
    "lab: loopback": {
        "driver": _EVERYWHERE,
        "threads": Row(endpoint=_SERVERS_OWN, harmless=(1,)),
    },
    "lab: hosts": {
        "initiators": _EVERYWHERE,
        "targets": _EVERYWHERE,
        "hypervisors": _EVERYWHERE,
        "relays": _EVERYWHERE,
        "cluster": _EVERYWHERE,
        "driver": _EVERYWHERE,
        "threads": Row(endpoint=_SERVERS_OWN, harmless=(1,)),
        "hooks": _EVERYWHERE,
    },
    "lab: sim": {
        "costs": _EVERYWHERE,
        "vms": _EVERYWHERE,
        "cores": _EVERYWHERE,
        "target_cores": _EVERYWHERE,
        "threads": _EVERYWHERE,
        "controllers": _EVERYWHERE,
        "target_ports": _EVERYWHERE,
        "luns": _EVERYWHERE,
        "adapter_depth": _EVERYWHERE,
        "credits": _EVERYWHERE,
        "loss": _EVERYWHERE,
        "port_buffer": _EVERYWHERE,
        "coalesce": _EVERYWHERE,
        "path_failures": _EVERYWHERE,
        "path_noticed": _EVERYWHERE,
        "switches": _EVERYWHERE,
        "trunk_rate": _EVERYWHERE,
        "trunk_credits": _EVERYWHERE,
        "zones": _EVERYWHERE,
        "paths_to": _EVERYWHERE,
        "interconnect_rate": _EVERYWHERE,
        "interconnect_delay": _EVERYWHERE,
        "interconnect_cpu": _EVERYWHERE,
        "takeover": _EVERYWHERE,
        "media": _EVERYWHERE,
    },
    "lab: vm": {
        "accelerator": _EVERYWHERE,
        "clock": _EVERYWHERE,
        "guests": _EVERYWHERE,
        "cpus": _EVERYWHERE,
        "profile": _EVERYWHERE,
    },
}
"""Section → field → where it is honoured. What a protocol of the vm lab cannot have of a topology, `topology.refused`
tells by treatment."""


def not_honoured(study: Study) -> Iterator[tuple[Place, str]]:
    """Every field of the study that its lab would ignore."""
    given = [name for name in LABS if name in study.lab.model_fields_set and getattr(study.lab, name) is not None]
    if len(given) > 1:
        yield ("lab", given[0]), f"a study runs in one lab; leave `{given[0]}:` or `{given[1]}:` out"
    for field in OF_SIM:
        if field in study.levels() and study.lab.sim is None:
            yield ("factors", field), _SIMULATED
    for section in SECTIONS:
        for field, row in FIELDS[section].items():
            harmless = row.harmless + {"vm": row.vm_too, "hosts": row.hosts_too}.get(study.lab.name, ())
            wanted = [value for value in values(study, field) if value not in harmless]
            if wanted and _is_given(study, field):
                reason = _reason(study, row) or _unknown_to_all(study, field, row)
                if reason:
                    yield place(study, field), reason
    if study.lab.name not in ("vm", "sim") and _only_endpoints(study):
        threads = FIELDS[f"lab: {study.lab.name}"]["threads"]
        if getattr(study.lab, study.lab.name).threads not in threads.harmless:
            yield ("lab", study.lab.name, "threads"), threads.endpoint


def not_honoured_of_labels(study: Study) -> Iterator[tuple[Place, str]]:
    """What a label says of its own connection, which no other protocol can make up for."""
    for label, changes in study.setups().items():
        endpoint = study.endpoints()[label]
        for name in changes:
            if name in OF_SIM and study.lab.sim is None:
                yield ("factors", "protocol", label, name), _SIMULATED
            row = FIELDS["connection"].get(name)
            if row is None:
                continue
            reason = _reason(study, row)
            if not reason and not _knows(endpoint, name, row):
                reason = f"{endpoint.protocol} has no {name}; it belongs to {' and '.join(row.protocols)}"
            if reason:
                yield ("factors", "protocol", label, name), reason


def _reason(study: Study, row: Row) -> str:
    if reason := getattr(row, study.lab.name):
        return reason
    if study.lab.name not in ("vm", "sim") and _only_endpoints(study) and row.endpoint:
        return row.endpoint
    generators = values(study, "generator")
    fio = row.fio or (row.fio_here if study.lab.name == "loopback" else "")
    of_generator = {"fio": fio, "pgbench": row.pgbench, "command": row.command}
    return next((reason for name, reason in of_generator.items() if reason and name in generators), "")


def _unknown_to_all(study: Study, field: str, row: Row) -> str:
    if not row.protocols or any(_knows(endpoint, field, row) for endpoint in _endpoints(study)):
        return ""
    return f"no protocol of this study has a {field.replace('_', ' ')}; {' and '.join(row.protocols)} do"


def _knows(endpoint: Endpoint, field: str, row: Row) -> bool:
    protocol = known(endpoint.protocol) if endpoint.kernel else None
    return endpoint.protocol in row.protocols or (protocol is not None and field in protocol.kernel_options)


def _only_endpoints(study: Study) -> bool:
    return not any(endpoint.embedded for endpoint in _endpoints(study))


def _endpoints(study: Study) -> list[Endpoint]:
    return list(study.endpoints().values())


def _is_given(study: Study, field: str) -> bool:
    return field in study.levels() or field in study.section(sections_of_fields()[field]).model_fields_set
