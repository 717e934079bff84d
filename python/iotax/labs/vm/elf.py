"""Reads the parts of ELF files that the lab needs: required libraries, the loader, notes, a module's description, the
functions of a program. Little-endian ELF64 only, as laid out in System V ABI (gabi) chapters 4 and 5."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE = 1, 2, 3, 4
_DT_NEEDED, _DT_STRTAB, _DT_RUNPATH = 1, 5, 29
_FUNCTION, _INDIRECT_FUNCTION = 2, 10


@dataclass(frozen=True)
class Program:
    """A dynamic program or library; a static program needs nothing and has no loader."""

    needed: tuple[str, ...]
    loader: str | None
    runpath: tuple[str, ...] = ()
    """Folders in which it looks for its libraries first."""


@dataclass(frozen=True)
class Function:
    """A function of a program or library."""

    offset: int
    """Where its code starts in the file."""
    size: int
    """In bytes; 0 if the compiler did not say."""
    name: str


def is_elf(data: bytes) -> bool:
    return data[:6] == b"\x7fELF\x02\x01"


def read_program(data: bytes) -> Program:
    """Raises ValueError for bytes that are not an ELF64 file."""
    needed: list[int] = []
    runpath: int | None = None
    strings_address: int | None = None
    loads: list[tuple[int, int, int]] = []
    loader: str | None = None
    for kind, offset, address, size in _segments(data):
        if kind == _PT_LOAD:
            loads.append((address, offset, size))
        elif kind == _PT_INTERP:
            loader = data[offset : offset + size].rstrip(b"\0").decode()
        elif kind == _PT_DYNAMIC:
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == _DT_NEEDED:
                    needed.append(value)
                elif tag == _DT_STRTAB:
                    strings_address = value
                elif tag == _DT_RUNPATH:
                    runpath = value
    if not needed or strings_address is None:
        return Program((), loader)
    strings = next(
        strings_address - address + offset
        for address, offset, size in loads
        if address <= strings_address < address + size
    )
    folders = _text(data, strings + runpath).split(":") if runpath is not None else []
    return Program(tuple(_text(data, strings + each) for each in needed), loader, tuple(folders))


def functions(data: bytes) -> list[Function]:
    """The functions that the symbol table names; of a stripped program those that it exports. Raises ValueError for
    bytes that are not an ELF64 file."""
    loads = [(address, offset, size) for kind, offset, address, size in _segments(data) if kind == _PT_LOAD]
    symbols, names = _section(data, ".symtab"), _section(data, ".strtab")
    if not symbols:
        symbols, names = _section(data, ".dynsym"), _section(data, ".dynstr")
    found = []
    for name_at, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", symbols):
        if info & 0xF not in (_FUNCTION, _INDIRECT_FUNCTION) or section == 0:
            continue
        for address, offset, length in loads:
            if address <= value < address + length:
                found.append(Function(value - address + offset, size, _text(names, name_at)))
                break
    return found


def notes(data: bytes) -> set[tuple[str, int]]:
    """Name and type of each note. Raises ValueError for bytes that are not an ELF64 file."""
    found: set[tuple[str, int]] = set()
    for kind, offset, _, size in _segments(data):
        at = offset
        while kind == _PT_NOTE and at + 12 <= offset + size:
            name, description, type_ = struct.unpack_from("<III", data, at)
            found.add((data[at + 12 : at + 12 + name].rstrip(b"\0").decode(errors="replace"), type_))
            at += 12 + (name + 3 & ~3) + (description + 3 & ~3)
    return found


def without_symbols(data: bytes) -> bytes:
    """A program as it is loaded: data behind its last segment, and its sections, are for debuggers only."""
    end = max(offset + size for _, offset, _, size in _segments(data))
    header = bytearray(data[:end])
    struct.pack_into("<Q", header, 40, 0)
    struct.pack_into("<HH", header, 60, 0, 0)
    return bytes(header)


def read_modinfo(data: bytes) -> dict[str, list[str]]:
    """A kernel module's .modinfo: `depends`, `alias`, `softdep`, `vermagic` and so on."""
    found: dict[str, list[str]] = {}
    for entry in _section(data, ".modinfo").split(b"\0"):
        name, _, value = entry.decode(errors="replace").partition("=")
        if name:
            found.setdefault(name, []).append(value)
    return found


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, file offset, address and size in the file of each program header."""
    if not is_elf(data):
        raise ValueError("no little-endian ELF64 file")
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for index in range(count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", data, start + 56 * index)
        yield kind, offset, address, size


def _section(data: bytes, wanted: str) -> bytes:
    """The bytes of a section; none if there is no such section."""
    if not is_elf(data):
        raise ValueError("no little-endian ELF64 file")
    start = struct.unpack_from("<Q", data, 40)[0]
    count, names_index = struct.unpack_from("<HH", data, 60)
    headers = [struct.unpack_from("<IIQQQQ", data, start + 64 * index) for index in range(count)]
    names = headers[names_index][4]
    for name, _, _, _, offset, size in headers:
        if _text(data, names + name) == wanted:
            return data[offset : offset + size]
    return b""


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
