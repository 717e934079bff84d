"""A minimal iSCSI initiator that can send any CDB, and stop where no real initiator would (RFC 7143)."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from itertools import count
from typing import Self

_BHS = 48
_LOGIN, _LOGIN_RESPONSE = 0x43, 0x23
_COMMAND, _RESPONSE, _DATA_IN, _R2T = 0x01, 0x21, 0x25, 0x31
_numbers = count(1)


@dataclass
class Session:
    """A session on LUN 0 of `iscsi://ADDRESS/NAME/0`, as a context manager. Clears the first unit attention."""

    endpoint: str
    immediate: bool = True
    _socket: socket.socket = field(init=False)
    _cmd_sn: int = field(init=False, default=1)

    def __enter__(self) -> Self:
        _, _, address, name, _ = self.endpoint.split("/")
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        try:
            self._log_in(name)
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _log_in(self, name: str) -> None:
        keys = {
            "InitiatorName": "iqn.2026-11.test:raw",
            "TargetName": name,
            "InitialR2T": "Yes",
            "ImmediateData": "Yes" if self.immediate else "No",
            "FirstBurstLength": "1048576",
            "MaxBurstLength": "1048576",
            "MaxRecvDataSegmentLength": "1048576",
        }
        text = b"".join(f"{key}={value}\0".encode() for key, value in keys.items())
        isid = bytes([0x80, 0, 0, 0]) + struct.pack(">H", next(_numbers) & 0xFFFF)
        # Operational negotiation, then directly to the full feature phase.
        head = struct.pack(">BBBBI6sHIHHII", _LOGIN, 0x87, 0, 0, len(text), isid, 0, 1, 0, 0, self._cmd_sn, 0)
        self._send(head + bytes(16), text)
        answer, _ = self._receive()
        assert answer[0] == _LOGIN_RESPONSE and answer[36] == 0, f"login status {answer[36]}"
        self.run(bytes(6))

    def send(self, cdb: bytes, data: bytes = b"", announced: int = 0) -> None:
        """Sends a command that writes `data`, or that announces `announced` bytes but sends none. Does not wait."""
        expected = announced or len(data)
        flags = 0x81 | (0x20 if expected else 0x40)
        head = struct.pack(
            ">BBHIQIIII", _COMMAND, flags, 0, len(data), 0, self._cmd_sn, expected or 4096, self._cmd_sn, 0
        )
        self._cmd_sn += 1
        self._send(head + cdb.ljust(16, b"\0"), data)

    def run(self, cdb: bytes, data: bytes = b"") -> int:
        """Runs a command, and returns its SCSI status."""
        self.send(cdb, data)
        return self.status()

    def status(self) -> int:
        """SCSI status of the next command that ends."""
        while True:
            answer, _ = self._receive()
            if answer[0] == _RESPONSE or (answer[0] == _DATA_IN and answer[1] & 1):
                return answer[3]
            assert answer[0] in (_DATA_IN, _R2T), f"opcode {answer[0]:#x}"

    def _send(self, head: bytes, data: bytes) -> None:
        assert len(head) == _BHS
        self._socket.sendall(head + data + bytes(-len(data) % 4))

    def _receive(self) -> tuple[bytes, bytes]:
        head = self._exactly(_BHS)
        size = int.from_bytes(head[5:8])
        return head, self._exactly(size + -size % 4)[:size]

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            assert more, "the target closed the connection"
            received += more
        return received


def cdb_10(opcode: int, flags: int, block: int, blocks: int) -> bytes:
    return struct.pack(">BBIBHB", opcode, flags, block, 0, blocks, 0)


def cdb_16(opcode: int, flags: int, block: int, blocks: int) -> bytes:
    return struct.pack(">BBQIBB", opcode, flags, block, blocks, 0, 0)
