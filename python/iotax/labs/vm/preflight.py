"""What must be there before the vm lab can run, looked at without changing anything."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from iotax.labs.base import CheckItem
from iotax.labs.generators import GENERATORS, generator_of
from iotax.labs.proc import memory_free_bytes
from iotax.labs.vm import recipe
from iotax.labs.vm.cache import cache_root, need_space
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.image import Contents, own_program
from iotax.labs.vm.kernel import is_commit, is_folder, own_kernel
from iotax.labs.vm.packages import STOCK, Store, require_tools
from iotax.labs.vm.qemu import require_qemu
from iotax.labs.vm.tree import commit_of, version_of
from iotax.protocols import without_transport
from iotax.study import Settings
from iotax.study.fields import kind_of

_QUEUE_DEPTH_SINCE = (6, 11)
_TLS_SINCE = (6, 7)
"""Of NVMe/TCP; NFS had it in 6.5."""
_GUEST_BYTES = 512 << 20
_FIRST_BUILD_BYTES = 1 << 30
"""Packages, unpacked kernel, headers and source for fc-nvme, image."""


def findings(settings: list[Settings], volume_bytes: int) -> list[CheckItem]:
    protocols = list(dict.fromkeys(each.endpoint.protocol for each in settings))
    found: list[CheckItem] = []
    clients = clients_of(settings)
    looks = (_qemu, _packages, lambda: _kernel(settings), lambda: _memory(volume_bytes, clients))
    own = tuple(functools.partial(_own_target, path) for path in _own_targets(settings))
    over_tls = [each for each in settings if each.topology.encryption == "tls"]
    tls = (lambda: _tls_kernel(over_tls), _handshake) if over_tls else ()
    for look in (*looks, *own, *tls):
        try:
            found.append(look())
        except VmFault as fault:
            missing = CheckItem("error", fault.subject, fault.message)
            found += [missing] if missing not in found else []
    found += _processors(clients)
    found += [
        CheckItem("warning", each, "initiator and target run in one kernel; its CPU is that of both together")
        for each in protocols
        if each in without_transport()
    ]
    return found


def clients_of(settings: list[Settings]) -> int:
    """The most initiator guests that a trial asks for."""
    return max((each.load.clients or 1 for each in settings), default=1)


def releases(settings: list[Settings]) -> list[str]:
    """The kernels that a study names, each once."""
    return list(dict.fromkeys(release for each in settings for release in each.topology.kernels))


def contents(settings: list[Settings], release: str) -> Contents:
    """What the trials with this kernel need in their image."""
    asked = [each for each in settings if release in each.topology.kernels]
    return Contents(
        kernel=release,
        servers=tuple(sorted({each.topology.target for each in asked} & {*recipe.SERVERS})),
        own_targets=_own_targets(asked),
        # Every study of the stock kernel shares its image.
        fc_nvme=release == STOCK or any(each.endpoint.protocol == "fc-nvme" for each in asked),
        database=any(generator_of(each).database for each in asked),
        generators=tuple(
            (name, program)
            for name in sorted({each.load.generator for each in asked})
            if (program := GENERATORS[name].guest_program) is not None
        ),
        encryption=tuple(sorted({each.topology.encryption for each in asked} & {*recipe.ENCRYPTION})),
        vduse=any(each.topology.attach == "vduse" for each in asked),
    )


def _own_targets(settings: list[Settings]) -> tuple[str, ...]:
    return tuple(sorted({each.topology.target for each in settings if "/" in each.topology.target}))


def require_memory(volume_bytes: int, clients: int = 1) -> int:
    """MiB free. Raises VmFault where the guests and their volume do not fit."""
    free_bytes = memory_free_bytes()
    # Each of the first two may have to hold the volume and its copy.
    wanted_bytes = (1 + clients) * _GUEST_BYTES + 4 * volume_bytes
    if free_bytes < wanted_bytes:
        fewer = " or fewer `clients:`" if clients > 1 else ""
        raise VmFault(
            "memory",
            f"{1 + clients} guests need {wanted_bytes >> 20} MiB and {free_bytes >> 20} MiB are free; "
            f"say a smaller `size:` under volume{fewer}",
        )
    return free_bytes >> 20


def require_tls(settings: list[Settings]) -> None:
    """Raises VmFault if a study asks for TLS and this machine cannot have it."""
    if over_tls := [each for each in settings if each.topology.encryption == "tls"]:
        _tls_kernel(over_tls)
        _handshake()


def _qemu() -> CheckItem:
    return CheckItem("ok", "qemu", f"QEMU {require_qemu()}; whether KVM works is found out by booting")


def _packages() -> CheckItem:
    root = cache_root()
    store = Store(root / "packages")
    if store.filled:
        return CheckItem("ok", "packages", f"in {root}, with {store.kernel_package()}")
    require_tools()
    need_space(root, _FIRST_BUILD_BYTES)
    return CheckItem(
        "warning",
        "packages",
        f"{store.kernel_package()} and tools will be downloaded to {root} (about 220 MB), not installed",
    )


def _kernel(settings: list[Settings]) -> CheckItem:
    """What a path policy asks of the kernel."""
    store = Store(cache_root() / "packages")
    packages = {release: _named(store, release) for release in releases(settings)}
    for each in settings:
        package = packages[each.topology.kernel]
        queue_depth = each.topology.path_policy == "queue-depth" and each.endpoint.protocol.startswith("nvme")
        if queue_depth and _version(package) < _QUEUE_DEPTH_SINCE:
            raise VmFault(
                "kernel",
                f"the NVMe path policy queue-depth came with Linux 6.11, and {package} is older; "
                "say numa or round-robin",
            )
    return CheckItem("ok", "kernel", ", ".join(packages.values()))


def _version(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", package)[:2])


def _tls_kernel(settings: list[Settings]) -> CheckItem:
    store = Store(cache_root() / "packages")
    for named in (_named(store, release) for release in releases(settings)):
        if _version(named) < _TLS_SINCE:
            raise VmFault("kernel", f'TLS needs Linux 6.7, and {named} is older; say `kernel: "6.12"` for it')
    return CheckItem("ok", "kernel", "has TLS")


def _handshake() -> CheckItem:
    if Store(cache_root() / "packages").knows(recipe.TLSHD_PACKAGE):
        return CheckItem("ok", recipe.PROGRAM, f"package {recipe.TLSHD_PACKAGE}")
    if own := recipe.own_daemon():
        own_program(own)
        return CheckItem("ok", recipe.PROGRAM, str(own))
    raise VmFault(recipe.PROGRAM, recipe.TLSHD_MISSING)


def _own_target(path: str) -> CheckItem:
    own_program(Path(path))
    return CheckItem("ok", kind_of(path), path)


def _named(store: Store, release: str) -> str:
    """The kernel's package, or its release and folder or commit."""
    if is_commit(release):
        commit = commit_of(release)
        return f"Linux {version_of(commit)} at {commit}, built unless the cache has it"
    if not is_folder(release):
        return store.kernel_package(release)
    found = own_kernel(Path(release))
    return f"Linux {found.version} in {release}"


def _memory(volume_bytes: int, clients: int) -> CheckItem:
    return CheckItem("ok", "memory", f"{require_memory(volume_bytes, clients)} MiB free")


def _processors(clients: int) -> list[CheckItem]:
    """More guests than processors get in each other's way."""
    mine = len(os.sched_getaffinity(0))
    if clients == 1 or 1 + clients <= mine:
        return []
    said = f"{1 + clients} guests share {mine}: compare CPU per I/O; IOPS and latency say little"
    return [CheckItem("warning", "processors", said)]
