"""`iotax sim what-if`: what limits a simulated study, and what a change would bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.analysis.bottleneck import bottleneck
from iotax.cli.app import app
from iotax.wording import SIMULATED

LINK_BOUND: dict[str, Any] = {
    "name": "linked",
    "question": "What limits?",
    "lab": {"sim": {"cores": 4, "target_cores": 4}},
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["iscsi", "nvme-tcp"]},
    "load": {"outstanding": 64, "warmup": "2ms", "runtime": "10ms"},
    "topology": {"link_rate": "1Gbit"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "iscsi"},
}
MEDIA_BOUND = LINK_BOUND | {
    "name": "media",
    "lab": {"sim": {"media": {"servers": 2, "service": "100us"}}},
    "topology": {"link_rate": "25Gbit"},
}


def test_the_busiest_limits_and_the_rate_rises_until_the_next_is_busy() -> None:
    found = bottleneck(1000.0, {"a": 0.5, "b": 0.95, "c": 0.1})
    assert (found.limit, found.next) == ("b", "a")
    assert found.rise_max == pytest.approx(1.0)
    alone = bottleneck(1000.0, {"a": 1.0})
    assert (alone.limit, alone.next, alone.rise_max) == ("a", None, None)


def test_where_nothing_is_saturated_the_load_itself_limits() -> None:
    found = bottleneck(1000.0, {"a": 0.5, "b": 0.1})
    assert (found.limit, found.next, found.rise_max) == (None, "a", pytest.approx(1.0))
    assert bottleneck(1000.0, {"a": 0.0}).next is None


def what_if(told: dict[str, Any], folder: Path, *options: str) -> Any:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    return CliRunner().invoke(app, ["sim", "what-if", str(file), *options])


def asked(told: dict[str, Any], folder: Path, *options: str) -> list[dict[str, Any]]:
    done = what_if(told, folder, *options, "--json", "-")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["simulated"] is True
    return document["treatments"]


def test_a_faster_link_moves_the_limit_elsewhere(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    for each in asked(LINK_BOUND, tmp_path, "--link", "100GbE"):
        now, then = each["as_it_is"], each["what_if"]
        assert now["limit"] == "link"
        assert then["limit"] in ("initiators' processors", "target's processors")
        assert then["rate_iops"] > 2 * now["rate_iops"]
    for each in asked(LINK_BOUND, tmp_path, "--hosts", "x4"):
        assert each["what_if"]["limit"] == "target's link"
    assert not list(tmp_path.glob("*.iotax"))


def test_a_larger_mtu_spares_headers(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    for each in asked(LINK_BOUND, tmp_path, "--mtu", "9000"):
        # 4 KiB take three frames of 1,500 bytes and one of 9,000.
        assert 1.01 < each["what_if"]["rate_iops"] / each["as_it_is"]["rate_iops"] < 1.10


def test_faster_media_and_more_hosts_do_what_they_say(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    for each in asked(MEDIA_BOUND, tmp_path, "--media", "x2"):
        assert each["as_it_is"]["limit"] == "media"
        assert each["as_it_is"]["rate_iops"] == pytest.approx(20_000, rel=0.05)
        assert each["what_if"]["rate_iops"] == pytest.approx(40_000, rel=0.05)
    for each in asked(MEDIA_BOUND, tmp_path, "--hosts", "2x"):
        assert each["what_if"]["limit"] == "media"
        assert each["what_if"]["rate_iops"] == pytest.approx(20_000, rel=0.05)


def test_without_a_change_it_says_what_limits_and_that_it_is_simulated(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    done = what_if(MEDIA_BOUND, tmp_path)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert SIMULATED in said
    assert said.index(SIMULATED) < said.index("limited by")
    assert "media (100 % busy)" in said
    assert [each["what_if"] for each in asked(MEDIA_BOUND, tmp_path)] == [None, None]


REFUSED = [
    (LINK_BOUND, ("--media", "x2"), "there are no media to be faster"),
    (LINK_BOUND, ("--hosts", "x1.5"), "no whole number of hosts"),
    (LINK_BOUND, ("--hosts", "many"), "such as x2"),
    (LINK_BOUND, ("--link", "fast"), "fast"),
    (LINK_BOUND, ("--mtu", "100"), "576"),
    (LINK_BOUND | {"lab": "loopback", "topology": {}}, (), "with `lab: sim`"),
]


@pytest.mark.parametrize(("told", "options", "reason"), REFUSED)
def test_what_cannot_be_is_refused(told: dict[str, Any], options: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    refused = what_if(told, tmp_path, *options)
    assert refused.exit_code == 2
    assert reason in " ".join(refused.output.split())
