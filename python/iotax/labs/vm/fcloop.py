"""nvme-fcloop: Fibre Channel between two halves of one kernel. Stock kernels come without it; their source has it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.vm import kbuild
from iotax.labs.vm.cache import need_space, new_entry, sound
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Package, Store

_MODULE = "nvme-fcloop.ko"
_BUILD_BYTES = 600 << 20
_NEEDED = re.compile(r"drivers/nvme/(host|target)/[^/]+\.[ch]")


@dataclass(frozen=True)
class Loop:
    """The built module, or why there is none."""

    data: bytes | None
    reason: str = ""


def module(store: Store, release: str, kernel: Package, cache: Path, report: Callable[[str], None]) -> Loop:
    """Builds the module for a kernel unless the cache has it, or the reason why it could not be built."""
    name = hashlib.sha256(f"{kernel.name} {kernel.sha256}".encode()).hexdigest()[:24]
    built, refused = cache / name, cache / f"{name}.reason"
    if sound(built):
        return Loop((built / _MODULE).read_bytes())
    if refused.is_file() and store.resting:
        return Loop(None, refused.read_text())
    cache.mkdir(parents=True, exist_ok=True)
    try:
        need_space(cache, _BUILD_BYTES)
        data = _build(store, release, kernel, report)
    except (VmFault, subprocess.SubprocessError, OSError, StopIteration) as fault:
        message = fault.message if isinstance(fault, VmFault) else str(fault)
        reason = f"Linux {release} comes without nvme-fcloop, and it could not be built: {message}"
        if isinstance(fault, VmFault) and fault.subject == kbuild.SUBJECT:
            refused.write_text(reason)
        return Loop(None, reason)
    with new_entry(built) as entry:
        (entry / _MODULE).write_bytes(data)
    return Loop(data)


def _build(store: Store, release: str, kernel: Package, report: Callable[[str], None]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="iotax-fcloop-") as name:
        folder = Path(name)
        headers = kbuild.unpack(store, release, kernel, _NEEDED, folder, report)
        report("fc-nvme: building nvme-fcloop")
        target = folder / "drivers/nvme/target"
        (target / "Makefile").write_text("obj-m := nvme-fcloop.o\nnvme-fcloop-y := fcloop.o\n")
        kbuild.make(headers, target, ["CONFIG_NVME_TARGET_FCLOOP=m"])
        return (target / _MODULE).read_bytes()
