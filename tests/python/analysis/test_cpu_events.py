"""Instructions and cycles from the processor's counters. Without counters the reason is given once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iotax import report
from iotax.analysis import StudyData, summarise
from iotax.analysis.responses import EVENTS
from iotax.notebook import Notebook
from iotax.records.cpu import CpuEvents, CpuUse
from report.factory import Simulation, study, write_notebook

PER_IO = {"user_instructions": 4000, "kernel_instructions": 9000, "user_cycles": 2000, "kernel_cycles": 8000}
REASON = "the processors offer no counters"


def counted(data: StudyData, *, target: bool = True) -> StudyData:
    """The same runs, with these counts per I/O on each side."""
    attempts = []
    for each in data.attempts:
        assert each.result is not None
        events = CpuEvents(**{name: count * each.result.ios for name, count in PER_IO.items()})
        sides = ("initiator", "target") if target else ("initiator",)
        parts = [
            part.model_copy(update={"events": events if part.role in sides else None, "no_events": None})
            for part in each.result.cpu
        ]
        attempts.append(each.model_copy(update={"result": each.result.model_copy(update={"cpu": CpuUse(parts)})}))
    return replace(data, attempts=attempts)


def test_both_sides_are_told_together_for_each_io() -> None:
    summary = summarise(counted(Simulation().data(study())))
    for cell in summary.cells:
        found = {response.key: cell.values[response.key].value for response in EVENTS}
        sides = 1 if cell.arm == "local" else 2
        each = {"instructions_user": 4000, "instructions_kernel": 9000, "cycles_user": 2000, "cycles_kernel": 8000}
        assert found == pytest.approx({key: sides * count for key, count in each.items()}), cell.arm
    assert {cell.arm for cell in summary.cells} >= {"local", "iscsi"}
    assert {c.response.key for c in summary.comparisons} >= {response.key for response in EVENTS}


def test_a_side_that_nobody_counted_leaves_no_sum() -> None:
    summary = summarise(counted(Simulation().data(study()), target=False))
    served = [cell for cell in summary.cells if cell.arm != "local"]
    assert served
    assert not any(response.key in cell.values for cell in served for response in EVENTS)


def test_the_report_has_columns_of_them_or_the_reason_once(tmp_path: Path) -> None:
    plain = Simulation().data(study())
    told = [
        CpuUse([part.model_copy(update={"no_events": REASON}) for part in each.result.cpu])
        for each in plain.attempts
        if each.result is not None
    ]
    without = replace(
        plain,
        attempts=[
            each.model_copy(update={"result": each.result and each.result.model_copy(update={"cpu": cpu})})
            for each, cpu in zip(plain.attempts, told, strict=True)
        ],
    )
    for name, data, has in (("with", counted(plain), True), ("without", without, False)):
        with Notebook(write_notebook(tmp_path / f"{name}.iotax", data)) as notebook:
            page = report.write(notebook, tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert ("Instructions, kernel" in page) is has
        assert page.count(f"Instructions and cycles were not counted: {REASON}.") == (0 if has else 1)


def test_hosts_are_counted_together() -> None:
    one = CpuUse.model_validate({"initiator": {"pid": 1, "total_ns": 5, "events": PER_IO, "no_events": None}})
    assert one.initiator is not None
    assert one.initiator.events == CpuEvents(**PER_IO)
    both = CpuUse([one.initiator, one.initiator]).initiator
    assert both is not None
    assert both.events == CpuEvents(**{name: 2 * count for name, count in PER_IO.items()})
    missing = CpuUse([one.initiator, one.initiator.model_copy(update={"events": None, "no_events": REASON})]).initiator
    assert missing is not None
    assert (missing.events, missing.no_events) == (None, REASON)
