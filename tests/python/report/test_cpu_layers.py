"""Guest and hypervisor are stacked in one bar only if both measure the same kind of CPU time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iotax.analysis import StudyData, Summary, summarise
from iotax.records import CpuTime, CpuUse
from iotax.report.charts import cpu
from iotax.trial import Attempt
from iotax.wording.answer import answer
from report.factory import Simulation, study


def guests(clock: str) -> Summary:
    """Per I/O the initiator's guest spends 200 µs, the target's guest 100 µs, the hypervisor 50 µs."""
    data = Simulation().data(study(factors={"protocol": ["iscsi", "nfs3"], "outstanding": [8]}))
    return summarise(replace(data, attempts=[virtual(data, number, clock) for number in range(len(data.attempts))]))


def virtual(data: StudyData, number: int, clock: str) -> Attempt:
    attempt = data.attempts[number]
    result = attempt.result
    assert result is not None
    parts = (("initiator", "guest", 200), ("target", "guest", 100), ("hypervisor", "process", 50))
    spent = [
        CpuTime(host=role, role=role, layer=layer, busy_ns=us * 1000 * result.ios, window_ns=result.window.duration_ns)
        for role, layer, us in parts
    ]
    facts = result.facts.model_copy(update={"clock": clock, "stack": "kernel"})
    return attempt.model_copy(update={"result": result.model_copy(update={"cpu": CpuUse(spent), "facts": facts})})


def test_hypervisor_is_a_layer_of_the_bar_where_guests_count_time():
    summary = guests("time")
    parts = cpu.parts_us(summary, summary.cells[0])
    assert {name: parts[name] for name in ("Initiator", "Target", cpu.HYPERVISOR)} == {
        "Initiator": pytest.approx(200),
        "Target": pytest.approx(100),
        cpu.HYPERVISOR: pytest.approx(50),
    }
    assert [name for name, _ in cpu.parts_used(summary)] == ["Initiator", "Target", cpu.HYPERVISOR]
    assert "the hypervisor’s part is drawn, and not in that number" in cpu.caption(summary)


def test_hypervisor_is_not_added_to_guests_that_count_instructions():
    summary = guests("instructions")
    assert cpu.HYPERVISOR not in cpu.parts_us(summary, summary.cells[0])
    assert "in the table only" in cpu.caption(summary)


def test_the_first_screen_says_that_cpu_per_io_leaves_the_hypervisor_out():
    [part] = [part for part in answer(guests("instructions")) if part.title == "What CPU per I/O leaves out"]
    [finding] = part.findings
    assert "the hypervisor spends 50.0 µs with iSCSI and 50.0 µs with NFSv3 on each I/O" in finding.sentence
    assert not [
        part
        for part in answer(summarise(Simulation().data(study(factors={"protocol": ["iscsi", "nfs3"]}))))
        if part.title == "What CPU per I/O leaves out"
    ]
