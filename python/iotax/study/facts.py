"""The facts of a trial that its study fixes before it runs; a lab adds what it finds."""

from __future__ import annotations

from iotax.protocols import known, without_transport
from iotax.records import Carrier, Facts, Link
from iotax.study.hosts import Hosts
from iotax.study.model import Settings, Study
from iotax.study.sim import Sim
from iotax.study.topology import FIBRE_CHANNEL_FRAMES

_CARRIERS = {
    "none": Carrier(kind="none", usual="none"),
    "tcp": Carrier(kind="software", usual="software", name="TCP"),
    "rdma": Carrier(kind="software", usual="hardware", name="software RDMA (rxe)"),
    "fcoe": Carrier(kind="software", usual="hardware", name="software FCoE"),
    "frames": Carrier(
        kind="software",
        usual="hardware",
        name="Fibre Channel frames over a TCP socket (no adapter, no fabric)",
    ),
    "loop": Carrier(kind="loop", usual="hardware", name="a loop within one kernel, without frames"),
}
"""Carriers of the labs' own protocols."""
_FIBRE_CHANNEL = Carrier(kind="hardware", usual="hardware", name="Fibre Channel")
"""Carriers of paths through a host's own ports."""
_ONE_KERNEL = ("local", *without_transport())
"""Protocols whose two ends always share one guest."""


def _carrier(protocol: str) -> Carrier:
    """Carriers if iotax's own engine speaks the protocol."""
    row = known(protocol)
    return _CARRIERS[row.engine_carrier or row.carrier] if row else Carrier()


def _kernel_carrier(protocol: str) -> Carrier:
    """Carriers if two kernels speak the protocol."""
    row = known(protocol)
    return _CARRIERS[row.carrier] if row else Carrier()


def _of_hosts(protocol: str, *, kernel: bool) -> Carrier:
    if not kernel:
        return _carrier(protocol)
    return _FIBRE_CHANNEL if protocol in ("fcp", "fc-nvme") else _kernel_carrier(protocol)


def planned_facts(study: Study, settings: Settings) -> Facts:
    """The facts of a trial with these settings."""
    if study.lab.sim is not None:
        return _sim(settings.sim or study.lab.sim, settings)
    if study.lab.hosts is not None:
        return _hosts(study.lab.hosts, settings)
    if not settings.endpoint.embedded:
        return _endpoint(study, settings)
    return _loopback(study, settings) if study.lab.vm is None else _vm(study, settings)


def _loopback(study: Study, settings: Settings) -> Facts:
    protocol, load = settings.endpoint.protocol, settings.load
    local = protocol == "local"
    # A volume in memory is mapped; a volume in a file is read by the kernel.
    kernel = local and settings.volume.media == "file"
    return Facts(
        lab="loopback",
        protocol=protocol,
        stack="kernel" if kernel else "user",
        served="nobody" if local else "lab",
        shared="machine",
        carrier=_carrier(protocol),
        link=Link(kind="none" if local else "loopback"),
        clock="time",
        threads=load.threads,
        target_threads=None if local else study.lab.loopback.threads,
        warmup_ns=load.warmup,
        polling=settings.connection.polling,
    )


def _hosts(lab: Hosts, settings: Settings) -> Facts:
    protocol, load = settings.endpoint.protocol, settings.load
    served = settings.endpoint.embedded
    # The storage behind a host's device or file is unknown.
    device = protocol == "local"
    return Facts(
        lab="hosts",
        protocol=protocol,
        stack="kernel" if device or settings.endpoint.kernel else "user",
        served="lab" if served else "unknown" if device else "elsewhere",
        shared="nothing",
        carrier=Carrier() if device else _of_hosts(protocol, kernel=settings.endpoint.kernel),
        link=Link(kind="unknown" if device else "network"),
        clock="time",
        threads=load.threads,
        target_threads=lab.threads if served else None,
        clients=load.clients or len(lab.initiators),
        warmup_ns=load.warmup,
        polling=settings.connection.polling,
    )


def _sim(lab: Sim, settings: Settings) -> Facts:
    protocol, load, topology = settings.endpoint.protocol, settings.load, settings.topology
    return Facts(
        lab="sim",
        protocol=protocol,
        stack="user",
        served="lab",
        shared="nothing",
        # Its frames cross simulated links of their own, not a socket.
        carrier=Carrier() if protocol in FIBRE_CHANNEL_FRAMES else _carrier(protocol),
        link=Link(
            kind="simulated",
            rate_bits_per_s=topology.link_rate,
            delay_ns=topology.link_delay,
            mtu=topology.mtu,
            paths=topology.paths,
        ),
        clock="virtual",
        threads=load.threads,
        target_threads=lab.threads,
        clients=(load.clients or 1) * lab.vms,
        warmup_ns=load.warmup,
        polling="never",
    )


def _vm(study: Study, settings: Settings) -> Facts:
    assert study.lab.vm is not None
    protocol, load, topology = settings.endpoint.protocol, settings.load, settings.topology
    one_guest = study.lab.vm.guests == 1 or protocol in _ONE_KERNEL
    encryption = None if topology.encryption == "none" else topology.encryption
    link = Link(kind="none", encryption=encryption)
    if not one_guest:
        link = Link(
            kind="virtual",
            rate_bits_per_s=topology.link_rate,
            delay_ns=topology.link_delay,
            mtu=topology.mtu,
            paths=topology.paths,
            encryption=encryption,
        )
    return Facts(
        lab="vm",
        protocol=protocol,
        stack="kernel",
        target_stack="unknown" if protocol == "local" else "kernel" if topology.target == "kernel" else "user",
        served="nobody" if protocol == "local" else "lab",
        shared="machine" if one_guest else "hypervisor",
        carrier=_kernel_carrier(protocol),
        link=link,
        clock="instructions" if study.lab.vm.clock == "icount" else "unknown",
        threads=load.threads,
        clients=load.clients,
        volumes=settings.volumes if settings.volumes > 1 else None,
        warmup_ns=load.warmup,
    )


def _endpoint(study: Study, settings: Settings) -> Facts:
    """An external target, a device or a file. The storage behind a path of this machine is unknown unless the study
    says that it is the volume without a protocol."""
    protocol, load = settings.endpoint.protocol, settings.load
    path = protocol == "local"
    floor = path and study.floor is not None and study.endpoints()[study.floor] == settings.endpoint
    return Facts(
        lab="loopback",
        protocol=protocol,
        stack="kernel" if path else "user",
        served="nobody" if floor else "unknown" if path else "elsewhere",
        carrier=_CARRIERS["none"] if floor else Carrier() if path else _carrier(protocol),
        link=Link(kind="none") if floor else Link(kind="unknown" if path else "network"),
        clock="time",
        threads=load.threads,
        warmup_ns=load.warmup,
        polling=settings.connection.polling,
    )
