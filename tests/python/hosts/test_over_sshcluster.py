"""Studies through workers that Dask's SSHCluster started: real SSH to hosts in network namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import TrialFailed
from iotax.notebook import Notebook
from iotax.study.read import read_study
from measurements import results_of
from waits import wait_for

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")
pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .namespaces import Network

pytestmark = pytest.mark.slow

HOSTS = 3
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "hosts-clusters.md"
PROGRAM = """\
from dask.distributed import SSHCluster

cluster = SSHCluster(
    ["10.0.0.11", "10.0.0.11", "10.0.0.12", "10.0.0.13"],
    scheduler_options={"host": "10.0.0.11", "dashboard": False},
    worker_options={"nthreads": 1, "dashboard": False},
    worker_class="distributed.Worker",
)
print(cluster.scheduler_address, flush=True)
input("Enter ends the workers: ")
cluster.close()
"""
STUDY = """\
name: clients
question: Does it scale?
lab:
  hosts:
    cluster: {{scheduler: "{scheduler}"}}
    initiators: [{{name: h1, address: {h1}}}, {{name: h2, address: {h2}}}]
    targets: [{{name: h3, address: {h3}}}]
volume: {{size: 32MiB}}
factors: {{protocol: [iscsi, nvme-tcp]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: 1}}
baseline: {{protocol: iscsi}}
"""


class Started:
    """The guide's program, with addresses of this network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        assert 'worker_class="distributed.Worker"' in GUIDE.read_text(), "what the guide says of it"
        program = PROGRAM
        for number in (1, 2, 3):
            program = program.replace(f"10.0.0.1{number}", network.address(f"h{number}"))
        environment = {**os.environ, "HOME": str(network.folder / "home")}
        environment.pop("SSH_AUTH_SOCK", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.scheduler = self.process.stdout.readline().strip()
        assert self.scheduler.startswith("tcp://"), self.process.communicate()

    def study(self, runtime: str = "1s") -> str:
        addresses = {name: self.network.address(name) for name in self.network.names}
        return STUDY.format(scheduler=self.scheduler, runtime=runtime, **addresses)

    def close(self) -> None:
        self.process.communicate("\n")


@pytest.fixture(scope="module")
def started(network: Network) -> Iterator[Started]:
    made = Started(network)
    yield made
    made.close()
    for name in network.names:
        wait_for(lambda name=name: not network.processes(name, "dask_spec"), f"Dask on {name} to end")


def test_a_study_runs_over_the_workers_that_sshcluster_started(
    started: Started, real_engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "clients.yaml").write_text(started.study())
    words = [sys.executable, "-m", "iotax", "run", "clients.yaml", "-n", "clients.iotax", "--no-report"]
    environment = {**os.environ, "IOTAX_ENGINE": str(real_engine)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with Notebook(tmp_path / "clients.iotax") as notebook:
        for each in results_of(notebook, 2):
            assert [client.host for client in each.clients] == ["h1", "h2"]
    for name in started.network.names:
        # The hosts' own workers copied the engine, to the home folders of their logins.
        [copied] = (started.network.home(name) / ".cache" / "iotax").iterdir()
        assert copied.name.startswith("engine-")
        assert not started.network.processes(name, "engine-")


def test_a_killed_worker_of_sshcluster_fails_the_attempt_by_its_hosts_name(started: Started, real_engine: Path) -> None:
    study = read_study("clients", started.study("60s"), Path())
    lab = HostsLab(study, make_plan(study), real_engine)
    network = started.network
    try:
        lab.prepare(lambda _: None)

        def kill(_: object) -> None:
            if network.processes("h2", "session"):
                network.kill("h2", "dask_spec", signal.SIGKILL)

        with pytest.raises(TrialFailed, match=r"^h2: "):
            lab.run(make_plan(study).trials[0], kill)
    finally:
        lab.close()
    for name in network.names:
        wait_for(lambda name=name: not network.processes(name, "engine-"), f"engines on {name} to end")
