"""One virtual machine for all these tests, booted once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import StepFailed
from vm.needed import require

from .machine import KernelMachine, Server, file_volume, free_ports

VOLUME_BYTES = 384 << 20
"""xfs needs 300 MiB."""


class _Machines:
    """Keeps one machine up, and boots another one after a test has lost it."""

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
    require("cc", "nm", "cargo")
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
    """Starts iotax's server with one protocol on a volume in the file `tmp_path`/volume; stops it after the test."""
    started: list[Server] = []

    def start(
        protocol: str,
        size_bytes: int = VOLUME_BYTES,
        *,
        groups: list[dict[str, Any]] | None = None,
        delay_ns: int = 0,
        **options: str,
    ) -> Server:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        export: dict[str, Any] = {"protocol": protocol, "listen": listen, "volume": "v0"} | options
        if groups:
            export["groups"] = [group["name"] for group in groups]
        volume = file_volume(tmp_path / "volume", size_bytes) | {"delay_ns": delay_ns}
        server = Server({"volumes": [volume], "exports": [export], "groups": groups or []})
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()
    (tmp_path / "volume").unlink(missing_ok=True)  # gigabytes that pytest would keep
