"""End-to-end proof: over real sockets and every protocol, the report finds the cost injected into the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import ran
from iotax.analysis import Summary, Verdict, summarise
from iotax.collected import study_data
from iotax.notebook import Notebook

STUDY = """\
name: truth
question: Is what was put in found?
volume: {{size: 16MiB}}
factors: {{protocol: [nfs3, iscsi, nvme-tcp], {factor}: [0us, {tax}]}}
load: {{read: 100%, outstanding: 1, warmup: 100ms, runtime: 1s}}
design: {{replicates: 3, seed: 3}}
baseline: {{{factor}: 0us}}
responses: [{response}]
"""


pytestmark = [pytest.mark.slow, pytest.mark.machine, pytest.mark.usefixtures("real_engine")]


def measured(folder: Path, factor: str, tax: str, response: str) -> Summary:
    study, notebook = folder / "truth.yaml", folder / "truth.iotax"
    study.write_text(STUDY.format(factor=factor, tax=tax, response=response))
    done = ran("run", str(study), "--notebook", str(notebook), "--no-report")
    assert done.exit_code == 0, done.stdout + done.stderr
    with Notebook(notebook) as opened:
        return summarise(study_data(opened))


def test_an_injected_delay_is_found_as_latency(tmp_path: Path) -> None:
    """Uses the median, which a busy machine hardly changes."""
    summary = measured(tmp_path, "delay", "2ms", "latency")
    (overall,) = summary.overalls
    assert overall.comparison.verdict is Verdict.WORSE
    assert len(summary.shifts) == 3
    for shift in summary.shifts:
        median = next(point for point in shift.points if point.percent == 50)
        assert median.difference_us.value == pytest.approx(2000, rel=0.15), shift.condition
    levels = "delay=0us", "delay=2ms"
    notebook = ("--notebook", str(tmp_path / "truth.iotax"), "--fail-on-regression")
    assert ran("compare", *levels, *notebook).exit_code == 6
    assert ran("compare", *levels[::-1], *notebook).exit_code == 0


def test_an_injected_burn_is_found_as_cpu_of_the_target(tmp_path: Path) -> None:
    summary = measured(tmp_path, "burn", "100us", "cpu_per_io")
    (overall,) = summary.overalls
    assert overall.comparison.verdict is Verdict.WORSE
    values = {(cell.arm, cell.condition): cell.values for cell in summary.cells}
    for condition in summary.grid.conditions:
        slow, fast = (values[arm, condition] for arm in ("100us", "0s"))
        found_us = slow["cpu_target"].value - fast["cpu_target"].value
        # With one outstanding I/O the server wakes for each I/O, at both levels.
        assert 90 < found_us < 130, condition
        assert abs(slow["cpu_initiator"].value - fast["cpu_initiator"].value) < 25
