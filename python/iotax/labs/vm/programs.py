"""The functions of a target that is a program, at their addresses in a guest."""

from __future__ import annotations

import bisect
import functools
import itertools
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rust_demangler import demangle

from iotax.labs.vm.elf import Function, functions


@dataclass(frozen=True)
class Program:
    """A piece of a process's address space that holds code."""

    begin: int
    end: int
    process: str
    file: str
    functions: tuple[Function, ...] = field(default=(), repr=False)
    """Ascending, without overlaps; their offsets count from `begin`."""

    @classmethod
    def parse(cls, line: str, *, named: str, sources: Mapping[str, str]) -> Program:
        """`MAP BEGIN END OFFSET PROCESS FILE` of a guest. The functions of the process `named` are read from the files
        on this host that `sources` has for the guest's."""
        _, begin, end, offset, process, file = line.split(" ", 5)
        piece = int(offset, 16), int(end, 16) - int(begin, 16)
        own = _functions(sources[file], *piece) if process == named and file in sources else ()
        return cls(int(begin, 16), int(end, 16), process, file, own)

    def begins(self) -> Iterator[int]:
        """Addresses at which a function or other code starts."""
        yield self.begin
        for each in self.functions:
            yield self.begin + each.offset
            yield self.begin + each.offset + each.size
        yield self.end

    def function_at(self, address: int) -> str:
        """Name of the function with its file; of a program whose functions are not read, the process with its file."""
        place = bisect.bisect_right(self.functions, address - self.begin, key=lambda each: each.offset) - 1
        file = Path(self.file).name
        if place >= 0 and address - self.begin < self.functions[place].offset + self.functions[place].size:
            return f"{self.functions[place].name} [{file}]"
        return f"other code [{file}]" if self.functions else f"{self.process}: {file}"


@functools.cache
def _functions(path: str, offset: int, size: int) -> tuple[Function, ...]:
    """Of a piece of a file, by offsets in that piece; none if the file cannot be read any more."""
    try:
        found = functions(Path(path).read_bytes())
    except (OSError, ValueError, IndexError, struct.error):
        return ()
    best: dict[int, Function] = {}
    for each in found:
        at = each.offset - offset
        if 0 <= at < size and (at not in best or _plainness(each) < _plainness(best[at])):
            best[at] = Function(at, each.size, each.name)
    return tuple(
        Function(at, min(best[at].size or next_at - at, next_at - at), _plain(best[at].name))
        for at, next_at in itertools.pairwise([*sorted(best), size])
    )


def _plainness(function: Function) -> tuple[bool, int, int, str]:
    """Of several names of one place the one with a size, few leading underscores and few letters comes first."""
    name = function.name
    return not function.size, len(name) - len(name.lstrip("_")), len(name), name


def _plain(name: str) -> str:
    """As the source has it; without what a compiler appends."""
    if name.startswith(("_R", "_ZN")):
        try:
            return re.sub(r"::h[0-9a-f]{16}$", "", demangle(name))
        except Exception:  # its exceptions have no other parent, and the name is a stranger's
            return name
    return name.partition(".")[0]
