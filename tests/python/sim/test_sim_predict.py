"""Predictions from a table of costs next to measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.analysis.estimate import Estimate
from iotax.calibration import NothingMeasured, Predicted, make_table, predict
from iotax.cli.app import app
from iotax.study import sim
from iotax.study.sim import read_costs
from measurements import data_of, measured_in

MEASURED: dict[str, Any] = {
    "name": "small",
    "question": "What does it cost?",
    "lab": "loopback",
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["local", "iscsi", "nvme-tcp"], "outstanding": [8, 1]},
    "load": {"warmup": "5ms", "runtime": "500ms"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "iscsi"},
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured_in(tmp_path_factory.mktemp("measured"), MEASURED)


@pytest.mark.usefixtures("real_engine")
@pytest.mark.slow
def test_each_treatment_is_told_beside_what_was_measured(measured: Path) -> None:
    done = CliRunner().invoke(app, ["sim", "predict", str(measured)], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert "of 4 simulated within 10 % of what was measured" in done.output
    assert "Left out: 4 runs: local is not simulated." in done.output
    assert "over loopback alone" not in done.output
    done = CliRunner().invoke(app, ["sim", "predict", str(measured), "--json", "-"])
    told = json.loads(done.stdout)
    names = [each["treatment"] for each in told["treatments"]]
    assert names == ["iscsi/8", "iscsi/1", "nvme-tcp/8", "nvme-tcp/1"], "the study's order"
    assert told["costs"] == "loopback"
    for each in told["treatments"]:
        for figure in (each["rate_iops"], each["cpu_ns"]):
            assert figure["low"] <= figure["measured"] <= figure["high"]
            assert figure["off"] == pytest.approx(figure["simulated"] / figure["measured"] - 1)


def test_a_table_made_of_the_same_measurements_says_what_they_say(real_engine: Path, measured: Path) -> None:
    data, base = data_of(measured), read_costs("loopback")
    made = make_table(data, "it", base, "loopback", real_engine, lambda _: None)
    alone = [
        row for row in predict(data, "it", made.table, real_engine, lambda _: None).rows if row.treatment[-1] == "1"
    ]
    assert len(alone) == 2
    for row in alone:
        fitted = [check.simulated_ns for check in made.checks if check.treatment == row.treatment]
        assert row.cpu_ns.simulated == pytest.approx(sum(fitted), rel=0.05)
        assert row.cpu_ns.measured.value == pytest.approx(
            sum(check.measured_ns for check in made.checks if check.treatment == row.treatment)
        )


def test_rates_are_compared_where_nothing_but_threads_takes_time(real_engine: Path, measured: Path) -> None:
    data = data_of(measured)
    attempts = []
    for each in data.attempts:
        assert each.result is not None
        facts = each.result.facts.model_copy(update={"lab": "vm"})
        attempts.append(each.model_copy(update={"result": each.result.model_copy(update={"facts": facts})}))
    found = predict(replace(data, attempts=attempts), "it", read_costs("loopback"), real_engine, lambda _: None)
    assert [row.rate_iops for row in found.rows] == [None] * 4


@pytest.mark.usefixtures("real_engine")
def test_what_cannot_be_compared_is_refused_with_its_reason(measured: Path, tmp_path: Path) -> None:
    unknown = CliRunner().invoke(app, ["sim", "predict", str(measured), "--costs", "nowhere"])
    assert (unknown.exit_code, "--costs: there is no file nowhere" in unknown.output) == (2, True)
    other = CliRunner().invoke(app, ["sim", "predict", str(measured), "--costs", "esx-3.5"])
    assert other.exit_code == 0
    assert "Left out: 4 runs: the table has no costs of nvme-tcp." in other.output
    file, notebook = tmp_path / "s.yaml", tmp_path / "s.iotax"
    simulated = {
        "lab": {"sim": {}},
        "topology": {"link_rate": "25Gbit"},
        "factors": {"protocol": ["iscsi", "nvme-tcp"]},
    }
    file.write_text(yaml.safe_dump(MEASURED | simulated), encoding="utf-8")
    assert CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"]).exit_code == 0
    refused = CliRunner().invoke(app, ["sim", "predict", str(notebook)])
    assert refused.exit_code == 2
    assert "is simulated: costs come from measurements" in refused.output


@pytest.mark.usefixtures("real_engine")
def test_a_table_is_not_overwritten_by_what_is_told_of_it(measured: Path, tmp_path: Path) -> None:
    costs = tmp_path / "mine.json"
    costs.write_bytes((Path(sim.__file__).with_name("costs") / "loopback.yaml").read_bytes())
    before = costs.read_bytes()
    for words in (
        ["predict", str(measured), "--costs", str(costs)],
        ["costs", str(measured), "--base", str(costs), "--output", str(tmp_path / "new.yaml")],
    ):
        done = CliRunner().invoke(app, ["sim", *words, "--json", str(costs)])
        assert done.exit_code == 2, done.output
        assert costs.read_bytes() == before


def test_nothing_but_what_is_not_simulated_is_nothing_to_compare(real_engine: Path, measured: Path) -> None:
    data = data_of(measured)
    local = [each for each in data.attempts if each.trial.treatment["protocol"] == "local"]
    with pytest.raises(NothingMeasured, match="it holds nothing whose costs can be told: 4 runs: local is not"):
        predict(replace(data, attempts=local), "it", read_costs("loopback"), real_engine, lambda _: None)


def test_a_miss_within_the_measurements_own_interval_is_told_apart() -> None:
    assert Predicted(Estimate(10.0, 8.0, 12.0), 11.9).is_within_scatter
    assert not Predicted(Estimate(10.0, 9.5, 10.5), 11.9).is_within_scatter
    assert not Predicted(Estimate(10.0), 11.9).is_within_scatter
    assert Predicted(Estimate(10.0), 12.0).off == pytest.approx(0.2)
