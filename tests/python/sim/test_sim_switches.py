"""Fabrics with switches and zones in the simulated lab: how a study sets them, what is refused, and their effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.labs.sim.what_if import Change
from iotax.study import Study
from iotax.study.source import StudyError
from simulated_worlds import document, is_refused, read_world

EXAMPLE = Path(__file__).parents[3] / "examples" / "slow-drain.yaml"
BASE: dict[str, Any] = {
    "name": "switches",
    "question": "What holds it back?",
    "volume": {"size": "8MiB"},
    "factors": {"protocol": ["fcp", "nvme-tcp"]},
    "load": {"clients": 4, "outstanding": 8, "warmup": "2ms", "runtime": "20ms"},
    "topology": {"link_rate": "10Gbit"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "fcp"},
}
TWO_PATHS = {"link_rate": "10Gbit", "paths": 2, "path_policy": "fixed"}
ZONES = {"red": {"clients": [1, 2], "ports": [1]}, "blue": {"clients": [3, 4], "ports": [2]}}
ETHERNET = {"factors": {"protocol": ["iscsi", "nvme-tcp"]}, "baseline": {"protocol": "iscsi"}}


def read(sim: dict[str, Any], **more: Any) -> Study:
    return read_world(BASE, sim, **more)


def paths(study: Study, **treatment: Any) -> dict[str, Any]:
    return document(study, **treatment)["paths"]


def zoned(zones: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"switches": 1, "target_ports": 2, "zones": zones} | more


AWAY = [{"path": 1, "at": "5ms", "back": "9ms"}]
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"switches": 3}, {}, "lab.sim.switches"),
    ({"trunk_rate": "10Gbit"}, {}, "say `switches: 2` too"),
    ({"switches": 1, "trunk_credits": 8}, {}, "say `switches: 2` too"),
    ({"switches": 2, "trunk_credits": 8}, ETHERNET, "only Fibre Channel has credits"),
    ({"switches": 1}, {"topology": TWO_PATHS}, "say `target_ports: 2`"),
    ({"target_ports": 2, "zones": ZONES}, {}, "say `switches: 1` too"),
    (zoned(ZONES | {"green": {"clients": [], "ports": [1]}}), {}, "lab.sim.zones.green.clients"),
    (zoned(ZONES | {"green": {"clients": [0], "ports": [1]}}), {}, "lab.sim.zones.green.clients[1]"),
    (zoned(ZONES | {"green": {"clients": [5], "ports": [1]}}), {}, "zone green names client 5, but there are 4"),
    (zoned(ZONES | {"green": {"clients": [1], "ports": [3]}}), {}, "zone green names port 3, but there are 2"),
    (zoned({"red": ZONES["red"]}), {}, "client 3 shares no zone with a target port"),
    (zoned(ZONES, controllers=2), {}, "client 3 shares no zone with a target port of its controller, 3 to 4"),
    (
        zoned(ZONES, path_failures=AWAY),
        {"topology": TWO_PATHS},
        "client 1 has path 1 alone, and none is left from 5ms to 9ms",
    ),
]


@pytest.mark.parametrize(("sim", "more", "reason"), REFUSED)
def test_switches_and_zones_that_cannot_be_are_refused_with_line_and_reason(
    sim: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    is_refused(BASE, sim, more, reason)


def test_zone_of_a_client_that_a_treatment_has_not_is_refused() -> None:
    more = {"factors": {"protocol": ["fcp"], "clients": [2, 4]}, "baseline": {"clients": 2}}
    with pytest.raises(StudyError, match="zone blue names client 3, but there are 2"):
        read(zoned(ZONES), **more)


def test_study_without_switches_keeps_its_document_and_its_digest() -> None:
    assert "switches" not in paths(read({}), protocol="fcp")
    assert read({}).digest() == read({"switches": 0}).digest()
    assert read({}).digest() != read({"switches": 1}).digest()


def test_switches_trunks_and_zones_are_in_the_document_of_what_has_them() -> None:
    factors = {"protocol": ["fcp", "nvme-tcp"], "switches": [1, 2], "trunk_credits": [8, 64]}
    study = read({"target_ports": 2, "zones": ZONES, "trunk_rate": "5Gbit"}, factors=factors)
    zones = [{"machines": [1, 2], "ports": [1]}, {"machines": [3, 4], "ports": [2]}]
    found = paths(study, protocol="fcp", switches=2, trunk_credits=64)
    assert (found["switches"], found["trunk_rate_bits_per_s"], found["trunk_credits"]) == (2, 5_000_000_000, 64)
    assert found["zones"] == zones
    found = paths(study, protocol="nvme-tcp", switches=2, trunk_credits=64)
    assert "trunk_credits" not in found
    found = paths(study, protocol="fcp", switches=1, trunk_credits=64)
    assert not {"trunk_rate_bits_per_s", "trunk_credits"} & set(found)
    again = Study.model_validate_json(study.model_dump_json())
    assert again.digest() == study.digest()


def test_more_hosts_than_the_zones_name_are_not_asked_what_if() -> None:
    assert "zones of switches name each of its clients" in Change(hosts=2).reason_against(read(zoned(ZONES)))


def what_if(told: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    done = CliRunner().invoke(app, ["sim", "what-if", str(file), "--json", "-"])
    assert done.exit_code == 0, done.output
    return {each["treatment"]: each["as_it_is"] for each in json.loads(done.stdout)["treatments"]}


def test_thin_trunk_is_what_limits_over_any_protocol(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    sim = {"costs": "esxi-7", "cores": 16, "target_cores": 16, "threads": 8, "switches": 2, "trunk_rate": "1Gbit"}
    factors = {"protocol": ["fcp", "nvme-tcp"]}
    for each in what_if(BASE | {"lab": {"sim": sim | {"target_ports": 2}}, "factors": factors}, tmp_path).values():
        assert each["limit"] == "trunk"
        assert each["rate_iops"] == pytest.approx(1e9 / 8 / 4096, rel=0.15)


@pytest.mark.slow
def test_example_of_slow_drain_shows_what_the_guide_says_of_it(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    found = what_if(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")), tmp_path)
    for protocol in ("fcp", "fc-nvme"):
        few, many = found[f"{protocol}/8"], found[f"{protocol}/512"]
        assert few["limit"] == "trunk's credits"
        assert many["limit"] == "target's link"
        # Four clients have a third of a port each, while both ports could be full.
        assert few["rate_iops"] / many["rate_iops"] == pytest.approx(2 / 3, rel=0.03)


def test_port_that_zones_lead_most_clients_to_is_what_limits_them(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    zones = {"many": {"clients": [1, 2, 3], "ports": [1]}, "one": {"clients": [4], "ports": [2]}}
    sim = {"costs": "esxi-7", "cores": 16, "target_cores": 16, "threads": 8}
    load = BASE["load"] | {"block_size": "16KiB", "outstanding": 1}
    told = {"lab": {"sim": zoned(zones, **sim)}, "load": load, "topology": {"link_rate": "2Gbit"}}
    for each in what_if(BASE | told, tmp_path).values():
        assert each["limit"] == "busiest port"
        assert each["utilisation"]["target's link"] < 0.9
