"""QEMU's plugin that counts instructions: built here by the C compiler, kept in the cache, tried before it is used."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from iotax.labs.vm.cache import cache_root, locked, new_entry, sound
from iotax.labs.vm.fault import VmFault

_VERSIONS = (1, 2)
"""Versions of QEMU's plugin interface: up to QEMU 8 and from 9 on. The part that the plugin uses is the
same in both."""
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_COMPILER = "gcc"
_WITHIN_S = 60
_SUBJECT = "profile"


@dataclass(frozen=True)
class Plugin:
    """The plugin that counts a machine's instructions."""

    file: Path
    cache_lines: bool = False
    """Whether it also models a cache."""

    def option(self, out: Path) -> str:
        """The value of QEMU's `-plugin`; `out` is the file of its counts."""
        return f"file={_escaped(self.file)},out={_escaped(out)}{',lines=on' if self.cache_lines else ''}"


def _escaped(path: Path) -> str:
    """A comma ends an option's value; two stand for one."""
    return str(path).replace(",", ",,")


def counting_plugin(qemu: str, version: str, report: Callable[[str], None], *, cache_lines: bool = False) -> Plugin:
    """The plugin for this QEMU. Raises VmFault if it cannot be built, or QEMU does not accept it."""
    source = resources.files("iotax.labs.vm.plugin") / "counter.c"
    text = source.read_bytes()
    name = hashlib.sha256(b"\n".join([text, version.encode(), repr((_FLAGS, _VERSIONS)).encode()])).hexdigest()[:24]
    root = cache_root()
    place = root / "plugins" / name
    with locked(root, report):
        if not sound(place):
            report("building QEMU's plugin that counts instructions")
            with new_entry(place) as entry:
                _build(text, qemu, entry / "counter.so")
    return Plugin(place / "counter.so", cache_lines)


def cannot_build() -> str:
    """Known reason why it cannot be built; empty if it may be possible."""
    missing = shutil.which(_COMPILER) is None
    return f"{_COMPILER} is not there, to build QEMU's plugin; install the package {_COMPILER}" if missing else ""


def _build(text: bytes, qemu: str, plugin: Path) -> None:
    if reason := cannot_build():
        raise VmFault(_SUBJECT, reason)
    said = ""
    for version in _VERSIONS:
        done = subprocess.run(
            [_COMPILER, *_FLAGS, f"-DPLUGIN_VERSION={version}", "-x", "c", "-", "-o", plugin],
            input=text, capture_output=True, check=False, timeout=_WITHIN_S,
        )  # fmt: skip
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            wrong = next((line for line in lines if "error" in line), f"exit code {done.returncode}")
            raise VmFault(_SUBJECT, f"{_COMPILER} does not build QEMU's plugin: {wrong}; install the package libc6-dev")
        if not (said := _refused(plugin, qemu)):
            return
    raise VmFault(_SUBJECT, f"{qemu} does not take plugins ({said}); install one that was built with --enable-plugins")


def _refused(plugin: Path, qemu: str) -> str:
    """QEMU's objection to the plugin; empty if it accepts it."""
    with tempfile.NamedTemporaryFile(prefix="iotax-plugin-") as out:
        done = subprocess.run(
            [qemu, "-M", "none", "-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-monitor",
             "stdio", "-plugin", Plugin(plugin, cache_lines=True).option(Path(out.name))],
            input=b"quit\n", capture_output=True, check=False, timeout=_WITHIN_S,
        )  # fmt: skip
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")
