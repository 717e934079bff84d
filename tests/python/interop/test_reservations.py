"""Reservations of iotax's NVMe/TCP target, with hosts that are plain sockets."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from raw_nvme import Controller, Queue

Serve = Callable[[dict[str, Any]], dict[str, Any]]

READ, WRITE, REGISTER, REPORT, ACQUIRE = 0x02, 0x01, 0x0D, 0x0E, 0x11
CONFLICT, PREEMPTED = 0x83, 0x1B
STATUS = 0x7FF
ONE, OTHER = b"\x11" * 16, b"\x22" * 16
WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3


def reserve(queue: Queue, opcode: int, action: int, keys: tuple[int, int]) -> int:
    status, _ = queue.run(opcode, 1, struct.pack("<I", action), struct.pack("<QQ", *keys))
    return status & STATUS


def write(queue: Queue, blocks: int = 1) -> int:
    status, _ = queue.run(WRITE, 1, struct.pack("<QI", 0, blocks - 1), b"\xa5" * 512 * blocks)
    return status & STATUS


def read(queue: Queue) -> int:
    status, _ = queue.run(READ, 1, struct.pack("<QI", 0, 0), read_bytes=512)
    return status & STATUS


def registrants(queue: Queue) -> dict[bytes, tuple[int, bool]]:
    """Each host's key, and whether it holds the reservation."""
    status, _ = queue.run(REPORT, 1, struct.pack("<II", 4096 // 4 - 1, 1), read_bytes=4096)
    assert status == 0
    (count,) = struct.unpack_from("<H", queue.came, 5)
    entries = [queue.came[64 + 64 * index :][:64] for index in range(count)]
    return {entry[16:32]: (struct.unpack_from("<Q", entry, 8)[0], bool(entry[2] & 1)) for entry in entries}


def test_a_host_that_another_preempts_is_kept_out_on_every_thread(serve: Serve) -> None:
    endpoint = serve(
        {
            "threads": 2,
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": 1 << 20}],
            "exports": [{"protocol": "nvme-tcp", "listen": "127.0.0.1:0", "volume": "v0"}],
        }
    )["portals"][0]["endpoint"]
    kind = WRITE_EXCLUSIVE_REGISTRANTS_ONLY << 8
    with Controller(endpoint, host_id=ONE) as one, Controller(endpoint, host_id=OTHER) as other:
        with Controller(endpoint, host_id=OTHER) as again:
            assert reserve(one.io, REGISTER, 0, (0, 1)) == 0
            assert reserve(other.io, REGISTER, 0, (0, 2)) == 0
            assert reserve(other.io, ACQUIRE, kind, (2, 0)) == 0
            assert [write(queue) for queue in (one.io, other.io, again.io)] == [0, 0, 0]
            assert registrants(again.io) == {ONE: (1, False), OTHER: (2, True)}
            assert reserve(one.io, ACQUIRE, 2 | kind, (1, 2)) == 0
            assert registrants(again.io) == {ONE: (1, True)}
            assert [write(queue) for queue in (one.io, other.io, again.io)] == [0, CONFLICT, CONFLICT]
            assert [read(queue) for queue in (one.io, other.io, again.io)] == [0, 0, 0]
        assert reserve(other.io, REGISTER, 0, (0, 2)) == 0
        assert write(other.io) == 0
    with Controller(endpoint, host_id=OTHER) as back:
        assert write(back.io) == 0, "a registration outlives its connections"
