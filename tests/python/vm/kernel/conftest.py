"""A virtual machine for all of these tests, booted once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iotax.engine import EngineError, find_engine
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import StepFailed
from iotax.labs.vm.qemu import PROGRAM

from .machine import KernelMachine, Server, file_volume, free_ports

VOLUME_BYTES = 384 << 20
"""xfs wants 300 MiB."""


def require_tools(*more: str) -> None:
    """Skips where a machine cannot be had; fails there with CI=true."""
    missing = None
    if shutil.which(PROGRAM) is None:
        missing = f"{PROGRAM} is not installed (package qemu-system-x86)"
    elif shutil.which("apt-get") is None:
        missing = "the guest's image is built from Debian packages, and there is no apt-get"
    elif shutil.which("cc") is None or shutil.which("nm") is None:
        missing = "there is no C compiler (package build-essential)"
    elif absent := [each for each in more if shutil.which(each) is None]:
        missing = f"{absent[0]} is not installed"
    else:
        try:
            find_engine()
        except EngineError as error:
            missing = str(error)
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


class _Machines:
    """The one that is up; another takes its place when a test has lost it."""

    def __init__(self) -> None:
        self._machine: KernelMachine | None = None

    def get(self) -> KernelMachine:
        if self._machine is None or not self._machine.alive():
            self.close()
            self._machine = KernelMachine()
        return self._machine

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._machine = None


@pytest.fixture(scope="package")
def _machines() -> Iterator[_Machines]:
    require_tools()
    machines = _Machines()
    yield machines
    machines.close()


@pytest.fixture
def machine(_machines: _Machines) -> Iterator[KernelMachine]:
    machine = _machines.get()
    yield machine
    try:
        machine.run("leave", 60)
    except (StepFailed, VmFault):
        _machines.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts our server with one protocol on a volume in a file, `tmp_path`/volume; stops it after the test."""
    started: list[Server] = []

    def start(
        protocol: str, size_bytes: int = VOLUME_BYTES, *, groups: list[dict[str, Any]] | None = None, delay_ns: int = 0
    ) -> Server:
        export: dict[str, Any] = {"protocol": protocol, "listen": f"127.0.0.1:{free_ports(1)[0]}", "volume": "v0"}
        if groups:
            export["groups"] = [group["name"] for group in groups]
        volume = file_volume(tmp_path / "volume", size_bytes) | {"delay_ns": delay_ns}
        server = Server({"volumes": [volume], "exports": [export], "groups": groups or []})
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()
