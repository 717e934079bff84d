"""NVMe over Fabrics, over TCP and over RDMA."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.protocols.base import FIO, WHERE, Protocol, Query, Scheme


def wrong_subsystem(names: Sequence[str], query: Query) -> str:
    """What is wrong with the part of an endpoint that names a namespace of a subsystem; empty if nothing is."""
    if len(names) != 1 or not names[0].startswith("nqn."):
        return "the subsystem's NQN is missing"
    if not (query.get("ns") or [""])[0].isdecimal() or int(query["ns"][0]) == 0:
        return "the namespace is missing (ns=1 and up)"
    return ""


def _wrong(_host: str, names: Sequence[str], query: Query) -> str:
    return wrong_subsystem(names, query)


def _client(host: str, port: int, path: str, _query: Query, _read_only: bool) -> list[str]:
    return [
        f"nvme discover -t tcp -a {host} -s {port}",
        f"nvme connect -t tcp -a {host} -s {port} -n {path}",
        f"{FIO} --filename=/dev/nvme0n1    # the device that `nvme list` shows",
        f"nvme disconnect -n {path}",
    ]


_SCHEME = Scheme(
    name="nvme-tcp",
    port=4420,
    title="NVMe/TCP",
    form="nvme-tcp://HOST[:PORT][,HOST…]/NQN?ns=N",
    wrong=_wrong,
    query=("ns",),
    hints={
        "refused": "is the target up, and is it the right port ({usual_port} unless the endpoint names one)?",
        "not_found": "the target answers: check the NQN and `?ns=`; "
        "`nvme discover -t tcp -a {host} -s {port}` lists its subsystems",
        "denied": f"let this host's NQN in at the target, or name another by `initiator:` {WHERE}",
        "unauthenticated": f"correct or give `dhchap: {{{{secret_file: …}}}}` {WHERE}",
    },
    kernel_title="NVMe/TCP by each host's kernel",
    kernel_form="kernel:nvme-tcp://HOST[:PORT]/NQN?ns=N[&queues=N&portals=ADDRESS,…]",
    kernel_query=("ns", "queues", "portals"),
)
NVME_TCP = Protocol(
    name="nvme-tcp",
    title="NVMe/TCP",
    family="nvme",
    colour="green",
    labs=("loopback", "vm", "hosts", "sim"),
    scheme=_SCHEME,
    options=frozenset({"header_digest", "data_digest", "initiator", "dhchap"}),
    has_paths=True,
    reports_access=True,
    kernel_module="nvme_tcp",
    client=_client,
)
NVME_RDMA = Protocol(name="nvme-rdma", title="NVMe/RDMA", colour="olive", family="nvme", carrier="rdma", labs=("vm",))
