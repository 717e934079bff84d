"""A trial's record contains the facts of its run, and analysis uses no other source."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from faked import TINY
from iotax.analysis import Grid, Run, Severity, summarise
from iotax.analysis.limits import limit_of
from iotax.analysis.responses import CPU, CPU_INITIATOR
from iotax.analysis.validity import check_run
from iotax.design import plan
from iotax.engine import find_engine
from iotax.labs.loopback import LoopbackLab
from iotax.records import Core, CpuTime, CpuUse, Facts
from iotax.study import Study
from iotax.study.facts import planned_facts
from iotax.trial import Attempt
from iotax.wording import verdicts
from report.factory import Simulation, study

WINDOW_NS = 1_000_000_000


def test_facts_unknown_are_legal() -> None:
    data = Simulation().data(study())
    strange = [_changed(each, facts=Facts()) for each in data.attempts]
    summary = summarise(type(data)(data.study, strange, data.planned))
    assert verdicts(summary)
    assert summary.data.measuring_share is None


def _changed(attempt: Attempt, **changes: Any) -> Attempt:
    assert attempt.result is not None
    return attempt.model_copy(update={"result": attempt.result.model_copy(update=changes)})


def part(role: Any, layer: Any, busy_ns: int, **more: Any) -> CpuTime:
    return CpuTime(role=role, layer=layer, busy_ns=busy_ns, window_ns=WINDOW_NS, **more)


@pytest.fixture(scope="module")
def run() -> Run:
    found = next(each for each in Simulation().data(study()).runs if each.trial.id == "iscsi/8/r1")
    window = found.result.window.model_copy(update={"duration_ns": WINDOW_NS})
    return Run(found.trial, found.result.model_copy(update={"window": window}))


def with_cpu(run: Run, *parts: CpuTime, **facts: Any) -> Run:
    told = run.result.facts.model_copy(update=facts)
    return Run(run.trial, run.result.model_copy(update={"cpu": CpuUse([*parts]), "facts": told}))


def finding(run: Run, key: str) -> tuple[Severity, str]:
    return next((each.level, each.text) for each in check_run(run) if each.key == key)


@pytest.mark.parametrize(("processors", "level"), [(1, Severity.NOTE), (4, Severity.GOOD), (None, Severity.UNKNOWN)])
def test_a_generator_is_busy_by_the_processors_that_it_had(run: Run, processors: int | None, level: Severity) -> None:
    found = with_cpu(run, part("initiator", "process", 1_200_000_000, processors=processors))
    assert finding(found, "generator")[0] is level
    assert limit_of([found]).limiter == {1: "initiator", 4: "outstanding", None: "unknown"}[processors]


def test_a_guest_of_several_processors_is_busy_by_all_of_them(run: Run) -> None:
    half = with_cpu(run, part("initiator", "guest", 2_000_000_000, processors=4), lab="vm", stack="kernel")
    assert finding(half, "generator") == (Severity.GOOD, "its 4 processors were 50 % busy")


def kernel(run: Run, busy_ns: int, background_ns: int | None, programs_ns: int = 0, steal_ns: int = 0) -> Run:
    core = Core(
        cpu=0, user_ns=100_000_000 + programs_ns, nice_ns=0, system_ns=busy_ns, irq_ns=0, softirq_ns=0,
        steal_ns=steal_ns, idle_ns=0, iowait_ns=0,
    )  # fmt: skip
    machine = part("other", "machine", busy_ns, background_ns=background_ns, processors=2, cores=[core])
    load = part("initiator", "process", 200_000_000, user_ns=100_000_000, processors=1)
    return with_cpu(run, load, machine, stack="kernel", served="unknown")


def test_a_path_in_the_kernel_costs_what_the_machine_spends_beyond_its_background(run: Run) -> None:
    found = kernel(run, busy_ns=900_000_000, background_ns=100_000_000)
    assert CPU_INITIATOR.of(found) == pytest.approx(800_000 / found.result.ios)
    assert CPU.of(found) is None, "nobody knows what is behind the path"
    assert CPU_INITIATOR.of(kernel(run, 900_000_000, None)) is None, "no background, no figure"


def test_the_kernels_threads_are_no_foreign_work_but_other_programs_are(run: Run) -> None:
    assert finding(kernel(run, 1_500_000_000, 0), "foreign")[0] is Severity.GOOD
    assert finding(kernel(run, 1_500_000_000, 0, programs_ns=300_000_000), "foreign")[0] is Severity.DOUBTFUL


def test_what_the_hypervisor_below_takes_disturbs_a_run(run: Run) -> None:
    assert finding(kernel(run, 1_500_000_000, 0, steal_ns=50_000_000), "foreign")[0] is Severity.GOOD
    level, text = finding(kernel(run, 1_500_000_000, 0, steal_ns=300_000_000), "foreign")
    assert (level, text) == (Severity.DOUBTFUL, "0.00 processors busy, 0.30 taken by the hypervisor")


PATHS = """\
name: paths
question: Which disk?
volume: {size: 1MiB}
factors:
  protocol: {disk: /dev/null1, array: "iscsi://h/iqn.2000-01.x:y/0"}
baseline: {protocol: array}
"""


def read(text: str, **more: Any) -> Study:
    return Study.model_validate(yaml.safe_load(text) | more)


def test_a_path_is_the_floor_only_where_the_study_says_so() -> None:
    plain, said = read(PATHS), read(PATHS, floor="disk")
    facts = [planned_facts(each, each.settings({"protocol": "disk"})) for each in (plain, said)]
    assert [each.served for each in facts] == ["unknown", "nobody"]
    assert [each.stack for each in facts] == ["kernel", "kernel"]
    assert [Grid(each).local for each in (plain, said)] == [None, "disk"]


@pytest.mark.usefixtures("engine")
def test_the_lab_writes_what_it_knows_into_the_record() -> None:
    wanted = read(TINY, load={"threads": 2, "workers": 2, "warmup": "0s", "runtime": "10ms"})
    planned = plan(wanted)
    lab = LoopbackLab(wanted, planned, find_engine())
    try:
        lab.prepare(lambda _: None)
        lab.background(1)
        trial = next(each for each in planned.trials if each.treatment["protocol"] == "iscsi")
        result = lab.run(trial, lambda _: None).result
    finally:
        lab.close()
    assert result.facts == planned_facts(wanted, wanted.settings(trial.treatment))
    load, machine = result.cpu.initiator, result.cpu.part("other", "machine")
    assert load is not None
    assert machine is not None
    assert load.processors in (1, 2)
    assert machine.background_ns is not None
    assert {each.host for each in result.cpu} == {"this machine"}


def test_a_record_of_the_list_is_read_as_it_was_written() -> None:
    use = CpuUse.model_validate({"initiator": {"pid": 1, "total_ns": 5, "user_ns": 2, "system_ns": 3}, "target": None})
    assert use.model_dump(mode="json")[0]["role"] == "initiator"
    assert CpuUse.model_validate_json(use.model_dump_json()) == use
    with pytest.raises(ValidationError):
        CpuUse.model_validate({"initiator": {"pid": 1}})
