"""What each layer spends per I/O: listed separately if the lab measured it, else omitted with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iotax.analysis import StudyData, Summary, summarise
from iotax.analysis.responses import CPU_GUEST, CPU_INITIATOR_KERNEL, CPU_TARGET_KERNEL
from iotax.records import CpuTime, CpuUse
from iotax.records.cpu import Role
from iotax.report.charts import layers, layers_said, layers_used
from iotax.report.charts.layers import BOTH, DISK, GENERATOR, HYPERVISOR, INITIATOR, MACHINE, TARGET, layers_us
from iotax.report.page import Page
from iotax.trial import Attempt
from report.factory import Simulation, study


def guests(clock: str = "time", target: str = "kernel", role: Role = "initiator") -> Summary:
    """Per I/O the load's guest spends 200 µs, of which 30 µs are the load process's user time; the target's guest
    spends 100 µs, the hypervisor 50 µs."""
    data = Simulation().data(study(factors={"protocol": ["iscsi", "nfs3"], "outstanding": [8]}))
    attempts = [virtual(data, number, clock, target, role) for number in range(len(data.attempts))]
    return summarise(replace(data, attempts=attempts))


def virtual(data: StudyData, number: int, clock: str, target: str, role: Role) -> Attempt:
    attempt = data.attempts[number]
    result = attempt.result
    assert result is not None
    each_ns, window_ns = 1000 * result.ios, result.window.duration_ns
    spent = [
        CpuTime(role=role, layer="guest", busy_ns=200 * each_ns, window_ns=window_ns),
        CpuTime(
            role="initiator",
            layer="process",
            busy_ns=70 * each_ns,
            user_ns=30 * each_ns,
            system_ns=40 * each_ns,
            window_ns=window_ns,
        ),
        CpuTime(role="hypervisor", layer="process", busy_ns=50 * each_ns, window_ns=window_ns),
    ]
    if role == "initiator":
        spent.append(CpuTime(role="target", layer="guest", busy_ns=100 * each_ns, window_ns=window_ns))
    facts = result.facts.model_copy(update={"lab": "vm", "clock": clock, "stack": "kernel", "target_stack": target})
    return attempt.model_copy(update={"result": result.model_copy(update={"cpu": CpuUse(spent), "facts": facts})})


def test_generator_kernel_hypervisor_and_target_make_one_bar() -> None:
    summary = guests()
    cell = summary.cells[0]
    assert layers_us(cell) == {
        GENERATOR: pytest.approx(30),
        INITIATOR: pytest.approx(170),
        HYPERVISOR: pytest.approx(50),
        TARGET: pytest.approx(100),
    }
    assert [cell.values[each.key].value for each in (CPU_GUEST, CPU_INITIATOR_KERNEL, CPU_TARGET_KERNEL)] == [
        pytest.approx(200),
        pytest.approx(170),
        pytest.approx(100),
    ]
    drawing = layers(summary, cell.condition)
    assert drawing is not None
    assert "load generator 30.0 µs, initiator’s kernel 170 µs, hypervisor 50.0 µs" in drawing.description


def with_virtual_disk(summary: Summary) -> Summary:
    """The virtual disk's process spends 60 µs per I/O in the load's guest, 20 µs of it in user space."""
    attempts = []
    for each in summary.data.attempts:
        assert each.result is not None
        each_ns = 1000 * each.result.ios
        disk = CpuTime(role="disk", layer="process", busy_ns=60 * each_ns, user_ns=20 * each_ns, system_ns=40 * each_ns)
        cpu = CpuUse([*each.result.cpu, disk])
        attempts.append(each.model_copy(update={"result": each.result.model_copy(update={"cpu": cpu})}))
    return summarise(replace(summary.data, attempts=attempts))


def test_a_process_that_serves_a_virtual_disk_is_no_part_of_the_initiators_kernel() -> None:
    cell = with_virtual_disk(guests()).cells[0]
    assert layers_us(cell) == {
        GENERATOR: pytest.approx(30),
        DISK: pytest.approx(20),
        INITIATOR: pytest.approx(150),
        HYPERVISOR: pytest.approx(50),
        TARGET: pytest.approx(100),
    }
    # The initiator's CPU per I/O includes all of it.
    assert cell.values["cpu_initiator"].value == pytest.approx(200)
    assert cell.values["cpu"].value == pytest.approx(300)
    parts = layers_us(with_virtual_disk(guests(role="both")).cells[0])
    assert parts == {GENERATOR: pytest.approx(30), DISK: pytest.approx(20), BOTH: pytest.approx(150)}


def test_the_report_says_what_a_virtual_disk_adds_to_the_initiators_figure() -> None:
    plain, above = (Page(each, "n.iotax").html() for each in (guests(), with_virtual_disk(guests())))
    said = "includes everything between load and initiator"
    assert said in above
    assert said not in plain


def test_the_report_has_a_sentence_for_each_layer() -> None:
    summary = guests()
    said = layers_said(summary)
    assert [name for name, _ in layers_used(summary)] == [each.partition(":")[0] for each in said]
    page = Page(summary, "n.iotax").html()
    assert "Layer by layer" in page
    assert said[1].replace("’", "&#39;") in page or said[1] in page


def test_a_hypervisor_by_another_clock_is_left_out_with_the_reason() -> None:
    summary = guests(clock="instructions")
    assert HYPERVISOR not in (layers_us(summary.cells[0]) or {})
    assert "The hypervisor is not drawn" in layers_said(summary)[-1]


def test_the_guest_of_a_program_that_serves_is_no_kernel() -> None:
    summary = guests(target="user")
    assert CPU_TARGET_KERNEL.key not in summary.cells[0].values
    assert (layers_us(summary.cells[0]) or {})[MACHINE] == pytest.approx(100)


def test_kernels_in_one_guest_are_one_layer() -> None:
    parts = layers_us(guests(role="both").cells[0])
    assert parts is not None
    assert parts[BOTH] == pytest.approx(170)
    assert {INITIATOR, TARGET, MACHINE}.isdisjoint(parts)


def test_processes_in_user_space_have_no_layers_and_the_report_says_why() -> None:
    summary = summarise(Simulation().data(study()))
    assert layers(summary, summary.cells[0].condition) is None
    [said] = layers_said(summary)
    assert said.startswith("Layers are not separated: initiator and target are processes in user space")
    page = Page(summary, "n.iotax").html()
    assert "Layer by layer" not in page
    assert "Layers are not separated" in page
