"""QEMU's own initiators, which its packages keep apart: block drivers that QEMU loads when it is asked for one.

They are this host's where they are installed, else the package's, downloaded and unpacked. A module must come from the
very build of its QEMU, which refuses any other.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from iotax.labs.base import CheckItem
from iotax.labs.vm.cache import cache_root, locked
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.libraries import FOLDERS, package_closure
from iotax.labs.vm.packages import Store
from iotax.labs.vm.qemu import PROGRAM

_PACKAGE = "qemu-block-extra"
_PROBE_S = 30
_NOBODY = "127.0.0.1"
_TRIALS = {
    "iscsi": f"driver=iscsi,node-name=probe,transport=tcp,portal={_NOBODY}:1,target=iqn.2026-11.io.iotax:none,lun=0",
    "nfs": f"driver=nfs,node-name=probe,server.type=inet,server.host={_NOBODY},path=/nowhere/none",
}
"""Block devices that nobody serves: to try them tells whether QEMU has the driver."""


def finding(drivers: Collection[str]) -> CheckItem:
    """Whether QEMU has these drivers, or where they will come from."""
    if any(_absence(driver, {}) for driver in drivers):
        return CheckItem("warning", "initiators", f"{_PACKAGE}, QEMU's own, will be downloaded, not installed")
    return CheckItem("ok", "initiators", f"QEMU's own: {', '.join(drivers)}")


def environment(drivers: Collection[str], version: str, report: Callable[[str], None]) -> dict[str, str]:
    """Environment variables with which this QEMU finds the drivers. Raises VmFault if they cannot be had."""
    if not any(_absence(driver, {}) for driver in drivers):
        return {}
    report(f"packages: {_PACKAGE}, QEMU's own initiators")
    found = _from_package(drivers, version, report)
    for driver in drivers:
        if reason := _absence(driver, found):
            raise VmFault(_PACKAGE, f"QEMU {version} does not load its {driver} initiator: {reason}")
    return found


def _from_package(drivers: Collection[str], version: str, report: Callable[[str], None]) -> dict[str, str]:
    root = cache_root()
    with locked(root, report):
        store = Store(root / "packages")
        store.strict = True
        package = store.fetch([_PACKAGE])[_PACKAGE]
        if package.version not in version:
            raise VmFault(
                _PACKAGE,
                f"the archive has the initiators of QEMU {package.version}, and this is QEMU {version}: a module must "
                f"match its QEMU; install both with `apt-get install qemu-system-x86 {_PACKAGE}`",
            )
        folder = next((each.parent for each in package.root.rglob("block-*.so")), None)
        if folder is None:
            raise VmFault(_PACKAGE, f"{_PACKAGE} {package.version} holds no block driver")
        modules = [(package, folder / f"block-{driver}.so") for driver in drivers]
        libraries = package_closure(store, modules)
        for each in {package, *(owner for owner, _ in libraries.values())}:
            each.keep()
    absent = {str(file.parent) for place, (_, file) in libraries.items() if not _on_host(Path(place).name)}
    own = os.environ.get("LD_LIBRARY_PATH")
    search = os.pathsep.join([*sorted(absent), *([own] if own else [])])
    return {"QEMU_MODULE_DIR": str(folder)} | ({"LD_LIBRARY_PATH": search} if search else {})


def _absence(driver: str, variables: Mapping[str, str]) -> str | None:
    """Why QEMU has no such driver; None if it has."""
    try:
        done = subprocess.run(
            [PROGRAM, "-M", "none", "-nodefaults", "-display", "none", "-S", "-blockdev", _TRIALS[driver]],
            capture_output=True, text=True, check=False, timeout=_PROBE_S, env=os.environ | dict(variables),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None  # it waits for a server, so the driver is there
    lines = [line for line in done.stderr.splitlines() if "nknown driver" in line or "failed to open module" in line]
    return lines[0].rpartition(f"{_TRIALS[driver]}: ")[2] if lines else None


def _on_host(name: str) -> bool:
    return any((Path("/") / folder / name).exists() for folder in FOLDERS)
