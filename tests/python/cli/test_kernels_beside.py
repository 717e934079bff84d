"""After a study of iotax's own stacks: what each I/O costs with real kernels, or how to measure it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faked import FakeEngine
from iotax.analysis import summarise
from iotax.cli import kernels
from iotax.cli.kernels import print_kernels
from iotax.cli.run import run
from iotax.records import Carrier
from iotax.study.read import load_study
from report.factory import Simulation, carried, study


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    print_kernels(load_study(name)[0])
    return " ".join(capsys.readouterr().out.split())


def test_the_command_and_its_time_are_told_where_no_kernel_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    told = said("quick", capsys)
    assert "stacks in user space" in told
    assert re.search(r"`iotax run kernel-exact` measures .* I/O: about \d+ min \d\d s, in virtual machines", told)
    assert "it needs QEMU" in told


def test_a_study_of_one_protocol_or_of_kernels_says_nothing(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(str(tiny), capsys) == ""
    assert said("kernel-quick", capsys) == ""


def test_kernels_that_were_measured_stand_beside_in_instructions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = summarise(Simulation().data(study()))
    monkeypatch.setattr(kernels, "_measured", lambda _: (summary, "2026-01-31"))
    told = said("quick", capsys)
    cpu = next(each for each in summary.cells if each.arm == "iscsi").values["cpu"]
    assert cpu.low is not None and cpu.high is not None
    assert f"{cpu.value / 4:.1f} [{cpu.low / 4:.1f}, {cpu.high / 4:.1f}]" in told
    assert "thousands of instructions per I/O" in told
    assert "2026-01-31" in told


def test_an_emulated_carrier_is_named_beside_the_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fcoe = Carrier(kind="software", usual="hardware", name="software FCoE")
    summary = summarise(carried(Simulation().data(study()), {"iscsi": fcoe}))
    monkeypatch.setattr(kernels, "_measured", lambda _: (summary, "2026-01-31"))
    assert "iSCSI runs here over software FCoE instead of hardware: that cost is in these figures." in said(
        "quick", capsys
    )


@pytest.mark.usefixtures("engine")
def test_a_notebook_of_another_study_is_not_taken_for_the_kernels(engine: FakeEngine, tiny: Path) -> None:
    del engine
    path = Path("out") / "kernel-exact.iotax"
    path.parent.mkdir()
    run(str(tiny), path, report=False)
    assert path.is_file()
    assert kernels._measured(path) is None
    assert kernels._measured(Path("out") / "none.iotax") is None
