"""A minimal NVMe/TCP host that can send any command to an I/O queue (NVMe/TCP transport 1.1)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from typing import Self

_IC_REQ, _IC_RESP, _COMMAND, _RESPONSE, _H2C_DATA, _C2H_DATA, _R2T = 0, 1, 4, 5, 6, 7, 9
_FABRICS, _PROPERTY_SET, _CONNECT, _AUTHENTICATION_SEND = 0x7F, 0, 1, 5
_SUCCESS = 8
DISCOVERY = b"nqn.2014-08.org.nvmexpress.discovery"
HOST = b"nqn.2014-08.org.nvmexpress:uuid:6a1f3a00-0000-4000-8000-00000000beef"


@dataclass
class Queue:
    """A connection and its queue."""

    address: tuple[str, int]
    subsystem: bytes
    source: str = ""
    """Source address."""
    host_id: bytes = bytes(15) + b"\1"
    _socket: socket.socket = field(init=False)
    _cid: int = field(init=False, default=0)
    came: bytes = field(init=False, default=b"")

    def open(self) -> None:
        source = (self.source, 0) if self.source else None
        self._socket = socket.create_connection(self.address, timeout=60, source_address=source)
        self._socket.sendall(struct.pack("<BBBBIHBBI112x", _IC_REQ, 0, 128, 0, 128, 0, 0, 0, 0))
        kind, *_ = self._receive()
        assert kind == _IC_RESP

    def close(self) -> None:
        self._socket.close()

    def connect(self, queue: int, controller: int, entries: int = 32) -> int:
        """Connects queue `queue` of a controller; returns the controller id."""
        status, result = self.try_connect(queue, controller, entries)
        assert status == 0, f"Connect: status {status:#x}"
        return result & 0xFFFF

    def try_connect(self, queue: int, controller: int, entries: int = 32) -> tuple[int, int]:
        """Status and result of Connect."""
        words = struct.pack("<HHHBxI", 0, queue, entries - 1, 0, 0).ljust(24, b"\0")
        data = (
            self.host_id + struct.pack("<H238x", controller) + self.subsystem.ljust(256, b"\0") + HOST.ljust(256, b"\0")
        )
        return self.run(_FABRICS, _CONNECT, words, data.ljust(1024, b"\0"))

    def negotiate(self, dh_group: int) -> int:
        """Starts DH-HMAC-CHAP with SHA-256 and one group, for which the controller must calculate a public value.
        Returns the status."""
        descriptor = bytes([1, 0, 1, 1, 1]).ljust(34, b"\0") + bytes([dh_group]).ljust(30, b"\0")
        message = struct.pack("<BBHHBB", 0, 0, 0, 1, 0, 1) + descriptor
        status, _ = self.run(_FABRICS, _AUTHENTICATION_SEND, struct.pack("<II", 0xE9010100, len(message)), message)
        return status

    def enable(self) -> None:
        words = struct.pack("<B3xIQ", 0, 0x14, 1 | 6 << 16 | 4 << 20).ljust(24, b"\0")
        status, _ = self.run(_FABRICS, _PROPERTY_SET, words)
        assert status == 0, f"Property Set: status {status:#x}"

    def send(self, opcode: int, namespace: int, words: bytes, data: bytes = b"", read_bytes: int = 0) -> None:
        """`words` are command dwords 10 to 15; `data` are sent in the capsule."""
        self._cid = (self._cid + 1) % 0x8000
        # Data of a read use the transport's SGL, data of a write are in the capsule.
        sgl = struct.pack("<QI3xB", 0, *((read_bytes, 0x5A) if read_bytes else (len(data), 0x01)))
        command = struct.pack("<BBHI", opcode, 0x40, self._cid, namespace) + bytes(16) + sgl + words.ljust(24, b"\0")
        head = struct.pack("<BBBBI", _COMMAND, 0, 72, 72 if data else 0, 72 + len(data))
        self._socket.sendall(head + command + data)

    def answer(self) -> tuple[int, int]:
        """Status and result of the next command that ends; its data are in `came`."""
        self.came = b""
        while True:
            kind, flags, head, data = self._receive()
            if kind == _RESPONSE:
                result, _, _, _, _, status = struct.unpack("<IIHHHH", head)
                return status >> 1, result
            assert kind == _C2H_DATA, f"PDU type {kind}"
            self.came += data
            if flags & _SUCCESS:
                return 0, 0

    def run(self, opcode: int, namespace: int, words: bytes, data: bytes = b"", read_bytes: int = 0) -> tuple[int, int]:
        self.send(opcode, namespace, words, data, read_bytes)
        return self.answer()

    def _receive(self) -> tuple[int, int, bytes, bytes]:
        common = self._exactly(8)
        kind, flags, head_bytes, _, size = struct.unpack("<BBBBI", common)
        rest = self._exactly(size - 8)
        return kind, flags, rest[: head_bytes - 8], rest[head_bytes - 8 :]

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            assert more, "the controller closed the connection"
            received += more
        return received


@dataclass
class Controller:
    """A controller with one I/O queue, for an endpoint `nvme-tcp://ADDRESS/NQN?ns=1`, as a context manager."""

    endpoint: str
    entries: int = 32
    """Entries of the I/O queue."""
    subsystem: bytes = b""
    """Replaces the endpoint's NQN. The discovery subsystem has no I/O queue."""
    host_id: bytes = bytes(15) + b"\1"
    io: Queue = field(init=False)
    admin: Queue = field(init=False)

    def __enter__(self) -> Self:
        _, _, address, unit = self.endpoint.split("/")
        name, _ = unit.split("?")
        host, port = address.rsplit(":", 1)
        self.admin, self.io = (
            Queue((host, int(port)), self.subsystem or name.encode(), host_id=self.host_id) for _ in range(2)
        )
        self.admin.open()
        number = self.admin.connect(0, 0xFFFF)
        self.admin.enable()
        self.io.open()
        if self.subsystem != DISCOVERY:
            self.io.connect(1, number, self.entries)
        return self

    def __exit__(self, *_: object) -> None:
        self.io.close()
        self.admin.close()
