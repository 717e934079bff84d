"""Versions of the installed peers."""

from __future__ import annotations

import contextlib
import re
import subprocess

from bench.peers import peer
from bench.process import UnavailableError, program


def versions() -> dict[str, str]:
    """Name → version; programs that do not report one are left out."""
    found = {}
    for name, package, option in (
        ("fio", "fio", "--version"),
        ("tgtd", "tgt", "--version"),
        ("iscsi-perf", "libiscsi-bin", ""),
        ("ganesha.nfsd", "nfs-ganesha", "-v"),
    ):
        with contextlib.suppress(UnavailableError):
            found[name] = _told(program(name, package), option)
    for variable, name, inside in (
        ("IOTAX_BENCH_SPDK", "SPDK", "bin/nvmf_tgt"),
        ("IOTAX_BENCH_UNFS3", "unfs3", ""),
        ("IOTAX_BENCH_FIO", "fio with libiscsi and libnfs", ""),
    ):
        with contextlib.suppress(UnavailableError):
            found[name] = _told(str(peer(variable, name) / inside), "--version")
    with contextlib.suppress(UnavailableError):
        found["Chimera"] = _told(str(peer("IOTAX_BENCH_CHIMERA", "chimera")), "-v")
    with contextlib.suppress(UnavailableError):
        # It reports none itself, so use that of the fio with which it was built.
        built = peer("IOTAX_BENCH_T_IO_URING", "t/io_uring").resolve().parents[1]
        found["t/io_uring, of fio"] = _told(str(built / "fio"), "--version")
    return {name: version for name, version in found.items() if version}


def _told(path: str, option: str) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = [path, option] if option else [path]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
        if number := re.search(r"\d+\.\d+[\w.]*", done.stdout + done.stderr):
            return number[0]
    return ""
