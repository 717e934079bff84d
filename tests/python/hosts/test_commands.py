"""Commands on a host, and how they can end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.places.ssh import SshHost
from iotax.study.hosts import Host


class Ended:
    """A process that ended before its input was written."""

    exit_status = 0

    def __init__(self) -> None:
        self._output = [b"done ", b"here\n"]
        self.stdin = SimpleNamespace(write=self._closed, write_eof=self._closed)
        self.stdout = SimpleNamespace(read=self._read)

    def _closed(self, *_: bytes) -> None:
        raise BrokenPipeError("Channel not open for sending")

    async def _read(self, _: int) -> bytes:
        return self._output.pop(0) if self._output else b""

    async def wait_closed(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_command_may_end_before_it_reads_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_process(*_: object, **__: object) -> Ended:
        return Ended()

    async def connection(_: SshHost) -> SimpleNamespace:
        return SimpleNamespace(create_process=create_process)

    async def asked() -> tuple[int | None, str]:
        return await SshHost(Host(name="h2"), asyncio.Semaphore(1)).ask("echo done here", "", 5, 1 << 16)

    monkeypatch.setattr(SshHost, "connection", connection)
    assert asyncio.run(asked()) == (0, "done here\n")
