"""What the engine's file (ELF) requires of a system, and whether a host has it."""

from __future__ import annotations

import re
import shlex
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<4sBB10xHHI8xQ8xI2xHH")
"""64-bit header: magic, class, byte order, type, machine, version, where the program headers begin, flags, their size
and number (System V gABI 4.1, chapters 4 and 5)."""
_PROGRAM = struct.Struct("<II Q 16x Q 16x")
"""Type, flags, where it begins in the file, how long it is there."""
_INTERPRETER = 3
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""Names of processors as in `uname -m`."""
_STATIC = (
    "one that runs on any Linux of its processor is made by `make engine-static`, and is copied instead from then on "
    "(iotax's wheels have it inside)"
)


@dataclass(frozen=True)
class Needs:
    """Requirements of a program."""

    machine: str
    """Processor as in `uname -m`; empty if unknown."""
    loader: str = ""
    """The file that loads its C library; empty for a static program."""
    glibc: tuple[int, int] | None = None
    """The oldest version that has all that it calls."""

    @property
    def question(self) -> str:
        """The command that a host's shell runs for `obstacle`."""
        there = f"; test -e {shlex.quote(self.loader)} && echo there || echo missing" if self.loader else ""
        return f"uname -m; getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown{there}"

    def obstacle(self, said: str) -> str:
        """Why a host that answered so cannot run it; empty if nothing is known against it."""
        machine, libc, loader, *_ = [*said.splitlines(), "", "", ""]
        if self.machine and machine != self.machine:
            return f"the engine is for {self.machine}, and this host is {machine}; name one for it in IOTAX_HOST_ENGINE"
        if self.loader and loader == "missing":
            return (
                f"the engine asks for {self.loader}, which this host has not (its C library is another one); {_STATIC}"
            )
        if self.glibc is not None and (found := re.fullmatch(r"glibc (\d+)\.(\d+).*", libc)):
            has = int(found[1]), int(found[2])
            if has < self.glibc:
                return f"the engine asks for glibc {_version(self.glibc)}, and this host has {_version(has)}; {_STATIC}"
        return ""


def needs_of(program: Path) -> Needs:
    """A file of another format, such as a script, has no requirements."""
    content = program.read_bytes()
    if len(content) < _HEADER.size:
        return Needs("")
    magic, bits, order, _, machine, _, begin, _, size, count = _HEADER.unpack_from(content)
    if (magic, bits, order) != (b"\x7fELF", 2, 1):
        return Needs("")
    loader = ""
    for place in range(begin, begin + size * count, size):
        kind, _, at, length = _PROGRAM.unpack_from(content, place)
        if kind == _INTERPRETER:
            loader = content[at : at + length].rstrip(b"\0").decode()
    # The versions of the symbols that it asks for stand in its strings.
    called = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)}
    return Needs(_MACHINES.get(machine, ""), loader, max(called) if loader and called else None)


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
