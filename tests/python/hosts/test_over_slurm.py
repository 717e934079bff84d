"""Studies on Slurm nodes whose workers iotax starts: a real slurmctld, and a slurmd for each host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import Step, TrialFailed
from iotax.notebook import Notebook
from iotax.places import HostFault
from iotax.study.hosts import Host, Slurm
from iotax.study.hosts import SlurmCluster as Asked
from iotax.study.read import read_study
from measurements import results_of
from waits import wait_for

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from iotax.labs.hosts.lab import HostsLab
from iotax.places.slurm import DEATH_S, Contact, script
from iotax.places.waiting import wait_for as awaited
from iotax.places.workers import OnWorker, Workers

from .slurm_cluster import SlurmCluster, need

pytestmark = pytest.mark.slow

STUDY = """\
name: clients
question: Does it scale?
lab:
  hosts:
    cluster:
      slurm:
        setup: ['export HOME={folder}/home-$SLURMD_NODENAME']
    initiators: [{{name: n1, address: 127.0.0.1}}]
    targets: [{{name: n2, address: 127.0.0.1}}]
volume: {{size: 32MiB}}
factors: {{protocol: [iscsi, nvme-tcp]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: 2}}
baseline: {{protocol: iscsi}}
"""

Open = Callable[[str], HostsLab]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    need()
    made = SlurmCluster(tmp_path_factory.mktemp("slurm"), ["n1", "n2"])
    yield made
    made.close()


@pytest.fixture(autouse=True)
def conf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "cluster" in request.fixturenames:
        monkeypatch.setenv("SLURM_CONF", str(request.getfixturevalue("cluster").conf))


@pytest.fixture
def opened(cluster: SlurmCluster, real_engine: Path) -> Iterator[Open]:
    labs: list[HostsLab] = []

    def make(text: str) -> HostsLab:
        study = read_study("clients", text, Path())
        labs.append(HostsLab(study, make_plan(study), real_engine))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()
    nothing_left(cluster)


def nothing_left(cluster: SlurmCluster) -> None:
    wait_for(lambda: not cluster.jobs(), "jobs to end")
    for name in cluster.names:
        wait_for(lambda name=name: not cluster.left(name), f"processes on {name} to end")


def written(cluster: SlurmCluster, runtime: str = "1s") -> str:
    return STUDY.format(folder=cluster.folder, runtime=runtime)


def test_a_study_on_two_nodes_runs_to_its_report_and_leaves_no_job(
    cluster: SlurmCluster, real_engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "clients.yaml").write_text(written(cluster))
    words = [sys.executable, "-m", "iotax", "run", "clients.yaml", "-n", "clients.iotax"]
    environment = {**os.environ, "IOTAX_ENGINE": str(real_engine)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with Notebook(tmp_path / "clients.iotax") as notebook:
        assert all(len(each.clients) == 2 for each in results_of(notebook, 4))
    nothing_left(cluster)
    for name in cluster.names:
        # The engine, copied once; a job that ended well leaves no log.
        assert [each.name[:7] for each in (cluster.home(name) / ".cache" / "iotax").iterdir()] == ["engine-"]


def test_a_job_that_ends_in_mid_trial_fails_the_attempt_and_the_next_one_has_a_new_job(
    cluster: SlurmCluster, opened: Open
) -> None:
    text = written(cluster, "3s")
    lab = opened(text)
    lab.prepare(lambda _: None)
    trial = make_plan(read_study("clients", text, Path())).trials[0]
    said: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, Step):
            said.append(event.text)
            if " on 1 host" in event.text:
                cluster.ask("scancel", "--jobname=iotax-n1", "--signal=KILL", "--full")

    with pytest.raises(TrialFailed, match=r"^n1: "):
        lab.run(trial, hear)
    result = lab.run(trial, lambda _: None).result
    assert result.ios > 0


def test_what_waits_in_the_queue_is_said_and_an_interrupt_cancels_it(
    cluster: SlurmCluster, real_engine: Path, tmp_path: Path
) -> None:
    cluster.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    try:
        (tmp_path / "clients.yaml").write_text(written(cluster))
        words = [sys.executable, "-m", "iotax", "lab", "hosts", "check", "clients.yaml"]
        environment = {**os.environ, "IOTAX_ENGINE": str(real_engine)}
        with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as run:
            assert run.stderr is not None
            for line in run.stderr:
                # The queue reports its reason in one of its next answers.
                if line.startswith("waiting for Slurm: n2 (job ") and "pending: " in line:
                    break
            run.send_signal(signal.SIGINT)
            run.stderr.read()
        assert run.returncode != 0
        nothing_left(cluster)
    finally:
        cluster.ask("scontrol", "update", "nodename=n2", "state=resume")
        wait_for(lambda: cluster.idle() == set(cluster.names), "n2")


def test_jobs_end_by_themselves_when_iotax_is_killed(cluster: SlurmCluster, real_engine: Path, tmp_path: Path) -> None:
    (tmp_path / "clients.yaml").write_text(written(cluster, "60s"))
    words = [sys.executable, "-m", "iotax", "run", "clients.yaml", "-n", "clients.iotax"]
    environment = {**os.environ, "IOTAX_ENGINE": str(real_engine)}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as run:
        wait_for(lambda: run.poll() is not None or cluster.engines("n1"), "the engine")
        run.kill()
        assert run.stdout is not None
        said = run.stdout.read()
    assert run.returncode == -signal.SIGKILL, said
    nothing_left(cluster)


@pytest.mark.long
def test_a_job_that_begins_when_iotax_is_gone_ends_by_itself(
    cluster: SlurmCluster, real_engine: Path, tmp_path: Path
) -> None:
    cluster.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    try:
        (tmp_path / "clients.yaml").write_text(written(cluster))
        words = [sys.executable, "-m", "iotax", "lab", "hosts", "check", "clients.yaml"]
        environment = {**os.environ, "IOTAX_ENGINE": str(real_engine)}
        with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as check:
            wait_for(lambda: check.poll() is not None or "iotax-n2" in cluster.jobs(), "the job")
            check.kill()
        assert check.returncode == -signal.SIGKILL
        assert "iotax-n2" in cluster.jobs()
    finally:
        cluster.ask("scontrol", "update", "nodename=n2", "state=resume")
    wait_for(lambda: cluster.left("n2"), "the job to begin")
    # The scheduler is gone: the worker looks for it until its time limit.
    wait_for(lambda: not cluster.jobs(), "the job to end", 3 * DEATH_S)
    nothing_left(cluster)


def bring(asked: Slurm, name: str = "n1") -> str:
    """Why the host with that name cannot be reached."""
    host = Host(name=name, address="127.0.0.1")
    known = Workers(Asked(slurm=asked), [host])

    async def all_of_it() -> str:
        try:
            with pytest.raises(HostFault) as fault:
                await OnWorker(host, known).run("true")
            return str(fault.value)
        finally:
            await known.close()

    return awaited(all_of_it())


def test_a_job_that_fails_is_told_with_the_end_of_its_log(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    said = bring(Slurm(python="/no/such/python"))
    assert "n1: its Slurm job " in said and "ended before its worker was there (failed: NonZeroExitCode)" in said
    assert said.endswith("/no/such/python: No such file or directory")
    assert cluster.jobs() == []


def test_a_job_that_waits_too_long_is_cancelled_and_says_how_it_stood(cluster: SlurmCluster) -> None:
    said = bring(Slurm.model_validate({"wait": "1s", "options": ["--begin=now+1hour"]}))
    assert "pending" in said and "(`wait`)" in said
    assert cluster.jobs() == []


def test_a_host_that_is_no_node_is_said_by_sbatch(cluster: SlurmCluster) -> None:
    assert bring(Slurm(), "n9").startswith("n9: sbatch failed: ")
    assert cluster.jobs() == []


def test_a_machine_without_slurms_commands_says_which_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert "sbatch is missing on this machine" in bring(Slurm())


def test_no_name_that_leads_nowhere_is_taken_for_the_nodes_network() -> None:
    host = Host(name="no-such-host.invalid")
    known = Workers(Asked(slurm=Slurm()), [host])
    with pytest.raises(HostFault, match="say `address:` under `slurm`"):
        awaited(OnWorker(host, known).run("true"))
    awaited(known.close())


def test_certificates_stand_in_no_argument_and_the_job_gets_nothing_else_of_ours(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRAY_PASSWORD", "hidden")
    host = Host(name="n1", address="127.0.0.1")
    known = Workers(Asked(slurm=Slurm(setup=[f"export HOME={cluster.home('n1')}"])), [host])
    place = OnWorker(host, known)

    async def all_of_it() -> str:
        try:
            return await place.run("cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'")
        finally:
            await known.close()

    said = awaited(all_of_it())
    assert "hidden" not in said
    environment, _, arguments = said.partition("distributed.cli.dask_worker")
    assert "PRIVATE KEY" in environment
    assert "PRIVATE KEY" not in arguments and "tls://127.0.0.1:" in arguments
    nothing_left(cluster)


def test_the_shell_takes_whatever_stands_in_a_setting() -> None:
    made = script("h1", Slurm(python="/opt/my python"), Contact("tls://10.0.0.1:1", {"A": "a'b\nc"}))
    done = subprocess.run(["bash", "-n"], input=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'/opt/my python' -m distributed.cli.dask_worker tls://10.0.0.1:1 --name h1" in made
