"""Studies through Dask workers on this machine, in separate processes without iotax."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, TrialFailed
from iotax.notebook import Notebook
from iotax.places import HostFault
from iotax.study.hosts import Cluster, Host, Tls
from iotax.study.read import read_study
from measurements import results_of
from waits import wait_for

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

from iotax.engine import EngineError
from iotax.labs.hosts.lab import HostsLab
from iotax.places import workers
from iotax.places.waiting import wait_for as awaited
from iotax.places.workers import OnWorker, Roll, Worker, Workers, matching

from .certificates import Authority
from .dask_hosts import DaskHosts

pytestmark = pytest.mark.slow

STUDY = """\
name: clients
question: Does it scale?
lab:
  hosts:
    cluster: {{scheduler: "{scheduler}"}}
    initiators: [{{name: h1, address: 127.0.0.1}}, {{name: h2, address: 127.0.0.1}}]
    targets: [{{name: h3, address: 127.0.0.1}}]
volume: {{size: 32MiB}}
factors: {{protocol: [iscsi, nvme-tcp]}}
load: {{outstanding: 4, read: 75%, warmup: 100ms, runtime: {runtime}}}
design: {{replicates: {replicates}}}
baseline: {{protocol: iscsi}}
"""

Open = Callable[[str], HostsLab]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskHosts]:
    made = DaskHosts(tmp_path_factory.mktemp("dask"), ["h1", "h2", "h3"])
    yield made
    made.close()


@pytest.fixture
def opened(cluster: DaskHosts, real_engine: Path) -> Iterator[Open]:
    labs: list[HostsLab] = []

    def make(text: str) -> HostsLab:
        study = read_study("clients", text, Path())
        labs.append(HostsLab(study, make_plan(study), real_engine))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()
    for name in cluster.names:
        wait_for(lambda name=name: not cluster.engines(name, ""), f"engines on {name} to end")


def written(cluster: DaskHosts, runtime: str = "1s", replicates: int = 2) -> str:
    return STUDY.format(scheduler=cluster.address, runtime=runtime, replicates=replicates)


def quiet(_: object) -> None:
    pass


def trial_of(text: str, protocol: str = "iscsi"):
    plan = make_plan(read_study("clients", text, Path()))
    return next(each for each in plan.trials if each.treatment == {"protocol": protocol})


def test_two_workers_are_two_clients_of_one_window(cluster: DaskHosts, opened: Open) -> None:
    text = written(cluster)
    lab = opened(text)
    assert [each.kind for each in lab.check()] == ["ok"] * 3
    lab.prepare(quiet)
    for name in cluster.names:
        # The engine is copied once, named by its hash, and no other user can replace it.
        [copied] = (cluster.home(name) / ".cache" / "iotax").iterdir()
        assert copied.stat().st_mode & 0o777 == 0o700
    lab.background(1)
    outcome = lab.run(trial_of(text, "nvme-tcp"), quiet)
    result = outcome.result
    assert [each.host for each in result.clients] == ["h1", "h2"]
    assert min(each.ios for each in result.clients) > 0
    assert sum(each.ios for each in result.clients) == result.ios
    assert result.verify is not None and result.verify.checked_blocks > 0 and result.verify.wrong_blocks == 0
    told = {part.host: part for part in result.cpu if part.host.endswith(": Dask worker")}
    assert set(told) == {f"{name}: Dask worker" for name in cluster.names}
    assert {part.pid for part in told.values()} == {cluster.pid(name) for name in cluster.names}
    assert result.cpu.initiator is not None
    own = [part for part in result.cpu if (part.role, part.layer) == ("initiator", "process")]
    assert [part.host for part in own] == ["h1", "h2"]
    assert result.cpu.initiator.busy_ns == sum(part.busy_ns for part in own)
    assert "h1: Dask worker: " in outcome.log
    # All hosts share one clock: the offset found is the error, and within its bound.
    offsets = [each.clock for each in lab.survey()]
    assert all(clock is not None and abs(clock.ahead_ns) <= clock.error_ns for clock in offsets)


def test_workers_keep_one_schedule_of_a_session_and_say_what_they_took(cluster: DaskHosts, opened: Open) -> None:
    text = written(cluster).replace(", warmup: 100ms, runtime: 1s", "")
    text = text.replace("replicates: 2", "sessions: 1, rounds: 2, slice: 1s, settle: 200ms")
    lab = opened(text)
    lab.prepare(quiet)
    for outcome in lab.run_rounds(make_plan(lab.study).trials, quiet):
        assert [each.host for each in outcome.result.clients] == ["h1", "h2"]
        # On a busy machine one slice may start too late.
        assert {each.round for each in outcome.result.slices} <= {1, 2}
        assert sum(each.ios for each in outcome.result.slices) == outcome.result.ios
        assert all(each.target_cpu_ns for each in outcome.result.slices)
        assert all(f"{name}: Dask worker: " in outcome.log for name in cluster.names)


def test_a_study_runs_to_its_report(cluster: DaskHosts, real_engine: Path, tmp_path: Path) -> None:
    (tmp_path / "clients.yaml").write_text(written(cluster))
    words = [sys.executable, "-m", "iotax", "run", "clients.yaml", "-n", "clients.iotax"]
    environment = {**os.environ, "IOTAX_ENGINE": str(real_engine)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with Notebook(tmp_path / "clients.iotax") as notebook:
        assert all(len(each.clients) == 2 for each in results_of(notebook, 4))
    page = next(tmp_path.glob("*.html")).read_text()
    assert "2 clients: h1, h2." in page
    assert "Dask worker" in page


def during(cluster: DaskHosts, name: str, then: Callable[[], None]) -> threading.Thread:
    def wait() -> None:
        wait_for(lambda: cluster.engines(name, "session"), "the engine")
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_killed_worker_fails_the_attempt_by_its_hosts_name_and_the_trial_runs_again(
    cluster: DaskHosts, opened: Open
) -> None:
    text = written(cluster, "3s")
    lab = opened(text)
    lab.prepare(quiet)
    trial = trial_of(text)
    lab.run(trial, quiet)
    killer = during(cluster, "h2", lambda: cluster.kill("h2"))
    try:
        with pytest.raises(TrialFailed, match=r"^h2: its Dask worker, h2 .* was lost"):
            lab.run(trial, quiet)
        killer.join()
        # The load ran nowhere else, and nothing that the worker started outlives it.
        for name in cluster.names:
            wait_for(lambda name=name: not cluster.engines(name, "session"), f"the engine on {name}")
        with pytest.raises(TrialFailed, match=r"^h2: no Dask worker has its name or address"):
            lab.run(trial, quiet)
        assert not lab.answers(trial)
    finally:
        cluster.again("h2")
    assert lab.answers(trial)
    assert [each.host for each in lab.run(trial, quiet).result.clients] == ["h1", "h2"]


@pytest.mark.long
def test_a_worker_that_does_not_answer_fails_the_attempt_and_its_engine_ends_by_its_lease(
    cluster: DaskHosts, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SILENCE_S", 5.0)
    text = written(cluster, "60s")
    lab = opened(text)
    lab.prepare(quiet)
    staller = during(cluster, "h1", lambda: cluster.kill("h1", signal.SIGSTOP))
    try:
        with pytest.raises(TrialFailed, match=r"^h1: its Dask worker, h1 .* does not answer"):
            lab.run(trial_of(text), quiet)
        staller.join()
        wait_for(lambda: not cluster.engines("h1", "session"), "the lease's end")
    finally:
        cluster.kill("h1", signal.SIGCONT)
    wait_for(lambda: lab.answers(trial_of(text)), "h1 to answer again")


@pytest.mark.long
def test_a_lost_scheduler_fails_the_attempt_and_no_engine_outlives_its_lease(
    tmp_path: Path, opened: Open, real_engine: Path
) -> None:
    del real_engine
    own = DaskHosts(tmp_path, ["h1", "h2", "h3"])
    try:
        text = written(own, "60s")
        lab = opened(text)
        lab.prepare(quiet)
        killer = during(own, "h2", lambda: own.kill("scheduler"))
        with pytest.raises(TrialFailed, match=r"the Dask scheduler at .* was lost"):
            lab.run(trial_of(text), quiet)
        killer.join()
        for name in own.names:
            wait_for(lambda name=name: not own.engines(name, ""), f"the lease's end on {name}")
        with pytest.raises(TrialFailed, match="no Dask scheduler answers at"):
            lab.run(trial_of(text), quiet)
    finally:
        own.close()


def test_a_host_without_a_worker_is_named_before_anything_runs(cluster: DaskHosts, opened: Open) -> None:
    lab = opened(written(cluster).replace("{name: h2, address: 127.0.0.1}", "{name: h7, address: 192.0.2.7}"))
    with pytest.raises(LabUnusable, match=r"h7: no Dask worker has its name or address; .*Workers are h1 \("):
        lab.prepare(quiet)


def test_commands_of_a_host_say_how_they_ended(cluster: DaskHosts) -> None:
    known = Workers(Cluster(scheduler=cluster.address), [Host(name="h1")])
    place = OnWorker(Host(name="h1"), known)

    async def all_of_it() -> None:
        assert await place.run("pwd") == f"{cluster.home('h1')}\n"
        assert await place.run("cat", given="line") == "line"
        with pytest.raises(HostFault, match=r"h1: ls failed: .*no/such"):
            await place.run("ls /no/such")
        with pytest.raises(HostFault, match="h1: sleep: no answer in time"):
            await place.run("sleep 600", within_s=0.1)
        assert await place.ask("echo out; echo err >&2; exit 3", "", 5.0, 6) == (3, "t\nerr\n")
        assert await place.ask("kill -9 $$", "", 5.0, 100) == (None, "")
        with pytest.raises(TimeoutError):
            await place.ask("sleep 600", "", 0.1, 100)
        await place.close()
        await known.close()

    awaited(all_of_it())


def test_secrets_reach_a_command_before_its_document(cluster: DaskHosts) -> None:
    known = Workers(Cluster(scheduler=cluster.address), [Host(name="h1")])
    place = OnWorker(Host(name="h1"), known)
    seen = r'{"event": "seen", "by": "%s", "all": %s}'
    command = f"""sh -c 'read -r all; printf "$0" "$BY" "$all"' {shlex.quote(seen)}"""

    async def all_of_it() -> None:
        task = await place.start(command, {"task": "look"}, secrets={"BY": "a  secret"})
        assert await task.event(10.0) == {"event": "seen", "by": "a  secret", "all": {"task": "look"}}
        await task.end()
        await place.close()
        await known.close()

    awaited(all_of_it())


def test_the_table_of_hosts_shows_what_each_worker_is_and_takes_at_rest(
    cluster: DaskHosts, real_engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "clients.yaml").write_text(written(cluster))
    words = [sys.executable, "-m", "iotax", "lab", "hosts", "check", "clients.yaml"]
    environment = {**os.environ, "IOTAX_ENGINE": str(real_engine), "COLUMNS": "400"}

    def said(*more: str) -> str:
        done = subprocess.run(
            [*words, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    dask = importlib.metadata.version("distributed")
    rows = json.loads(said("--json", "-"))["hosts"]
    assert [each["dask_worker"]["name"] for each in rows] == cluster.names
    for each in rows:
        worker = each["dask_worker"]
        assert (worker["python"], worker["dask"]) == (platform.python_version(), dask)
        assert worker["memory_bytes"] > 10 << 20
        assert worker["idle_cores"] >= 0
    takes = rf"h1: Dask worker h1, Python {platform.python_version()}, Dask {dask}, takes .* and, at rest, .* of a core"
    assert re.search(takes, said())


def test_a_worker_of_another_minor_version_of_python_is_refused_by_name(
    cluster: DaskHosts, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PYTHON", "3.99.1")
    lab = opened(written(cluster))
    with pytest.raises(LabUnusable, match=r"h1: its Dask worker runs Python 3\.\S+, and iotax 3\.99\.1") as refused:
        lab.prepare(quiet)
    assert len(refused.value.findings) == 3


def test_over_tls_who_has_a_certificate_of_the_same_authority_is_let_in_and_nobody_else(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    dask, me, stranger = ours.issue("dask"), ours.issue("me"), others.issue("stranger")
    options = ("--tls-ca-file", dask.ca, "--tls-cert", dask.cert, "--tls-key", dask.key, "--protocol", "tls")
    made = DaskHosts(tmp_path, ["h1"], options)
    try:
        assert made.address.startswith("tls://")

        async def said(tls: Tls) -> str:
            known = Workers(Cluster(scheduler=made.address, tls=tls), [Host(name="h1")])
            try:
                return await OnWorker(Host(name="h1"), known).run("pwd")
            finally:
                await known.close()

        assert awaited(said(me)) == f"{made.home('h1')}\n"
        for wrong in (stranger, stranger.model_copy(update={"ca": me.ca}), me.model_copy(update={"ca": stranger.ca})):
            with pytest.raises(HostFault, match="h1: no Dask scheduler answers at tls://"):
                awaited(said(wrong))
    finally:
        made.close()


WORKERS = [
    Worker("tcp://10.0.0.1:4001", "a", "one.example", "3.11.2"),
    Worker("tcp://10.0.0.2:4001", "b", "two.example", "3.11.2"),
    Worker("tcp://10.0.0.2:4002", "two", "three.example", "3.11.2"),
    Worker("tcp://10.0.0.4:4001", "c", "four.example", "3.11.2"),
    Worker("tcp://10.0.0.4:4002", "d", "four.example", "3.11.2"),
]


@pytest.mark.parametrize(
    ("host", "address", "found"),
    [("a", "", "a"), ("two", "", "two"), ("one", "", "a"), ("one.example", "", "a"), ("x", "10.0.0.1", "a")],
)
def test_a_host_is_the_worker_of_its_name_else_of_its_machine_else_at_its_address(
    host: str, address: str, found: str
) -> None:
    chosen = matching(Host(name=host), WORKERS, frozenset({address} - {""}))
    assert chosen is not None and chosen.name == found


def test_a_host_is_no_worker_of_another_name_and_address() -> None:
    assert matching(Host(name="x"), WORKERS, frozenset({"10.0.0.9"})) is None


def test_a_host_that_several_workers_could_be_is_refused() -> None:
    with pytest.raises(EngineError, match="2 Dask workers run there"):
        matching(Host(name="four"), WORKERS, frozenset())


def test_workers_are_asked_for_once_by_all_hosts_and_again_by_one_that_comes_back() -> None:
    asked = 0

    async def ask() -> list[Worker]:
        nonlocal asked
        asked += 1
        return WORKERS

    async def hosts() -> None:
        roll = Roll()
        assert await asyncio.gather(roll.call("a", ask), roll.call("b", ask)) == [WORKERS, WORKERS]
        assert asked == 1
        await roll.call("a", ask)
        assert asked == 2
        await roll.call("b", ask)
        assert asked == 2

    awaited(hosts())


def test_a_worker_that_comes_while_others_answer_is_asked_for_again() -> None:
    there = WORKERS[:1]
    answering, came = asyncio.Event(), asyncio.Event()

    async def ask() -> list[Worker]:
        found = list(there)
        answering.set()
        await came.wait()
        return found

    async def hosts() -> None:
        roll = Roll()
        first = asyncio.create_task(roll.call("a", ask))
        await answering.wait()
        there.append(WORKERS[1])
        roll.outdated("b")
        came.set()
        assert await first == WORKERS[:1]
        assert await roll.call("b", ask) == WORKERS[:2]

    awaited(hosts())


class _Actor:
    """An actor of which every call raises the same error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        async def call(*_: object) -> None:
            raise self._error

        return call


@pytest.mark.parametrize(
    ("error", "client", "future", "said"),
    [
        (TypeError("a defect"), "running", "finished", None),
        (KeyError("a defect"), "running", "finished", None),
        (RuntimeError("Worker holding Actor was lost"), "running", "lost", "was lost"),
        (TypeError("of a broken channel"), "running", "cancelled", "was lost"),
        (OSError("Unable to contact Actor's worker"), "running", "finished", "was lost"),
        (AttributeError("of a closed client"), "closed", "finished", "the Dask scheduler at tcp://s was lost"),
    ],
)
def test_a_defect_of_ours_is_no_lost_worker(error: Exception, client: str, future: str, said: str | None) -> None:
    worker = Worker("tcp://10.0.0.1:1", "w", "node", "3.11.7")
    agent = workers.Agent(
        SimpleNamespace(status=client), "tcp://s", worker, SimpleNamespace(status=future), _Actor(error)
    )
    if said is None:
        with pytest.raises(type(error)):
            awaited(agent.call("pid"))
        assert agent.lost == ""
        return
    with pytest.raises(workers.Gone, match=said):
        awaited(agent.call("pid"))
