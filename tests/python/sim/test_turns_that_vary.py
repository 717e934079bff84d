"""Variation of turns: its effect on a simulation, and its estimate from measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.calibration import table as calibration
from iotax.calibration.table import closest_percent, rms_off, tell_turns_apart
from iotax.calibration.treatments import Treatment, measured_treatments, simulated
from iotax.cli.app import app
from iotax.cli.sim_costs import text_of
from iotax.labs.sim.assumptions import assumptions
from iotax.labs.sim.costs import initiators, table_costs
from iotax.study.read import read_study
from iotax.study.sim import CostTable, Spread, read_costs
from measurements import data_of, measured_in

MEASURED: dict[str, Any] = {
    "name": "small",
    "question": "What does it cost?",
    "lab": "loopback",
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["iscsi", "nvme-tcp"], "outstanding": [1, 8, 32, 64]},
    "load": {"warmup": "5ms", "runtime": "400ms"},
    "design": {"replicates": 1, "blocks": "none"},
    "baseline": {"protocol": "iscsi"},
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured_in(tmp_path_factory.mktemp("measured"), MEASURED)


def varying(percent: int) -> CostTable:
    return read_costs("loopback").model_copy(update={"turn_cv": Spread(percent=percent, source="a test")})


def costs_at(table: CostTable, treatment: Treatment) -> Mapping[str, Mapping[str, int]]:
    costs = table_costs(table, treatment.protocol)
    return {"initiator": initiators(costs), "target": costs["target"]}


def as_simulated(treatments: list[Treatment], table: CostTable, program: Path) -> list[Treatment]:
    """The treatments as if measured on a machine that the table describes."""
    found = simulated(treatments, lambda each: costs_at(table, each), program)
    return [
        replace(
            each,
            measured_ns={side: {1: result.cpu_per_io_ns(side) or 0.0} for side in ("initiator", "target")},
            gaps_ns={1: 1e9 / result.rate_iops},
        )
        for each, result in zip(treatments, found, strict=True)
    ]


def test_the_closest_is_found_and_nothing_is_asked_twice() -> None:
    for best in (0, 3, 35, 62, 100):
        asked: list[int] = []

        def rms_at(percent: int, best: int = best, asked: list[int] = asked) -> float:
            asked.append(percent)
            return abs(percent - best)

        assert abs(closest_percent(rms_at) - best) <= 2
        assert len(asked) == len(set(asked))
    assert closest_percent(lambda _: 1.0) == 0, "where all are alike, none"


@pytest.mark.usefixtures("real_engine")
@pytest.mark.slow
def test_threads_whose_turns_vary_wait_for_each_other(real_engine: Path, measured: Path) -> None:
    treatments = [
        each for each in measured_treatments(data_of(measured), "it", varying(0), []) if each.name.endswith("/32")
    ]
    steady, varied = (
        simulated(treatments, lambda each, percent=percent: costs_at(varying(percent), each), real_engine)
        for percent in (0, 100)
    )
    for before, after in zip(steady, varied, strict=True):
        assert after.rate_iops < 0.9 * before.rate_iops
    again = simulated(treatments, lambda each: costs_at(varying(100), each), real_engine)
    assert [each.ios for each in again] == [each.ios for each in varied], "the seed draws"


def test_costs_of_a_disturbed_measurement_can_be_simulated(real_engine: Path, measured: Path) -> None:
    """On a busy machine an I/O may have waited longer than a usual window lasts."""
    table = varying(0)
    treatments = [each for each in measured_treatments(data_of(measured), "it", table, []) if each.alone]

    def slow(treatment: Treatment) -> Mapping[str, Mapping[str, int]]:
        return {side: {**costs, "wake_delay_ns": 300_000_000} for side, costs in costs_at(table, treatment).items()}

    assert all(result.ios >= 20 for result in simulated(treatments, slow, real_engine))


@pytest.mark.long
def test_what_a_table_says_gives_back_how_much_its_turns_vary(
    real_engine: Path, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, truth = data_of(measured), varying(60)
    told = as_simulated(measured_treatments(data, "it", truth, []), truth, real_engine)
    assert tell_turns_apart(told)
    assert rms_off(told, {each.name: 1e9 / each.gaps_ns[1] for each in told if each.gaps_ns}) == pytest.approx(0.0)
    monkeypatch.setattr(calibration, "measured_treatments", lambda *_: told)
    made = calibration.make_table(data, "it", varying(0), "loopback", real_engine, lambda _: None)
    assert made.table.turn_cv is not None
    assert 50 <= made.table.turn_cv.percent <= 70
    assert made.table.turn_cv.source.startswith("it, ")
    assert CostTable.model_validate(yaml.safe_load(text_of(made.table))) == made.table


def test_rates_that_tell_nothing_leave_the_other_tables_figure(
    real_engine: Path, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, base = data_of(measured), varying(40)
    found = [each for each in measured_treatments(data, "it", base, []) if each.alone or each.name == "iscsi/32"]
    assert not tell_turns_apart(found)
    monkeypatch.setattr(calibration, "measured_treatments", lambda *_: found)
    made = calibration.make_table(data, "it", base, "table mine", real_engine, lambda _: None)
    assert made.table.turn_cv == Spread(percent=40, source="as in table mine, since it does not tell it apart: a test")


@pytest.mark.usefixtures("real_engine")
@pytest.mark.slow
def test_a_table_made_of_some_treatments_is_tried_on_the_others(measured: Path, tmp_path: Path) -> None:
    def costs(name: str, *only: str) -> tuple[int, str]:
        options = [word for each in only for word in ("--only", each)]
        words = ["sim", "costs", str(measured), "-o", str(tmp_path / name), *options]
        done = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
        return done.exit_code, " ".join(done.output.split())

    code, said = costs("some.yaml", "outstanding=1,8", "protocol=iscsi,nvme-tcp")
    assert code == 0, said
    assert "of 8 CPU times per I/O that the table was made from come out within 10 %." in said
    assert "Of 4 treatments that the table was not made from: CPU per I/O:" in said
    assert "of 4 simulated within 10 % of what was measured" in said
    assert "fitted to 2 treatments" in (tmp_path / "some.yaml").read_text("utf-8")
    code, said = costs("one.yaml", "protocol=iscsi")
    assert (code, "Left out: 4 treatments: the table has no costs of their protocol." in said) == (0, True), said
    for only, reason in (
        ("outstanding=1,7", "outstanding has no level 7 here; there is 1, 8, 32, 64"),
        ("block_size=4KiB", "block_size is not a factor here; there is protocol, outstanding"),
        ("outstanding", "write FACTOR=LEVEL,LEVEL"),
    ):
        code, said = costs("none.yaml", only)
        assert (code, reason in said) == (2, True), said
        assert not (tmp_path / "none.yaml").exists()


def test_a_hypervisor_adds_time_to_turns_and_no_variation() -> None:
    side = {"io_ns": 100, "turn_cv_percent": 70}
    assert initiators({"initiator": side, "hypervisor": side, "target": side}) == {"io_ns": 200, "turn_cv_percent": 70}


def test_how_much_turns_vary_is_an_assumption_of_a_study(tmp_path: Path) -> None:
    costs = tmp_path / "costs.yaml"
    costs.write_text(text_of(varying(70)), encoding="utf-8")
    told = MEASURED | {"lab": {"sim": {"costs": str(costs)}}, "topology": {"link_rate": "25Gbit"}}
    file = tmp_path / "study.yaml"
    found = assumptions(read_study(file.name, yaml.safe_dump(told), tmp_path))
    assert (found[0].name, found[0].value, found[0].source) == ("how much turns vary", "70 %", "a test")
    lab = read_study(file.name, yaml.safe_dump(told), tmp_path).lab.sim
    assert lab is not None
    for times, percent in ((0.5, 35), (1.5, 100)):
        of = found[0].of_costs(lab, "iscsi", times)
        assert {side["turn_cv_percent"] for side in of.values()} == {percent}
        assert of["target"]["io_ns"] == varying(70).protocols["iscsi"].target.io.ns


@pytest.mark.parametrize("percent", [-1, 101, "much"])
def test_turns_that_cannot_vary_so_are_refused(percent: object) -> None:
    told = varying(70).model_dump() | {"turn_cv": {"percent": percent, "source": "a test"}}
    with pytest.raises(ValueError, match="turn_cv"):
        CostTable.model_validate(told)
