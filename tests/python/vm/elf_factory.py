"""Builds small ELF64 files: a kernel module with a .modinfo section, a program with a dynamic section, one with
functions."""

from __future__ import annotations

import struct


def kernel_module(**info: str | list[str]) -> bytes:
    """An object file with these fields in .modinfo; a list repeats its field."""
    pairs = [(name, each) for name, value in info.items() for each in (value if isinstance(value, list) else [value])]
    modinfo = b"".join(f"{name}={value}\0".encode() for name, value in pairs)
    names = b"\0.modinfo\0.shstrtab\0"
    modinfo_at, names_at = 64, 64 + len(modinfo)
    sections = [
        _section(0, 0, 0),
        _section(1, modinfo_at, len(modinfo)),
        _section(10, names_at, len(names)),
    ]
    at = names_at + len(names)
    header = _header(sections_at=at, sections=len(sections), names_index=2)
    return header + modinfo + names + b"".join(sections)


def program(needed: list[str], loader: str | None = None, runpath: str = "") -> bytes:
    """A program that needs these libraries; its one segment is loaded at 0x1000."""
    names = [*needed, runpath] if runpath else needed
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    offsets = [strings.index(b"\0" + name.encode() + b"\0") + 1 for name in needed]
    interpreter = (loader or "").encode() + b"\0"
    count = 2 + bool(loader)
    strings_at = 64 + 56 * count
    interpreter_at = strings_at + len(strings)
    dynamic_at = interpreter_at + len(interpreter)
    base = 0x1000
    dynamic = b"".join(struct.pack("<QQ", 1, offset) for offset in offsets)
    if runpath:
        dynamic += struct.pack("<QQ", 29, strings.index(b"\0" + runpath.encode() + b"\0") + 1)
    dynamic += struct.pack("<QQ", 5, base + strings_at) + struct.pack("<QQ", 0, 0)
    size = dynamic_at + len(dynamic)
    segments = [_segment(1, 0, base, size), _segment(2, dynamic_at, base + dynamic_at, len(dynamic))]
    if loader:
        segments.append(_segment(3, interpreter_at, base + interpreter_at, len(interpreter)))
    return _header(segments=count) + b"".join(segments) + strings + interpreter + dynamic


def with_functions(*functions: tuple[str, int, int], exported: bool = False) -> bytes:
    """A program with these functions (name, offset in the file, size), whose one segment is loaded at 0x10000."""
    base, size = 0x10000, 0x4000
    names, entries = b"\0", [bytes(24)]
    for name, offset, length in functions:
        entries.append(struct.pack("<IBBHQQ", len(names), 0x12, 0, 1, base + offset, length))
        names += name.encode() + b"\0"
    entries.append(struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0))  # of a library
    entries.append(struct.pack("<IBBHQQ", 1, 0x11, 0, 1, base + 8, 8))  # data
    symbols = b"".join(entries)
    titles = (b".dynsym", b".dynstr") if exported else (b".symtab", b".strtab")
    sections = b"\0" + b"".join(title + b"\0" for title in (*titles, b".shstrtab"))
    at = 64 + 56
    table = [_section(0, 0, 0)]
    for title, data in ((titles[0], symbols), (titles[1], names), (b".shstrtab", sections)):
        table.append(_section(sections.index(b"\0" + title + b"\0") + 1, at, len(data)))
        at += len(data)
    header = _header(segments=1, sections_at=at, sections=len(table), names_index=3)
    return header + _segment(1, 0, base, size) + symbols + names + sections + b"".join(table)


def with_note(name: str, type_: int) -> bytes:
    """A program that has only notes; the requested note is the second one."""
    data = b"".join(
        struct.pack("<III", len(text) + 1, 3, number)
        + (text.encode() + b"\0").ljust(-(-(len(text) + 1) // 4) * 4, b"\0")
        + bytes(4)
        for text, number in (("Linux", 257), (name, type_))
    )
    return _header(segments=1) + _segment(4, 64 + 56, 0, len(data)) + data


def _header(segments: int = 0, sections_at: int = 0, sections: int = 0, names_index: int = 0) -> bytes:
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return ident + struct.pack(
        "<HHIQQQIHHHHHH",
        1,
        62,
        1,
        0,
        64 if segments else 0,
        sections_at,
        0,
        64,
        56,
        segments,
        64,
        sections,
        names_index,
    )


def _segment(kind: int, offset: int, address: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 4, offset, address, address, size, size, 1)


def _section(name: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)
