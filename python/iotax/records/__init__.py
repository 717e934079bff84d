"""Records of how a trial came about. Depends on nothing else in iotax."""

from iotax.records.base import Record
from iotax.records.cpu import Call, Core, CpuEvents, CpuTime, CpuUse, Layer, Profile, Role, VmThreads
from iotax.records.facts import Carrier, Conditioning, Facts, Link, Origin
from iotax.records.negotiated import IscsiAgreed, Negotiated, NfsAgreed, NothingAgreed, NvmeAgreed, understood
from iotax.records.roles import CPU_ROLES, CpuRole, Lack, RoleCpu, cpu_of

__all__ = [
    "CPU_ROLES",
    "Call",
    "Carrier",
    "Conditioning",
    "Core",
    "CpuEvents",
    "CpuRole",
    "CpuTime",
    "CpuUse",
    "Facts",
    "IscsiAgreed",
    "Lack",
    "Layer",
    "Link",
    "Negotiated",
    "NfsAgreed",
    "NothingAgreed",
    "NvmeAgreed",
    "Origin",
    "Profile",
    "Record",
    "Role",
    "RoleCpu",
    "VmThreads",
    "cpu_of",
    "understood",
]
