"""The two guests, initiator and storage, with one link between them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from iotax.labs.vm.counters import HypervisorClocks, processor_threads, read_clocks
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.image import Image
from iotax.labs.vm.plugin import Plugin
from iotax.labs.vm.qemu import Accelerator, Clock, Machine, Nic, Process, counts_file
from iotax.labs.vm.qmp import Qmp, QmpLost
from iotax.places.guest import GuestLost, Port, StepFailed
from iotax.places.waiting import wait_for

Role: TypeAlias = Literal["storage", "initiator"]
BOOT_S = 90.0
"""A guest that has not come up by then, on a busy machine without KVM, never will."""
STEP_S = 60.0
_BASE_BYTES = 384 << 20
"""Kernel, image and programs; the volume comes on top."""
_SOCKET_S = 20.0
_ENDING_S = 0.2
_HOSTS: dict[Role, int] = {"storage": 1, "initiator": 2}
"""The last byte of addresses, MAC and IP."""


def initiator_name(number: int) -> str:
    """Of one of several, from 0."""
    return f"initiator {number + 1}"


class Guest:
    """A running guest."""

    def __init__(self, machine: Machine, image: Image, folder: Path) -> None:
        self.name = machine.name
        self.counts = counts_file(machine, folder) if machine.plugin else None
        """What a plugin counts of its instructions, if one does."""
        self.image = image
        self._process = Process(machine, image, folder)
        self._port: Port | None = None
        self._monitor: Qmp | None = None
        self._processors: list[int] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def boot(self, deadline_s: float) -> float:
        """Waits until the guest obeys; the seconds it took from its start. Raises VmFault."""
        wait_for(self._boot(deadline_s - time.monotonic()))
        return time.monotonic() - self._process.started_s

    def run(self, script: str, timeout_s: float = STEP_S) -> list[str]:
        """Runs a script; its lines. Raises StepFailed, and VmFault when the guest is lost."""
        return wait_for(self.port.run(script, within_s=timeout_s)).splitlines()

    def stream(self, script: str, each: Callable[[str], None], timeout_s: float) -> None:
        """As `run`, with the lines as they come."""
        wait_for(self.port.lines(script, each, timeout_s))

    def bytes(self, path: str) -> int:
        """What its kernel has read and written so far on a device, or on the NFS mount that a file is on."""
        return int(self.run(f"bytes_of {path}")[-1].removeprefix("BYTES "))

    def counters(self) -> str:
        """The guest's clocks, read by its agent without starting a program. Raises VmFault."""
        return wait_for(self.port.counters(STEP_S))

    @property
    def port(self) -> Port:
        """Where its commands run. Raises VmFault."""
        if self._port is None:
            raise VmFault(self.name, "the guest is not up")
        return self._port

    @property
    def monitor(self) -> Qmp:
        """QEMU's monitor, which changes the machine while it runs. Raises VmFault."""
        if self._monitor is None:
            try:
                self._monitor = Qmp(self._process.monitor, _SOCKET_S)
            except QmpLost as lost:
                raise VmFault(f"{self.name} guest", f"{lost}: {self._process.ending()}") from lost
        return self._monitor

    def hypervisor(self) -> HypervisorClocks:
        """What QEMU has spent on this guest, the guest aside. Raises VmFault."""
        try:
            if not self._processors:
                answer = self.monitor.execute("query-cpus-fast", timeout_s=_SOCKET_S)
                self._processors = processor_threads(answer)
            return read_clocks(self._process.pid, self._processors, kvm=self._process.machine.accelerator == "kvm")
        except (OSError, QmpLost) as lost:
            raise VmFault(f"{self.name} guest", f"its CPU cannot be read ({lost}): {self._process.ending()}") from lost

    def alive(self) -> bool:
        return self._process.alive()

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
        if self._port is not None:
            wait_for(self._port.close())
        self._process.close()

    async def _boot(self, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        try:
            path, connect_s = self._process.control, min(within_s, _SOCKET_S)
            self._port = await Port.connect(f"{self.name} guest", path, connect_s)
            await self._port.ready(until_s - loop.time())
        except GuestLost as lost:
            raise await self._fault("did not boot", lost) from lost
        self._port.explain = lambda lost: self._fault("was lost", lost)
        self._port.counts_time = self._process.machine.clock == "icount"

    async def _fault(self, what: str, lost: GuestLost) -> VmFault:
        # A QEMU that has just closed its port is about to end, and its exit says more.
        await asyncio.to_thread(self._process.ended, _ENDING_S)
        return VmFault(f"{self.name} guest", f"{what} ({lost}): {self._process.ending()}", self._process.console())


class Guests:
    """The storage and its initiators, booted side by side. Sockets and logs stand in a temporary folder that goes with
    them.

    One initiator has all `links`; of several `clients`, each has one, and the first is the one that has a role.
    """

    def __init__(
        self,
        image: Image,
        *,
        accelerator: Accelerator,
        clock: Clock,
        volume_bytes: int,
        links: int = 1,
        cpus: int = 1,
        clients: int = 1,
        environment: Mapping[str, str] | None = None,
        plugin: Plugin | None = None,
        storage_image: Image | None = None,
    ) -> None:
        """`storage_image` boots the storage where its kernel is another one. QEMU gets `environment` beside our own.
        `plugin` counts instructions in each guest."""
        self._folder = Path(tempfile.mkdtemp(prefix="iotax-vm-"))
        self._guests: list[Guest] = []
        """The storage first."""
        self.boot_s = 0.0
        numbers = range(max(links, clients))

        def begin(role: Role, name: str, numbers: Iterable[int], volume_bytes: int) -> None:
            booted = (storage_image or image) if role == "storage" else image
            machine = Machine(
                name,
                memory_bytes=_BASE_BYTES + booted.initramfs.stat().st_size + volume_bytes,
                accelerator=accelerator,
                clock=clock,
                cpus=cpus,
                links=tuple(
                    Nic(_socket(number), role == "storage", f"52:54:00:00:{number:02x}:{_HOSTS[role]:02x}")
                    for number in numbers
                ),
                environment=environment or {},
                plugin=plugin,
            )
            self._guests.append(Guest(machine, booted, self._folder))

        try:
            begin("storage", "storage", numbers, volume_bytes)
            self._wait_for([_socket(number) for number in numbers])
            begin("initiator", "initiator" if clients == 1 else initiator_name(0), numbers[:links], volume_bytes)
            for number in numbers[1:clients]:
                begin("initiator", initiator_name(number), [number], 0)
            deadline_s = time.monotonic() + BOOT_S * max(1.0, len(self._guests) / 2)
            self.boot_s = max(guest.boot(deadline_s) for guest in self._guests)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, role: Role) -> Guest:
        return self._guests[0 if role == "storage" else 1]

    @property
    def initiators(self) -> list[Guest]:
        return self._guests[1:]

    def alive(self) -> bool:
        return bool(self._guests) and all(guest.alive() for guest in self._guests)

    def close(self) -> None:
        for guest in self._guests:
            with contextlib.suppress(OSError):
                guest.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_for(self, sockets: list[str]) -> None:
        deadline_s = time.monotonic() + _SOCKET_S
        while (
            not all((self._folder / each).exists() for each in sockets)
            and self["storage"].alive()
            and time.monotonic() < deadline_s
        ):
            time.sleep(0.02)


def _socket(number: int) -> str:
    return f"link{number}"


__all__ = ["Guest", "Guests", "Role", "StepFailed"]
