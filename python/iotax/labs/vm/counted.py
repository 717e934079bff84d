"""Instructions of a guest by function, as QEMU's plugin counts them: where it keeps the counts, and whose they are.

The plugin (plugin/counter.c) counts how often each translated block runs. Its file holds a count of each at two marks.
A mark is a call of `show_stat`, with which the kernel answers who reads /proc/stat: the engine does at both ends of its
window, and the guest's agent where it tells its clocks. So the counts are of the same window as the CPU time, and
nothing in the guest knows that it is counted.
"""

from __future__ import annotations

import bisect
import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.vm.guests import Guest
from iotax.labs.vm.layers import LAB, LOAD, TARGET_PROGRAM, UNNAMED, VIRTUAL_DISK, layer_of
from iotax.study.fields import Target

MARK = "show_stat"
_HEADER = struct.Struct("<5Q24x")
"""Cells, lost, mark_address, armed, marks."""
_CELL = struct.Struct("<5Q")
_MARK_AT, _ARMED_AT, _MARKS_AT = 16, 24, 32
_KERNEL = 1 << 63
"""Addresses from here on are the kernel's."""
_BEHIND_MAX = 1 << 20
"""An address this far behind a symbol is of no function that it names."""
_PROCESSES: Mapping[Target, str] = {"kernel": "", "ganesha": "ganesha.nfsd", "tgt": "tgtd", "iotax": "loader"}
"""Of each target that is a program. Its own loader starts the engine, and names its process."""
_DISK = "qemu-storage-da"
"""As the kernel cuts the name short."""
_SYMBOLS_S = 120.0
"""How long an emulated guest on a busy host may take to list its functions."""


class Counts:
    """A guest's file of counts, while the plugin writes it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def arm(self, mark_address: int) -> None:
        """From now on, calls of that function are marks; earlier ones are forgotten."""
        self._put(_ARMED_AT, 0)
        self._put(_MARKS_AT, 0)
        self._put(_MARK_AT, mark_address)
        self._put(_ARMED_AT, 1)

    def disarm(self) -> None:
        self._put(_ARMED_AT, 0)

    def window(self) -> dict[int, int]:
        """Instructions by the address of the block that they are in, between the first mark and the last. Raises
        ValueError where there were no two marks or the table was full."""
        cells, lost, _, _, marks = _HEADER.unpack_from(self._map)
        if marks < 2:
            raise ValueError(f"{MARK} of the guest's kernel was called {marks} times, not at both ends of the window")
        if lost:
            raise ValueError(f"{lost} blocks of the guest's code found the plugin's table of {cells} full")
        found: Counter[int] = Counter()
        end = _HEADER.size + cells * _CELL.size
        for address, instructions, _, first, last in _CELL.iter_unpack(self._map[_HEADER.size : end]):
            if last > first:
                found[address] += instructions * (last - first)
        return found

    def close(self) -> None:
        self._map.close()

    def _put(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self._map, at, value)


@dataclass(frozen=True)
class Symbols:
    """Functions of a kernel and its modules, by address."""

    addresses: list[int]
    names: list[tuple[str, str]]
    """(function, module); the kernel itself has the module ""."""

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Symbols:
        """/proc/kallsyms, of which lines that are no function's are passed over. Of several names of one place the
        plainest is taken, and what a compiler appends to names is left out."""
        best: dict[int, tuple[str, str]] = {}
        for line in lines:
            if not (match := _KALLSYMS.match(line)):
                continue
            address, own = int(match[1], 16), (match[2].partition(".")[0], match[3] or "")
            if address and (address not in best or _plainness(own[0]) < _plainness(best[address][0])):
                best[address] = own
        places = sorted(best)
        return cls(places, [best[each] for each in places])

    def at(self, address: int) -> tuple[str, str] | None:
        """The function that an address is in."""
        place = bisect.bisect_right(self.addresses, address) - 1
        if place < 0 or address - self.addresses[place] > _BEHIND_MAX:
            return None
        return self.names[place]

    def address_of(self, name: str) -> int | None:
        return next((at for at, own in zip(self.addresses, self.names, strict=True) if own == (name, "")), None)


_KALLSYMS = re.compile(r"([0-9a-f]+) [tTwW] (\S+)(?:\s+\[(\S+)\])?")


def _plainness(name: str) -> tuple[int, int, str]:
    return len(name) - len(name.lstrip("_")), len(name), name


@dataclass(frozen=True)
class Program:
    """A piece of a process's address space that holds code."""

    begin: int
    end: int
    process: str
    file: str

    @classmethod
    def parse(cls, line: str) -> Program:
        """`MAP BEGIN END PROCESS FILE` of a guest."""
        _, begin, end, process, file = line.split(" ", 4)
        return cls(int(begin, 16), int(end, 16), process, file)


@dataclass(frozen=True)
class Code:
    """What a guest's addresses stand for."""

    kernel: Symbols
    programs: tuple[Program, ...] = ()
    """Of processes that outlive the load; what is in none of them is the load generator's."""
    target: str = ""
    """The process that serves the load, if one does."""

    def named(self, counts: Mapping[int, int]) -> dict[str, dict[str, int]]:
        """Layer → function → instructions."""
        found: dict[str, Counter[str]] = {}
        for address, instructions in counts.items():
            layer, name = self._owner(address)
            found.setdefault(layer, Counter())[name] += instructions
        return {layer: dict(own.most_common()) for layer, own in found.items()}

    def _owner(self, address: int) -> tuple[str, str]:
        if address < _KERNEL:
            return self._program(address)
        if (symbol := self.kernel.at(address)) is None:
            return UNNAMED, "code without a symbol"
        name, module = symbol
        return layer_of(name, module), f"{name} [{module}]" if module else name

    def _program(self, address: int) -> tuple[str, str]:
        for each in self.programs:
            if each.begin <= address < each.end:
                layer = {self.target: TARGET_PROGRAM, _DISK: VIRTUAL_DISK}.get(each.process, LAB)
                return layer, f"{each.process}: {Path(each.file).name}"
        return LOAD, "iotax-engine"


class CountedGuest:
    """A guest whose instructions a plugin counts."""

    def __init__(self, guest: Guest, counts: Path) -> None:
        self._guest, self._counts = guest, Counts(counts)
        self._modules: list[str] = []
        self._symbols = Symbols([], [])

    def learn(self) -> None:
        """Which functions stand where. Raises ValueError where the kernel does not say."""
        modules = self._guest.run("cut -d ' ' -f 1,6 /proc/modules")
        if modules != self._modules:
            lines = self._guest.run("grep ' [tTwW] ' /proc/kallsyms", _SYMBOLS_S)
            self._symbols, self._modules = Symbols.parse(lines), modules
        if self._symbols.address_of(MARK) is None:
            raise ValueError(
                f"/proc/kallsyms of the {self._guest.name} guest has no {MARK}: its kernel needs CONFIG_KALLSYMS"
            )

    def begin(self) -> None:
        """From now on readings of /proc/stat are marks. After `learn`."""
        self._counts.arm(self._symbols.address_of(MARK) or 0)

    def end(self) -> None:
        self._counts.disarm()

    def layers(self, served_by: Target) -> dict[str, dict[str, int]]:
        """Layer → function → instructions of the window that ended. Raises ValueError."""
        counts = self._counts.window()
        programs = [Program.parse(line) for line in self._guest.run("code_maps") if line.startswith("MAP ")]
        return Code(self._symbols, tuple(programs), _PROCESSES[served_by]).named(counts)

    def close(self) -> None:
        self._counts.close()
