"""Fibre Channel: SCSI (FCP) and NVMe over it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iotax.protocols.base import WHERE, Protocol, Query, Scheme
from iotax.protocols.nvme import wrong_subsystem

_WWPN = re.compile(r"[0-9a-f]{16}")


def _wrong(_host: str, names: Sequence[str], _query: Query) -> str:
    if len(names) != 2:
        return "the target's WWPN or the LUN is missing"
    if not _WWPN.fullmatch(names[0].lower()):
        return f"{names[0]!r} is not a WWPN (16 hexadecimal digits without colons)"
    if not names[1].isdecimal():
        return f"the LUN {names[1]!r} is not a number"
    return ""


def _wrong_of_kernel(host: str, names: Sequence[str], _query: Query) -> str:
    if not _WWPN.fullmatch(host) or len(names) != 1 or not names[0].isdecimal():
        return "a WWPN is 16 hexadecimal digits without colons, and a LUN a number"
    return ""


def _wrong_of_nvme(_host: str, names: Sequence[str], query: Query) -> str:
    if not names or not _WWPN.fullmatch(names[0].lower()):
        return "the target's WWPN is missing (16 hexadecimal digits without colons)"
    return wrong_subsystem(names[1:], query)


def _wrong_of_kernel_nvme(host: str, names: Sequence[str], query: Query) -> str:
    if not _WWPN.fullmatch(host):
        return "a WWPN is 16 hexadecimal digits without colons"
    return wrong_subsystem(names, query)


_SCHEME = Scheme(
    name="fcp",
    port=3225,
    title="FCP frames over a TCP socket",
    form="fcp://HOST[:PORT]/WWPN/LUN",
    wrong=_wrong,
    hints={
        "refused": "is the target up, and is it the right port ({usual_port} unless the endpoint names one)?",
        "not_found": "the target answers: check the WWPN and the LUN",
        "denied": "let this port in at the target, as `naa.` and the 16 digits of its WWPN, or by its address",
    },
)
"""Between two of iotax's own engines: no adapter and no fabric speaks it."""
_KERNEL_SCHEME = Scheme(
    name="fc",
    port=0,
    title="",
    form="",
    wrong=_wrong_of_kernel,
    kernel_title="Fibre Channel by each host's kernel",
    kernel_form="kernel:fc://WWPN/LUN",
)
_NVME_SCHEME = Scheme(
    name="fc-nvme",
    port=3225,
    title="FC-NVMe frames over a TCP socket",
    form="fc-nvme://HOST[:PORT]/WWPN/NQN?ns=N",
    wrong=_wrong_of_nvme,
    query=("ns",),
    hints={
        "refused": "is the target up, and is it the right port ({usual_port} unless the endpoint names one)?",
        "not_found": "the target answers: check the WWPN, the NQN and `?ns=`",
        "denied": f"let this host's NQN in at the target, or name another by `initiator:` {WHERE}",
    },
    kernel_title="NVMe over Fibre Channel by each host's kernel",
    kernel_form="kernel:fc-nvme://WWPN/NQN?ns=N[&queues=N]",
    kernel_query=("ns", "queues"),
    kernel_wrong=_wrong_of_kernel_nvme,
)
_SCSI = "SCSI over Fibre Channel"
FCP = Protocol(
    name="fcp",
    title="FCP",
    family="scsi",
    colour="purple",
    labs=("loopback", "vm", "sim"),
    carrier="fcoe",
    engine_carrier="frames",
    scheme=_SCHEME,
    kernel_scheme=_KERNEL_SCHEME,
    bracket=_SCSI,
)
FCP_LOOP = Protocol(
    name="fcp-loop",
    title="FCP (no transport)",
    family="scsi",
    colour="plum",
    labs=("vm",),
    carrier="loop",
    bracket=_SCSI,
)
"""The SCSI stack on both sides with a call between them: as with an adapter that does all of the transport."""
FC_NVME = Protocol(
    name="fc-nvme",
    title="FC-NVMe",
    family="nvme",
    colour="ochre",
    labs=("loopback", "vm", "sim"),
    carrier="loop",
    engine_carrier="frames",
    scheme=_NVME_SCHEME,
    options=frozenset({"initiator"}),
    kernel_options=frozenset({"dhchap"}),
    kernel_module="nvme_fc",
)
