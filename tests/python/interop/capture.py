"""A TCP relay that records its traffic, and a capture file of the recording. It needs no privilege."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

LINKTYPE_RAW_IPV4 = 228
SEGMENT_BYTES = 16_384


@dataclass
class Recording:
    """Traffic of one relayed port: (connection, towards the server?, bytes), in order of arrival."""

    pieces: list[tuple[int, bool, bytes]] = field(default_factory=list)

    def write_pcap(self, path: Path, server_port: int) -> None:
        """Writes a capture file in which the server listens on `server_port`, the port that the dissector expects."""
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, LINKTYPE_RAW_IPV4))
            sequence: dict[tuple[int, bool], int] = {}
            micros = 0
            for connection, to_server, data in self.pieces:
                client = (40_000 + connection, server_port)
                source, destination = client if to_server else client[::-1]
                for at in range(0, len(data), SEGMENT_BYTES):
                    piece = data[at : at + SEGMENT_BYTES]
                    mine = sequence.get((connection, to_server), 1)
                    theirs = sequence.get((connection, not to_server), 1)
                    tcp = struct.pack("!HHIIBBHHH", source, destination, mine, theirs, 0x50, 0x18, 65_535, 0, 0)
                    length = 20 + len(tcp) + len(piece)
                    local = b"\x7f\x00\x00\x01"
                    header = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, 6, 0) + local + local
                    packet = header + tcp + piece
                    file.write(struct.pack("<IIII", 0, micros, len(packet), len(packet)) + packet)
                    sequence[connection, to_server] = (mine + len(piece)) % (1 << 32)
                    micros += 1


class Relay:
    """Listens on a free loopback port, forwards each connection to `host:port`, and records both directions."""

    def __init__(self, host: str, port: int) -> None:
        self.recording = Recording()
        self._to = (host, port)
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Relay:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._carry, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=180)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = self._connections
        self._connections += 1
        server_reader, server_writer = await asyncio.open_connection(*self._to)
        try:
            await asyncio.gather(
                self._pump(connection, True, reader, server_writer),
                self._pump(connection, False, server_reader, writer),
            )
        finally:
            for end in (writer, server_writer):
                end.transport.abort()

    async def _pump(
        self, connection: int, to_server: bool, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                self.recording.pieces.append((connection, to_server, data))
                sink.write(data)
                await sink.drain()
            sink.write_eof()
