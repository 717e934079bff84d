"""CPU of a hypervisor minus its guests, for results of other programs: a campaign with known costs."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypervisor_campaign import BACKGROUND_CORES, GUEST_US, HYPERVISOR_US, PROCESSORS, campaign

PATTERN = ("--name-pattern", "{protocol}-{rate_iops}-r{replicate}.json")


@pytest.fixture
def shown(tmp_path: Path, iotax):
    """The campaign's `show --json`, with only these monitors."""

    def read(*roles: str) -> dict:
        made = campaign(tmp_path / "runs")
        words = [word for role in roles for word in ("--cpu", f"{role}={made[role.partition(' ')[0]]}")]
        iotax("import", "fio", made["runs"], *PATTERN, *words, "--baseline", "protocol=fc", "-n", "c.iotax")
        return json.loads(iotax("show", "c.iotax", "--json").stdout)

    return read


def values(document: dict, response: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for cell in document["treatments"]:
        if response in cell["values"]:
            found.setdefault(cell["levels"]["protocol"], []).append(cell["values"][response]["value"])
    return found


def _first_number(text: str) -> float:
    found = re.search(r"[0-9.]+", text)
    assert found is not None, text
    return float(found.group())


def test_the_true_costs_of_both_protocols_are_found(shown) -> None:
    document = shown("hypervisor", "guest")
    assert document["responses"][0] == "cpu_hypervisor"
    for protocol, costs in values(document, "cpu_hypervisor").items():
        assert costs == pytest.approx([HYPERVISOR_US[protocol]] * 3, rel=0.02)
    for costs in values(document, "cpu_initiator").values():
        assert costs == pytest.approx([GUEST_US] * 3, rel=0.02)
    [held] = [
        part for part in document["answer"] if part["title"].startswith("What each I/O costs at the rates of the study")
    ]
    fc, nfs, *_ = held["sentences"]
    assert _first_number(fc) == pytest.approx(41, rel=0.01)
    assert _first_number(nfs) == pytest.approx(81, rel=0.01)
    assert _first_number(nfs.partition("per I/O, ")[2]) == pytest.approx(81 / 41, rel=0.01)
    ratios = [cell["relative"]["cpu_hypervisor"] for cell in document["treatments"] if cell["arm"] == "nfs"]
    assert [each["ratio"] for each in ratios] == pytest.approx([81 / 41] * 3, rel=0.02)
    assert {each["verdict"] for each in ratios} == {"worse"}


def test_the_model_has_the_background_between_the_runs_and_the_cores_follow(shown, iotax) -> None:
    shown("hypervisor", "guest")
    sized = json.loads(iotax("size", "c.iotax", "--iops", "70k", "--cap", "100%", "--json").stdout)
    assert {each["arm"]: each["cores"] for each in sized["sizes"]} == {"fc": 3, "nfs": 6}
    assert all("initiator's hypervisor" in each["source"] for each in sized["sizes"])
    iotax("report", "c.iotax")
    page = Path("c.html").read_text()
    assert f"{BACKGROUND_CORES:.4f}"[:4] in page.partition("Background</dt>")[2][:400]
    assert "fitted as a treatment" in page


def test_utilisation_is_that_of_the_roles_own_processors(shown) -> None:
    utilisation = values(shown("hypervisor", "guest"), "cpu_utilisation_hypervisor")
    for protocol, found in utilisation.items():
        true = [
            100 * (BACKGROUND_CORES + rate * HYPERVISOR_US[protocol] * 1e-6) / PROCESSORS for rate in (1000, 2500, 4000)
        ]
        assert found == pytest.approx(true, rel=0.03)


def test_the_machine_holds_the_guest_once(shown) -> None:
    """Everything that the host used: its own CPU, its background, and the guest's CPU counted once."""
    [fc, *_] = values(shown("hypervisor", "guest"), "cpu_machine")["fc"]
    idle_us = 1e6 * (BACKGROUND_CORES + 0.05) / 1000
    assert fc == pytest.approx(HYPERVISOR_US["fc"] + GUEST_US + idle_us, rel=0.02)


def test_a_host_whose_guests_nobody_recorded_has_no_figure_of_its_own_and_says_why(shown, iotax) -> None:
    document = shown("hypervisor")
    assert values(document, "cpu_hypervisor") == {}
    assert values(document, "cpu_machine")
    iotax("report", "c.iotax")
    page = Path("c.html").read_text()
    assert "its guests’ own time was not recorded" in page
    assert "--cpu guest=" in page


def test_an_initiator_below_a_hypervisor_is_its_guest(shown) -> None:
    as_initiator = shown("hypervisor", "initiator")
    assert values(as_initiator, "cpu_hypervisor")["nfs"] == pytest.approx([81.0] * 3, rel=0.02)


def test_cpu_over_time_is_kept_with_the_series(shown, iotax) -> None:
    shown("hypervisor", "guest")
    rows = list(csv.DictReader(io.StringIO(iotax("export", "c.iotax", "--cpu-series").stdout)))
    of_one = [row for row in rows if row["trial"] == rows[0]["trial"]]
    assert {row["role"] for row in of_one} == {"initiator", "hypervisor", "machine"}
    assert len(of_one) >= 3 * 4


def test_a_report_says_what_each_column_holds_and_of_no_process_clock(shown, iotax) -> None:
    shown("hypervisor", "guest")
    iotax("report", "c.iotax")
    page = Path("c.html").read_text()
    assert "process clock" not in page
    assert "esxtop" in page and "minus its guests’ own time" in page
