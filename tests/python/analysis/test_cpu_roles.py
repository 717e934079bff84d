"""CPU by role: one definition for labs and imports, and the responses that use it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from iotax.analysis import StudyData, Summary, summarise
from iotax.analysis.responses import CPU, CPU_HYPERVISOR, RESPONSES, counted
from iotax.analysis.verdict import Cause
from iotax.records import CpuTime, CpuUse, Facts, Lack, VmThreads, cpu_of
from iotax.report.sections.cpu import cpu_columns, cpu_groups
from iotax.study import Study
from iotax.trial import Attempt
from iotax.wording.answer import answer
from iotax.wording.processors import contents
from report.factory import QUICK, Simulation, study

SECOND = 1_000_000_000


def part(role: str, layer: str, busy_ns: int, **known: object) -> CpuTime:
    return CpuTime.model_validate({"role": role, "layer": layer, "busy_ns": busy_ns, **known})


def test_a_hypervisor_is_its_host_less_its_guests_and_its_background() -> None:
    cpu = CpuUse(
        [
            part("hypervisor", "machine", 900, guests_ns=300, background_ns=100, window_ns=1000, processors=4),
            part("initiator", "guest", 300, background_ns=50),
        ]
    )
    found = cpu_of(cpu, Facts(), "hypervisor")
    assert (found.net_ns, found.own_ns, found.share) == (500, 600, 600 / 4000)
    assert cpu_of(cpu, Facts(), "initiator").net_ns == 250


def test_a_host_whose_guests_were_not_read_has_no_part_of_its_own() -> None:
    cpu = CpuUse([part("hypervisor", "machine", 900)])
    found = cpu_of(cpu, Facts(), "hypervisor")
    assert (found.net_ns, found.lack) == (None, Lack.GUESTS)
    # One of two hosts without guest time is enough to leave the sum unknown.
    two = CpuUse([part("hypervisor", "machine", 900), part("hypervisor", "machine", 900, guests_ns=10)])
    assert cpu_of(two, Facts(), "hypervisor").lack is Lack.GUESTS


def test_the_process_of_a_guest_stands_for_its_hypervisor_where_no_host_was_read() -> None:
    cpu = CpuUse([part("hypervisor", "process", 70), part("initiator", "guest", 300)])
    assert cpu_of(cpu, Facts(), "hypervisor").net_ns == 70
    whole = CpuUse([*cpu, part("hypervisor", "machine", 900, guests_ns=300)])
    assert cpu_of(whole, Facts(), "hypervisor").net_ns == 600


def test_a_guest_is_counted_within_its_host_and_once() -> None:
    cpu = CpuUse([part("hypervisor", "machine", 900, guests_ns=300), part("initiator", "guest", 300)])
    assert cpu_of(cpu, Facts(), "machine").net_ns == 900
    guests_alone = CpuUse([part("initiator", "guest", 300), part("target", "guest", 200)])
    assert cpu_of(guests_alone, Facts(), "machine").net_ns == 500


def test_why_a_role_has_no_reading_is_known() -> None:
    nothing = CpuUse([])
    assert cpu_of(nothing, Facts(), "machine").lack is Lack.NOT_READ
    assert cpu_of(nothing, Facts(served="nobody"), "target").lack is Lack.NOBODY
    assert cpu_of(CpuUse([part("both", "guest", 9)]), Facts(), "target").lack is Lack.TOGETHER
    machine = CpuUse([part("other", "machine", 9)])
    assert cpu_of(machine, Facts(stack="kernel"), "initiator").lack is Lack.BACKGROUND


def test_a_study_names_roles_by_words_or_by_their_role() -> None:
    asked = [{"cpu_per_io": {"of": ["hypervisor", "machine"]}}, {"cpu_utilisation": {"of": "target"}}, "cpu_machine"]
    found = Study.model_validate(QUICK | {"responses": asked})
    assert found.responses == ["cpu_hypervisor", "cpu_machine", "cpu_utilisation_target"]
    # The notebook stores the names.
    assert Study.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "asked",
    [
        {"cpu_per_io": {"of": "guest"}},
        {"cpu": {"of": "target"}},
        {"cpu_per_io": "target"},
        {"cpu_per_io": {"of": []}},
        {"cpu_per_io": {"of": "target"}, "iops": {}},
        {},
    ],
)
def test_a_role_that_there_is_none_of_is_refused(asked: object) -> None:
    with pytest.raises(ValidationError, match="ROLE is initiator, target, hypervisor, machine"):
        Study.model_validate(QUICK | {"responses": [asked]})


def told(data: StudyData, *, factor: float = 1.0) -> StudyData:
    """The same runs in a guest on a host with 8 processors, whose own CPU is 40 µs per I/O, times `factor` for NFS."""
    attempts = []
    for attempt in data.attempts:
        result = attempt.result
        assert result is not None
        times = factor if attempt.trial.treatment["protocol"] == "nfs3" else 1.0
        own_ns, guest_ns = round(40_000 * times * result.ios), 20_000 * result.ios
        window_ns = result.window.duration_ns
        parts = [
            part("initiator", "guest", guest_ns, window_ns=window_ns, processors=2, background_ns=0, host="vm1"),
            part(
                "hypervisor",
                "machine",
                own_ns + guest_ns,
                guests_ns=guest_ns,
                window_ns=window_ns,
                processors=8,
                background_ns=0,
                host="esx1",
                meter="esxtop",
            ),
        ]
        facts = result.facts.model_copy(update={"lab": "hosts", "stack": "kernel", "served": "elsewhere"})
        changed = result.model_copy(update={"cpu": CpuUse(parts), "facts": facts})
        attempts.append(attempt.model_copy(update={"result": changed}))
    return replace(data, attempts=attempts, backgrounds=[])


def hypervisor(asked: list[object], **changes: object) -> Summary:
    of = study(factors={"protocol": ["iscsi", "nfs3"], "outstanding": [8]}, responses=asked, **changes)
    return summarise(told(Simulation(run_cv=0.001, block_cv=0.0).data(of), factor=2.0))


def test_the_response_that_the_study_asks_for_leads_the_answer_and_the_sizing() -> None:
    summary = hypervisor(["cpu_hypervisor", "iops"])
    assert summary.responses[0] is CPU_HYPERVISOR
    [overall] = [each for each in summary.overalls if each.response is CPU_HYPERVISOR]
    assert overall.comparison.ratio.value == pytest.approx(2.0, rel=0.01)
    sentences = [finding.sentence for each in answer(summary) for finding in each.findings]
    assert any("hypervisor CPU per I/O" in said for said in sentences)
    sizing = summary.sizing(summary.cells[0].values["iops"].value)
    assert all("initiator's hypervisor" in cost.source for cost in sizing.costs)


def test_utilisation_gets_no_verdict_where_the_rates_differ() -> None:
    """In this closed loop iSCSI does more I/Os than NFS."""
    summary = hypervisor(["cpu_utilisation_hypervisor"])
    [overall] = summary.overalls
    assert overall.comparison.verdict is None
    assert overall.comparison.withheld is not None
    assert overall.comparison.withheld.cause is Cause.RATES
    assert overall.comparison.ratio.low is not None
    [said] = [f.sentence for each in answer(summary) for f in each.findings if "utilisation" in f.sentence]
    assert "the rates differ, and utilisation compares costs only at equal rates" in said


def test_utilisation_is_judged_where_the_rates_are_equal() -> None:
    asked = {"factors": {"protocol": ["iscsi", "nfs3"], "rate_iops": [2000]}}
    of = study(**asked, load={"outstanding": 32, "runtime": "4s"}, responses=["cpu_utilisation_hypervisor"])
    summary = summarise(told(Simulation(run_cv=0.001, block_cv=0.0).data(of), factor=2.0))
    [overall] = summary.overalls
    assert overall.comparison.verdict is not None
    assert overall.comparison.ratio.value == pytest.approx(2.0, rel=0.01)
    # 2,000 times 40 µs per second on 8 processors.
    assert summary.cells[0].values["cpu_utilisation_hypervisor"].value == pytest.approx(1.0, rel=0.02)


def test_what_the_study_asks_for_and_nobody_read_is_said_with_its_reason() -> None:
    of = study(factors={"protocol": ["iscsi", "nfs3"], "outstanding": [8]}, responses=["iops", "cpu_hypervisor"])
    summary = summarise(Simulation().data(of))
    [missing] = [each for each in answer(summary) if each.title == "Not measured"]
    [finding] = missing.findings
    assert "No CPU per I/O, initiator's hypervisor: no hypervisor was measured" in finding.sentence
    assert [each.response for each in summary.unread] == [CPU_HYPERVISOR]


def test_each_column_says_what_it_contains() -> None:
    said = contents(hypervisor(["cpu_hypervisor"]))
    assert any(each.startswith("Hypervisor: all busy time of the host by esxtop") for each in said)
    assert any(each.startswith("Initiator: all busy time of the initiator’s virtual machine") for each in said)
    assert any("guests within their hosts and counted once" in each for each in said)
    assert any(each.startswith("Target: none: ") for each in said)


def test_a_host_of_kvm_tells_qemu_beside_its_guests_and_the_rest_apart() -> None:
    named = {"processors_ns": 45, "io_ns": 4, "vhost_ns": 3, "vhost_apart_ns": 8}
    expected = {
        (): {"cpu_hypervisor": 50, "cpu_qemu": 12, "cpu_host_rest": 38},
        # The vCPU threads spent 5 outside the guest. The rest of the process is its main loop.
        tuple(named): {
            "cpu_hypervisor": 50, "cpu_qemu": 5, "cpu_io_threads": 4, "cpu_vhost": 11, "cpu_host_rest": 30,
        },
    }  # fmt: skip
    for names, found in expected.items():
        a_host_of_kvm_tells({name: named[name] for name in names}, found)


def a_host_of_kvm_tells(threads_us: dict[str, int], expected: dict[str, int]) -> None:
    whole = Simulation().data(study(factors={"protocol": ["nfs3", "iscsi"]}, design={"replicates": 2}))

    def on_kvm(attempt: Attempt) -> Attempt:
        assert attempt.result is not None
        each_ns = attempt.result.ios * 1000
        more = [
            part("hypervisor", "machine", 90 * each_ns, guests_ns=40 * each_ns, host="kvm"),
            part("hypervisor", "process", 52 * each_ns, guests_ns=40 * each_ns, host="kvm: g1").model_copy(
                update={"threads": VmThreads(**{name: us * each_ns for name, us in threads_us.items()})}
                if threads_us
                else {}
            ),
        ]
        return attempt.model_copy(
            update={"result": attempt.result.model_copy(update={"cpu": CpuUse([*attempt.result.cpu, *more])})}
        )

    summary = summarise(replace(whole, attempts=[on_kvm(each) for each in whole.attempts]))
    for cell in summary.cells:
        keys = ("cpu_hypervisor", "cpu_qemu", "cpu_io_threads", "cpu_vhost", "cpu_host_rest")
        found = {key: cell.values[key].value for key in keys if key in cell.values}
        assert found == pytest.approx(expected)
    titles = {"cpu_qemu": "QEMU", "cpu_io_threads": "I/O threads", "cpu_vhost": "vhost", "cpu_host_rest": "the rest"}
    names = [column.title for column in cpu_columns(summary)]
    until = 3 + len(expected)
    assert names[3:until] == ["Hypervisor", *(f"of it {titles[key]}" for key in list(expected)[1:])]
    for group in cpu_groups(summary):
        for row in group.rows:
            assert [float(figure.value) for figure in row.figures[3:until]] == list(expected.values())
    # Without its host, the guest's part of a QEMU process is unknown.
    assert not {"cpu_qemu", "cpu_host_rest"} & summarise(whole).cells[0].values.keys()


def test_no_two_responses_of_one_kind_of_load_have_one_heading() -> None:
    for database in (False, True):
        headings = {}
        for response in {counted(each, database=database) for each in RESPONSES}:
            assert headings.setdefault((response.short, response.unit), response.key) == response.key
    assert (CPU.short, CPU_HYPERVISOR.short) == ("CPU per I/O", "CPU per I/O, initiator's hypervisor")
