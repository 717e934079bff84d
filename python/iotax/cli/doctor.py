"""`iotax doctor`: what this machine can run, and what to install for the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from iotax.cli.console import console
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.options import JsonFile
from iotax.engine import EngineError, find_engine
from iotax.labs.vm.qemu import PROGRAM
from iotax.report import renderer
from iotax.report.pdf import PROGRAMS
from iotax.version import how_to_install

Outcome = Literal["yes", "no", "partly"]
_STYLES: dict[str, str] = {"yes": "green", "partly": "yellow", "no": "red"}
_MEMORY_MIN_BYTES = 2 << 30


@dataclass(frozen=True)
class Ability:
    """Something that iotax can do if its tools are installed."""

    name: str
    outcome: Outcome
    found: str
    """What is available, or what to install if something is missing."""


def abilities() -> list[Ability]:
    """In the order in which a newcomer needs it."""
    checks: tuple[Callable[[], Ability], ...] = (_here, _vm, _hosts, _sim, _fio, _charts, _pdf, _events)
    return [check() for check in checks]


def doctor(document: JsonFile = None) -> None:
    """List what this machine can run and what to install."""
    judged(document)
    found = abilities()
    if document != STDOUT:
        _print(found)
    if document is not None:
        write_document(document, _document(found))


def _print(found: list[Ability]) -> None:
    out = console()
    out.print(f"{platform.platform()}, {os.cpu_count()} processors, {_memory_bytes() / 2**30:.0f} GiB of memory")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for each in found:
        table.add_row(each.name, Text(each.outcome, style=_STYLES[each.outcome]), Text(each.found))
    out.print(table)


def _document(found: list[Ability]) -> dict[str, Any]:
    return {
        "abilities": [{"name": each.name, "outcome": each.outcome, "found": each.found} for each in found],
        "cpus": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
    }


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _here() -> Ability:
    name = "this machine (quick, vs, serve)"
    try:
        engine = find_engine()
    except EngineError as error:
        return Ability(name, "no", str(error))
    few = [] if (os.cpu_count() or 1) > 1 else ["with one processor, server and load share it"]
    small = [] if _memory_bytes() >= _MEMORY_MIN_BYTES else ["less than 2 GiB of memory: choose a smaller volume"]
    text = "; ".join([f"NFS, iSCSI, NVMe/TCP with {engine.name}", *few, *small])
    return Ability(name, "partly" if few or small else "yes", text)


def _vm() -> Ability:
    name = "kernels in virtual machines (kernel-exact)"
    if platform.machine() != "x86_64":
        return Ability(name, "no", f"needs x86-64; this is {platform.machine()}")
    if shutil.which(PROGRAM) is None:
        return Ability(name, "no", "install QEMU: sudo apt-get install qemu-system-x86")
    if shutil.which("apt-get") is None:
        return Ability(name, "no", "needs Debian or Ubuntu, whose packages the guests are made of")
    kvm = (
        "QEMU, with KVM if a guest boots in it (`iotax run` tries)"
        if os.access("/dev/kvm", os.R_OK | os.W_OK)
        else "QEMU, emulated and slower: /dev/kvm cannot be used"
    )
    compilers = [each for each in ("gcc", "make") if shutil.which(each) is None]
    if compilers:
        return Ability(
            name, "partly", f"{kvm}; FC-NVMe needs {' and '.join(compilers)}: apt-get install build-essential"
        )
    return Ability(name, "yes", kvm)


def _hosts() -> Ability:
    name = "your hosts over SSH (lab hosts)"
    if importlib.util.find_spec("asyncssh") is None:
        return Ability(name, "no", how_to_install("hosts"))
    if importlib.util.find_spec("distributed") is None:
        return Ability(name, "partly", f"SSH; for Dask and Slurm: {how_to_install('cluster')}")
    return Ability(name, "yes", "SSH, Dask, Slurm; `iotax lab hosts check STUDY` looks at the hosts")


def _sim() -> Ability:
    outcome = "no" if _here().outcome == "no" else "yes"
    return Ability("simulation (sim-quick)", outcome, "the engine simulates by itself")


def _fio() -> Ability:
    found = os.environ.get("IOTAX_FIO") or shutil.which("fio")
    name = "fio as a generator (generators)"
    return Ability(name, "yes", found) if found else Ability(name, "no", "sudo apt-get install fio")


def _charts() -> Ability:
    name = "charts in reports"
    return Ability(name, "yes", "vl-convert") if renderer.available() else Ability(name, "no", renderer.MISSING)


def _pdf() -> Ability:
    name = "reports as PDF"
    found = next((path for program in PROGRAMS if (path := shutil.which(program))), None)
    return Ability(name, "yes", found) if found else Ability(name, "no", "sudo apt-get install chromium")


def _events() -> Ability:
    """Instructions and cycles of processes, beside their CPU time."""
    name = "processor counters"
    level = Path("/proc/sys/kernel/perf_event_paranoid")
    if not Path("/sys/bus/event_source/devices/cpu").exists():
        return Ability(name, "no", "this processor shows no counters, as in most virtual machines; not needed")
    if os.geteuid() and level.is_file() and int(level.read_text()) > 2:
        return Ability(name, "no", "sudo sysctl kernel.perf_event_paranoid=2; not needed")
    return Ability(name, "yes", "instructions and cycles beside CPU time")
