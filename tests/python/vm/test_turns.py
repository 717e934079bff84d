"""Rounds in guests: what one session can hold, how its slices are used, and real kernels that keep one schedule."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, cast

import pytest

from iotax.design import Plan, plan
from iotax.design.describe import describe
from iotax.design.rounds import session_of
from iotax.engine import EngineError
from iotax.labs import turns as turns_of
from iotax.labs.base import SlicesEnded, TrialFailed
from iotax.labs.hosts.clock import Offset
from iotax.labs.hosts.measure import Answer
from iotax.labs.vm.guests import Guests
from iotax.labs.vm.turns import Load, Session
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.model import Slices
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Trial
from report.factory import Simulation
from report.factory import study as simulated

from .studies import machines_of, start

MS = 1_000_000

TURNS = """\
name: turns
question: Does NVMe/TCP cost less than iSCSI?
lab: {vm: {accelerator: tcg}}
volume: {size: 4MiB, refill: block}
factors: {protocol: [local, nvme-tcp, iscsi, nfs3], outstanding: [1, 8]}
load: {read: 75%}
design: {sessions: 1, rounds: 4, slice: 500ms, settle: 150ms}
baseline: {protocol: iscsi}
"""


def faults(text: str) -> str:
    with pytest.raises(StudyError) as said:
        read_study("s", text, Path.cwd())
    return str(said.value)


def test_paths_that_stand_side_by_side_are_accepted() -> None:
    study = read_study(
        "s", TURNS.replace("nfs3]", "nfs3, nfs4.1, iser, nvme-rdma, fcp, fcp-loop, fc-nvme]"), Path.cwd()
    )
    assert study.design.slices is not None


@pytest.mark.parametrize(
    ("now", "then", "why"),
    [
        ("outstanding: [1, 8]", "mtu: [1500, 9000]", "a link has one MTU: mtu has 2 levels"),
        ("outstanding: [1, 8]", 'kernel: [stock, "6.12"]', "one kernel runs: kernel has 2 levels"),
        ("baseline:", "topology: {paths: 2, path_policy: round-robin}\nbaseline:", "would be taken for another's"),
        ("[local, nvme-tcp, iscsi, nfs3]", "{a: {protocol: nfs3, nconnect: 2}, iscsi: iscsi}", "nconnect has 2 levels"),
        (
            "[local, nvme-tcp, iscsi, nfs3]",
            "{a: {protocol: nfs3, target: ganesha}, iscsi: iscsi}",
            "a server that is a program has one protocol",
        ),
        ("outstanding: [1, 8]", "clients: [1, 2]", "turns in guests have one initiator"),
        ("{accelerator: tcg}", "{clock: icount}", "have clocks that run apart"),
        ("{read: 75%}", "{read: 75%, generator: fio}", "fio starts anew for each trial"),
        ("baseline:", "search: {percentile: 99, latency_max: 2ms}\nbaseline:", "runs on loopback only"),
    ],
)
def test_what_one_boot_cannot_hold_at_once_is_refused_with_the_reason(now: str, then: str, why: str) -> None:
    assert now in TURNS
    assert why in faults(TURNS.replace(now, then, 1))


@pytest.mark.parametrize("varied", ["mtu: [1500, 9000]", 'kernel: [stock, "6.12"]', "link_rate: [1Gbit, 10Gbit]"])
def test_what_one_boot_cannot_hold_is_a_whole_plot_with_a_session_of_its_own(varied: str) -> None:
    text = TURNS.replace("outstanding: [1, 8]", varied).replace("sessions: 1,", "sessions: 2, hard_to_change: [PLOT],")
    text = text.replace("PLOT", varied.partition(":")[0]).replace("local, ", "")
    study = read_study("s", text, Path.cwd())
    made = plan(study)
    sessions = [len({trial.treatment["protocol"] for trial in trials}) for trials in by_session(study, made)]
    assert sessions == [3] * 4
    [said] = [line for line in describe(study, made) if "session" in line and "round" in line]
    assert "2 sessions of each whole plot, each with every path connected anew" in said
    assert "4 rounds of 3 slices" in said
    # Each of four sessions boots its machines.
    assert made.duration_ns > 4 * 15_000_000_000


def by_session(study: Study, made: Plan) -> list[list[Trial]]:
    return [list(some) for _, some in itertools.groupby(made.trials, lambda trial: session_of(study, trial))]


def test_guests_that_count_instructions_take_turns_within_one() -> None:
    read_study("s", TURNS.replace("{accelerator: tcg}", "{clock: icount, guests: 1}"), Path.cwd())


def session(slices: int) -> tuple[Session, turns_of.Session, dict[Any, Answer]]:
    """Two guests and one load of four rounds, of which `slices` slices were measured."""
    initiator, storage = cast(Any, "initiator"), cast(Any, "storage")
    load = Load({}, initiator, "initiator", local=False, both_ends=False)
    found = Session({"nvme": load}, [[0]] * 4, Slices(4, 100 * MS, 10 * MS), storage, cpus=1)
    # The second slice has no load; the storage spends 2 ms in it, the initiator 5 ms.
    places = range(1, 6)
    spent = {"initiator": (60 * MS, 5 * MS), "storage": (42 * MS, 2 * MS)}
    observed = {
        name: {
            "slices": [
                {"place": at, "duration_ns": 100 * MS, "machine_busy_ns": idle if at == 2 else busy} for at in places
            ]
        }
        for name, (busy, idle) in spent.items()
    }
    parts = [
        dict.fromkeys(("start_ns", "bytes", "latency_p50_ns", "latency_p99_ns", "cpu_window_ns", "initiator_cpu_ns"), 1)
        | {"round": at, "place": at + (at > 1), "duration_ns": 100 * MS, "ios": 50, "latency_sum_ns": 100 * MS}
        | {"machine_busy_ns": 60 * MS}
        for at in range(1, slices + 1)
    ]
    result = Simulation().data(simulated()).runs[0].result.model_dump(mode="json")
    result["window"]["duration_ns"] = slices * 100 * MS
    core = dict.fromkeys(("user_ns", "nice_ns", "system_ns", "irq_ns", "softirq_ns", "steal_ns", "iowait_ns"), 0)
    cores = [core | {"cpu": 0, "idle_ns": slices * 40 * MS}]
    result |= {"slices": parts, "cpu": {"machine": {"cores": cores, "busy_ns": 0, "resolution_ns": 0}}}
    said = {"driver": "epoll", "endpoint": "local:/dev/nvme0n1", "size_bytes": 1, "block_size_bytes": 512}
    answers = {
        guest: Answer(name, Offset(0, 400_000), {"nvme": said}, {"nvme": result}, observed[name], "")
        for name, guest in (("initiator", initiator), ("storage", storage))
    }
    kept = turns_of.Session(["nvme"], found.rounds, found.slices, [])
    return found, kept, answers


def test_slices_are_told_by_machine_and_a_line_that_has_none_is_malformed() -> None:
    heard: list[object] = []
    hear = turns_of.told(heard.append)
    _, _, answers = session(slices=2)
    parts = (next(iter(answers.values())).result or {})["nvme"]["slices"]
    hear("initiator", {"event": "kept", "id": "nvme", "slices": parts})
    [told] = heard
    assert isinstance(told, SlicesEnded)
    assert (told.trial, told.kept.host, len(told.kept.slices)) == ("nvme", "initiator", 2)
    with pytest.raises(EngineError, match="does not fit its own interface: slices"):
        hear("storage", {"event": "kept", "id": "nvme", "slices": [{"round": 1}]})
    assert heard == [told]


def test_each_slice_has_what_both_guests_spent_in_it_and_idle_paths_are_taken_off() -> None:
    load, turns, answers = session(slices=4)
    measured = load.outcomes(answers, turns)["nvme"]
    assert [part.target_cpu_ns for part in measured.result.slices] == [40 * MS] * 4
    initiator, target = measured.result.cpu.initiator, measured.result.cpu.target
    assert initiator is not None and target is not None
    assert (initiator.busy_ns, initiator.background_ns, initiator.resolution_ns) == (240 * MS, 20 * MS, 0)
    assert target.net_ns == 160 * MS
    assert measured.connected.found["clocks_agree_within"] == "200 µs"


def test_a_treatment_that_missed_many_slices_fails_its_session_by_name() -> None:
    load, turns, answers = session(slices=1)
    with pytest.raises(TrialFailed, match=r"nvme missed 3 of its 4 slices: .* not answered within 50\.0 ms"):
        load.outcomes(answers, turns)


def test_a_slice_in_which_the_target_was_not_read_is_left_out_and_the_others_stand_for_it() -> None:
    load, turns, answers = session(slices=4)
    answers[cast(Any, "storage")].observed["slices"].pop(2)
    measured = load.outcomes(answers, turns)["nvme"]
    assert [part.round for part in measured.result.slices] == [1, 3, 4]
    target = measured.result.cpu.target
    assert target is not None
    assert target.net_ns == 160 * MS


@pytest.mark.machine
def test_real_kernels_take_turns_on_one_volume(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, TURNS) as study:
        said, _ = study.communicate(timeout=1100)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = [each for each in notebook.attempts(1) if each.result is not None]
    assert len({each.trial.id for each in attempts}) == 8
    for each in attempts:
        result, protocol = each.result, each.trial.treatment["protocol"]
        assert result is not None
        assert result.verify is not None
        assert (result.verify.wrong_blocks, result.facts.clock) == (0, "time")
        initiator, target = result.cpu.initiator, result.cpu.target
        assert initiator is not None
        # Idle time was read to the nanosecond, separately for each slice.
        assert initiator.resolution_ns == 0
        assert 0 < initiator.net_ns <= result.window.duration_ns
        assert (target is None) == (protocol == "local")
        for part in result.slices:
            assert 0 < part.machine_busy_ns <= part.duration_ns
            assert protocol == "local" or part.target_cpu_ns is not None
    assert machines_of(tmp_path) == []


BURN = """\
mkfifo /run/never
(exec 9<>/run/never; while :; do i=0; while [ $i -lt 400 ]; do i=$((i + 1)); done; read -t 0.02 _ <&9; done) &
burner=$!
"""
"""It starts no program, so all its cost belongs to its own process."""
OBSERVE = """\
{ cat <<EOF; sleep 60; } | /opt/iotax/run session >/run/observed &
{"settle_ns":0,"slice_ns":250000000,"gap_ns":10000000,"rounds":[[ROUND]],"observe":{"watch_pids":{PIDS}}}
EOF
sleep 6 # nobody asks while it measures
until_true 30 grep -q '"observed"' /run/observed || die "$(cat /run/observed)"
cat /run/observed
"""


def test_busy_time_of_slices_is_what_a_process_burns(guests: Guests) -> None:
    guest = guests["initiator"]
    observe = OBSERVE.replace("ROUND", ",".join(["null"] * 12))
    watched = observe.replace("PIDS", '"burner":$burner')
    idle = json.loads(guest.run(observe.replace("PIDS", ""))[-1])
    busy = json.loads(guest.run(f"{BURN}{watched}kill $burner")[-1])
    assert {each["resolution_ns"] for each in (*idle["slices"], *busy["slices"])} == {0}

    def share(observed: dict[str, Any]) -> float:
        parts = observed["slices"]
        return sum(each["machine_busy_ns"] for each in parts) / sum(each["duration_ns"] for each in parts)

    burnt = busy["watched"]["burner"]["total_ns"] / busy["window"]["duration_ns"]
    assert burnt > 0.02
    # Its timers and context switches add to the guest's CPU.
    assert 0.9 * burnt < share(busy) - share(idle) < burnt + 0.1
