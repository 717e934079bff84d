"""Fibre Channel: SCSI (FCP) and NVMe over it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iotax.protocols.base import Protocol, Query, Scheme

_WWPN = re.compile(r"[0-9a-f]{16}")


def _wrong(host: str, names: Sequence[str], _query: Query) -> str:
    if not _WWPN.fullmatch(host) or len(names) != 1 or not names[0].isdecimal():
        return "a WWPN is 16 hexadecimal digits without colons, and a LUN a number"
    return ""


_SCHEME = Scheme(
    name="fc",
    port=0,
    title="",
    form="",
    wrong=_wrong,
    kernel_title="Fibre Channel by each host's kernel",
    kernel_form="kernel:fc://WWPN/LUN",
)
_SCSI = "SCSI over Fibre Channel"
FCP = Protocol(
    name="fcp",
    title="FCP",
    family="scsi",
    colour="purple",
    labs=("vm",),
    carrier="fcoe",
    scheme=_SCHEME,
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
"""The SCSI stack on both sides with a call between them: what an adapter that does all of the transport leaves."""
FC_NVME = Protocol(
    name="fc-nvme",
    title="FC-NVMe",
    family="nvme",
    colour="ochre",
    labs=("vm",),
    carrier="loop",
    kernel_module="nvme_fc",
)
