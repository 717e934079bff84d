"""Modules that stock kernels come without and whose source has them: built once for each kernel, and kept."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from iotax.labs.vm import kbuild
from iotax.labs.vm.cache import need_space, new_entry, sound
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.modules import canonical
from iotax.labs.vm.packages import Package, Store

_BUILD_BYTES = 600 << 20


@dataclass(frozen=True)
class Source:
    """Modules that are built together, out of one folder of the kernel's source."""

    name: str
    needed_by: str
    files: str
    """Regular expression of the files of the source that are needed."""
    folder: str
    modules: tuple[str, ...]
    """Files below the build's folder, without their .ko, each after those that it needs."""
    makefiles: tuple[tuple[str, str], ...]
    """(path below the folder, text): in place of the kernel's own, which know its configuration."""
    options: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modules, as the kernel shows them."""
        return tuple(canonical(Path(each).name) for each in self.modules)


FCLOOP = Source(
    "nvme-fcloop",
    needed_by="fc-nvme",
    files=r"drivers/nvme/(host|target)/[^/]+\.[ch]",
    folder="drivers/nvme/target",
    modules=("nvme-fcloop",),
    makefiles=(("Makefile", "obj-m := nvme-fcloop.o\nnvme-fcloop-y := fcloop.o\n"),),
    options=("CONFIG_NVME_TARGET_FCLOOP=m",),
)
"""Fibre Channel between two halves of one kernel."""

VDUSE = Source(
    "vduse",
    needed_by="attach: vduse",
    files=r"drivers/(vdpa/(vdpa|vdpa_user/\w+)|virtio/virtio_vdpa)\.[ch]",
    folder="drivers",
    modules=("vdpa/vdpa", "vdpa/vduse", "virtio/virtio_vdpa"),
    makefiles=(
        ("Makefile", "obj-m := vdpa/ virtio/\n"),
        (
            "vdpa/Makefile",
            "obj-m := vdpa.o vduse.o\nvduse-y := vdpa_user/vduse_dev.o vdpa_user/iova_domain.o\n",
        ),
        ("virtio/Makefile", "obj-m := virtio_vdpa.o\n"),
    ),
)
"""Disks that a process serves to the kernel below it, as a hypervisor's do to a guest."""


@dataclass(frozen=True)
class Built:
    """The modules by name, or why there are none."""

    modules: dict[str, bytes] = field(default_factory=dict)
    reason: str = "no trial with this kernel asked for it, so its module was not built"


def modules(
    source: Source, store: Store, release: str, kernel: Package, cache: Path, report: Callable[[str], None]
) -> Built:
    """Builds the modules for a kernel unless the cache has them, or the reason why they could not be built."""
    made_of = f"{source} {kernel.name} {kernel.sha256}".encode() + Path(kbuild.__file__).read_bytes()
    name = hashlib.sha256(made_of).hexdigest()[:24]
    place, refused = cache / name, cache / f"{name}.reason"
    if sound(place):
        return Built({each: (place / f"{each}.ko").read_bytes() for each in source.names}, "")
    if refused.is_file() and store.resting:
        return Built(reason=refused.read_text())
    cache.mkdir(parents=True, exist_ok=True)
    try:
        need_space(cache, _BUILD_BYTES)
        built = _build(source, store, release, kernel, report)
    except (VmFault, subprocess.SubprocessError, OSError, StopIteration) as fault:
        message = fault.message if isinstance(fault, VmFault) else str(fault)
        reason = f"Linux {release} comes without {source.name}, and it could not be built: {message}"
        if isinstance(fault, VmFault) and fault.subject == kbuild.SUBJECT:
            refused.write_text(reason)
        return Built(reason=reason)
    with new_entry(place) as entry:
        for each, data in built.items():
            (entry / f"{each}.ko").write_bytes(data)
    return Built(built, "")


def _build(
    source: Source, store: Store, release: str, kernel: Package, report: Callable[[str], None]
) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix=f"iotax-{source.name}-") as name:
        root = Path(name)
        headers = kbuild.unpack(store, release, kernel, re.compile(source.files), root, report)
        report(f"{source.needed_by}: building {source.name}")
        folder = root / source.folder
        for path, text in source.makefiles:
            (folder / path).write_text(text)
        kbuild.make(headers, folder, source.options)
        return {
            each: (folder / f"{path}.ko").read_bytes() for each, path in zip(source.names, source.modules, strict=True)
        }
