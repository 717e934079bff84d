"""Rounds on hosts over real SSH: one schedule, every path connected, CPU measured for each slice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import Outcome, Sample, SlicesEnded, Step, TrialFailed
from iotax.labs.hosts.clock import Offset
from iotax.labs.hosts.volumes import Volumes
from iotax.labs.turns import Seen, Session, Station
from iotax.notebook import Notebook
from iotax.places import Binary
from iotax.study.model import Slices
from iotax.study.read import read_study
from waits import wait_for

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

pytestmark = pytest.mark.slow
# Two hosts on one machine keep a schedule in which they share a volume. One that stands still for longer than `settle`
# reads what the other's next slice has written already, and the session fails. So such tests have the mark `machine`.

HOSTS = 3
ROUNDS = 3
STUDY = f"""\
name: turns
question: Does NVMe/TCP cost less than iSCSI?
lab: {{{{hosts: {{{{initiators: [{{initiators}}], targets: [{{target}}]}}}}}}}}
volume: {{{{size: 32MiB}}}}
factors: {{{{protocol: [iscsi, nvme-tcp, nfs3], clients: [1, 2]}}}}
load: {{{{outstanding: 4, read: 75%}}}}
design: {{{{sessions: 1, rounds: {ROUNDS}, slice: 1s, settle: 200ms}}}}
baseline: {{{{protocol: iscsi}}}}
"""

Open = Callable[..., HostsLab]
MS = 1_000_000


def written(network: Network) -> str:
    named = [f"{{name: {name}, address: {network.address(name)}}}" for name in network.names]
    return STUDY.format(initiators=", ".join(named[:-1]), target=named[-1])


@pytest.fixture
def opened(network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    with opened_labs(network, real_engine, monkeypatch) as open_lab:
        yield lambda text: open_lab(read_study("turns", text, Path()))
    wait_for(lambda: not any(network.processes(name, "engine-") for name in network.names), "engines to end")


def session(lab: HostsLab, text: str) -> tuple[dict[tuple[object, ...], Outcome], list[Sample]]:
    """Treatment → its outcome in one session; and the samples reported meanwhile."""
    heard: list[Sample] = []
    trials = [each for each in make_plan(read_study("turns", text, Path())).trials if each.block == 1]
    outcomes = lab.run_rounds(trials, lambda news: heard.append(news) if isinstance(news, Sample) else None)
    found = {tuple(trial.treatment.values()): outcome for trial, outcome in zip(trials, outcomes, strict=True)}
    return found, heard


@pytest.mark.machine
def test_hosts_keep_one_schedule_and_every_slice_counts_all_clients(network: Network, opened: Open) -> None:
    text = written(network)
    lab = opened(text)
    lab.prepare(lambda _: None)
    # The session has its own slices without load.
    assert lab.background(1) is None
    found, heard = session(lab, text)
    assert len(found) == 6
    for (protocol, clients), outcome in found.items():
        result = outcome.result
        # On a busy machine one slice may start too late; with more the session fails.
        assert 2 <= len(result.slices) <= ROUNDS
        assert len(result.clients) == clients
        assert 0 < sum(each.ios for each in result.slices) <= result.ios == sum(each.ios for each in result.clients)
        assert min(each.ios for each in result.clients) > 0
        assert result.facts.lab == "hosts" and result.facts.protocol == protocol
        assert result.verify is not None and result.verify.checked_blocks > 0 and result.verify.wrong_blocks == 0
        parts = {(part.host, part.role, part.layer) for part in result.cpu}
        used = network.names[: int(str(clients))]
        assert {(name, "initiator", "process") for name in used} | {("h3", "target", "process")} <= parts
        # The hosts are one machine here, and each reads all of its CPU, including slices without load.
        assert all(part.background_ns is not None for part in result.cpu if part.layer == "machine")
        for each in result.slices:
            assert 0 < each.initiator_cpu_ns < each.machine_busy_ns * 1.5
            assert each.target_cpu_ns is not None and each.target_cpu_ns > 0
        target = result.cpu.target
        assert target is not None
        spent_ns = sum(each.target_cpu_ns or 0 for each in result.slices)
        # The cost of an I/O is that of the slices of all clients, also if one of them missed a slice.
        in_slices = sum(each.ios for each in result.slices)
        assert target.busy_ns / result.ios == pytest.approx(spent_ns / in_slices, rel=1e-6)
    places = [each.place for outcome in found.values() for each in outcome.result.slices]
    assert len(set(places)) == len(places)
    # A round is six slices with load and one without.
    assert not {7, 14, 21} & set(places)
    assert heard
    assert {len(each.hosts) for each in heard} <= {1, 2}


def test_a_host_lost_during_a_session_is_named_and_slices_of_all_hosts_are_kept(network: Network, opened: Open) -> None:
    text = written(network).replace("slice: 1s", "slice: 500ms")
    lab = opened(text)
    lab.prepare(lambda _: None)
    trials = [each for each in make_plan(read_study("turns", text, Path())).trials if each.block == 1]
    kept: list[SlicesEnded] = []

    def hear(news: Sample | Step | SlicesEnded) -> None:
        if isinstance(news, SlicesEnded):
            kept.append(news)
            if {each.kept.host for each in kept} == {"h1", "h2"}:
                network.kill("h2", "session")

    with pytest.raises(TrialFailed, match=r"^h2: the engine there was ended by SIGKILL"):
        lab.run_rounds(trials, hear)
    # With two clients, both hosts load in the same slices; those of h1 outlive h2.
    ended = {(each.trial, each.kept.host, part.place) for each in kept for part in each.kept.slices}
    assert {host for _, host, _ in ended} == {"h1", "h2"}
    assert {trial for trial, _, _ in ended} <= {trial.id for trial in trials}
    assert len(ended) == sum(len(each.kept.slices) for each in kept)


@pytest.mark.machine
def test_a_whole_plot_is_a_session_of_its_own_and_the_study_runs_to_its_report(
    network: Network, real_engine: Path, tmp_path: Path
) -> None:
    text = written(network).replace("sessions: 1, rounds: 3", "sessions: 2, rounds: 2, hard_to_change: [clients]")
    (tmp_path / "turns.yaml").write_text(text.replace("[iscsi, nvme-tcp, nfs3]", "[iscsi, nvme-tcp]"))
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(network.folder / "home"), "IOTAX_ENGINE": str(real_engine)}
    done = subprocess.run(
        [sys.executable, "-m", "iotax", "run", "turns.yaml", "-n", "turns.iotax"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with Notebook(tmp_path / "turns.iotax") as notebook:
        attempts = [each for each in notebook.attempts() if each.result is not None]
    sessions: dict[tuple[object, ...], list[int]] = {}
    for each in attempts:
        assert each.result is not None
        plot = each.trial.block, each.number, each.trial.treatment["clients"]
        sessions.setdefault(plot, []).extend(part.place for part in each.result.slices)
    # Four slices with load in each session, and slices without load between them.
    assert len({(block, clients) for block, _, clients in sessions}) == 4
    assert all(len(places) == len(set(places)) and max(places) <= 6 for places in sessions.values())
    assert "round by round" in next(tmp_path.glob("*.html")).read_text()


class Named:
    """A place of which only the name matters."""

    def __init__(self, name: str) -> None:
        self.name = name


def session_of(*names: str) -> Session:
    stations = [Station(cast(Any, Named(name)), "engine") for name in names]
    return Session(["a"], [[0]], Slices(1, 500 * MS, 10 * MS), stations)


def clocks(*ahead_ms: int) -> list[Offset]:
    return [Offset(ahead * MS, 1 * MS) for ahead in ahead_ms]


def test_a_clock_that_was_set_during_a_session_excludes_it_and_is_named() -> None:
    found = session_of("h1", "h2", "h3")
    found._kept_together(clocks(5, -3, 0), clocks(9, 1, 4))
    # All clocks moved by the same amount: the controller's clock was set.
    found._kept_together(clocks(5, -3, 0), clocks(1005, 997, 1000))
    with pytest.raises(TrialFailed, match=r"moved apart by 50\.0 ms during the session \(h2's the most\)") as said:
        found._kept_together(clocks(5, -3, 0), clocks(5, 47, 0))
    assert (said.value.host, said.value.kind) == ("h2", "clock")


def test_what_connected_paths_spend_without_load_is_of_the_slices_that_are_nobodys() -> None:
    busy = [(1, 60, 0), (2, 5, 0), (3, 40, 0), (4, 7, 0)]
    slices = [
        {"place": at, "duration_ns": 100 * MS, "machine_busy_ns": ms * MS, "resolution_ns": exact}
        for at, ms, exact in busy
    ]
    seen = Seen.of({"slices": slices}, [0, None, 1, None])
    assert (seen.idle_cores, seen.is_exact, seen.net_ns(1, 100 * MS)) == (pytest.approx(0.06), True, 54 * MS)
    slices[3] = {name: value for name, value in slices[3].items() if name != "resolution_ns"}
    assert not Seen.of({"slices": slices}, [0, None, 1, None]).is_exact


def test_two_paths_to_one_disk_are_refused_since_the_kernel_may_join_them() -> None:
    async def enter(_: object) -> None:
        pass

    volumes = Volumes([], [], {}, Binary(Path("engine")), frozenset(), enter, together=True)
    nfs, iscsi, fc = "kernel:nfs://n/e/f", "kernel:iscsi://10.0.0.5/iqn.x/0", "kernel:fc://5001438004212bd8/0"
    volumes._identities |= {("h1", nfs): "inode 7", ("h1", f"{nfs}?vers=3"): "inode 7", ("h1", iscsi): "naa.1"}
    assert volumes.joined() == []
    volumes._identities["h2", fc] = "naa.1"
    assert volumes.joined() == []
    volumes._identities["h1", fc] = "naa.1"
    [found] = volumes.joined()
    assert (found.kind, found.subject) == ("error", f"{fc} on h1")
    assert f"{iscsi} is the same disk (naa.1)" in found.message
