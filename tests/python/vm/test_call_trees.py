"""The plugin's call tree, run block by block: calls, returns, tail calls, interrupts, threads."""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from iotax.labs.vm.counted import Counts, Node

from .needed import require

KERNEL = 0xFFFFFFFF81000000
PROGRAM = 0x400000
TOLD_APART = {"serve": 0x500010, "answer": 0x500050}
"""Functions of another program, on one page."""
STACK, OTHER_STACK, INTERRUPT_STACK = 0xFFFFC90000004000, 0xFFFFC90000008000, 0xFFFFC9000000C000
"""The highest addresses of three stacks."""
NAMES = ("mark", "loop", "send", "copy", "tail", "switch", "asm_interrupt", "handler", "entry", "system_call", "born")
STEP = 0x1000
CALL, COPY, RETURN, NONE = b"\xe8\0\0\0\0", b"\xf3\xa4", b"\xc3", b""
INSTRUCTIONS = 5
"""Instructions in each block."""


class Info(ctypes.Structure):
    _fields_ = (("target", ctypes.c_char_p), ("version", ctypes.c_int * 2))


class Machine:
    """A guest with one processor, and the plugin that counts its instructions."""

    def __init__(self, folder: Path, *options: str) -> None:
        source = resources.files("iotax.labs.vm.plugin") / "counter.c"
        both = folder / "machine.so"
        flags = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-DPLUGIN_VERSION=1")
        subprocess.run(["cc", *flags, str(source), Path(__file__).with_name("fake_qemu.c"), "-o", both], check=True)
        self._qemu: Any = ctypes.CDLL(str(both))
        self._qemu.translate.restype = ctypes.c_void_p
        words = [f"out={folder / 'counts'}", *options]
        given = (ctypes.c_char_p * len(words))(*map(str.encode, words))
        about = Info(b"x86_64", (ctypes.c_int * 2)(0, 1))
        assert self._qemu.qemu_plugin_install(ctypes.c_uint64(1), ctypes.byref(about), len(words), given) == 0
        self.counts = Counts(folder / "counts")
        self._blocks: dict[tuple[str, int, bytes], Any] = {}

    def know(self) -> None:
        begins = [0, PROGRAM, *TOLD_APART.values(), *(address_of(name) for name in NAMES)]
        roots = [address_of("asm_interrupt"), address_of("born")]
        self.counts.know(begins, roots, [address_of("tail")], TOLD_APART.values())

    def mark(self) -> None:
        self.run("mark")

    def run(self, name: str, part: int = 0, code: bytes = NONE) -> Any:
        """Runs a block of a function. The parts of a function are consecutive blocks."""
        key = name, part, code
        if key not in self._blocks:
            address = address_of(name) + part * (INSTRUCTIONS - 1 + len(CALL))
            translate, place = self._qemu.translate, ctypes.c_uint64(address)
            self._blocks[key] = translate(place, ctypes.c_size_t(INSTRUCTIONS), code, ctypes.c_size_t(len(code)))
        self._qemu.run(ctypes.c_void_p(self._blocks[key]))
        return self._blocks[key]

    def call(self, name: str, sp: int, part: int = 0) -> None:
        """Runs a block of `name` that ends in a call. The return address, that of the next part, is stored at `sp`."""
        self._access(self.run(name, part, CALL), 2, sp, 3)

    def copy(self, name: str, count: int, shift: int = 0) -> None:
        for _ in range(count):
            self._access(self.run(name, 0, COPY), 1, STACK, shift)

    def touch(self, name: str, address: int, shift: int = 3, code: bytes = NONE) -> None:
        self._access(self.run(name, code=code), 1, address, shift)

    def _access(self, block: Any, kind: int, address: int, shift: int) -> None:
        self._qemu.access_memory(ctypes.c_void_p(block), kind, ctypes.c_uint64(address), ctypes.c_uint32(shift))

    def paths(self) -> dict[str, Node]:
        """Path of callers and function → its node in the window."""
        nodes = self.counts.window()
        names = {address_of(name): name for name in (*NAMES, *TOLD_APART)} | {PROGRAM: "program"}
        found: list[str] = []
        for node in nodes:
            above = found[node.caller] + ";" if node.caller >= 0 else ""
            found.append(above + names[node.address])
        return {path: node for path, node in zip(found, nodes, strict=True) if node.instructions}


def address_of(name: str) -> int:
    if name in TOLD_APART:
        return TOLD_APART[name]
    return PROGRAM if name == "program" else KERNEL + STEP * NAMES.index(name)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    require("cc")
    made = Machine(tmp_path)
    made.know()
    made.counts.arm(address_of("mark"))
    made.mark()
    yield made
    made.counts.close()


def blocks(machine: Machine) -> dict[str, float]:
    machine.mark()
    found = machine.paths()
    return {path: node.instructions / INSTRUCTIONS for path, node in found.items() if not path.endswith("mark")}


def test_a_call_is_its_callers_child_until_code_runs_where_it_returns(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.run("send")
    machine.run("send", 1)
    machine.call("loop", STACK - 0x20, part=1)
    machine.run("copy")
    machine.run("loop", 2)
    assert blocks(machine) == {"loop": 3, "loop;send": 2, "loop;copy": 1}


def test_a_tail_call_takes_the_place_of_its_function_and_returns_to_its_caller(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.run("send")
    machine.run("tail")
    machine.call("tail", STACK - 0x30, part=1)
    machine.run("copy")
    machine.run("loop", 1)
    assert blocks(machine) == {"loop": 2, "loop;send": 1, "loop;tail": 2, "loop;tail;copy": 1}


def test_a_return_that_no_block_shows_is_found_by_where_the_next_call_stores(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.call("send", STACK - 0x40)
    machine.run("copy")
    # Both functions returned unseen; the next block ends in a call.
    machine.call("loop", STACK - 0x20, part=3)
    machine.run("tail")
    assert blocks(machine) == {"loop": 2, "loop;send": 1, "loop;send;copy": 1, "loop;tail": 1}


def test_recursion_returns_level_by_level(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.call("send", STACK - 0x40)
    machine.call("send", STACK - 0x60)
    machine.run("send", 4)
    machine.run("send", 1)
    machine.run("send", 1)
    machine.run("loop", 1)
    assert blocks(machine) == {"loop": 2, "loop;send": 2, "loop;send;send": 2, "loop;send;send;send": 1}


def test_an_interrupt_is_nobodys_child_and_what_it_interrupted_goes_on(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.run("send")
    # It calls on its own stack, and no return leads back.
    machine.call("asm_interrupt", INTERRUPT_STACK - 0x10)
    machine.call("handler", INTERRUPT_STACK - 0x30)
    machine.run("copy")
    machine.run("handler", 1)
    machine.run("asm_interrupt", 1)
    machine.run("send", 1)
    machine.call("send", STACK - 0x40, part=2)
    machine.run("copy")
    machine.run("loop", 1)
    assert blocks(machine) == {
        "loop": 2,
        "loop;send": 3,
        "loop;send;copy": 1,
        "asm_interrupt": 2,
        "asm_interrupt;handler": 2,
        "asm_interrupt;handler;copy": 1,
    }


def test_each_thread_goes_on_with_its_own_callers(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.call("send", STACK - 0x40)
    machine.run("switch")
    # The other thread is new. It sleeps in the same function.
    machine.call("born", OTHER_STACK - 0x20)
    machine.call("copy", OTHER_STACK - 0x40)
    machine.run("switch")
    # The first thread continues where it slept. Its next call shows that; the block that calls still counts for the
    # other thread.
    machine.call("send", STACK - 0x40, part=2)
    machine.run("handler")
    assert blocks(machine) == {
        "loop": 1,
        "loop;send": 1,
        "loop;send;switch": 1,
        "born": 1,
        "born;copy": 1,
        "born;copy;switch": 1,
        "born;copy;send": 1,
        "loop;send;handler": 1,
    }


def test_a_system_call_stands_on_its_program_and_leaves_nothing_behind(machine: Machine) -> None:
    for _ in range(2):
        machine.run("program")
        machine.call("entry", STACK - 0x20)
        # The processor leaves the kernel from a deep call, as signal delivery can.
        machine.call("system_call", STACK - 0x60)
        machine.run("send")
    machine.run("program")
    machine.call("handler", STACK - 0x80)
    machine.run("copy")
    assert blocks(machine) == {
        "program": 3,
        "program;entry": 2,
        "program;entry;system_call": 2,
        "program;entry;system_call;send": 2,
        "program;handler": 1,
        "program;handler;copy": 1,
    }


def test_calls_that_began_before_functions_were_known_have_their_callers(tmp_path: Path) -> None:
    require("cc")
    machine = Machine(tmp_path)
    machine.call("loop", STACK - 0x20)
    machine.call("send", STACK - 0x40)
    machine.run("copy")
    machine.know()
    machine.counts.arm(address_of("mark"))
    machine.call("copy", STACK - 0x60, part=1)
    machine.mark()
    machine.call("copy", STACK - 0x60, part=3)
    machine.run("tail")
    assert blocks(machine) == {"loop;send;copy": 1, "loop;send;copy;tail": 1}
    machine.counts.close()


def test_functions_of_a_program_are_told_apart_and_call_the_kernel(machine: Machine) -> None:
    machine.run("serve")
    machine.call("entry", STACK - 0x20)
    machine.call("system_call", STACK - 0x40)
    machine.run("copy")
    machine.run("answer")
    machine.run("answer", part=1)
    machine.run("program")
    assert blocks(machine) == {
        "serve": 1,
        "serve;entry": 1,
        "serve;entry;system_call": 1,
        "serve;entry;system_call;copy": 1,
        "answer": 2,
        "program": 1,
    }


def test_depth_beyond_the_limit_loses_no_instruction(machine: Machine) -> None:
    for depth in range(200):
        machine.call("send", STACK - 0x20 - 0x10 * depth)
    for name, _ in itertools.product(("copy", "tail"), range(3)):
        machine.run(name)
    assert sum(blocks(machine).values()) == 206


def test_bytes_of_string_instructions_are_of_the_function_that_runs_them(machine: Machine) -> None:
    machine.call("loop", STACK - 0x20)
    machine.copy("copy", 3)
    machine.copy("copy", 2, shift=3)
    machine.mark()
    assert machine.paths()["loop;copy"].copied_bytes == 3 + 2 * 8


def test_a_copying_function_copies_what_it_loads_and_others_what_string_instructions_do(machine: Machine) -> None:
    for name in ("send", "tail"):
        machine.touch(name, STACK)
        machine.copy(name, 3)
    machine.touch("tail", STACK - 0x20, code=RETURN)  # the return address
    machine.mark()
    found = machine.paths()
    assert (found["send"].copied_bytes, found["tail"].copied_bytes) == (3, 8 + 3)


def test_loads_that_qemu_reports_to_another_block_are_not_copied(machine: Machine) -> None:
    block = machine.run("tail")
    machine.run("send")
    machine._access(block, 1, STACK, 3)
    machine.mark()
    assert machine.paths()["send"].copied_bytes == 0


def test_a_window_is_what_ran_between_its_marks(machine: Machine) -> None:
    machine.run("loop")
    machine.mark()
    machine.run("loop")
    machine.mark()
    machine.run("loop")
    assert machine.paths()["loop"].instructions == 2 * INSTRUCTIONS
    machine.counts.arm(address_of("mark"))
    with pytest.raises(ValueError, match="called 0 times, not at both ends of the window"):
        machine.counts.window()
    machine.mark()
    machine.run("send")
    machine.mark()
    assert {path for path in machine.paths() if not path.endswith("mark")} == {"send"}


def test_tables_that_were_full_give_no_profile(machine: Machine, tmp_path: Path) -> None:
    machine.run("loop")
    machine.mark()
    with (tmp_path / "counts").open("r+b") as file:
        file.seek(6 * 8)
        file.write((7).to_bytes(8, "little"))
    full = r"the plugin's tables were full \((\d+) blocks of code, \d+ calls\): 7 of them are not counted"
    with pytest.raises(ValueError, match=full) as failed:
        machine.counts.window()
    assert int(re.findall(full, str(failed.value))[0]) > 0


def test_a_program_takes_a_page_of_the_table_and_the_kernel_each_block(machine: Machine, tmp_path: Path) -> None:
    """A program has other addresses each time it starts. When each block had a cell, programs filled the table within
    about twenty trials."""

    def cells() -> int:
        with (tmp_path / "counts").open("rb") as file:
            file.seek(7 * 8)
            return int.from_bytes(file.read(8), "little")

    before = cells()
    for part in range(100):
        machine.run("program", part)
    assert cells() == before + 1
    for part in range(100):
        machine.run("loop", part)
    assert cells() == before + 101
    assert blocks(machine) == {"program": 100, "program;loop": 100}


def test_a_line_is_fetched_once_until_its_set_is_full(tmp_path: Path) -> None:
    require("cc")
    machine = Machine(tmp_path, "lines=on")
    machine.run("loop")
    machine.know()
    machine.counts.arm(address_of("mark"))
    machine.mark()
    for _ in range(2):
        machine.touch("send", STACK)
    # An access over two lines; then eight other lines of the first line's set, which evict it.
    machine.touch("send", STACK + 0x7C)
    for way in range(1, 9):
        machine.touch("copy", STACK + way * 64 * 64)
    machine.touch("send", STACK)
    machine.mark()
    found = machine.paths()
    assert (found["send"].lines, found["copy"].lines) == (4, 8)
    machine.counts.close()
