"""Tables of costs: their intervals, their effect on results, and how measurements become a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import iotax
from iotax.analysis import StudyData, summarise
from iotax.calibration import Made, make_table
from iotax.cli.app import app
from iotax.cli.sim_costs import text_of
from iotax.collected import study_data
from iotax.design import plan
from iotax.labs.sim.costs import deviates, trial_costs
from iotax.notebook import Notebook
from iotax.records import CpuTime, CpuUse
from iotax.study import Study, sim
from iotax.study.rules import broken_rules
from iotax.study.sim import CostsError, CostTable, read_costs
from iotax.trial import TrialResult

LOOPBACK = Path(sim.__file__).with_name("costs") / "loopback.yaml"
SMALL: dict[str, Any] = {
    "name": "small",
    "question": "What is drawn?",
    "lab": {"sim": {"cores": 1, "target_cores": 1}},
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["iscsi", "nvme-tcp"]},
    "load": {"outstanding": 8, "warmup": "1ms", "runtime": "2ms"},
    "topology": {"link_rate": "25Gbit"},
    "design": {"replicates": 4},
    "baseline": {"protocol": "iscsi"},
}


def table(path: Path, **io: int) -> Path:
    """The built-in table, with other costs for an I/O of an NVMe/TCP initiator."""
    told = yaml.safe_load(LOOPBACK.read_text("utf-8"))
    told["protocols"]["nvme-tcp"]["initiator"]["io"].update(io)
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def study(costs: Path | str, **changes: Any) -> Study:
    told = SMALL | changes
    told["lab"] = {"sim": SMALL["lab"]["sim"] | {"costs": str(costs)}}
    return Study.model_validate(yaml.safe_load(yaml.safe_dump(told)))


def drawn(of: Study) -> list[dict[str, dict[str, int]]]:
    """The costs drawn for NVMe/TCP, one set per replicate."""
    trials = [each for each in plan(of).trials if each.treatment["protocol"] == "nvme-tcp"]
    return [trial_costs(of, "nvme-tcp", each) for each in sorted(trials, key=lambda each: each.replicate)]


def test_a_table_without_intervals_is_taken_as_it_is() -> None:
    first, *others = drawn(study("loopback"))
    assert first["initiator"]["io_ns"] == read_costs("loopback").protocols["nvme-tcp"].initiator.io.ns
    assert all(each == first for each in others)


def test_draws_leave_the_mean_where_the_table_puts_it_and_as_uncertain(tmp_path: Path) -> None:
    costs = table(tmp_path / "costs.yaml", ns=1000, low_ns=902, high_ns=1098)
    for replicates in (2, 3, 10):
        values = [each["initiator"]["io_ns"] for each in drawn(study(costs, design={"replicates": replicates}))]
        assert statistics.fmean(values) == pytest.approx(1000, abs=1)
        # Over many studies, the squared standard error of the mean equals the variance of the figure.
        many = [deviates(seed, "costs", replicates) for seed in range(2000)]
        squares = [statistics.variance(each) / replicates for each in many]
        assert statistics.fmean(squares) == pytest.approx(1.0, abs=0.1)


def test_what_is_sent_costs_what_is_received_where_the_table_says_nothing_else(tmp_path: Path) -> None:
    told = yaml.safe_load(LOOPBACK.read_text("utf-8"))
    figures = told["protocols"]["nvme-tcp"]["initiator"]
    for name in ("kib_sent", "wake_short", "wake_delay"):
        del figures[name]
    alike = tmp_path / "alike.yaml"
    alike.write_text(yaml.safe_dump(told), encoding="utf-8")
    plain = drawn(study(alike))[0]["initiator"]
    assert plain["kib_sent_ns"] == plain["kib_ns"] == figures["kib"]["ns"]
    assert (plain["wake_short_ns"], plain["wake_delay_ns"]) == (plain["wake_ns"], 0)
    told["protocols"]["nvme-tcp"]["initiator"]["kib_sent"] = {"ns": 300, "source": "a test"}
    file = tmp_path / "sent.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    apart = drawn(study(file))[0]["initiator"]
    assert apart == plain | {"kib_sent_ns": 300}
    assert "kib_sent: {ns: 300" in text_of(read_costs(str(file)))


def test_two_tables_share_no_draws(tmp_path: Path) -> None:
    one, other = (
        drawn(study(table(tmp_path / f"{ns}.yaml", ns=ns, low_ns=ns - 98, high_ns=ns + 98))) for ns in (1000, 1001)
    )
    shifted = [each["initiator"]["io_ns"] + 1 for each in one]
    assert [each["initiator"]["io_ns"] for each in other] != shifted


def test_draws_come_from_the_studys_seed_and_no_two_figures_share_them(tmp_path: Path) -> None:
    costs = table(tmp_path / "costs.yaml", ns=1000, low_ns=902, high_ns=1098)
    assert drawn(study(costs)) == drawn(study(costs))
    assert drawn(study(costs)) != drawn(study(costs, design={"replicates": 4, "seed": 7}))
    assert deviates(42, "costs a", 4) != deviates(42, "costs b", 4)
    assert deviates(42, "costs a", 1) == [0.0]


def test_a_cost_is_never_drawn_below_zero(tmp_path: Path) -> None:
    costs = table(tmp_path / "costs.yaml", ns=100, low_ns=0, high_ns=400)
    values = [each["initiator"]["io_ns"] for each in drawn(study(costs, design={"replicates": 30}))]
    assert min(values) == 0
    assert max(values) > 400


@pytest.mark.parametrize(
    ("io", "reason"),
    [
        ({"ns": 5, "low_ns": 4}, "both low_ns and high_ns"),
        ({"ns": 5, "low_ns": 6, "high_ns": 7}, "does not lie between"),
    ],
)
def test_an_interval_that_cannot_be_is_refused(tmp_path: Path, io: dict[str, int], reason: str) -> None:
    with pytest.raises(CostsError, match=reason):
        read_costs(str(table(tmp_path / "costs.yaml", **io)))


def test_the_costs_are_part_of_what_a_study_asks(tmp_path: Path) -> None:
    costs = table(tmp_path / "costs.yaml", ns=170)
    first = study(costs).digest()
    costs.write_text("# a comment\n" + costs.read_text("utf-8"), encoding="utf-8")
    assert study(costs).digest() == first
    table(costs, ns=171)
    assert study(costs).digest() != first
    beside = study(costs)
    assert beside.model_copy(update={"lab": study("loopback").lab}).digest() != beside.digest()
    measured = Study.model_validate(SMALL | {"lab": "loopback", "topology": {}})
    assert measured.digest() == measured.digest_but_costs()


def test_a_label_says_who_initiates(tmp_path: Path) -> None:
    costs = table(tmp_path / "guest.yaml", ns=170)
    labels = {
        "datastore": {"protocol": "nvme-tcp"},
        "guest": {"protocol": "nvme-tcp", "costs": str(costs)},
    }
    of = study("loopback", factors={"protocol": labels}, baseline={"protocol": "datastore"})
    assert of.cost_tables() == ["loopback", str(costs)]
    found = {
        each.treatment["protocol"]: trial_costs(of, "nvme-tcp", each)["initiator"]["io_ns"] for each in plan(of).trials
    }
    assert found == {"datastore": read_costs("loopback").protocols["nvme-tcp"].initiator.io.ns, "guest": 170}
    before = of.digest()
    table(costs, ns=171)
    assert of.digest() != before
    labels["guest"]["costs"] = "no-such-table"
    [(place, _)] = list(broken_rules(study("loopback", factors={"protocol": labels}, baseline={"protocol": "guest"})))
    assert place == ("factors", "protocol", "guest", "costs")


def test_only_simulated_labels_say_who_initiates() -> None:
    labels = {"here": {"protocol": "iscsi", "costs": "loopback", "luns": 2, "adapter_depth": 4}}
    told = SMALL | {"lab": "loopback", "topology": {}, "factors": {"protocol": labels}, "baseline": {}}
    found = dict(broken_rules(Study.model_validate(told)))
    for name in ("costs", "luns", "adapter_depth"):
        assert "simulated machines" in found["factors", "protocol", "here", name]


def test_a_run_is_not_continued_with_other_costs(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    costs, notebook = table(tmp_path / "costs.yaml", ns=170), tmp_path / "small.iotax"

    def run(replicates: int, *options: str) -> Any:
        file = tmp_path / "small.yaml"
        told = study(costs, design={"replicates": replicates}).model_dump(mode="json")
        file.write_text(
            yaml.safe_dump(SMALL | {"lab": {"sim": told["lab"]["sim"]}, "design": {"replicates": replicates}})
        )
        return CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report", *options])

    assert run(2).exit_code == 0
    assert "Nothing was run" in run(2).output
    table(costs, ns=500)
    for replicates in (2, 3):
        refused = run(replicates)
        assert refused.exit_code == 5, refused.output
        said = " ".join(refused.output.split())
        assert "run 1 of small was simulated with another table of costs" in said
        assert "--again" in said
    assert run(2, "--again").exit_code == 0
    with Notebook(notebook) as kept:
        assert [each.id for each in kept.runs()] == [1, 2]
        digests = [kept.environment(each.id)["costs"]["digest"] for each in kept.runs()]
        spent = [each.result.cpu_per_io_ns("initiator") for each in kept.attempts(2) if each.result is not None]
    assert len(set(digests)) == 2
    assert all(spent)
    # The first table is back, and the first run belongs to it.
    table(costs, ns=170)
    assert "Nothing was run" in run(2).output


@pytest.mark.usefixtures("real_engine")
def test_more_replicates_of_drawn_costs_are_another_run(tmp_path: Path) -> None:
    """The draws of a replicate depend on the number of replicates, so those of two studies cannot be combined."""
    costs, notebook = table(tmp_path / "drew.yaml", ns=5000, low_ns=1000, high_ns=9000), tmp_path / "small.iotax"
    file = tmp_path / "small.yaml"
    for replicates in (2, 3):
        lab = {"sim": {"costs": str(costs), "cores": 1, "target_cores": 1}}
        file.write_text(yaml.safe_dump(SMALL | {"lab": lab, "design": {"replicates": replicates}}))
        done = CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"])
        assert done.exit_code == 0, done.output
    with Notebook(notebook) as kept:
        assert [len(kept.attempts(each.id)) for each in kept.runs()] == [4, 6]


def test_intervals_hold_what_is_unknown_of_the_costs_and_the_report_says_so(real_engine: Path, tmp_path: Path) -> None:
    del real_engine

    def shown(name: str, **io: int) -> tuple[str, str, float]:
        costs, file, notebook = (
            table(tmp_path / f"{name}-costs.yaml", **io),
            tmp_path / f"{name}.yaml",
            tmp_path / f"{name}.iotax",
        )
        file.write_text(yaml.safe_dump(SMALL | {"lab": {"sim": {"costs": str(costs), "cores": 1, "target_cores": 1}}}))
        done = CliRunner().invoke(app, ["run", str(file), str(notebook), "--long"])
        assert done.exit_code == 0, done.output
        cells = iotax.open(notebook).cells().set_index("protocol").loc["nvme-tcp"]
        width = cells["cpu_initiator_us_per_io_high"] - cells["cpu_initiator_us_per_io_low"]
        return notebook.with_suffix(".html").read_text("utf-8"), done.output, width

    report, said, narrow = shown("exact", ns=800)
    assert "drew its costs" not in report
    assert "Better known costs" not in said
    report, said, wide = shown("drew", ns=800, low_ns=0, high_ns=4000)
    assert wide > 3 * narrow
    assert "drew its costs" in " ".join(report.split())
    assert "Better known costs would settle it, not more replicates" in " ".join(said.split())
    assert "To settle it" not in said
    # Replicates do not make the costs more precise, and their scatter is not that of a machine.
    assert "half of it takes" not in said
    for text in (report, said):
        assert "minimum detectable difference" not in " ".join(text.split())
        assert "Noise floor: runs" not in " ".join(text.split())


@pytest.mark.usefixtures("real_engine")
def test_more_loads_do_not_make_drawn_costs_better_known(tmp_path: Path) -> None:
    costs = table(tmp_path / "drew.yaml", ns=5000, low_ns=1000, high_ns=9000)
    levels = SMALL["factors"] | {"block_size": ["4KiB", "8KiB"], "read": ["0%", "50%", "100%"]}
    lab = {"sim": {"costs": str(costs), "cores": 1, "target_cores": 1}}
    file, notebook = tmp_path / "study.yaml", tmp_path / "study.iotax"
    file.write_text(yaml.safe_dump(SMALL | {"lab": lab, "factors": levels}))
    done = CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"])
    assert done.exit_code == 0, done.output
    with Notebook(notebook) as opened:
        model = summarise(study_data(opened)).models["iops"]
    pairs = [{cell: 1.0, model.grid.baseline_of(cell): -1.0} for cell in dict.fromkeys(model.cells)]
    pairs = [each for each in pairs if len(each) == 2]
    together = {cell: weight / len(pairs) for each in pairs for cell, weight in each.items()}
    alone, whole = [model.model.contrast(each).standard_error for each in pairs], model.model.contrast(together)
    # The six loads of a replicate share its draw. With independent draws the factor would be 2/5.
    assert (whole.standard_error or 0.0) > 0.5 * statistics.median(each or 0.0 for each in alone)


@pytest.fixture
def measured(real_engine: Path, tmp_path: Path) -> Path:
    """A notebook of a short study with two protocols over loopback sockets."""
    del real_engine
    told = SMALL | {
        "lab": "loopback",
        "topology": {},
        "factors": {"protocol": ["local", "iscsi", "nvme-tcp"], "outstanding": [1, 32]},
        # Long enough that a stalled disk leaves no window empty.
        "load": {"warmup": "5ms", "runtime": "300ms"},
        "design": {"replicates": 2},
    }
    file, notebook = tmp_path / "m.yaml", tmp_path / "m.iotax"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    assert CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"]).exit_code == 0
    return notebook


def test_a_table_is_made_from_a_notebook_and_runs_a_study(measured: Path, tmp_path: Path) -> None:
    costs = tmp_path / "made.yaml"
    done = CliRunner().invoke(app, ["sim", "costs", str(measured), "-o", str(costs)])
    assert done.exit_code == 0, done.output
    assert "local is not simulated" in done.output
    made = read_costs(str(costs))
    assert set(made.protocols) == {"iscsi", "nvme-tcp"}
    assert made.has_intervals
    for sides in made.protocols.values():
        for side in (sides.initiator, sides.target):
            figures = side.figures()
            assert "m.iotax, run 1 (small)" in figures["io"].source
            assert figures["wake"].interval is not None
            assert "fitted to 2 treatments in 2 blocks" in figures["wake"].source
            # One outstanding I/O determines the wake-up delay, which a busy machine can hide behind CPU time. The cost
            # after a short sleep keeps its ratio.
            assert "fitted to 2 treatments in 2 blocks" in figures["wake_delay"].source
            assert figures["wake_short"].ns == pytest.approx(0.4 * figures["wake"].ns, rel=0.01, abs=1)
            # One block size cannot determine the cost of a KiB.
            assert figures["kib"].interval is None
            assert figures["kib"].source.startswith("as in table loopback, since m.iotax")
    assert CostTable.model_validate(yaml.safe_load(text_of(made))) == made
    file = tmp_path / "small.yaml"
    # A single replicate takes the figures themselves. From the intervals of two blocks on a busy machine, one could
    # draw a wake-up so slow that no I/O completes.
    told = SMALL | {
        "lab": {"sim": {"costs": str(costs)}},
        "load": SMALL["load"] | {"runtime": "500ms"},
        "design": {"replicates": 1},
    }
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(file), str(tmp_path / "sim.iotax"), "--no-report"])
    assert done.exit_code == 0, done.output


def retold(notebook: Path, part_of: Callable[[CpuTime, TrialResult], CpuTime]) -> StudyData:
    """The measured data, with other CPU times for iSCSI."""
    with Notebook(notebook) as opened:
        data = study_data(opened)
    attempts = []
    for each in data.attempts:
        if each.result is not None and each.result.facts.protocol == "iscsi":
            cpu = CpuUse([part_of(part, each.result) for part in each.result.cpu])
            attempts.append(each.model_copy(update={"result": each.result.model_copy(update={"cpu": cpu})}))
    return replace(data, attempts=attempts)


def made_of(data: StudyData, engine: Path, times: int = 1) -> Made:
    """`times` multiplies the built-in table's figures, from which the fit starts."""
    told = read_costs("loopback").model_dump(exclude_none=True)
    for sides in told["protocols"].values():
        for cost in (cost for side in sides.values() for cost in side.values()):
            cost["ns"] *= times
    return make_table(data, "it", CostTable.model_validate(told), "loopback", engine, lambda _: None)


@pytest.mark.slow
def test_of_two_ends_in_one_kernel_each_has_half_and_the_table_says_so(real_engine: Path, measured: Path) -> None:
    def one_kernel(part: CpuTime) -> CpuTime:
        told = {"role": "both", "layer": "guest", "background_ns": None, "cores": []}
        return part.model_copy(update=told if part.role == "target" else {})

    def others_apart(part: CpuTime) -> CpuTime:
        return part.model_copy(update={"role": "hypervisor"} if part.role in ("initiator", "other") else {})

    data = retold(measured, lambda part, _: others_apart(one_kernel(part)))
    together = {run.trial.levels: run.result.cpu_per_io_ns("machine") for run in data.runs}
    assert all(together.values())
    made = made_of(data, real_engine)
    for each in made.table.protocols["iscsi"].by_name().values():
        assert each.io.source.endswith("both ends in one kernel, half of its CPU each (assumed)")
    halves = {(check.treatment, check.measured_ns) for check in made.checks}
    assert len(made.checks) == 2 * len(halves) == 4
    assert (
        "half"
        not in made_of(retold(measured, lambda part, _: part), real_engine).table.protocols["iscsi"].target.io.source
    )


@pytest.mark.slow
def test_ios_that_take_milliseconds_are_simulated_for_as_long_as_many_of_them_take(
    real_engine: Path, measured: Path
) -> None:
    def slow(part: CpuTime, result: TrialResult) -> CpuTime:
        return part.model_copy(
            update={"busy_ns": result.ios * (5_000_000 if result.outstanding.total == 1 else 3_000_000)}
        )

    made = made_of(retold(measured, slow), real_engine, times=100)
    assert {check.measured_ns for check in made.checks} == {3_000_000, 5_000_000}
    # The fit is as good as for costs of microseconds, whatever the window cuts off.
    assert all(abs(check.off) < 0.1 for check in made.checks), made.checks


@pytest.mark.slow
def test_making_a_table_overwrites_nothing_and_takes_no_simulation_for_a_measurement(
    real_engine: Path, measured: Path, tmp_path: Path
) -> None:
    del real_engine

    def costs(notebook: Path, *options: str) -> Any:
        return CliRunner().invoke(app, ["sim", "costs", str(notebook), *options])

    there = tmp_path / "there.yaml"
    there.write_text("mine", encoding="utf-8")
    refused = costs(measured, "-o", str(there))
    assert (refused.exit_code, there.read_text("utf-8")) == (2, "mine")
    assert "already exists" in refused.output
    unknown = costs(measured, "--base", "nowhere", "-o", str(tmp_path / "new.yaml"))
    assert unknown.exit_code == 2
    assert "no built-in table" in unknown.output
    file, notebook = tmp_path / "small.yaml", tmp_path / "sim.iotax"
    file.write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    assert CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"]).exit_code == 0
    refused = costs(notebook, "-o", str(tmp_path / "new.yaml"))
    assert refused.exit_code == 2
    assert "is simulated" in refused.output
    assert not (tmp_path / "new.yaml").exists()


@pytest.mark.slow
def test_a_made_table_is_told_as_json(measured: Path, tmp_path: Path) -> None:
    costs = tmp_path / "made.yaml"
    done = CliRunner().invoke(app, ["sim", "costs", str(measured), "-o", str(costs), "--json", "-"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["costs"] == str(costs)
    assert len(said["checks"]) == 8
    assert said["table"]["protocols"]["iscsi"]["target"]["io"]["ns"] >= 0
    assert CliRunner().invoke(app, ["sim", "costs", str(measured), "-o", str(costs)]).exit_code == 2
