"""A host of the user's, one of several, however it is reached: the engine is copied there once, by its hash."""

from __future__ import annotations

import contextlib
import math
import shlex
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from secrets import token_hex

from iotax.places.base import FOLDER, Binary, Event, HostFault, Place
from iotax.places.piped import Piped
from iotax.study.hosts import Host

_LINES_S = 15


@dataclass(frozen=True)
class Companion:
    """The process through which iotax reaches a host, and its CPU and memory when idle."""

    name: str
    python: str
    """Version."""
    dask: str
    """Version of `distributed`."""
    memory_bytes: int
    """Resident."""
    idle_cores: float
    """Share of one core."""


class HostPlace(Place):
    """Its errors are HostFault, with the host's name."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._installed = ""

    @property
    def name(self) -> str:
        return self.host.name

    async def companion(self) -> Companion | None:
        """The process that `beside` names; None if there is none. Takes as long as its idle time is measured. Raises
        HostFault."""
        return None

    async def start(
        self,
        command: str,
        document: Event,
        *,
        secrets: Mapping[str, str] | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> Piped:
        """Like any place; `secrets` are variables of the command's environment, which are sent in the first lines of
        its input (`taking`). Raises HostFault."""
        given = secrets or {}
        task = await self._begin(taking(given, command), document.get("lease_ns"), on_log)
        for secret in given.values():
            task.send_line(f"{secret}\n".encode())
        task.send(document)
        return task

    @abstractmethod
    async def _begin(self, command: str, lease_ns: int | None, on_log: Callable[[str], None] | None) -> Piped:
        """Starts a shell's command that is spoken with. Raises HostFault."""

    @abstractmethod
    async def ask(self, command: str, given: str, within_s: float, keep_bytes: int) -> tuple[int | None, str]:
        """Exit status (None for a signal) and the last output of a command that may fail, of which no more is kept
        while it runs. Raises HostFault, TimeoutError."""

    @abstractmethod
    async def close(self) -> None:
        """Releases the host; a later call connects anew."""


class ReachedHost(HostPlace):
    """One to which the engine is copied from here."""

    async def install(self, binary: Binary) -> str:
        """Copies the engine unless it is there."""
        await self._reach()
        if self._installed == binary.digest:
            return binary.remote
        # A name of its own: another study may copy the same engine at the same time.
        part = f"{binary.remote}.{token_hex(8)}"
        there = f"test -x {binary.remote} && sha256sum {binary.remote} || true"
        if not (await self.run(there)).startswith(binary.digest):
            await self._fits(binary)
            await self.run(f"mkdir -p {FOLDER} && chmod 700 {FOLDER}")
            try:
                await self._put(binary, part)
            except OSError as error:
                with contextlib.suppress(HostFault):
                    await self.run(f"rm -f {part}; rmdir {FOLDER} 2>/dev/null")
                size_mib = math.ceil(binary.path.stat().st_size / (1 << 20))
                said = f"the engine ({size_mib} MiB) cannot be copied: {error}"
                raise HostFault(self.name, said, "io") from error
            if not (await self.run(f"sha256sum {part}")).startswith(binary.digest):
                await self.run(f"rm -f {part}")
                raise HostFault(self.name, "the engine was copied and differs there", "io")
            await self.run(f"chmod 700 {part} && mv {part} {binary.remote}")
        try:
            said = await self.run(f"{binary.remote} --version")
        except HostFault as fault:
            if fault.kind != "io":
                raise
            # Homes may be shared by hosts with other processors or libraries.
            await self._fits(binary)
            said = fault.message
        if not said.startswith("iotax-engine"):
            raise HostFault(self.name, f"the copied engine does not run there: {said.strip()}", "missing")
        self._installed = binary.digest
        return binary.remote

    async def _fits(self, binary: Binary) -> None:
        """Raises HostFault if the engine cannot run there."""
        if obstacle := binary.needs.obstacle(await self.run(binary.needs.question)):
            raise HostFault(self.name, obstacle, "missing")

    @abstractmethod
    async def _reach(self) -> None:
        """Connects the host; if it was lost meanwhile, forgets what is `_installed`. Raises HostFault."""

    @abstractmethod
    async def _put(self, binary: Binary, path: str) -> None:
        """Writes the file there. Raises OSError with the reason, HostFault if the host is lost."""


def taking(names: Iterable[str], command: str) -> str:
    """The command, which has each of these variables by a line of its own before the rest of its input: everybody on a
    host reads its arguments, its environment only who may do all that it may."""
    if not (variables := list(names)):
        return command
    read = "; ".join(f"IFS= read -r {name} || exit" for name in variables)
    exported = " ".join(variables)
    # Lines that never come must not keep it: an engine's first document has a limit of its own.
    limit = f"(sleep {_LINES_S}; kill $$) </dev/null >/dev/null 2>&1 & limit=$!"
    return f"sh -c {shlex.quote(f'{limit}; {read}; kill $limit; export {exported}; exec {command}')}"
