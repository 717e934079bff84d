"""A minimal NFS client that can send any procedure with any arguments (RFC 5531, RFC 1813)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from itertools import count
from typing import Self

NFS, MOUNT = (100003, 3), (100005, 3)
_LAST = 1 << 31
_numbers = count(1)


@dataclass
class Client:
    """A connection to an endpoint `nfs://ADDRESS/EXPORT/FILE`, as a context manager."""

    endpoint: str
    root: bytes = field(init=False)
    file: bytes = field(init=False)
    """File handles of the export's directory and of the volume's file."""
    _socket: socket.socket = field(init=False)

    def __enter__(self) -> Self:
        _, _, address, *path = self.endpoint.split("/")
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self.root = _handle(self.call(1, opaque(b"/" + "/".join(path[:-1]).encode()), MOUNT))
        self.file = _handle(self.call(3, opaque(self.root) + opaque(path[-1].encode())))
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, procedure: int, arguments: bytes, program: tuple[int, int] = NFS) -> None:
        credential = struct.pack(">I", 0) + opaque(b"test") + struct.pack(">III", 0, 0, 0)
        head = struct.pack(">IIIIII", next(_numbers), 0, 2, *program, procedure)
        message = head + struct.pack(">I", 1) + opaque(credential) + bytes(8) + arguments
        self._socket.sendall(struct.pack(">I", _LAST | len(message)) + message)

    def answer(self) -> bytes:
        """Results of the next call that ends, after its RPC header."""
        (mark,) = struct.unpack(">I", self._exactly(4))
        reply = self._exactly(mark & ~_LAST)
        _, _, accepted, _, _, status = struct.unpack(">IIIIII", reply[:24])
        assert (accepted, status) == (0, 0), f"RPC: {accepted}, {status}"
        return reply[24:]

    def call(self, procedure: int, arguments: bytes, program: tuple[int, int] = NFS) -> bytes:
        self.send(procedure, arguments, program)
        return self.answer()

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            assert more, "the server closed the connection"
            received += more
        return received


def opaque(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def made(results: bytes) -> bytes:
    """The file handle that CREATE or MKDIR returned."""
    status, given = struct.unpack(">II", results[:8])
    assert (status, given) == (0, 1), f"status {status}"
    return _handle(bytes(4) + results[8:])


def _handle(results: bytes) -> bytes:
    status, size = struct.unpack(">II", results[:8])
    assert status == 0, f"status {status}"
    return results[8 : 8 + size]
