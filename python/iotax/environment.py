"""What a result depends on beside its study: machine, kernel, versions, command line."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from iotax.engine import engine_version
from iotax.version import __version__

_TOOLS = ("pydantic", "pandas", "scipy", "vl-convert-python")


def environment(program: Path | None) -> dict[str, Any]:
    """Plain JSON data; what cannot be found out is left out. `program` is the engine, where there is one."""
    found: dict[str, Any] = {
        "machine": {
            "architecture": platform.machine(),
            "kernel": platform.release(),
            "system": _os_name(),
            "cpu_model": _cpu_model(),
            "cpus": os.cpu_count(),
            "cpus_usable": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "turbo_off": _read("/sys/devices/system/cpu/intel_pstate/no_turbo"),
            "hypervisor": _hypervisor(),
        },
        "iotax": __version__,
        "engine": engine_version(program) if program else None,
        "engine_path": str(program) if program else None,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: version for name in _TOOLS if (version := _version(name))},
        "command_line": sys.argv,
    }
    found["machine"] = {name: value for name, value in found["machine"].items() if value is not None}
    return {name: value for name, value in found.items() if value is not None}


def _read(path: str) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="utf-8").strip()
    return None


def _os_name() -> str | None:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    return None


def _cpuinfo(field: str) -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return None


def _cpu_model() -> str | None:
    return _cpuinfo("model name") or _cpuinfo("Model") or _read("/proc/device-tree/model")


def _hypervisor() -> str | None:
    """Who runs this machine, if it is virtual: its figures hold for its host's other guests too."""
    if "hypervisor" in (_cpuinfo("flags") or "").split():
        return _read("/sys/class/dmi/id/sys_vendor") or "yes"
    return None


def _commit() -> str | None:
    """The checkout's commit, with `+changes` where files differ from it; None for an installed package."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        head = _git(checkout, "rev-parse", "HEAD")
        return head + ("+changes" if _git(checkout, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(checkout: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", checkout, *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None
