"""A pulled cable and a stalled storage between guests: the load continues, and every fault is undone."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from iotax.analysis.recovery import recoveries
from iotax.labs.base import TrialFailed
from iotax.labs.events import Act, Performer
from iotax.labs.vm.events import Scripted, acts_of, timed
from iotax.labs.vm.guests import Guest, Guests
from iotax.labs.vm.qmp import QmpError
from iotax.notebook import Notebook
from iotax.records.interruptions import Happened
from iotax.study.events import Action, Happening
from iotax.trial import TrialResult, Window
from waits import wait_for

from .studies import machines_of, start

MS = 1_000_000


@dataclass
class Monitor:
    """Records QEMU's commands; the command `refuses` fails."""

    told: list[tuple[str, Any]] = field(default_factory=list)
    refuses: str = ""

    def execute(self, command: str, arguments: dict[str, Any], *, timeout_s: float) -> None:
        assert timeout_s > 0
        if command == self.refuses:
            raise QmpError("no such device")
        self.told.append((command, *arguments.values()))


@dataclass
class Port:
    """Keeps the scripts that it was given."""

    scripts: list[str] = field(default_factory=list)

    async def script(self, script: str) -> str:
        self.scripts.append(script)
        return str(len(self.scripts))


@dataclass
class Machine:
    name: str
    monitor: Monitor = field(default_factory=Monitor)
    port: Port = field(default_factory=Port)
    says: list[str] = field(default_factory=list)

    def run(self, script: str, timeout_s: float) -> list[str]:
        assert "cat /run/event0" in script
        assert timeout_s > 60
        return self.says


@pytest.fixture
def machines() -> dict[str, Machine]:
    return {"storage": Machine("storage"), "initiator": Machine("initiator")}


def performer(action: Action, machines: dict[str, Machine], lasts_ns: int) -> Performer:
    happening = [Happening(action, 0, lasts_ns)]
    return Performer(happening, acts_of(happening, cast("Guests", machines), "step nvme-tcp"))


def test_both_ends_of_a_cable_go_down_and_come_back_when_the_run_ends(machines: dict[str, Machine]) -> None:
    pulled = Action(fail="path", path=2)
    with contextlib.closing(performer(pulled, machines, 600_000 * MS)) as performing:
        performing.window_starts(time.time_ns())
        wait_for(lambda: all(each.monitor.told for each in machines.values()), "the event")
    for each in machines.values():
        assert each.monitor.told == [("set_link", "net1", False), ("set_link", "net1", True)]


def test_cables_of_several_paths_are_pulled_at_once(machines: dict[str, Machine]) -> None:
    pulled = Action.model_validate({"fail": "path", "path": [1, 2]})
    with contextlib.closing(performer(pulled, machines, MS)) as performing:
        performing.window_starts(time.time_ns())
        wait_for(lambda: all(len(each.monitor.told) == 4 for each in machines.values()), "the event and its end")
    told = [("set_link", net, up) for up in (False, True) for net in ("net0", "net1")]
    assert machines["initiator"].monitor.told == machines["storage"].monitor.told == told


def test_a_storage_that_is_frozen_goes_on_after_its_time(machines: dict[str, Machine]) -> None:
    with contextlib.closing(performer(Action(freeze="target"), machines, MS)) as performing:
        performing.window_starts(time.time_ns())
        wait_for(lambda: len(machines["storage"].monitor.told) == 2, "the event and its end")
    assert machines["storage"].monitor.told == [("stop",), ("cont",)]
    assert machines["initiator"].monitor.told == []


def test_a_run_whose_event_qemu_refuses_fails_with_its_words(machines: dict[str, Machine]) -> None:
    machines["initiator"].monitor.refuses = "set_link"
    with contextlib.closing(performer(Action(fail="path", path=1), machines, MS)) as performing:
        performing.window_starts(time.time_ns())
        wait_for(lambda: "no such device" in performing.fault, "the refusal")
        with pytest.raises(
            TrialFailed, match=r"`fail path 1` could not be done: QEMU did not set_link: no such device"
        ):
            performing.told(cast("TrialResult", None))


@pytest.mark.parametrize(
    ("action", "netem"),
    [
        ({"slow": "path", "by": "20ms", "path": 1}, "delay 20000us"),
        ({"lose": "0.5%", "path": 1}, "loss 0.5%"),
    ],
)
def test_a_network_is_disturbed_at_both_ends_and_asked_afterwards(
    machines: dict[str, Machine], action: dict[str, Any], netem: str
) -> None:
    happening = [Happening(Action.model_validate(action), 0, MS)]
    acts = acts_of(happening, cast("Guests", machines), "step nvme-tcp")
    with contextlib.closing(Performer(happening, acts)) as performing:
        performing.window_starts(time.time_ns())
        wait_for(lambda: all(len(each.port.scripts) == 2 for each in machines.values()), "the event and its end")
    for each in machines.values():
        begun, ended = each.port.scripts
        assert f"tc qdisc replace dev eth0 root netem limit 100000 {netem} " in begun
        assert begun.endswith("} >/run/event0-1 2>&1"), "what a failed run left is forgotten"
        assert "tc qdisc del dev eth0 root" in ended
        assert ended.endswith("} >>/run/event0-1 2>&1")
    [act] = acts.values()
    assert isinstance(act, Scripted)
    for each in machines.values():
        each.says = [
            "AT 12 500000",
            f"qdisc netem 8001: root refcnt 2 limit 100000 {netem}",
            "AT 13 70000",
            "qdisc pfifo_fast",
        ]
    assert act.fault() == ""
    initiator = cast("Guest", machines["initiator"])
    assert act.times_ns(initiator) == [(12_500 * MS, 13_070 * MS)]
    # A busy guest does it late; times count from the window's start, by the guest's clock.
    happened = Happened(what=happening[0].do.words, asked_ns=0, began_ns=0, undone_ns=MS)
    window = Window(start_unix_ns=12_000 * MS, start_ns=0, duration_ns=1)
    [event] = timed([happened], window, acts, initiator, {"initiator": 0, "storage": 0})
    assert (event.asked_ns, event.began_ns, event.undone_ns) == (0, 500 * MS, 1070 * MS)
    machines["initiator"].says = ["Error: Specified qdisc kind is unknown."]
    assert act.fault() == "the initiator guest said: Error: Specified qdisc kind is unknown."
    machines["initiator"].says = ["qdisc netem 8001: root", "qdisc netem 8001: root"]
    assert "the initiator guest said" in act.fault(), "it was not undone"


def done_in_storage(action: Action, machines: dict[str, Machine]) -> tuple[dict[str, Act], str, str]:
    """The acts, and the scripts that began and ended one in the storage alone."""
    happening = [Happening(action, 0, MS)]
    acts = acts_of(happening, cast("Guests", machines), "step nvme-tcp")
    with contextlib.closing(Performer(happening, acts)) as performing:
        performing.window_starts(time.time_ns())
        wait_for(lambda: len(machines["storage"].port.scripts) == 2, "the event and its end")
    begun, ended = machines["storage"].port.scripts
    assert machines["initiator"].port.scripts == []
    return acts, begun, ended


def test_a_path_is_taken_away_by_its_target(machines: dict[str, Machine]) -> None:
    _, begun, ended = done_in_storage(Action(access="non-optimized", path=2), machines)
    assert "step nvme-tcp access_set 2 non-optimized && step nvme-tcp access_show 2;" in begun
    assert "step nvme-tcp access_set 2 optimized && " in ended


def test_a_target_that_is_killed_is_told_by_its_own_guest(machines: dict[str, Machine]) -> None:
    acts, begun, ended = done_in_storage(Action(kill="target"), machines)
    assert "step nvme-tcp target_dies && echo killed >/run/killed" in begun
    assert "step nvme-tcp target_up && rm /run/killed" in ended
    [act] = acts.values()
    assert isinstance(act, Scripted)
    machines["storage"].says = ["AT 20 0", "killed", "AT 21 0"]
    assert act.fault() == ""
    # The storage's clock is 8 s ahead of the initiator's.
    happened = Happened(what="kill target", asked_ns=0, began_ns=0, undone_ns=MS)
    window = Window(start_unix_ns=11_000 * MS, start_ns=0, duration_ns=1)
    ahead_ns = {"initiator": 1000 * MS, "storage": 9000 * MS}
    [event] = timed([happened], window, acts, cast("Guest", machines["initiator"]), ahead_ns)
    assert (event.began_ns, event.undone_ns) == (1000 * MS, 2000 * MS)
    machines["storage"].says = ["AT 20 0", "killed", "tgtd does not answer: why", "killed"]
    assert act.fault() == "the storage guest said: killed\ntgtd does not answer: why\nkilled", "it is not back"


STUDY = """\
name: kernels
question: How long does I/O stop?
lab: vm
volume: {size: 4MiB, refill: block}
factors:
  protocol:
    one: SETUP
load: {read: 70%, rate_iops: 50, outstanding: 8, warmup: 500ms, runtime: 45s}
design: {replicates: 1}
events: [{at: 2s, do: EVENT, for: LASTS}]
baseline: {protocol: one}
responses: [longest_gap, recovery_time]
"""
PATHS = "paths: 2, path_policy: round-robin"


def ran(folder: Path, engine: Path, setup: str, event: str, lasts: str) -> tuple[TrialResult, dict[str, str]]:
    with start(folder, engine, STUDY.replace("SETUP", setup).replace("EVENT", event).replace("LASTS", lasts)) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(folder / "kernels.iotax") as notebook:
        (attempt,) = notebook.attempts(1)
    assert machines_of(folder) == []
    assert attempt.result is not None and attempt.connected is not None
    assert attempt.result.facts.clock == "time"
    return attempt.result, attempt.connected.found


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        (f"{{protocol: nvme-tcp, {PATHS}, keep_alive: 1s}}", {"keep_alive": "1s"}),
        pytest.param(
            f"{{protocol: iscsi, {PATHS}, keep_alive: 1s, replacement_timeout: 2s}}",
            {"keep_alive": "1s", "replacement_timeout": "2s"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["nvme-tcp", "iscsi"],
)
def test_io_goes_on_over_the_other_path_once_the_kernel_has_given_one_up(
    tmp_path: Path, engine: Path, setup: str, told: dict[str, str]
) -> None:
    result, facts = ran(tmp_path, engine, setup, "{fail: path, path: 1}", "41s")
    assert told.items() <= facts.items()
    [event] = result.events
    assert event.what == "fail path 1"
    assert event.undone_ns - event.began_ns >= 41_000 * MS
    assert result.gaps is not None
    assert result.gaps.longest_ns > 400 * MS  # the kernel waits at least this long for an answer
    [recovery] = recoveries(result)
    assert not recovery.is_bound
    assert recovery.seconds < 41  # while the cable was still pulled
    assert result.verify is not None
    assert result.verify.wrong_blocks == 0 < result.verify.checked_blocks


@pytest.mark.parametrize(
    "event",
    [
        "{slow: path, path: 1, by: 60ms}",
        pytest.param("{lose: 20%, path: 1}", marks=pytest.mark.long),
        pytest.param("{flap: path, path: 1, every: 4s}", marks=pytest.mark.long),
    ],
    ids=["slow", "lose", "flap"],
)
def test_io_takes_longer_over_a_disturbed_network_and_loses_nothing(tmp_path: Path, engine: Path, event: str) -> None:
    result, _ = ran(tmp_path, engine, "{protocol: nvme-tcp}", event, "10s")
    [happened] = result.events
    # A busy guest may begin late, and end in time: then it lasts less than 10 s.
    assert 0 < happened.began_ns < happened.undone_ns
    # A round trip is 120 ms late; a lost packet or a pulled cable costs TCP 200 ms at least.
    slow_ios = result.slow_ios(100 * MS)
    assert slow_ios is not None
    assert slow_ios > 10
    assert result.verify is not None
    assert result.verify.wrong_blocks == 0 < result.verify.read_back_blocks


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["nvme-tcp", "iscsi"])
def test_io_goes_on_at_once_over_the_other_path_if_the_target_takes_one_away(
    tmp_path: Path, engine: Path, protocol: str
) -> None:
    setup = f"{{protocol: {protocol}, {PATHS}}}"
    result, _ = ran(tmp_path, engine, setup, "{access: inaccessible, path: 1}", "20s")
    [event] = result.events
    assert result.counted is not None
    middle = (event.began_ns + event.undone_ns) // 2 // result.counted.interval_ns
    assert sum(result.counted.ios[middle : event.undone_ns // result.counted.interval_ns]) > 0
    assert result.verify is not None
    assert result.verify.wrong_blocks == 0 < result.verify.read_back_blocks


@pytest.mark.parametrize(
    "setup",
    [
        "{protocol: nvme-tcp, reconnect_delay: 1s}",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (
                f"{{protocol: nvme-tcp, {PATHS}}}",
                "iscsi",
                f"{{protocol: iscsi, {PATHS}}}",
                "nfs3",
                "nfs4.1",
                "{protocol: nvme-tcp, target: iotax}",
                "{protocol: iscsi, target: iotax}",
                "{protocol: nfs4.1, target: iotax}",
                "{protocol: iscsi, target: tgt}",
                "{protocol: nfs3, target: ganesha}",
                "{protocol: nfs4.1, target: ganesha}",
            )
        ),
    ],
)
def test_io_goes_on_once_a_killed_target_serves_again(tmp_path: Path, engine: Path, setup: str) -> None:
    result, _ = ran(tmp_path, engine, setup, "{kill: target}", "2s")
    [event] = result.events
    assert event.what == "kill target"
    # The clocks of the two guests are compared only to within a round trip.
    assert 0 < event.began_ns < event.undone_ns
    assert result.gaps is not None
    assert result.gaps.longest_ns > 1000 * MS
    [recovery] = recoveries(result)
    assert not recovery.is_bound
    assert result.checks.errors == 0
    assert result.verify is not None
    assert result.verify.wrong_blocks == 0 < result.verify.read_back_blocks


@pytest.mark.long
def test_a_storage_that_stood_still_serves_on(tmp_path: Path, engine: Path) -> None:
    result, _ = ran(tmp_path, engine, "{protocol: nfs3}", "{freeze: target}", "3s")
    [event] = result.events
    assert event.what == "freeze target"
    assert result.gaps is not None
    # What was in socket buffers when it stopped may complete later: a busy guest reads late.
    assert result.gaps.longest_ns > 1000 * MS
    [recovery] = recoveries(result)
    assert not recovery.is_bound
