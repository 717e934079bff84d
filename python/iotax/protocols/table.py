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
    """Protocols that a lab serves itself; without a lab, those of any."""
    return tuple(each.name for each in PROTOCOLS if (each.labs if lab is None else lab in each.labs))


def of_family(name: str) -> tuple[str, ...]:
    """Protocols that carry this command set: nfs, scsi or nvme."""
    return tuple(each.name for each in PROTOCOLS if each.family == name)


def without_transport() -> tuple[str, ...]:
    """Protocols whose two ends are in one kernel, with a call between them."""
    return tuple(each.name for each in PROTOCOLS if each.carrier == "loop")


def knowing(option: str) -> tuple[str, ...]:
    """Protocols with this option of a study's `connection`."""
    return tuple(each.name for each in PROTOCOLS if option in each.options)


def with_paths() -> tuple[str, ...]:
    """Protocols of which the engine's initiator reaches one unit through several portals."""
    return tuple(each.name for each in PROTOCOLS if each.has_paths)


def with_access() -> tuple[str, ...]:
    """Protocols of which the engine's target reports for each portal how it reaches the volume."""
    return tuple(each.name for each in PROTOCOLS if each.reports_access)


def access_options(name: str) -> dict[str, str]:
    """Options of an export of this protocol, so that its portals report their access."""
    protocol = known(name)
    return {} if protocol is None else {**protocol.access_options}


def schemes() -> dict[str, tuple[Scheme, Protocol]]:
    """Schemes by name, with their protocol (for NFS: that of iotax's own initiator)."""
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
