"""nvme-fcloop: Fibre Channel between two halves of one kernel. Stock kernels come without it; their source has it.

The build stands in a temporary folder of its own: headers and source are unpacked there, nothing is installed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.vm.cache import need_space, new_entry, sound
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Package, Store, exists
from iotax.labs.vm.untar import extract

_MODULE = "nvme-fcloop.ko"
_SUBJECT = "fc-nvme"
_BUILD_BYTES = 600 << 20
_BUILD_S = 300
_NEEDED = re.compile(r"[^/]+/drivers/nvme/(host|target)/[^/]+\.[ch]")
_PAST = re.compile(r"[^/]+/drivers/(nvmem|of|p)")
"""What the archive holds after drivers/nvme: no need to unpack further."""


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
        if isinstance(fault, VmFault) and fault.subject == _SUBJECT:
            refused.write_text(reason)  # a network or a disk may be better the next time; a compiler is not
        return Loop(None, reason)
    with new_entry(built) as entry:
        (entry / _MODULE).write_bytes(data)
    return Loop(data)


def _build(store: Store, release: str, kernel: Package, report: Callable[[str], None]) -> bytes:
    for tool in ("make", "gcc"):
        if shutil.which(tool) is None:
            raise VmFault(_SUBJECT, f"{tool} is not there; install the package {tool}")
    version = re.match(r"\d+\.\d+", release)
    headers, source = f"linux-headers-{release}", f"linux-source-{version[0] if version else release}"
    if absent := [each for each in (headers, source) if not exists(each)]:
        raise VmFault(_SUBJECT, f"the package lists do not know {' or '.join(absent)}")
    report(f"fc-nvme: {headers} and {source}, to build nvme-fcloop")
    found = store.fetch([headers, source])
    found |= store.fetch(
        [each for each in found[headers].depends if each.startswith(("linux-headers", "linux-kbuild"))]
    )
    if found[source].version != kernel.version:
        raise VmFault(_SUBJECT, f"{source} is {found[source].version}, but the kernel is {kernel.version}")
    with tempfile.TemporaryDirectory(prefix="iotax-fcloop-") as name:
        folder = Path(name)
        for package in found.values():
            if package.name != source:
                shutil.copytree(package.root, folder, symlinks=True, dirs_exist_ok=True)
        _unpack(found[source], folder)
        report("fc-nvme: building nvme-fcloop")
        return _make(folder, folder / "usr/src" / headers)


def _unpack(source: Package, folder: Path) -> None:
    """The NVMe drivers out of the kernel's source, into folder/drivers/nvme."""
    archive = next((source.root / "usr/src").glob("linux-source-*.tar.xz"))
    with tarfile.open(archive, mode="r|xz") as files:
        for each in files:
            if _NEEDED.fullmatch(each.name):
                each.name = each.name.partition("/")[2]
                extract(files, each, folder)
            elif _PAST.match(each.name):
                return


def _make(folder: Path, headers: Path) -> bytes:
    # The headers' Makefile names its other half by the path that it would have when installed.
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{folder}/usr/src/"))
    target = folder / "drivers/nvme/target"
    (target / "Makefile").write_text("obj-m := nvme-fcloop.o\nnvme-fcloop-y := fcloop.o\n")
    done = subprocess.run(
        ["make", "-C", headers, f"M={target}", "CONFIG_NVME_TARGET_FCLOOP=m", *_compiler(headers), "modules"],
        capture_output=True, text=True, check=False, timeout=_BUILD_S,
    )  # fmt: skip
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line] or ["no reason given"]
        raise VmFault(_SUBJECT, f"make: {lines[0]}")
    return (target / "nvme-fcloop.ko").read_bytes()


def _compiler(headers: Path) -> list[str]:
    """The compiler that the kernel was built with, where it is installed; else the default one."""
    variables = headers / ".kernelvariables"
    named = re.search(r"gcc-\d+", variables.read_text()) if variables.is_file() else None
    return [f"CC={named[0] if named and shutil.which(named[0]) else 'gcc'}"]
