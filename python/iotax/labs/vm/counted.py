"""Instructions of a guest by function and by the calls that led there, as QEMU's plugin counts them: where it keeps the
counts, and whose they are.

The plugin (plugin/counter.c) keeps a tree of calls in a file, with what each node of it had at two marks.
A mark is a call of `show_stat`, with which the kernel answers who reads /proc/stat: the engine does at both ends of its
window, and the guest's agent where it tells its clocks. So the counts are of the same window as the CPU time, and
nothing in the guest knows that it is counted.
"""

from __future__ import annotations

import bisect
import itertools
import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iotax.labs.vm.guests import Guest
from iotax.labs.vm.layers import COPIES, LAB, LOAD, TARGET_PROGRAM, UNNAMED, VIRTUAL_DISK, layer_of
from iotax.labs.vm.programs import Program
from iotax.records import Call
from iotax.study.fields import Target, kind_of

MARK = "show_stat"
_HEADER = struct.Struct("<8Q64x")
"""mark_address, armed, functions, epoch, marks, nodes, lost, cells."""
_MARK_AT, _ARMED_AT, _FUNCTIONS_AT, _EPOCH_AT, _MARKS_AT = range(0, 40, 8)
_FUNCTION = np.dtype([("address", "<u8"), ("kinds", "<u8")])
_ROOT, _COPIES, _TOLD_APART = 1, 2, 4
"""Kinds of functions in that table."""
_FUNCTIONS_MAX = 1 << 18
_NODE = np.dtype([("parent", "<u4"), ("function", "<u4"), *((at, "<u8", 3) for at in ("now", "first", "last"))])
"""Counts are instructions, bytes copied, and cache lines."""
_NODES_MAX = 1 << 19
_NODES_AT = _HEADER.size + _FUNCTIONS_MAX * _FUNCTION.itemsize
_SIZE = _NODES_AT + _NODES_MAX * _NODE.itemsize
_KERNEL = 1 << 63
"""Addresses from here on are the kernel's."""
_BEHIND_MAX = 1 << 20
"""An address this far behind a symbol is of no function that it names."""
_NOBODYS = re.compile(r"asm_(common_interrupt|sysvec_\w+)|ret_from_fork\w*")
"""Interrupts and new threads: the code before them did not call them."""
_COPYING = re.compile(
    r"_*(mem(cpy|move)(_erms|_orig)?|copy_user_(generic(_\w+)?|enhanced_fast_string|nocache)|rep_movs_alternative|"
    r"copy_page(_regs)?|copy_mc_(fragile|enhanced_fast_string))"
)
"""The kernel's copying functions in assembly (arch/x86/lib of Linux 6.1 to 6.12): they load only what they copy."""
_SHOWN = 1 / 200
"""Share of all instructions. A function that runs less, with all that it calls, is counted with its caller."""
_SMALL = UNNAMED, "others"
"""Functions without a caller that ran less."""
_PROCESSES = {"kernel": "", "ganesha": "ganesha.nfsd", "tgt": "tgtd", "iotax": "loader", "nvmf_tgt": "reactor_0"}
"""Names of the processes of targets. The image's own loader starts the engine, and its name is that of the process;
SPDK names its main thread."""
_DISK = "qemu-storage-da"
"""The name as the kernel truncates it."""
_SYMBOLS_S = 120.0
"""Time that an emulated guest on a busy host may take to list its functions."""


@dataclass(frozen=True)
class Node:
    """A function under its callers, and its own counts in a window."""

    caller: int
    """Position in the same list, before this one's; −1 if it has none."""
    address: int
    """Address of the function."""
    instructions: int
    copied_bytes: int
    """Bytes that it copied: loads of copying functions, else of its string instructions."""
    lines: int
    """Cache lines that it fetched into the modelled cache; 0 if the plugin does not model one."""


class Counts:
    """A guest's file of counts, while the plugin writes it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    def know(
        self, addresses: Sequence[int], roots: Iterable[int], copying: Iterable[int], told_apart: Iterable[int]
    ) -> None:
        """Addresses of functions, ascending; `roots`: those that start a stack of their own; `copying`: those that load
        only what they copy; `told_apart`: those of programs that are not one function. The plugin counts by them from
        now on. Raises ValueError if there are too many."""
        if len(addresses) > _FUNCTIONS_MAX:
            raise ValueError(
                f"the guest's kernel has {len(addresses)} functions, and the plugin takes {_FUNCTIONS_MAX}"
            )
        table: Any = np.zeros(len(addresses), _FUNCTION)
        table["address"] = addresses
        for kind, own in ((_ROOT, roots), (_COPIES, copying), (_TOLD_APART, told_apart)):
            table["kinds"] |= np.where(np.isin(table["address"], np.fromiter(own, np.uint64)), np.uint64(kind), 0)
        self._map[_HEADER.size : _HEADER.size + table.nbytes] = table.tobytes()
        self._put(_FUNCTIONS_AT, len(addresses))
        self._put(_EPOCH_AT, self._header()[3] + 1)

    def arm(self, mark_address: int) -> None:
        """From now on, calls of that function are marks; earlier ones are forgotten."""
        self._put(_ARMED_AT, 0)
        self._put(_MARKS_AT, 0)
        self._put(_MARK_AT, mark_address)
        self._put(_ARMED_AT, 1)

    def disarm(self) -> None:
        self._put(_ARMED_AT, 0)

    def window(self) -> list[Node]:
        """The calls between the first mark and the last, callers first. Raises ValueError if there were no two marks or
        a table was full."""
        _, _, functions, _, marks, nodes, lost, cells = self._header()
        if marks < 2:
            raise ValueError(f"{MARK} of the guest's kernel was called {marks} times, not at both ends of the window")
        if lost:
            raise ValueError(
                f"the plugin's tables were full ({cells} blocks of code, {nodes} calls): {lost} of them are not counted"
            )
        tree = _table(self._map, _NODE, nodes, _NODES_AT)
        counts = tree["last"].astype(np.int64) - tree["first"].astype(np.int64)
        addresses = _table(self._map, _FUNCTION, functions, _HEADER.size)["address"]
        return _used(tree, counts, addresses)

    def close(self) -> None:
        self._map.close()

    def _header(self) -> tuple[int, ...]:
        return _HEADER.unpack_from(self._map)

    def _put(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self._map, at, value)


def _table(data: Any, kind: Any, count: int, at: int = 0) -> Any:
    """A copy, for a file stays mapped where an array is still of it."""
    return np.frombuffer(data, kind, count, at).copy()


def _used(tree: Any, counts: Any, addresses: Any) -> list[Node]:
    """The nodes that had something, and their callers. The first is nobody's."""
    wanted = set()
    for used in np.flatnonzero(counts.any(axis=1)).tolist():
        at = used
        while at and at not in wanted:
            wanted.add(at)
            at = int(tree["parent"][at])
    places = {0: -1} | {at: place for place, at in enumerate(sorted(wanted))}
    return [
        Node(places[parent], int(addresses[function]), *counts[at].tolist())
        for at, (parent, function) in zip(
            sorted(wanted), tree[["parent", "function"]][sorted(wanted)].tolist(), strict=True
        )
    ]


@dataclass(frozen=True)
class Symbols:
    """Functions of a kernel and its modules, by address."""

    addresses: list[int]
    names: list[tuple[str, str]]
    """(function, module); the kernel itself has the module ""."""

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Symbols:
        """/proc/kallsyms; lines that are not about functions are skipped. Of several names of one address the plainest
        is taken, without suffixes of the compiler."""
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
        if place < 0 or address - self.addresses[place] >= _BEHIND_MAX:
            return None
        return self.names[place]

    def address_of(self, name: str) -> int | None:
        return next((at for at, own in zip(self.addresses, self.names, strict=True) if own == (name, "")), None)


_KALLSYMS = re.compile(r"([0-9a-f]+) [tTwW] (\S+)(?:\s+\[(\S+)\])?")


def _plainness(name: str) -> tuple[int, int, str]:
    return len(name) - len(name.lstrip("_")), len(name), name


@dataclass(frozen=True)
class Counted:
    """Instructions of a guest in a window."""

    layers: dict[str, dict[str, int]]
    """Layer → function → instructions."""
    calls: tuple[Call, ...]
    copied_bytes: dict[str, dict[str, int]]
    """Layer → function that had them copied → bytes that the kernel copied."""
    cache_lines: dict[str, dict[str, int]]
    """Layer → function → lines fetched; empty if the plugin models no cache."""


@dataclass(frozen=True)
class Code:
    """The functions and programs at a guest's addresses."""

    kernel: Symbols
    programs: tuple[Program, ...] = ()
    """Processes that outlive the load; all other processes count as the load generator's."""
    target: str = ""
    """The process that serves the load, if one does."""
    target_name: str = ""
    """Its name in the tree of calls, where it stands below its functions, for these have no caller."""

    def begins(self) -> list[int]:
        """Addresses of functions, ascending; code after the last address of a function starts another."""
        programs = itertools.chain.from_iterable(each.begins() for each in self.programs)
        kernel = self.kernel.addresses
        ends = [
            at + _BEHIND_MAX for at, next_at in itertools.pairwise([*kernel, 1 << 64]) if next_at - at > _BEHIND_MAX
        ]
        return sorted({0, *programs, _KERNEL, *kernel, *(each for each in ends if each < 1 << 64)})

    def roots(self) -> list[int]:
        """Addresses of functions without a caller."""
        return self._named(_NOBODYS)

    def copying(self) -> list[int]:
        """Addresses of functions that load only what they copy."""
        return self._named(_COPYING)

    def told_apart(self) -> list[int]:
        """Addresses of the functions of programs, and of what stands between them."""
        return [at for each in self.programs if each.functions for at in each.begins() if at != each.end]

    def _named(self, names: re.Pattern[str]) -> list[int]:
        functions = zip(self.kernel.addresses, self.kernel.names, strict=True)
        return [at for at, (name, module) in functions if not module and names.fullmatch(name)]

    def counted(self, nodes: Sequence[Node]) -> Counted:
        layers: dict[str, Counter[str]] = {}
        copied: dict[str, Counter[str]] = {}
        lines: dict[str, Counter[str]] = {}
        for node in nodes:
            layer, name = self._owner(node.address)
            layers.setdefault(layer, Counter())[name] += node.instructions
            lines.setdefault(layer, Counter())[name] += node.lines
            if node.copied_bytes:
                layer, name = self._wanted_by(nodes, node)
                copied.setdefault(layer, Counter())[name] += node.copied_bytes
        return Counted(_used_names(layers), self._calls(nodes), _used_names(copied), _used_names(lines))

    def _wanted_by(self, nodes: Sequence[Node], node: Node) -> tuple[str, str]:
        """The nearest caller that is not a copying function itself."""
        while (owner := self._owner(node.address))[0] == COPIES and node.caller >= 0:
            node = nodes[node.caller]
        return owner

    def _calls(self, nodes: Sequence[Node]) -> tuple[Call, ...]:
        """The tree by name, without nodes too small to show."""
        below = [node.instructions for node in nodes]
        for at in range(len(nodes) - 1, -1, -1):
            if nodes[at].caller >= 0:
                below[nodes[at].caller] += below[at]
        least = _SHOWN * sum(node.instructions for node in nodes)
        places: dict[tuple[int, str, str], int] = {}
        counts: Counter[int] = Counter()
        shown: list[int] = []
        """For each node its own position, or that of the caller that has its count."""
        for at, node in enumerate(nodes):
            caller = shown[node.caller] if node.caller >= 0 else -1
            if caller < 0 and self._is_told_apart(node.address):
                caller = places.setdefault((-1, TARGET_PROGRAM, self.target_name), len(places))
            place = caller
            if below[at] >= least or caller < 0:
                owner = self._owner(node.address) if below[at] >= least else _SMALL
                place = places.setdefault((caller, *owner), len(places))
            counts[place] += node.instructions
            shown.append(place)
        return tuple(
            Call(caller=caller, layer=layer, function=name, instructions=counts[at])
            for (caller, layer, name), at in places.items()
        )

    def _is_told_apart(self, address: int) -> bool:
        return any(each.functions and each.begin <= address < each.end for each in self.programs)

    def _owner(self, address: int) -> tuple[str, str]:
        """Layer and name of the function at an address."""
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
                return layer, each.function_at(address)
        return LOAD, "iotax-engine"


def _used_names(found: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """The largest first, without those that have none left."""
    used = {layer: {name: count for name, count in own.most_common() if count} for layer, own in found.items()}
    return {layer: own for layer, own in used.items() if own}


class CountedGuest:
    """A guest whose instructions a plugin counts."""

    def __init__(self, guest: Guest, counts: Path, sources: Mapping[str, str]) -> None:
        """`sources`: path in the guest → path on this host of every program and library of its image."""
        self._guest, self._counts, self._sources = guest, Counts(counts), sources
        self._known: tuple[list[str], tuple[Program, ...]] | None = None
        self._symbols = Symbols([], [])

    def learn(self, served_by: Target) -> None:
        """Reads which functions are where. Raises ValueError if the kernel does not tell."""
        modules = self._guest.run("cut -d ' ' -f 1,6 /proc/modules")
        process = _PROCESSES[kind_of(served_by)]
        programs = tuple(
            Program.parse(line, named=process, sources=self._sources)
            for line in self._guest.run("code_maps")
            if line.startswith("MAP ")
        )
        if (modules, programs) == self._known:
            return
        if self._known is None or modules != self._known[0]:
            self._symbols = Symbols.parse(self._guest.run("grep ' [tTwW] ' /proc/kallsyms", _SYMBOLS_S))
        if self._symbols.address_of(MARK) is None:
            raise ValueError(
                f"/proc/kallsyms of the {self._guest.name} guest has no {MARK}: its kernel needs CONFIG_KALLSYMS"
            )
        code = Code(self._symbols, programs)
        self._counts.know(code.begins(), code.roots(), code.copying(), code.told_apart())
        self._known = modules, programs

    def begin(self) -> None:
        """From now on, reads of /proc/stat are marks. Call after `learn`."""
        self._counts.arm(self._symbols.address_of(MARK) or 0)

    def end(self) -> None:
        self._counts.disarm()

    def counted(self, served_by: Target) -> Counted:
        """The counts of the window that ended. Raises ValueError."""
        programs = self._known[1] if self._known else ()
        kind = kind_of(served_by)
        return Code(self._symbols, programs, _PROCESSES[kind], kind).counted(self._counts.window())

    def close(self) -> None:
        self._counts.close()
