"""CPU time of an ESXi host: reads `esxtop -b` over SSH as it writes. Copies nothing there and leaves
nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import time

import asyncssh

from iotax.imports.processors import CpuSample, Recorded, esxtop_columns
from iotax.places import HostFault
from iotax.places.ssh import SshHost
from iotax.records import CpuTime

INTERVAL_S = 2.0
"""The shortest that esxtop takes."""
_FIRST_ROW_S = 60.0
"""Limit of a line on a host with many machines: each row has the columns of all."""
_ROW_S = 20.0


class Esxtop:
    """One that runs. Made by `start`."""

    def __init__(self, host: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.host, self._process = host, process
        self._samples: list[CpuSample] = []
        self._read_unix_ns = 0
        self._total = self._processors = 0

    @classmethod
    async def start(cls, place: SshHost) -> Esxtop:
        """Returns with its first row, from which on time is covered. Raises HostFault."""
        found = cls(place.name, await place.process(f"esxtop -b -a -d {INTERVAL_S:g}"))
        try:
            columns = esxtop_columns(await found._row(_FIRST_ROW_S))
            if columns is None:
                raise HostFault(place.name, "esxtop there writes no table of processors", "wrong_kind")
            found._total, found._processors = columns[1:]
            await found._row(_FIRST_ROW_S)
            found._read_unix_ns = time.time_ns()
        except BaseException:
            await found.end()
            raise
        return found

    async def through(self, until_unix_ns: int) -> None:
        """Reads rows until they reach beyond that time. Raises HostFault."""
        while self._read_unix_ns < until_unix_ns:
            row = await self._row(_ROW_S)
            now_ns = time.time_ns()
            # Each row is of the interval that ends with it.
            try:
                share = float(row[self._total]) / 100
            except (IndexError, ValueError):
                raise HostFault(self.host, "esxtop there wrote a row without processors", "wrong_kind") from None
            self._samples.append(CpuSample(self._read_unix_ns, now_ns, share))
            self._read_unix_ns = now_ns

    def during(self, start_unix_ns: int, end_unix_ns: int) -> CpuTime | None:
        """CPU time of the whole host including its machines, by this machine's clock. None if the rows do not cover the
        interval."""
        recorded = Recorded("hypervisor", self.host, self._processors, self._samples, meter="esxtop")
        return recorded.during(start_unix_ns, end_unix_ns)

    async def end(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.terminate()
        self._process.close()

    async def _row(self, within_s: float) -> list[str]:
        try:
            line = await asyncio.wait_for(self._process.stdout.readuntil(b"\n"), within_s)
        except TimeoutError:
            raise HostFault(self.host, "esxtop there fell silent", "silent") from None
        except asyncio.IncompleteReadError:
            raise HostFault(self.host, await self._ending(), "died") from None
        except (OSError, asyncssh.Error) as error:
            raise HostFault(self.host, f"the connection was lost: {error}") from error
        return next(csv.reader([line.decode(errors="replace")]), [])

    async def _ending(self) -> str:
        with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
            said = (await asyncio.wait_for(self._process.stderr.read(4096), 3)).decode(errors="replace").strip()
            return f"esxtop there ended: {said}" if said else "esxtop there ended"
        return "esxtop there ended"
