"""Every command of each protocol that changes, reads or flushes a volume, and its guarantee once it has completed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import raw_nfs
from raw_iscsi import Session, cdb_10, cdb_16
from raw_nvme import Controller

FUA = 0x08
_NVME_FUA = 1 << 30
BLOCK = 512
_AT = 256
"""First block of the reads and long commands; its content does not matter."""


class Run(Protocol):
    def __call__(self) -> bool:
        """Sends the command and waits for its reply: whether it succeeded."""


@dataclass(frozen=True)
class Command:
    name: str
    run: Run
    kind: Literal["change", "read", "flush"]
    durable: bool
    """When it completes, its change is on stable storage, or the data that it read had been there before."""


def of_iscsi(session: Session, *, has_cache: bool = True) -> Iterator[Command]:
    """All commands, with the current setting of the write cache."""
    one = b"\1" * BLOCK
    descriptors = struct.pack(">HH4xQI4x", 22, 16, _AT, 8)

    def command(
        name: str, cdb: bytes, data: bytes = b"", *, kind: Literal["change", "read", "flush"] = "change", fua: int = 0
    ) -> Command:
        durable = bool(fua) or kind == "flush" or (kind == "change" and not has_cache)
        told = f"{name}{' FUA' if fua else ''}, WCE={int(has_cache)}"
        return Command(told, lambda: session.run(cdb, data) == 0, kind, durable)

    for fua in (0, FUA):
        yield command("WRITE(10)", cdb_10(0x2A, fua, 0, 1), one, fua=fua)
        yield command("WRITE(12)", cdb_12(0xAA, fua, 1, 1), one, fua=fua)
        yield command("WRITE(16)", cdb_16(0x8A, fua, 2, 1), one, fua=fua)
        yield command("ORWRITE(16)", cdb_16(0x8B, fua, 3, 1), one, fua=fua)
        # Compares with a block of zeros.
        swap = struct.pack(">BBQ3sBBB", 0x89, fua, 64 + fua, bytes(3), 1, 0, 0)
        yield command("COMPARE AND WRITE", swap, bytes(BLOCK) + one, fua=fua)
        yield command("READ(10)", cdb_10(0x28, fua, 0, 1), kind="read", fua=fua)
        yield command("READ(12)", cdb_12(0xA8, fua, 1, 1), kind="read", fua=fua)
        yield command("READ(16)", cdb_16(0x88, fua, 2, 1), kind="read", fua=fua)
        # Restores the zeros for the next time.
        yield command("WRITE(6)", struct.pack(">BBHBB", 0x0A, 0, 64 + fua, 1, 0), bytes(BLOCK))
    yield command("VERIFY(10)", cdb_10(0x2F, 0, 0, 1), kind="read", fua=1)
    yield command("VERIFY(10) with data", cdb_10(0x2F, 2, 0, 1), one, kind="read", fua=1)
    yield command("WRITE AND VERIFY(10)", cdb_10(0x2E, 0, 0, 1), one, fua=1)
    yield command("WRITE SAME(10)", cdb_10(0x41, 0, _AT, 16), one)
    yield command("WRITE SAME(16) of zeros", cdb_16(0x93, 0, _AT, 16), bytes(BLOCK))
    yield command("WRITE SAME(16) with UNMAP and NDOB", cdb_16(0x93, 0x09, _AT, 16))
    yield command("UNMAP", struct.pack(">B6xHx", 0x42, len(descriptors)), descriptors)
    yield command("SYNCHRONIZE CACHE(10)", cdb_10(0x35, 0, 0, 0), kind="flush")
    yield command("SYNCHRONIZE CACHE(16)", cdb_16(0x91, 0, 0, 0), kind="flush")
    yield command("START STOP UNIT", bytes([0x1B, 0, 0, 0, 0, 0]), kind="flush")


def turn_the_cache_off(session: Session) -> Command:
    """MODE SELECT(6) of the caching page, with WCE=0."""
    page = bytes(4) + bytes([0x08, 18]) + bytes(18)
    return Command("MODE SELECT", lambda: session.run(bytes([0x15, 0x10, 0, 0, 24, 0]), page) == 0, "flush", True)


def of_nvme(controller: Controller) -> Iterator[Command]:
    def command(
        name: str,
        opcode: int,
        words: bytes = b"",
        data: bytes = b"",
        *,
        kind: Literal["change", "read", "flush"] = "change",
        durable: bool = False,
        read_bytes: int = 0,
    ) -> Command:
        run = partial(controller.io.run, opcode, 1, words, data, read_bytes)
        return Command(f"NVMe {name}", lambda: run()[0] == 0, kind, durable)

    one = b"\2" * BLOCK
    for fua in (0, _NVME_FUA):
        said = {"durable": bool(fua)}
        told = " FUA" if fua else ""
        yield command(f"Write{told}", 0x01, struct.pack("<QI", 0, fua), one, **said)
        yield command(f"Read{told}", 0x02, struct.pack("<QI", 0, fua), read_bytes=BLOCK, kind="read", **said)
        yield command(f"Compare{told}", 0x05, struct.pack("<QI", 0, fua), one, kind="read", **said)
        yield command(f"Write Zeroes{told}", 0x08, struct.pack("<QI", _AT, 15 | fua), **said)
    ranges = struct.pack("<IIQ", 0, 8, _AT)
    yield command("Dataset Management", 0x09, struct.pack("<II", 0, 4), ranges)
    yield command("Flush", 0x00, kind="flush", durable=True)


def of_nfs(client: raw_nfs.Client) -> Iterator[Command]:
    def command(
        name: str, procedure: int, arguments: bytes, kind: Literal["change", "read", "flush"], durable: bool
    ) -> Command:
        call = partial(client.call, procedure, raw_nfs.opaque(client.file) + arguments)
        return Command(f"NFS {name}", lambda: call()[:4] == bytes(4), kind, durable)

    for stable, name in enumerate(("UNSTABLE", "DATA_SYNC", "FILE_SYNC")):
        # One whole block, and parts of two.
        for offset, size in ((0, BLOCK), (777, 600)):
            arguments = struct.pack(">QII", offset, size, stable) + raw_nfs.opaque(b"\3" * size)
            yield command(f"WRITE {name} of {size}", 7, arguments, "change", durable=stable > 0)
    yield command("READ", 6, struct.pack(">QI", 0, BLOCK), "read", durable=False)
    yield command("COMMIT", 21, struct.pack(">QI", 0, 0), "flush", durable=True)


def cdb_12(opcode: int, flags: int, block: int, blocks: int) -> bytes:
    return struct.pack(">BBIIBB", opcode, flags, block, blocks, 0, 0)
