"""Events on hosts: a command of the user's in the window, its undo whatever happens, and what the run shows of it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.design import plan
from iotax.labs.hosts.happens import happens_of
from iotax.notebook import Notebook
from iotax.places import HostFault
from iotax.study import Study
from iotax.study.rules import broken_rules
from measurements import results_of
from waits import wait_for

from .controller import Controller
from .namespaces import Network

HOSTS = 3
MS = 1_000_000
CUT = {"command": "ip link set eth0 down", "undo": "ip link set eth0 up", "host": "h3"}
STUDY: dict[str, Any] = {
    "name": "events",
    "question": "How long does I/O stop when the target's link fails?",
    "volume": {"size": "8MiB"},
    "factors": {"protocol": ["nvme-tcp"]},
    "load": {"outstanding": 4, "read": "50%", "warmup": "500ms", "runtime": "7s"},
    "events": [{"at": "1s", "do": CUT, "for": "2s"}],
    "design": {"replicates": 1},
    "baseline": {"protocol": "nvme-tcp"},
    "responses": ["iops", "longest_gap", "recovery_time"],
}


def study(network: Network | None = None, **changes: Any) -> dict[str, Any]:
    hosts = [{"name": f"h{at}", "address": network.address(f"h{at}") if network else "10.0.0.9"} for at in (1, 2, 3)]
    return STUDY | {"lab": {"hosts": {"initiators": hosts[:2], "targets": hosts[2:]}}} | changes


@pytest.fixture
def controller(network: Network, real_engine: Path, tmp_path: Path) -> Controller:
    return Controller(network, yaml.safe_dump(study(network)), real_engine, tmp_path, "events")


def event(do: dict[str, str], lasts: str) -> list[dict[str, Any]]:
    return [{"at": "1s", "do": do, "for": lasts}]


@pytest.mark.slow
def test_a_link_that_fails_is_a_gap_and_comes_back(controller: Controller, network: Network, tmp_path: Path) -> None:
    """The link is the way to the host, too: the host undoes the event by itself."""
    with controller.start(controller.text, "--disturb") as running:
        said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    assert "Median time until throughput was back at 95 %: " in said
    with Notebook(tmp_path / "events.iotax") as notebook:
        [result] = results_of(notebook, 1)
    [happened] = result.events
    assert happened.what == "ip link set eth0 down on h3"
    assert happened.began_ns >= 1000 * MS
    assert happened.undone_ns - happened.began_ns >= 2000 * MS
    assert result.gaps is not None and result.gaps.longest_ns > 1000 * MS
    assert result.verify is not None and result.verify.read_back_blocks > 0
    assert result.counted is not None and sum(result.counted.ios) == result.ios
    assert "UP" in network.run("h3", "ip", "-o", "link", "show", "eth0")


def test_commands_run_only_where_the_user_allows_them(controller: Controller, network: Network, tmp_path: Path) -> None:
    mark = tmp_path / "disturbed"
    do = {"command": f"touch {mark}", "undo": f"rm {mark}", "host": "h1"}
    said = controller.fails(yaml.safe_dump(study(network, events=event(do, "2s"))))
    told = f"h1: an event of this study runs `touch {mark}` there; `iotax run --disturb` allows it"
    assert told in " ".join(said.split())
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["controller", "engine"])
def test_an_event_is_undone_when_who_began_it_is_killed(
    controller: Controller, network: Network, tmp_path: Path, killed: str
) -> None:
    mark = tmp_path / "disturbed"
    undone = tmp_path / "undone"
    do = {"command": f"touch {mark}", "undo": f"rm {mark}; touch {undone}", "host": "h1"}
    text = yaml.safe_dump(study(network, events=event(do, "60s"), load=STUDY["load"] | {"runtime": "62s"}))
    with controller.start(text, "--disturb") as running:
        wait_for(mark.exists, "the event to begin")
        if killed == "controller":
            running.kill()
        else:
            [engine] = [pid for pid in network.processes("h1", " perform") if name_of(pid).startswith("engine-")]
            os.kill(engine, signal.SIGKILL)
        # The runner tries again after a killed engine, so the mark may come back.
        wait_for(undone.exists, "the event to be undone")
        running.kill()
        running.communicate()
    wait_for(lambda: not network.processes("h1", " perform"), "the host to be left alone")


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


@pytest.mark.slow
def test_a_command_that_fails_is_told_with_its_last_words_and_is_undone(
    controller: Controller, network: Network, tmp_path: Path
) -> None:
    mark = tmp_path / "undone"
    do = {"command": "echo no such port >&2; exit 3", "undo": f"touch {mark}", "host": "h2"}
    text = yaml.safe_dump(study(network, events=event(do, "1s")))
    with controller.start(text, "--disturb") as running:
        said, _ = running.communicate(timeout=600)
    assert running.returncode != 0, said
    assert "failed (exit status: 3): no such port" in said
    assert mark.exists(), "a part of it may have been done"


@pytest.mark.slow
def test_an_undo_that_fails_ends_the_study_and_names_the_command(
    controller: Controller, network: Network, tmp_path: Path
) -> None:
    mark = tmp_path / "begun"
    do = {"command": f"echo x >>{mark}", "undo": "exit 5", "host": "h2"}
    text = yaml.safe_dump(study(network, events=event(do, "1s")))
    with controller.start(text, "--disturb") as running:
        said, _ = running.communicate(timeout=600)
    assert running.returncode != 0, said
    assert "an event was not undone, so the study ended with" in said
    assert "`exit 5` failed (exit status: 5): no word. It failed twice: run it yourself" in said
    assert mark.read_text() == "x\n", "it does not happen again"
    # The next look at the host says so, until somebody has undone it.
    kept = network.home("h2") / ".cache" / "iotax"
    said = controller.fails(text)
    assert "h2: an event there was not undone, or is under way. If nothing runs, run `exit 5` there" in said
    for each in kept.glob("not-undone.*"):
        each.unlink()
    assert "not undone" not in controller.fails(text)


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ({}, (), ""),
        (
            {"events": event(CUT | {"host": "h9"}, "2s")},
            ("events", 0, "do", "host"),
            "h9 is not a Linux host of this lab",
        ),
        (
            {"events": [{"at": "1s", "do": {"freeze": "target"}, "for": "2s"}]},
            ("events", 0, "do"),
            "on hosts an event is a command of your own",
        ),
        ({"lab": "loopback"}, ("events", 0, "do"), "commands run on hosts"),
        ({"lab": {"vm": {}}}, ("events", 0, "do"), "commands run on hosts"),
    ],
)
def test_events_that_cannot_be_on_hosts_are_refused(
    changes: dict[str, Any], place: tuple[object, ...], reason: str
) -> None:
    found = list(broken_rules(Study.model_validate(study() | changes)))
    if not reason:
        assert found == []
        return
    assert place in [where for where, said in found if reason in said]


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ({"command": "x", "host": "h1"}, "a command needs `undo:` and `host:`"),
        ({"command": "x", "undo": "y"}, "a command needs `undo:` and `host:`"),
        ({"freeze": "target", "undo": "y"}, "nothing else has them"),
        ({"command": "x", "undo": "y", "host": "h1", "fail": "path", "path": 1}, "say what happens, one of"),
    ],
)
def test_actions_that_are_incomplete_are_refused(do: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r".") as failed:
        Study.model_validate(study(events=event(do, "2s")))
    assert said in str(failed.value)


def test_an_event_on_a_host_that_is_lost_fails_its_trial_by_name() -> None:
    read = Study.model_validate(study())
    [trial, *_] = plan(read).trials
    happens = happens_of(read, trial, [], "engine")
    assert happens is not None
    with pytest.raises(HostFault, match=r"^h3: the host is lost, so its event cannot happen$"):
        asyncio.run(happens.arm())
