"""`iotax size`: study 3's figures, and the messages when there is no answer."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from iotax.analysis import Estimate
from iotax.analysis.capacity import Demand, capacity, slowdown
from iotax.analysis.cost import ServiceCost
from iotax.cli.app import app
from iotax.queueing import SizingTarget

RUN = CliRunner()
STUDY_3 = ["--cpu-us", "nfs=81", "--cpu-us", "fc=41"]


def size(*words: str):
    return RUN.invoke(app, ["size", *words])


def cores(output: str) -> dict[str, str]:
    """Arm → cores in the first table."""
    return dict(re.findall(r"^(nfs|fc) +.*?[0-9],[0-9]{3} +([0-9]+(?: \([^)]*\))?) +[0-9]+ %", output, re.MULTILINE))


@pytest.mark.parametrize(
    ("asked", "nfs", "fc"),
    [
        ([], "8", "4"),
        (["--response", "1.25x"], "8", "5"),
        (["--response", "1.1x"], "9", "5"),
        (["--cap", "100%"], "6", "3"),
        (["--response", "120us", "--storage", "50us"], "none", "4"),
    ],
)
def test_study_3_needs_as_many_cores_as_the_model_says(asked, nfs, fc):
    done = size(*STUDY_3, *asked)
    found = cores(done.output)
    assert found["fc"] == fc
    assert found.get("nfs", "none") == nfs
    assert (done.exit_code == 0) == (nfs != "none")


def test_the_published_response_times_are_in_the_table():
    rows = re.findall(r"^nfs +0 µs +(.*)$", size(*STUDY_3, "--long").output, re.MULTILINE)
    assert [float(x) for x in rows[0].split()] == [81.0, 81.0, 81.3, 84.5, 104, 152]


def test_both_ends_of_the_cost_reach_the_cores():
    assert cores(size("--cpu-us", "nfs=81:75-95").output)["nfs"] == "8 (7 to 9)"


def test_time_of_the_storage_hides_the_difference():
    nfs, fc = (ServiceCost(name, Estimate(us), "") for name, us in (("nfs", 81.0), ("fc", 41.0)))
    bare, high_end, mid_range = (slowdown([nfs, fc], 8, 0.6, us) for us in (0.0, 150.0, 500.0))
    assert bare == pytest.approx(84.53216 / 42.7879, rel=1e-5)
    assert high_end == pytest.approx(234.532 / 192.788, rel=1e-4)
    assert mid_range == pytest.approx(584.532 / 542.788, rel=1e-4)


def test_a_target_beyond_reach_has_no_size_but_a_reason():
    found = capacity(
        ServiceCost("nfs", Estimate(81.0, 78.0, 84.0), ""), Demand(70_000, SizingTarget(response_max_s=8e-5))
    )
    assert found.size is None
    assert found.cores == "none"
    assert "81 µs" in found.reason


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cpu-us", "many"], "--cpu-us many"),
        ([*STUDY_3, "--iops", "0"], "above 0"),
        ([*STUDY_3, "--response", "soon"], "1.25x or 120us"),
        ([*STUDY_3, "--cap", "180%"], "percentage"),
        (["nowhere.iotax"], "no notebook here"),
    ],
)
def test_what_cannot_be_read_is_said(words, said):
    done = size(*words)
    assert done.exit_code in (2, 5)
    assert said in done.output


def test_one_cost_is_not_compared_with_itself() -> None:
    assert "times the time" not in size("--cpu-us", "81", "--long").output
    assert "times the time" in size("--cpu-us", "81", "--cpu-us", "70", "--long").output


def test_one_core_is_singular() -> None:
    assert "utilisation of 1 core:" in size("--cpu-us", "81", "--cores", "1", "--long").output


def test_bounds_that_nothing_can_meet_are_refused_by_their_option() -> None:
    assert (
        "of 100,000 cores: service and waiting in an M/M/100,000 queue"
        in size(*STUDY_3, "--cores", "100000", "--long").output
    )
    assert "alone take 81 µs; allow more than that" in size("--cpu-us", "81", "--response", "20us").output
    assert "--cap 0%: " in size("--cpu-us", "81", "--cap", "0").output
    assert "--response 0.5x: " in size("--cpu-us", "81", "--response", "0.5x").output
