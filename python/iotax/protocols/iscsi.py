"""iSCSI, over TCP and over RDMA."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iotax.protocols.base import FIO, WHERE, Protocol, Query, Scheme, portal


def _wrong(_host: str, names: Sequence[str], _query: Query) -> str:
    if len(names) != 2:
        return "the target name or the LUN is missing"
    if not re.match(r"(iqn|eui|naa)\.", names[0]):
        return f"{names[0]!r} is not an iSCSI name (iqn., eui. or naa.)"
    if not names[1].isdecimal():
        return f"the LUN {names[1]!r} is not a number"
    return ""


def _client(host: str, port: int, path: str, _query: Query, _read_only: bool) -> list[str]:
    name, _, lun = path.partition("/")
    where = portal(host, port)
    return [
        f"iscsiadm -m discovery -t sendtargets -p {where}",
        f"iscsiadm -m node -T {name} -p {where} --login",
        f"{FIO} --filename=/dev/disk/by-path/ip-{where}-iscsi-{name}-lun-{lun}",
        f"iscsiadm -m node -T {name} -p {where} --logout",
    ]


_SCHEME = Scheme(
    name="iscsi",
    port=3260,
    title="iSCSI",
    form="iscsi://HOST[:PORT][,HOST…]/IQN/LUN",
    wrong=_wrong,
    hints={
        "refused": "is the target up, and is it the right port ({usual_port} unless the endpoint names one)?",
        "not_found": "the target answers: check the IQN and the LUN; "
        "`iscsiadm -m discovery -t sendtargets -p {host}` lists its names",
        "wrong_kind": "it holds something else than a disk, as LUN 0 of tgt does, which is its controller: "
        "tgt's disks begin at 1",
        "denied": f"let this initiator's name in at the target, or name another by `initiator:` {WHERE}",
        "unauthenticated": f"the target asks for CHAP: correct or give `chap: {{{{user: …, secret_file: …}}}}` {WHERE}",
    },
    kernel_title="iSCSI by each host's kernel",
    kernel_form="kernel:iscsi://HOST[:PORT]/IQN/LUN[?portals=ADDRESS,…]",
    kernel_query=("portals",),
)
ISCSI = Protocol(
    name="iscsi",
    title="iSCSI",
    family="scsi",
    colour="blue",
    labs=("loopback", "vm", "hosts", "sim"),
    scheme=_SCHEME,
    options=frozenset({"header_digest", "data_digest", "initiator", "chap"}),
    has_paths=True,
    reports_access=True,
    access_options={"portal_groups": "each"},
    kernel_module="iscsi_tcp",
    client=_client,
)
ISER = Protocol(name="iser", title="iSER", colour="sky", family="scsi", carrier="rdma", labs=("vm",))
