"""Studies over real SSH. Hosts are network namespaces with an sshd each, and share this machine's clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, Sample, TrialFailed
from iotax.notebook import Notebook
from iotax.study.read import read_study
from waits import wait_for

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

HOSTS = 4
STUDY = """\
name: clients
question: Does it scale?
lab: {{hosts: {{initiators: [{initiators}], targets: [{target}]}}}}
volume: {{size: 32MiB}}
factors: {{protocol: [iscsi, nvme-tcp], clients: [1, 3]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: 2}}
baseline: {{protocol: iscsi}}
"""


def written(network: Network, runtime: str = "1s") -> str:
    named = [f"{{name: {name}, address: {network.address(name)}}}" for name in network.names]
    return STUDY.format(initiators=", ".join(named[:3]), target=named[3], runtime=runtime)


Open = Callable[..., HostsLab]


@pytest.fixture
def opened(network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens labs on the network's hosts."""
    with opened_labs(network, real_engine, monkeypatch) as open_lab:
        yield lambda text: open_lab(read_study("clients", text, Path()))
    wait_for(lambda: not any(network.processes(name, "engine-") for name in network.names), "engines to end")


def quiet(_: object) -> None:
    pass


def trial_of(text: str, **levels: object):
    return next(each for each in make_plan(read_study("clients", text, Path())).trials if each.treatment == levels)


def test_three_clients_run_one_window_and_are_merged(network: Network, opened: Open) -> None:
    text = written(network).replace("[iscsi, nvme-tcp]", "[iscsi, nvme-tcp, nfs4.1]")
    lab = opened(text)
    assert [each.kind for each in lab.check()] == ["ok"] * 4
    lab.prepare(quiet)
    background = lab.background(1)
    assert {part.host for part in background.cpu} == set(network.names)
    heard: list[Sample] = []
    outcome = lab.run(
        trial_of(text, protocol="nvme-tcp", clients=3),
        lambda news: heard.append(news) if isinstance(news, Sample) else None,
    )
    result = outcome.result
    assert all(f"{name}: eth0: " in outcome.log for name in network.names), outcome.log
    assert heard, "the window is longer than two intervals"
    assert {tuple(each.host for each in sample.hosts) for sample in heard} == {("h1", "h2", "h3")}
    assert [sample.rate_iops for sample in heard] == [sum(each.rate_iops for each in sample.hosts) for sample in heard]
    assert [sample.at_ns for sample in heard] == sorted({sample.at_ns for sample in heard})
    assert [each.host for each in result.clients] == ["h1", "h2", "h3"]
    assert sum(each.ios for each in result.clients) == result.ios
    assert min(each.ios for each in result.clients) > 0
    assert sum(count for _, count in result.read.histogram.counts) == result.read.ios
    assert sum(point.reads for point in result.series) == result.read.ios
    assert all(sum(ios for _, ios in each.intervals) == each.ios for each in result.clients)
    assert result.outstanding.workers == 3
    assert result.outstanding.mean <= 12
    assert result.verify is not None and result.verify.checked_blocks > 0 and result.verify.wrong_blocks == 0
    assert result.facts.clients == 3
    by_part = {(part.host, part.role, part.layer) for part in result.cpu}
    initiators = {(name, "initiator", "process") for name in ("h1", "h2", "h3")}
    machines = {(name, "other", "machine") for name in network.names}
    assert by_part == initiators | machines | {("h4", "target", "process")}
    assert result.cpu.initiator is not None
    assert result.cpu.initiator.busy_ns == sum(part.busy_ns for part in result.cpu if part.role == "initiator")
    assert all(part.background_ns is not None for part in result.cpu if part.layer == "machine")
    alone = lab.run(trial_of(text, protocol="nfs4.1", clients=1), quiet).result
    assert [each.host for each in alone.clients] == ["h1"]
    assert alone.verify is not None and alone.verify.checked_blocks > 0 and alone.verify.wrong_blocks == 0


def test_busy_processors_of_every_role_are_told_while_the_window_goes_on(network: Network, opened: Open) -> None:
    text = written(network, runtime="4s")
    lab = opened(text)
    lab.prepare(quiet)
    heard: list[Sample] = []
    lab.run(
        trial_of(text, protocol="iscsi", clients=3),
        lambda news: heard.append(news) if isinstance(news, Sample) else None,
    )
    [*_, last] = [each.cores for each in heard if each.cores]
    assert set(last) == {"initiator", "target", "machine"}
    # The four hosts are one machine here, and each reports the CPU of the whole machine.
    assert 0 < last["initiator"] < last["machine"]
    assert 0 < last["target"] < last["machine"]


def test_each_client_has_a_database_of_its_own(network: Network, opened: Open) -> None:
    text = written(network).replace(
        "load: {outstanding: 4, read: 75%,", "load: {oltp: {checkpoint: 200ms}, block_size: 8KiB, workers: 2,"
    )
    text += "responses: [transactions, latency, cpu_per_transaction]\n"
    lab = opened(text)
    lab.prepare(quiet)
    alone = lab.run(trial_of(text, protocol="iscsi", clients=1), quiet).result
    together = lab.run(trial_of(text, protocol="iscsi", clients=3), quiet).result
    for result, clients in ((alone, 1), (together, 3)):
        assert result.rate_unit == "transactions/s"
        assert result.outstanding.total == 2 * clients
        assert result.database is not None
        assert result.database.checkpoints >= clients
        assert result.verify is not None and result.verify.wrong_blocks == 0
    assert min(each.ios for each in together.clients) > 0
    assert alone.database is not None and together.database is not None
    # Each client has an equal part of the volume.
    assert alone.database.size_bytes > together.database.size_bytes / 3 > alone.database.size_bytes / 4


def test_all_clients_wait_for_the_same_modelled_media(network: Network, opened: Open) -> None:
    modelled = "{size: 32MiB, media: model, servers: 2, service: 500us}"
    text = written(network).replace("{size: 32MiB}", modelled)
    lab = opened(text)
    lab.prepare(quiet)
    result = lab.run(trial_of(text, protocol="iscsi", clients=3), quiet).result
    assert result.media is not None
    assert result.media.busy_ns == 500_000 * result.media.operations
    assert result.media.operations >= result.media.told >= result.ios > 0


def test_a_killed_engine_names_its_host_and_the_next_trial_runs(network: Network, opened: Open) -> None:
    text = written(network, "3s")
    lab = opened(text)
    lab.prepare(quiet)
    trial = trial_of(text, protocol="iscsi", clients=3)
    killed = threading.Event()

    def kill() -> None:
        wait_for(lambda: network.processes("h2", "session"), "the engine")
        killed.wait(1.5)
        network.kill("h2", "session", signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(TrialFailed, match=r"^h2: the engine there was ended by SIGKILL"):
        lab.run(trial, quiet)
    killer.join()
    for name in ("h1", "h2", "h3"):
        wait_for(lambda name=name: not network.processes(name, "session"), f"the engine on {name}")
    assert lab.run(trial, quiet).result.ios > 0


def test_a_lost_server_names_the_target_and_is_started_again(network: Network, opened: Open) -> None:
    text = written(network)
    lab = opened(text)
    lab.prepare(quiet)
    trial = trial_of(text, protocol="iscsi", clients=1)
    lab.run(trial, quiet)
    assert network.kill("h4", " serve") >= 1
    wait_for(lambda: not network.processes("h4", " serve"), "the server's end")
    # The controller learns of the end over SSH, before or during the next trial. In the latter case the first client
    # that failed is named too.
    try:
        lab.run(trial, quiet)
    except TrialFailed as failed:
        assert failed.reason.startswith("the server on h4: the engine there was ended by SIGKILL; then h")  # noqa: PT017
    assert lab.run(trial, quiet).result.ios > 0


@pytest.mark.slow
def test_a_dead_network_fails_the_attempt_and_no_engine_outlives_its_lease(network: Network, opened: Open) -> None:
    text = written(network, "60s")
    lab = opened(text)
    lab.prepare(quiet)
    trial = trial_of(text, protocol="iscsi", clients=3)

    def cut() -> None:
        wait_for(lambda: network.processes("h3", "session"), "the engine")
        network.link("h3", "down")

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with pytest.raises(TrialFailed, match="h3"):
            lab.run(trial, quiet)
        cutter.join()
        assert not lab.answers(trial)
        wait_for(lambda: not network.processes("h3", "session"), "the lease's end")
    finally:
        network.link("h3", "up")
    wait_for(lambda: lab.answers(trial), "h3 to answer again")


def test_a_host_that_cannot_be_reached_is_named_before_anything_runs(network: Network, opened: Open) -> None:
    lab = opened(written(network).replace(network.address("h2"), network.nobody))
    with pytest.raises(LabUnusable, match="h2: no SSH connection"):
        lab.prepare(quiet)


def test_the_engine_is_copied_once_and_cleaned_away(network: Network, opened: Open) -> None:
    lab = opened(written(network))
    assert all(each.clock is not None and each.cores > 0 and not each.fault for each in lab.survey())
    [copied] = (network.folder / "home-h1" / ".cache" / "iotax").iterdir()
    before = copied.stat()
    lab.survey()
    assert copied.stat().st_mtime_ns == before.st_mtime_ns
    offsets = [each.clock for each in lab.survey()]
    # All hosts share one clock: the offset found is the error, and within its bound.
    assert all(clock is not None and abs(clock.ahead_ns) <= clock.error_ns for clock in offsets)
    lab.clean()
    assert not copied.exists()


@pytest.mark.slow
def test_a_stalled_connection_fails_the_attempt_and_the_host_is_used_again(network: Network, opened: Open) -> None:
    text = written(network, "60s")
    lab = opened(text)
    lab.prepare(quiet)
    trial = trial_of(text, protocol="iscsi", clients=3)

    def stall() -> None:
        wait_for(lambda: network.processes("h2", "session"), "the engine")
        network.kill("h2", "sshd: ", signal.SIGSTOP)

    staller = threading.Thread(target=stall)
    staller.start()
    try:
        with pytest.raises(TrialFailed, match="h2"):
            lab.run(trial, quiet)
        staller.join()
        wait_for(lambda: not network.processes("h2", "session"), "the lease's end")
    finally:
        network.kill("h2", "sshd: ", signal.SIGCONT)
    wait_for(lambda: lab.answers(trial), "h2 to answer again")


def test_a_host_without_room_for_the_engine_is_named_before_anything_runs(network: Network, opened: Open) -> None:
    cache = str(network.home("h2") / ".cache")
    network.beside("h2", "mkdir", "-p", cache)
    network.beside("h2", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", cache)
    try:
        with pytest.raises(LabUnusable, match=r"h2: the engine \(\d+ MiB\) cannot be copied"):
            opened(written(network)).prepare(quiet)
        # The partial copy was removed.
        assert network.beside("h2", "find", cache, "-type", "f") == ""
    finally:
        network.beside("h2", "umount", cache)


@pytest.mark.slow
def test_trials_go_on_without_a_host_that_stays_lost_where_the_user_says_so(network: Network, opened: Open) -> None:
    text = written(network)
    lab = opened(text)
    lab.prepare(quiet)
    three, one = (trial_of(text, protocol="iscsi", clients=clients) for clients in (3, 1))
    network.link("h2", "down")
    try:
        with pytest.raises(TrialFailed) as failed:
            lab.run(three, quiet)
        assert failed.value.host == "h2"
        assert not lab.leave_out(failed.value), "nobody allowed it"
        lab.without_lost_hosts = True
        assert lab.leave_out(failed.value)
        result = lab.run(three, quiet).result
        assert [each.host for each in result.clients] == ["h1", "h3"]
        assert result.left_out == ("h2",)
        whole = lab.run(one, quiet).result
        assert ([each.host for each in whole.clients], whole.left_out) == (["h1"], ())
        assert not lab.leave_out(TrialFailed("gone", kind="lost", host="h4")), "a target cannot be left out"
    finally:
        network.link("h2", "up")


@pytest.mark.slow
def test_a_study_begins_without_a_lost_host_and_says_so(network: Network, real_engine: Path, tmp_path: Path) -> None:
    study = written(network).replace(network.address("h2"), network.nobody)
    (tmp_path / "clients.yaml").write_text(study)
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(network.folder / "home"), "IOTAX_ENGINE": str(real_engine)}
    words = [
        sys.executable,
        "-m",
        "iotax",
        "run",
        "clients.yaml",
        "clients.iotax",
        "--without-lost-hosts",
        "--long",
        "--no-report",
    ]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "h2 is left out (no SSH connection" in " ".join(done.stdout.split())
    said = "4 trials ran with fewer clients, without h2, and no figure or comparison counts them"
    assert said in " ".join(done.stdout.split())
    with Notebook(tmp_path / "clients.iotax") as notebook:
        results = [each.result for each in notebook.attempts() if each.result is not None]
    assert sorted((len(each.clients), each.left_out) for each in results) == [(1, ())] * 4 + [(2, ("h2",))] * 4
