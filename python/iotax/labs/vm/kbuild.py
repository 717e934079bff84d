"""Modules that a distribution's kernel leaves out, built from its own source against its headers.

The build stands in a folder of the caller's: headers and source are unpacked there, nothing is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Package, Store, exists, extract

SUBJECT = "kernel modules"
"""Faults that another attempt would not fix: a network or a disk may be better the next time, a compiler is not."""
_BUILD_S = 300
_BEHIND = "drivers/w"


def unpack(
    store: Store, release: str, kernel: Package, wanted: re.Pattern[str], folder: Path, report: Callable[[str], None]
) -> Path:
    """Headers of the kernel and the `wanted` files of its source, below the folder; returns the place of the headers.

    Names are matched without the archive's own folder: `drivers/nvme/host/tcp.c`. Only the first part of the archive is
    searched, up to virtio's drivers. Raises VmFault.
    """
    for tool in ("make", "gcc"):
        if shutil.which(tool) is None:
            raise VmFault(SUBJECT, f"{tool} is not there; install the package {tool}")
    version = re.match(r"\d+\.\d+", release)
    headers, source = f"linux-headers-{release}", f"linux-source-{version[0] if version else release}"
    if absent := [each for each in (headers, source) if not exists(each)]:
        raise VmFault(SUBJECT, f"the package lists do not know {' or '.join(absent)}")
    report(f"packages: {headers} and {source}, to build kernel modules")
    # A distribution may have newer source than kernels, until it has signed them.
    same = f"{source}={kernel.version}"
    found = store.fetch([headers, same])
    found |= store.fetch(
        [each for each in found[headers].depends if each.startswith(("linux-headers", "linux-kbuild"))]
    )
    for package in found.values():
        if package.name != source:
            shutil.copytree(package.root, folder, symlinks=True, dirs_exist_ok=True)
    _unpack_source(next((found[same].root / "usr/src").glob("linux-source-*.tar.xz")), wanted, folder)
    # The headers' Makefile names its other half by the path that it would have when installed.
    makefile = folder / "usr/src" / headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{folder}/usr/src/"))
    return makefile.parent


def _unpack_source(archive: Path, wanted: re.Pattern[str], folder: Path) -> None:
    with tarfile.open(archive, mode="r|xz") as files:
        for each in files:
            each.name = each.name.partition("/")[2]
            if each.name >= _BEHIND:
                return
            if wanted.fullmatch(each.name):
                extract(files, each, folder)


def make(headers: Path, part: Path, options: Iterable[str]) -> None:
    """Builds the modules of one folder. Raises VmFault."""
    done = subprocess.run(
        ["make", "-C", headers, f"M={part}", *_compiler(headers), *options, "modules"],
        capture_output=True, text=True, check=False, timeout=_BUILD_S,
    )  # fmt: skip
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line] or ["no reason given"]
        raise VmFault(SUBJECT, f"make: {lines[0]}")


def _compiler(headers: Path) -> list[str]:
    """The compiler with which the kernel was built, if it is installed; else the default one."""
    variables = headers / ".kernelvariables"
    named = re.search(r"gcc-\d+", variables.read_text()) if variables.is_file() else None
    return [f"CC={named[0] if named and shutil.which(named[0]) else 'gcc'}"]
