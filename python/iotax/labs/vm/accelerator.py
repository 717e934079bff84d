"""Whether KVM works here, found out by booting: that /dev/kvm can be opened says nothing."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path

from iotax.labs.vm.cache import cache_root
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guest
from iotax.labs.vm.image import Image
from iotax.labs.vm.qemu import Accelerator, Machine

_PROBE_S = 20.0
"""A kernel boots within two seconds in a KVM that works."""
_PROBE_BYTES = 512 << 20
_DEVICE = Path("/dev/kvm")


def choose(image: Image, wanted: str, version: str) -> tuple[Accelerator, str]:
    """The accelerator, and in words why that one. Raises VmFault if `wanted` is kvm and it does not work."""
    if wanted == "tcg":
        return "tcg", "emulation, as asked"
    reason = _kvm_fault(image, version)
    if reason is None:
        return "kvm", "KVM: a kernel boots in it"
    if wanted == "kvm":
        raise VmFault("kvm", f"{reason}; say `accelerator: tcg`, or auto")
    return "tcg", f"emulation, since {reason}"


def _kvm_fault(image: Image, version: str) -> str | None:
    """Why KVM does not work; None if it does. The verdict holds until the host boots anew."""
    if not _DEVICE.exists():
        return "there is no /dev/kvm"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return "/dev/kvm may not be opened (is the user in the group kvm?)"
    verdicts = cache_root() / "kvm.json"
    kernel = f"{image.release} {image.packages.get(f'linux-image-{image.release}', '')}"
    place = f"{_boot_id()} {platform.release()} {version} {kernel}"
    try:
        known = json.loads(verdicts.read_text())
        if known["place"] == place:
            return known["fault"]
    except (OSError, ValueError, KeyError):
        pass
    fault = _boot(image)
    verdicts.write_text(json.dumps({"place": place, "fault": fault}))
    return fault


def _boot(image: Image) -> str | None:
    with tempfile.TemporaryDirectory(prefix="iotax-vm-") as folder:
        guest = Guest(Machine("probe", _PROBE_BYTES, "kvm"), image, Path(folder))
        try:
            guest.boot(time.monotonic() + _PROBE_S)
        except VmFault as fault:
            return f"a kernel does not boot in KVM ({fault.message})"
        finally:
            guest.close()
    return None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
