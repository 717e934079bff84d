"""What lies between the virtual machines of the vm lab, and what each protocol can make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from iotax.protocols import knowing, of_family, with_paths
from iotax.study.endpoint import FIBRE_CHANNEL, Endpoint, kernel_path, portals_of
from iotax.study.fields import (
    KERBEROS,
    Aio,
    Attach,
    BitRate,
    DiskCache,
    Duration,
    Encryption,
    Grown,
    PathPolicy,
    PathRetry,
    PathsTo,
    Release,
    Target,
    kind_of,
)
from iotax.study.hosts import CLIENT

_LATER = (
    "target",
    "kernel",
    "target_kernel",
    "encryption",
    "keep_alive",
    "path_retry",
    "replacement_timeout",
    "reconnect_delay",
    "timeo",
    "aio",
    "disk_cache",
    "disk_queues",
    "iothread",
    "link_rate",
    "path_policy",
    "queue_depth",
)
_MTU = Annotated[int, Field(ge=576, le=9216)]


class Kernels(NamedTuple):
    """Releases of the guests' kernels, as a study names them."""

    initiator: str
    storage: str


class Topology(Grown):
    """The network between initiator and storage, and how it is used. The vm lab builds this network. In the hosts lab \
each initiator sets mtu, path_policy, nconnect, io_queues and queue_depth on its kernel paths."""

    later = _LATER

    mtu: _MTU = 1500
    """Payload bytes of an Ethernet frame; 9000 means jumbo frames."""
    link_rate: BitRate | None = None
    """Rate of each path, in each direction, e.g. 100Mbit; unlimited when not given."""
    link_delay: Duration = 0
    """One-way delay of each frame."""
    paths: Annotated[int, Field(ge=1, le=4)] = 1
    """Links between the machines, each with its own address, portal or port; of nfs4.1, iscsi and nvme-tcp in \
loopback and sim: portals of the server."""
    path_policy: PathPolicy | None = None
    """How I/O is spread over several paths. SCSI (dm-multipath): fixed, round-robin, queue-depth. NVMe: numa, \
round-robin, queue-depth (Linux 6.11)."""
    path_retry: PathRetry = "when-safe"
    """When iotax's own initiators send the writes of a lost path again, in loopback and sim. when-safe: after a login \
that ends the lost session (iSCSI, NFSv4.1), or after two keep-alive timeouts (NVMe). at-once: like Linux's NVMe, \
although the target may execute the first copy later and undo a newer write."""
    nconnect: Annotated[int, Field(ge=1, le=16)] = 1
    """TCP connections of an NFS mount."""
    io_queues: Annotated[int, Field(ge=1, le=1024)] = 1
    """I/O queues of an NVMe controller; Linux creates at most one per processor: `lab: {vm: {cpus: 4}}`."""
    queue_depth: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Outstanding commands per SCSI disk and path: kernel:iscsi and kernel:fc in the hosts lab (default: the host's \
setting), iscsi and fcp in the sim lab (default: no limit)."""
    attach: Attach = "guest"
    """Who is the initiator. guest: the guest's kernel. vduse: the same, below QEMU's block layer and a virtual disk. \
Other values: the hypervisor, which gives the guest a disk behind this controller (a datastore)."""
    aio: Aio = "native"
    """How QEMU's block layer does the I/O of a virtual disk above a kernel's initiator (`attach: vduse`): Linux AIO \
(native), worker threads, or io_uring."""
    disk_cache: DiskCache = "none"
    """Page cache between QEMU's block layer and that disk (`attach: vduse`). writeback: an acknowledged write may be \
only there. writethrough: each write is flushed to the target."""
    disk_queues: Annotated[int, Field(ge=1, le=64)] | None = None
    """Queues of a virtual disk: with `attach:` vduse, virtio-blk, virtio-scsi or nvme. Linux uses at most one per \
processor: `lab: {vm: {cpus: 4}}`. Default: QEMU's."""
    iothread: bool = False
    """Whether QEMU serves a datastore's disk in a thread of its own, instead of in its main loop: with `attach:` \
virtio-blk or virtio-scsi."""
    target: Target = "kernel"
    """The target. kernel: knfsd, LIO or nvmet. Other values: a program in the storage guest: ganesha (NFS), tgt \
(iSCSI), iotax (nfs3, nfs4.1, iscsi, nvme-tcp), or the path of your own build of SPDK's nvmf_tgt (nvme-tcp), which \
runs in interrupt mode."""
    kernel: Release = "stock"
    """Linux release of both guests: "6.12" is the newest such kernel in the package lists, "6.1.0-56" an exact \
version; stock is the distribution's default. ./linux@v6.6: a commit that the lab builds. ./linux/tar-install: the \
folder of your own kernel, with boot/vmlinuz-RELEASE and lib/modules/RELEASE."""
    target_kernel: Release | None = None
    """The storage guest's kernel, if not that of `kernel`."""
    encryption: Encryption = "none"
    """Encryption of the vm lab's links, with new keys for each connection: ipsec (transport mode, AES-128-GCM), \
wireguard, krb5p (NFS with Kerberos, AES-256), tls (NFS, NVMe/TCP). A trial with data in plain text fails. krb5i \
(NFS) only signs them."""
    keep_alive: Duration | None = None
    """Silence after which an initiator asks its target for a sign of life, in whole seconds: NVMe's keep-alive, \
open-iscsi's noop_out. Default: 5s with `events`; without, 1h (NVMe) or never. In loopback and sim: silence after \
which iotax's initiators give a path up; 5s by default with several paths."""
    replacement_timeout: Duration | None = None
    """How long open-iscsi keeps the I/O of a lost session, in seconds; then dm-multipath uses another path. \
Default: 120s."""
    reconnect_delay: Duration | None = None
    """How long Linux's NVMe waits before it tries to reconnect a lost controller, each time, in seconds. \
Default: 10s."""
    timeo: Duration | None = None
    """How long an NFS mount waits for an answer before it asks again, in tenths of a second (nfs(5)). Default: 60s."""

    @property
    def kernels(self) -> Kernels:
        return Kernels(self.kernel, self.target_kernel or self.kernel)

    @property
    def paths_used(self) -> int:
        """At a time."""
        return 1 if self.path_policy == "fixed" else self.paths

    @property
    def by_hypervisor(self) -> bool:
        """Whether the hypervisor initiates, not the guest's kernel."""
        return self.attach not in ("guest", "vduse")


ON_HOSTS = ("mtu", "path_policy", "nconnect", "io_queues", "queue_depth")
"""What a host can set on a path of its kernel."""


def given(topology: Topology) -> dict[str, Any]:
    """What the study says of it; on hosts the rest stays as it is."""
    return {name: getattr(topology, name) for name in ON_HOSTS if _is_set(topology, name)}


def _is_set(topology: Topology, name: str) -> bool:
    return name in topology.model_fields_set and getattr(topology, name) is not None


def refused_on_hosts(endpoint: Endpoint, topology: Topology) -> Iterator[tuple[str, str]]:
    """(field, reason) for all that this path of a host cannot have."""
    path = kernel_path(endpoint.uri.replace(CLIENT, "1")) if endpoint.kernel else None
    for name in given(topology):
        if path is None and name == "path_policy" and len(portals_of(endpoint.uri)) > 1:
            if topology.path_policy not in _OWN_POLICIES:
                yield name, _NO_NUMA
        elif path is None:
            yield name, "only a path of the host's kernel has it: name kernel:nfs://, kernel:iscsi://, …"
        elif name == "mtu" and path.kind in FIBRE_CHANNEL:
            yield name, _FC_FRAMES
        elif name == "path_policy" and path.kind == "nfs":
            yield name, "an NFS mount goes to one address; `nconnect` gives it several connections"
        elif name == "path_policy" and topology.path_policy not in _HOSTS_POLICIES[path.kind]:
            named = ", ".join(_HOSTS_POLICIES[path.kind])
            yield name, f"{path.protocol} has no policy {topology.path_policy}; it has {named}"
        elif name == "path_policy" and path.kind == "nvme-tcp" and not path.portals:
            yield name, "one path leaves nothing to choose; say `&portals=` with the other addresses of the target"
        elif name in _OWN_OF and path.kind not in _OWN_OF[name]:
            yield name, f"{path.protocol} has none; it belongs to {_OWN_OF[name][0]}"
        elif name in _OWN_OF and path.connections is not None:
            said = "nconnect" if path.kind == "nfs" else "queues"
            yield name, f"the endpoint says it already, as {said}; leave one out"


_HOSTS_POLICIES = {
    "iscsi": ("fixed", "round-robin", "queue-depth"),
    "fc": ("fixed", "round-robin", "queue-depth"),
    "nvme-tcp": ("numa", "round-robin", "queue-depth"),
    "fc-nvme": ("numa", "round-robin", "queue-depth"),
}
_OWN_OF: dict[str, tuple[str, ...]] = {
    "nconnect": ("nfs",),
    "io_queues": ("nvme-tcp", "fc-nvme"),
    "queue_depth": ("iscsi", "fc"),
}
_SECOND_NS = 1_000_000_000
_SCSI, _NVME, _NFS = (of_family(name) for name in ("scsi", "nvme", "nfs"))
_TIMEOUTS = {
    "keep_alive": ("nvme-tcp", "iscsi"),
    "replacement_timeout": ("iscsi",),
    "reconnect_delay": ("nvme-tcp",),
    "timeo": _NFS,
}
_MULTIPATH = ("iscsi", "fcp", "nvme-tcp")
"""Those that the vm lab sets up over two links."""
FIBRE_CHANNEL_FRAMES = ("fcp", "fc-nvme")
"""Those whose simulated links carry frames of Fibre Channel."""
_SIM_POLICIES = ("fixed", "round-robin", "queue-depth", "numa")
_DIGESTS = knowing("header_digest")


def refused(
    protocol: str, topology: Topology, digests: Mapping[str, bool], guests: int, cpus: int, clients: int
) -> Iterator[tuple[str, str]]:
    """(field, reason) for all that this protocol cannot have."""
    if clients > 1:
        yield from _refused_clients(protocol, topology, guests, clients)
    yield from _refused_target_kernel(protocol, topology, guests)
    if topology.by_hypervisor:
        yield from _refused_virtual_disk(topology, cpus)
        yield from _refused_datastore(topology)
        return
    yield from _refused_virtual_disk(topology, cpus)
    if topology.attach == "vduse" and protocol == "local":
        yield "attach", "local I/O has no initiator above which a virtual disk could stand"
    yield from _refused_target(protocol, topology)
    yield from _refused_link(protocol, topology, guests)
    if topology.encryption != "none" and (reason := _plain(protocol, topology)):
        yield "encryption", reason
    yield from _refused_paths(protocol, topology, guests)
    if topology.nconnect > 1 and protocol not in _NFS:
        yield "nconnect", f"{protocol} is not an NFS mount, which alone has nconnect"
    yield from _refused_timeouts(protocol, topology)
    if topology.io_queues > 1 and protocol not in _NVME:
        yield "io_queues", f"{protocol} has no I/O queues to choose; only NVMe controllers have"
    elif topology.io_queues > cpus:
        yield (
            "io_queues",
            f"Linux creates at most one I/O queue per processor; say `lab: {{vm: {{cpus: {topology.io_queues}}}}}`",
        )
    for name, wanted in digests.items():
        if wanted and protocol not in _DIGESTS:
            yield (
                name,
                f"{protocol} has no digests: {_NO_DIGEST.get(protocol, 'they belong to iSCSI and NVMe over TCP')}",
            )


def _refused_timeouts(protocol: str, topology: Topology) -> Iterator[tuple[str, str]]:
    for name, able in _TIMEOUTS.items():
        given_ns = getattr(topology, name)
        if given_ns is None:
            continue
        step_ns, steps = (
            (_SECOND_NS // 10, "tenths of a second, 100ms") if name == "timeo" else (_SECOND_NS, "seconds, 1s")
        )
        if protocol not in able:
            yield name, f"{protocol} has none here; it belongs to {', '.join(able)}"
        elif given_ns < step_ns or given_ns % step_ns:
            yield name, f"the kernel takes whole {steps} at least"


def have_own_connections(protocol: str, topology: Topology, paths_to: PathsTo) -> bool:
    """Whether each path of the sim lab has connections of its own, and iotax's initiators choose the path of each I/O.
    Otherwise each connection uses all paths."""
    return paths_to == "owner" and (topology.paths == 1 or protocol in with_paths())


def refused_in_sim(protocol: str, topology: Topology, paths_to: PathsTo = "owner") -> Iterator[tuple[str, str]]:
    """(field, reason) for all that this protocol cannot have in virtual time."""
    if paths_to != "owner" and protocol in _NFS:
        yield "paths_to", _OWNERS_ADDRESS.format(protocol=protocol)
    if protocol in FIBRE_CHANNEL_FRAMES and topology.mtu != Topology().mtu:
        yield "mtu", _FC_FRAMES
    if topology.queue_depth is not None and protocol not in _SCSI:
        yield "queue_depth", f"{protocol} has no LUN, whose queue it is; say it of iscsi and fcp alone, by their labels"
    policy = topology.path_policy
    if paths_to == "both" and policy not in (None, "round-robin"):
        yield "path_policy", "paths to both controllers are used in turn; say `path_policy: round-robin`"
    elif paths_to == "owner" and protocol in with_paths():
        yield from _refused_own_paths(protocol, topology, topology.paths, embedded=True)
        return
    elif topology.paths == 1:
        if policy is not None and paths_to != "both":
            yield "path_policy", _NO_CHOICE
    elif protocol in _NFS:
        yield "paths", _ONE_ADDRESS.format(protocol=protocol)
    elif policy is None:
        yield "path_policy", f"several paths need one of {', '.join(_SIM_POLICIES)}"
    if topology.path_retry != Topology().path_retry:
        yield "path_retry", f"its paths lose nothing: what they carried waits; {', '.join(with_paths())} have it"
    if topology.keep_alive is not None:
        yield "keep_alive", f"{protocol} has none here; {', '.join(with_paths())} have it with `paths_to: owner`"


def refused_in_loopback(endpoint: Endpoint, topology: Topology) -> Iterator[tuple[str, str]]:
    """(field, reason) for all that iotax's own initiators cannot do on this machine."""
    protocol = endpoint.protocol
    paths = topology.paths if endpoint.embedded else max(1, len(portals_of(endpoint.uri)))
    if topology.paths > 1 and not endpoint.embedded:
        yield "paths", "an endpoint names its portals itself, as iscsi://HOST,HOST/IQN/LUN does; leave this out"
    elif paths > 1 and protocol not in with_paths():
        yield "paths", f"iotax has several paths for {', '.join(with_paths())}, not for {protocol}"
    yield from _refused_own_paths(protocol, topology, paths, embedded=endpoint.embedded)


def _refused_own_paths(protocol: str, topology: Topology, paths: int, *, embedded: bool) -> Iterator[tuple[str, str]]:
    able = with_paths()
    if topology.keep_alive is not None:
        if protocol not in able:
            yield "keep_alive", f"{protocol} has none here; it belongs to {', '.join(able)}"
        elif topology.keep_alive < _KEEP_ALIVE_MIN_NS:
            yield "keep_alive", "a target notices less than 100ms too late; say 100ms or more"
    if paths == 1:
        if topology.path_policy is not None:
            yield "path_policy", _NO_CHOICE
        if topology.path_retry != Topology().path_retry:
            yield "path_retry", _NO_CHOICE
    elif topology.path_policy == "numa":
        yield "path_policy", _NO_NUMA
    elif topology.path_policy is None and embedded and protocol in able:
        yield "path_policy", f"several paths need one of {', '.join(_OWN_POLICIES)}"


_OWN_POLICIES = ("fixed", "round-robin", "queue-depth")
_NO_NUMA = f"iotax's own initiators have {', '.join(_OWN_POLICIES)}"
_KEEP_ALIVE_MIN_NS = 100_000_000
_FC_FRAMES = "a Fibre Channel frame carries 2112 bytes at most (FC-FS), whatever Ethernet could carry"
_NO_CHOICE = "one path leaves nothing to choose; say `paths: 2` or more, or leave it out"
_ONE_ADDRESS = "an {protocol} mount goes to one address; `nconnect` gives it several connections"
_OWNERS_ADDRESS = "an {protocol} mount goes to one address, that of whoever serves the volume; leave it out"
_NO_DIGEST = {"iser": "RDMA checks what it carries (RFC 7145 §4)"}
_NO_NETWORK = {
    "local": "local I/O crosses no network",
    "fcp-loop": "fcp-loop has no transport: initiator and target stand in one kernel",
    "fc-nvme": "fc-nvme runs over a loop within one kernel, which has neither frames nor a link",
}


SERVED: dict[str, tuple[str, ...]] = {
    "ganesha": ("nfs3", "nfs4.1"),
    "tgt": ("iscsi",),
    "iotax": ("nfs3", "nfs4.1", "iscsi", "nvme-tcp"),
    "nvmf_tgt": ("nvme-tcp",),
}
"""What each target beside the kernel's serves in the vm lab."""


def _refused_target(protocol: str, topology: Topology) -> Iterator[tuple[str, str]]:
    target = kind_of(topology.target)
    if target == "kernel":
        return
    if protocol not in SERVED[target]:
        able = [name for name, protocols in SERVED.items() if protocol in protocols]
        has = f"it has {', '.join(['kernel', *able])}" if protocol != "local" else "local I/O has no target"
        yield "target", f"{target} serves {', '.join(SERVED[target])} here, not {protocol}; {has}"
    elif topology.paths > 1:
        yield "target", f"{target} is set up on one address; several paths are for the kernel's targets"


CLIENTS_MAX = 8
"""Initiator guests of the vm lab."""
OVER_TCP = ("nfs3", "nfs4.1", "iscsi", "nvme-tcp")
"""What several initiator guests are set up for, and what encrypted links carry."""
_OF_ONE_CLIENT = ("target", "nconnect")


def _refused_clients(protocol: str, topology: Topology, guests: int, clients: int) -> Iterator[tuple[str, str]]:
    default = Topology()
    if clients > CLIENTS_MAX:
        yield "clients", f"the vm lab has {CLIENTS_MAX} initiator guests at most; say `lab: {{hosts: …}}`"
    if protocol not in OVER_TCP:
        why = _NO_NETWORK.get(protocol, f"{protocol} is set up on one link")
        yield "clients", f"{why}; several clients are for {', '.join(OVER_TCP)}"
    elif guests == 1:
        yield "clients", "both halves stand in one kernel (`guests: 1`); several clients need `guests: 2`"
    for name in _OF_ONE_CLIENT + (("attach",) if topology.by_hypervisor else ()):
        if getattr(topology, name) != getattr(default, name):
            yield name, "several clients have a link each to the kernel's targets; leave this out or say `clients: 1`"


_OF_A_DISK: dict[str, tuple[tuple[str, ...], str]] = {
    "iothread": (("virtio-blk", "virtio-scsi"), "QEMU's {attach} has none"),
    "aio": (("vduse",), "QEMU's own initiators use sockets"),
    "disk_cache": (("vduse",), "QEMU's own initiators have no page cache"),
    "disk_queues": (("vduse", "virtio-blk", "virtio-scsi", "nvme"), "QEMU's {attach} has one"),
}
"""Setting of a virtual disk → the `attach` that has it, and why the others do not."""
OF_A_DATASTORE = ("attach", "disk_queues", "iothread", "target", "kernel", "target_kernel")
"""What a disk that the hypervisor attaches can have."""


def _refused_virtual_disk(topology: Topology, cpus: int) -> Iterator[tuple[str, str]]:
    default = Topology()
    for name, (able, lacks) in _OF_A_DISK.items():
        if getattr(topology, name) != getattr(default, name) and topology.attach not in able:
            reason = "there is no virtual disk" if topology.attach == "guest" else lacks.format(attach=topology.attach)
            yield name, f"{reason}; say `attach: {' or '.join(able)}`"
    if topology.attach == "vduse" and topology.disk_cache != default.disk_cache and topology.aio == "native":
        yield "disk_cache", "QEMU does Linux AIO only without the page cache; say `aio: threads` or `aio: io_uring`"
    if topology.attach != "guest" and (topology.disk_queues or 0) > cpus:
        reason = "Linux uses at most one queue of a disk per processor"
        yield "disk_queues", f"{reason}; say `lab: {{vm: {{cpus: {topology.disk_queues}}}}}`"


def _refused_datastore(topology: Topology) -> Iterator[tuple[str, str]]:
    default = Topology()
    if topology.target != "kernel":
        yield "target", "datastores are set up on the kernel's targets; leave one of both out"
    for name in Topology.model_fields:
        if name not in (*OF_A_DATASTORE, *_OF_A_DISK) and getattr(topology, name) != getattr(default, name):
            yield name, "the hypervisor's initiator reaches the target from the host, over none of the guests' links"


def _refused_target_kernel(protocol: str, topology: Topology, guests: int) -> Iterator[tuple[str, str]]:
    if topology.target_kernel is None:
        return
    if protocol in _NO_NETWORK:
        yield "target_kernel", _NO_NETWORK[protocol]
    elif guests == 1:
        yield "target_kernel", "both halves stand in one kernel (`guests: 1`)"


def _refused_link(protocol: str, topology: Topology, guests: int) -> Iterator[tuple[str, str]]:
    default = Topology()
    if topology.link_delay % 1000:
        yield "link_delay", "a link's delay is a whole number of microseconds"
    for name in ("mtu", "link_rate", "link_delay"):
        if getattr(topology, name) == getattr(default, name):
            continue
        if protocol in _NO_NETWORK:
            yield name, _NO_NETWORK[protocol]
        elif name == "mtu" and protocol == "fcp":
            yield name, _FC_FRAMES
        elif name != "mtu" and guests == 1:
            yield name, "both halves stand in one kernel (`guests: 1`), so there is no link to shape"


_OVER_TLS = ("nfs3", "nfs4.1", "nvme-tcp")
"""RFC 9289; NVMe/TCP transport 1.1 §3.6."""


def _plain(protocol: str, topology: Topology) -> str | None:
    """Why this encryption cannot have this protocol's way; None where it can."""
    if protocol in _NO_NETWORK:
        return _NO_NETWORK[protocol]
    if protocol not in OVER_TCP:
        made = "FCoE frames are not IP" if protocol == "fcp" else "RDMA in software makes packets that pass by"
        return f"{made}; encryption is for {', '.join(OVER_TCP)}"
    if topology.encryption in KERBEROS and protocol not in _NFS:
        return f"Kerberos protects calls of NFS; {topology.encryption} is for {', '.join(_NFS)}"
    if topology.encryption == "tls" and protocol not in _OVER_TLS:
        return f"{protocol} has no TLS; tls is for {', '.join(_OVER_TLS)}"
    if topology.encryption == "tls" and topology.target != "kernel":
        return f"{kind_of(topology.target)} is set up without TLS; say `target: kernel`"
    if topology.encryption in KERBEROS and topology.target != "kernel":
        return f"{topology.target} has no keys of the lab's realm; say `target: kernel`"
    return None


def _refused_paths(protocol: str, topology: Topology, guests: int) -> Iterator[tuple[str, str]]:
    policy = topology.path_policy
    if topology.paths == 1:
        if policy is not None:
            yield "path_policy", _NO_CHOICE
        return
    if protocol in _NFS:
        yield "paths", _ONE_ADDRESS.format(protocol=protocol)
    elif protocol not in _MULTIPATH:
        reason = _NO_NETWORK.get(protocol, "RDMA in software is set up on one link")
        yield "paths", f"{reason}; several paths are for {', '.join(_MULTIPATH)}"
    elif guests == 1:
        yield "paths", "both halves stand in one kernel (`guests: 1`), so there is no further link"
    elif policy is None:
        yield "path_policy", f"several paths need one of {', '.join(_policies(protocol))}"
    elif policy not in _policies(protocol):
        yield "path_policy", f"{protocol} has no policy {policy}; it has {', '.join(_policies(protocol))}"


def _policies(protocol: str) -> tuple[str, ...]:
    return ("fixed", "round-robin", "queue-depth") if protocol in _SCSI else ("numa", "round-robin", "queue-depth")
