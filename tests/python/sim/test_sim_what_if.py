"""`iotax sim what-if`: what limits a simulated study, and what a change would bring."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.analysis.limits import bottleneck
from iotax.cli import console
from iotax.cli.app import app
from iotax.cli.screen import LINES
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
        assert then["limit"] in ("initiators' CPU", "target's CPU")
        assert then["rate_iops"] > 2 * now["rate_iops"]
    for each in asked(LINK_BOUND, tmp_path, "--hosts", "x4"):
        assert each["what_if"]["limit"] == "target's link"
    assert not list(tmp_path.glob("*.iotax"))


def test_a_larger_mtu_spares_headers(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    for each in asked(LINK_BOUND, tmp_path, "--mtu", "9000"):
        # 4 KiB take three frames of 1,500 bytes, or one of 9,000.
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
    done = what_if(MEDIA_BOUND, tmp_path, "--long")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert SIMULATED in said
    assert said.index(SIMULATED) < said.index("limited by")
    assert "media (100 % busy)" in said
    assert [each["what_if"] for each in asked(MEDIA_BOUND, tmp_path)] == [None, None]


def test_a_trunk_between_switches_limits_hosts_that_share_it(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    fast = LINK_BOUND | {"topology": {"link_rate": "25Gbit"}}
    for each in asked(fast, tmp_path, "--hosts", "x2", "--trunk", "1GbE"):
        assert each["as_it_is"]["limit"] != "trunk"
        assert each["what_if"]["limit"] == "trunk"


def test_one_screen_says_first_how_often_what_limits(
    real_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del real_engine
    monkeypatch.setattr(console, "PIPE_COLUMNS", 80)
    monkeypatch.setattr(console._Screen, "is_terminal", True)
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    many = LINK_BOUND | {
        "factors": {**LINK_BOUND["factors"], "outstanding": list(range(1, 13))},
        "load": {"warmup": "2ms", "runtime": "10ms"},
    }
    for options in ((), ("--hosts", "x4", "--link", "25GbE", "--mtu", "9000", "--trunk", "10GbE")):
        done = what_if(many, tmp_path, *options)
        assert done.exit_code == 0, done.output
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout).splitlines()
        assert len(lines) <= LINES
        assert max(map(len, lines)) <= 80
        assert not any("…" in line for line in lines)
        counts = re.findall(r"\((\d+)", done.stdout.partition("Limits now:")[2].partition(".")[0])
        assert sum(map(int, counts)) == 24
        shown = sum(bool(re.match(r"\d+/(iscsi|nvme-tcp) ", line)) for line in lines)
        assert f"{24 - shown} more treatments; --long" in done.stdout


REFUSED = [
    (
        LINK_BOUND | {"topology": {"link_rate": "1Gbit", "paths": 2, "path_policy": "round-robin"}},
        ("--trunk", "1GbE"),
        "a target port of its own",
    ),
    (LINK_BOUND, ("--media", "x2"), "there are no media to be faster"),
    (LINK_BOUND, ("--hosts", "x1.5"), "not a whole number of hosts"),
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
