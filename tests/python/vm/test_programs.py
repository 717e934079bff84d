"""Functions of targets that are programs, at their addresses in a guest. Starts no virtual machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.labs.vm.counted import Code, Node, Symbols
from iotax.labs.vm.programs import Program

from .elf_factory import with_functions

LINE = "MAP 7f0000001000 7f0000003000 00001000 tgtd /usr/sbin/tgtd"
BEGIN = 0x7F0000001000


def program(tmp_path: Path, data: bytes, line: str = LINE, named: str = "tgtd") -> Program:
    (tmp_path / "tgtd").write_bytes(data)
    return Program.parse(line, named=named, sources={"/usr/sbin/tgtd": str(tmp_path / "tgtd")})


@pytest.mark.parametrize("exported", [False, True])
def test_code_between_functions_is_its_files(tmp_path: Path, exported: bool) -> None:
    mapped = program(tmp_path, with_functions(("serve", 0x1010, 0x20), ("answer", 0x1040, 0x10), exported=exported))
    named = {at: mapped.function_at(BEGIN + at) for at in (0, 0x10, 0x2F, 0x30, 0x40, 0x50)}
    assert named == {
        0: "other code [tgtd]",
        0x10: "serve [tgtd]",
        0x2F: "serve [tgtd]",
        0x30: "other code [tgtd]",
        0x40: "answer [tgtd]",
        0x50: "other code [tgtd]",
    }
    assert {BEGIN + at for at in (0, 0x10, 0x30, 0x40, 0x50, 0x2000)} == set(mapped.begins())


def test_a_function_without_a_size_ends_where_the_next_starts(tmp_path: Path) -> None:
    mapped = program(tmp_path, with_functions(("first", 0x1000, 0), ("second", 0x1100, 0)))
    assert mapped.function_at(BEGIN + 0xFF) == "first [tgtd]"
    assert mapped.function_at(BEGIN + 0x1FFF) == "second [tgtd]"


def test_functions_outside_the_mapped_piece_are_left_out(tmp_path: Path) -> None:
    mapped = program(tmp_path, with_functions(("before", 0x800, 0x20), ("after", 0x3800, 0x20)))
    assert mapped.functions == ()


def test_names_are_as_the_source_has_them(tmp_path: Path) -> None:
    mangled = "_ZN5iotax6server5serve17h0123456789abcdefE"
    wrong = "_ZN5"
    mapped = program(
        tmp_path,
        with_functions(
            (mangled, 0x1000, 16), ("copy.constprop.0", 0x1010, 16), (wrong, 0x1020, 16), ("__same", 0x1030, 16),
            ("same", 0x1030, 16),
        ),
    )  # fmt: skip
    assert [each.name for each in mapped.functions] == ["iotax::server::serve", "copy", wrong, "same"]


def test_other_processes_and_files_that_are_gone_have_no_functions(tmp_path: Path) -> None:
    data = with_functions(("serve", 0x1000, 0x20))
    assert program(tmp_path, data, named="ganesha.nfsd").function_at(BEGIN) == "tgtd: tgtd"
    gone = Program.parse(LINE, named="tgtd", sources={"/usr/sbin/tgtd": str(tmp_path / "gone")})
    assert gone.function_at(BEGIN) == "tgtd: tgtd"
    (tmp_path / "broken").write_bytes(data[:300])
    broken = Program.parse(LINE, named="tgtd", sources={"/usr/sbin/tgtd": str(tmp_path / "broken")})
    assert broken.function_at(BEGIN) == "tgtd: tgtd"


def test_a_programs_functions_are_counted_in_its_layer(tmp_path: Path) -> None:
    mapped = program(tmp_path, with_functions(("serve", 0x1010, 0x20)))
    code = Code(Symbols([], []), (mapped,), target="tgtd", target_name="tgt")
    assert {BEGIN + 0x10, BEGIN + 0x30} <= set(code.begins())
    found = code.counted([Node(-1, BEGIN + 0x10, 1000, 0, 0), Node(-1, BEGIN + 0x30, 4, 0, 0)])
    assert found.layers == {"target program": {"serve [tgtd]": 1000, "other code [tgtd]": 4}}
    # Functions that are too small to show are counted with their program.
    assert [(call.caller, call.layer, call.function, call.instructions) for call in found.calls] == [
        (-1, "target program", "tgt", 4),
        (0, "target program", "serve [tgtd]", 1000),
    ]
