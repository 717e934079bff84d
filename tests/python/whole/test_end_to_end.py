"""End to end with the real engine: studies, faults and the guard, over real sockets and files."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import ran
from iotax.design import plan
from iotax.notebook import Notebook, NotebookError
from iotax.study.read import builtin_studies, load_study, read_study
from iotax.trial import Attempt
from needed import engine, program
from waits import wait_for

ROOT = Path(__file__).resolve().parents[3]
STUDIES = {**builtin_studies(), **{path.stem: path.read_text() for path in (ROOT / "examples").glob("*.yaml")}}
TRIALS_MAX = 64
"""Studies with more trials are planned in other tests, but not run here."""


def shortened(text: str) -> str:
    """The same study with less time and memory."""
    text = re.sub(r"warmup: \w+", "warmup: 20ms", text)
    # With virtual machines and fuzzers on the machine, a thread may wait for its processor for much of 100 ms. A
    # database's checkpoint still has to end within the window.
    text = re.sub(r"runtime: \w+", "runtime: 600ms", text)
    text = re.sub(r"checkpoint: \w+", "checkpoint: 100ms", text)
    text = re.sub(r"replicates: \d+", "replicates: 1", text)
    if "events:" in text:
        # An event needs a second of load before and after it.
        text = re.sub(r"at: \[\w+, \w+\]", "at: 1s", re.sub(r"for: \w+", "for: 1500ms", text))
        text = text.replace("runtime: 600ms", "runtime: 4s")
    if "search:" in text:
        text = re.sub(r"sessions: \d+, rounds: \d+", "sessions: 1, rounds: 2", text)
    return re.sub(r"size: (256MiB|512MiB|1GiB)", "size: 64MiB", text)


RUNNABLE = [
    "controller-loss",
    "digests",
    "files",
    "generators",
    "known-tax",
    "oltp",
    "path-loss",
    "patterns",
    "sim-quick",
    "slow-drain",
    "takeover",
    "target-restart",
]
"""Shipped studies that run quickly on this machine alone. The list is fixed, since reading all studies is slow."""


def test_every_shipped_study_that_can_run_here_is_run() -> None:
    found = []
    for name, text in sorted(STUDIES.items()):
        study = read_study(name, text, ROOT)
        here = study.lab.vm is None and not any("://" in each.uri for each in study.endpoints().values())
        # A study's long form differs from its short one only in settings that are shortened here.
        if not here or name.endswith("-full"):
            continue
        if len(plan(read_study(name, shortened(text), ROOT)).trials) <= TRIALS_MAX:
            found.append(name)
    assert found == RUNNABLE


SMALL = """\
name: small
question: Does everything work together?
volume: {size: 16MiB}
factors:
  protocol: [local, nfs3, iscsi, nvme-tcp]
load: {read: 50%, outstanding: 4, warmup: 50ms, runtime: 500ms}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


@pytest.fixture(autouse=True)
def _engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine()


def attempts(name: str) -> list[Attempt]:
    with Notebook(Path("out") / f"{name}.iotax") as notebook:
        return notebook.attempts()


SLOW = ("slow-drain", "takeover", "target-restart", "generators", "oltp", "digests", "known-tax")
MARKS = {
    "patterns": pytest.mark.long,
    "files": pytest.mark.pictures,
    **dict.fromkeys(SLOW, pytest.mark.slow),
}
"""A search takes as long as all other studies together. One report of real runs draws its charts."""


@pytest.mark.parametrize("name", [pytest.param(each, marks=MARKS.get(each, ())) for each in RUNNABLE])
def test_shipped_studies_run(name: str) -> None:
    if name == "generators":
        program("fio")
    Path("study.yaml").write_text(shortened(STUDIES[name]))
    with Path("scratch.img").open("wb") as file:
        file.truncate(64 << 20)
    done = ran("run", "study.yaml")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"Report: out/{name}.html"
    assert Path(f"out/{name}.html").stat().st_size > 10_000
    found = [attempt for attempt in attempts(name) if attempt.status == "done"]
    study = load_study("study.yaml")[0]
    compared = [attempt.trial.id for attempt in found if attempt.trial.compared]
    assert sorted(compared) == sorted(trial.id for trial in plan(study).trials)
    # The result of a search is confirmed with fresh runs.
    assert any(attempt.trial.role == "confirm" for attempt in found) == (study.search is not None)
    for attempt in found:
        result = attempt.result
        assert result is not None
        assert result.ios > 0
        assert result.checks.errors == 0
        # fio verifies only loads that only read.
        if result.generator == "iotax" or not result.write.ios:
            assert result.verify is not None
            assert result.verify.wrong_blocks == 0


def test_an_example_for_an_array_that_is_not_there_says_so() -> None:
    text = (ROOT / "examples" / "endpoints.yaml").read_text()
    Path("study.yaml").write_text(re.sub(r"192\.0\.2\.1\d(:\d+)?", "127.0.0.1:1", text))
    done = ran("check", "study.yaml")
    assert done.exit_code == 4
    assert len(re.findall(r"is the [\w/ ]+ up, and is it the right port", done.stdout)) == 3


def children(pid: int, command: str) -> list[int]:
    """Process ids of the engines of a running `iotax`."""
    found = []
    started = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    for child in itertools.chain.from_iterable(started):
        try:
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if len(words) > 1 and words[1] == command:
            found.append(int(child))
    return found


def busy_ticks(pid: int) -> int:
    """The process's CPU time, in clock ticks."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def running() -> bool:
    try:
        return [each.status for each in attempts("small")] == ["running"]
    except NotebookError:
        return False  # not started yet


@pytest.mark.parametrize(
    ("victim", "reason"),
    [
        ("serve", "the serve process was ended by SIGKILL; the load then said: "),
        ("load", "the load process was ended by SIGKILL"),
    ],
)
@pytest.mark.slow
def test_a_process_killed_in_the_middle_costs_one_attempt(victim: str, reason: str) -> None:
    Path("small.yaml").write_text(
        SMALL.replace("500ms", "1s").replace("[local, nfs3, iscsi, nvme-tcp]", "[nfs3, iscsi]")
    )
    with subprocess.Popen(
        [sys.executable, "-m", "iotax", "run", "small.yaml", "--no-report"], stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(running, "the first trial")
        wait_for(lambda: children(process.pid, "load"), "the load process")
        wait_for(lambda: busy_ticks(children(process.pid, "load")[0]) > 2, "the load to be under way")
        os.kill(children(process.pid, victim)[0], signal.SIGKILL)
        process.communicate(timeout=180)
    assert process.returncode == 0
    found = attempts("small")
    assert [each.status for each in found] == ["failed", "done", "done"]
    assert found[0].reason.startswith(reason)


def test_kill_9_of_the_runner_leaves_no_process_and_resumes() -> None:
    Path("small.yaml").write_text(SMALL.replace("500ms", "20s"))
    command = [sys.executable, "-m", "iotax", "run", "small.yaml", "--no-report"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_for(running, "the first trial")
        wait_for(lambda: children(process.pid, "load"), "the load process")
        engines = children(process.pid, "load") + children(process.pid, "serve")
        process.kill()
    assert len(engines) == 2
    wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text()
                             for pid in engines), "the engines to end")  # fmt: skip
    with Notebook(Path("out/small.iotax")) as notebook:
        # Readers see at once that no process continues it.
        assert [each.status for each in notebook.attempts()] == ["abandoned"]


def test_a_file_with_data_is_kept_until_it_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    content = b"\0" * (1 << 20) + b"precious" + b"\0" * ((15 << 20) - 8)
    disk.write_bytes(content)
    Path("small.yaml").write_text(SMALL.replace("[local, nfs3, iscsi, nvme-tcp]", "{disk: ./disk.img, iscsi: iscsi}"))
    refused = ran("run", "small.yaml", "--no-report")
    assert refused.exit_code == 3, refused.stdout + refused.stderr
    assert f"add --destroy local:{disk}" in refused.stderr
    assert disk.read_bytes() == content
    named = ran("run", "small.yaml", "--no-report", "--destroy", "disk.img")
    assert named.exit_code == 0, named.stdout + named.stderr
    assert disk.read_bytes() != content
    # iotax may overwrite what it wrote itself.
    assert ran("run", "small.yaml", "--no-report", "--again").exit_code == 0


def test_a_file_that_is_too_small_is_explained(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(b"\0" * (1 << 20))
    Path("small.yaml").write_text(SMALL.replace("[local, nfs3, iscsi, nvme-tcp]", "{disk: ./disk.img, iscsi: iscsi}"))
    done = ran("check", "small.yaml")
    assert done.exit_code == 4
    assert "holds 1MiB, but the working set is 16MiB; say a smaller `working_set:` under load" in done.stdout


@pytest.mark.machine
@pytest.mark.slow
def test_a_delay_in_the_server_is_found_with_its_size() -> None:
    """The injected delay is 2 ms. The minimum latency shows it best, because a busy machine only adds to latencies."""
    text = SMALL.replace(
        "protocol: [local, nfs3, iscsi, nvme-tcp]", "protocol: [nfs3, iscsi, nvme-tcp]\n  delay: [0us, 2ms]"
    )
    Path("small.yaml").write_text(text.replace("outstanding: 4", "outstanding: 1").replace("500ms", "1s"))
    assert ran("run", "small.yaml", "--no-report").exit_code == 0
    least_ms = {each.trial.id: each.result.read.latency_min_ns / 1e6 for each in attempts("small") if each.result}
    for protocol in ("nfs3", "iscsi", "nvme-tcp"):
        found_ms = least_ms[f"{protocol}/2ms/r1"] - least_ms[f"{protocol}/0s/r1"]
        assert found_ms == pytest.approx(2, abs=0.3)
