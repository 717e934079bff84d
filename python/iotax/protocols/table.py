"""The table of protocols: a row each, in the order in which texts name them."""

from __future__ import annotations

from iotax.protocols.base import Protocol, Scheme
from iotax.protocols.fibre_channel import FC_NVME, FCP, FCP_LOOP
from iotax.protocols.iscsi import ISCSI, ISER
from iotax.protocols.nfs import NFS3, NFS41, NFS42
from iotax.protocols.nvme import NVME_RDMA, NVME_TCP

PROTOCOLS: tuple[Protocol, ...] = (
    Protocol(name="local", title="Local", colour="gray", carrier="none", labs=("loopback", "vm")),
    NFS3,
    NFS41,
    NFS42,
    ISCSI,
    ISER,
    NVME_TCP,
    NVME_RDMA,
    FCP,
    FCP_LOOP,
    FC_NVME,
)


def known(name: str) -> Protocol | None:
    return next((each for each in PROTOCOLS if each.name == name), None)


def names(lab: str | None = None) -> tuple[str, ...]:
    """What a lab serves itself; without one, what any of them does."""
    return tuple(each.name for each in PROTOCOLS if (each.labs if lab is None else lab in each.labs))


def of_family(name: str) -> tuple[str, ...]:
    """Those that carry its commands: nfs, scsi or nvme."""
    return tuple(each.name for each in PROTOCOLS if each.family == name)


def without_transport() -> tuple[str, ...]:
    """Those whose two ends stand in one kernel, with a call between them."""
    return tuple(each.name for each in PROTOCOLS if each.carrier == "loop")


def knowing(option: str) -> tuple[str, ...]:
    """Those that know an option of a study's `connection`."""
    return tuple(each.name for each in PROTOCOLS if option in each.options)


def schemes() -> dict[str, tuple[Scheme, Protocol]]:
    """By name, with the protocol that is spoken there (of NFS: by iotax's own initiator)."""
    return {
        scheme.name: (scheme, each)
        for each in PROTOCOLS
        for scheme in (each.scheme, each.kernel_scheme)
        if scheme is not None
    }


def kernel_modules() -> dict[str, str]:
    """Linux's module that connects, by the name of endpoints, or of the protocol where there are none."""
    return {
        each.scheme.name if each.scheme else each.name: each.kernel_module for each in PROTOCOLS if each.kernel_module
    }


def titles() -> dict[str, str]:
    return {each.name: each.title for each in PROTOCOLS}


def colours() -> dict[str, str]:
    return {each.name: each.colour for each in PROTOCOLS}
