"""What a trial's record says of how it came about. Knows nothing else of iotax."""

from iotax.records.base import Record
from iotax.records.cpu import Core, CpuEvents, CpuTime, CpuUse, Layer, Role
from iotax.records.facts import Carrier, Facts, Link
from iotax.records.negotiated import IscsiAgreed, Negotiated, NfsAgreed, NothingAgreed, NvmeAgreed, understood
from iotax.records.origin import Origin
from iotax.records.preconditioning import Conditioning

__all__ = [
    "Carrier",
    "Conditioning",
    "Core",
    "CpuEvents",
    "CpuTime",
    "CpuUse",
    "Facts",
    "IscsiAgreed",
    "Layer",
    "Link",
    "Negotiated",
    "NfsAgreed",
    "NothingAgreed",
    "NvmeAgreed",
    "Origin",
    "Record",
    "Role",
    "understood",
]
