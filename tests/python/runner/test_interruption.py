"""Ctrl-C, kill -9 and two runs at once: real processes, a real notebook."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import ran
from faked import TINY, FakeEngine
from iotax.design import plan
from iotax.notebook import Notebook
from iotax.study.read import load_study
from iotax.trial import Attempt
from waits import wait_for

Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return tmp_path / "n.iotax"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its windows last so long that no run of theirs is given up as hung, however long the test takes."""
    monkeypatch.setenv("FAKE_INSTANT", "1")
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("runtime: 10ms", "runtime: 1h"))
    assert "1h" in path.read_text()
    return path


@pytest.fixture
def start(tiny: Path, notebook: Path, engine: FakeEngine) -> Iterator[Start]:
    """Starts `iotax run`; ends what is still running after the test."""
    del engine
    started: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "iotax", "run", str(tiny), "--notebook", str(notebook), "--no-report"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def attempts(notebook: Path) -> list[Attempt]:
    with Notebook(notebook) as reader:
        return reader.attempts()


def engines(engine: FakeEngine) -> list[int]:
    """Process ids of this test's fake engines."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"FAKE_ENGINE={engine.folder}\0" in (entry / "environ").read_text() and (
                "fake_engine" in (entry / "cmdline").read_text()
            ):  # fmt: skip
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_attempt_is_marked_and_the_run_resumes(
    engine: FakeEngine, start: Start, notebook: Path, tiny: Path, sent: signal.Signals
) -> None:
    engine.faults(run_4="slow")
    process = start()
    wait_for(
        lambda: (engine.folder / "runs").exists() and (engine.folder / "runs").read_text() == "4", "the fourth run"
    )
    process.send_signal(sent)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "interrupted with 5 trials left; run the same command again to continue" in said
    assert [each.status for each in attempts(notebook)] == ["done", "done", "done", "interrupted"]
    assert engines(engine) == []
    again = ran("run", tiny, "--notebook", notebook, "--no-report")
    assert again.exit_code == 0, again.output
    assert "Resuming: 3 of 8 trials are done, 5 left" in again.output
    found = attempts(notebook)
    # The order is the plan's, and the interrupted trial runs first.
    assert [each.trial.id for each in found if each.status == "done"] == [
        t.id for t in plan(load_study(str(tiny))[0]).trials
    ]
    assert (found[4].trial, found[4].number) == (found[3].trial, 2)


def test_after_kill_9_the_notebook_opens_and_the_run_resumes(
    engine: FakeEngine, start: Start, notebook: Path, tiny: Path
) -> None:
    engine.faults(run_4="slow")
    process = start()
    wait_for(
        lambda: (engine.folder / "runs").exists() and (engine.folder / "runs").read_text() == "4", "the fourth run"
    )
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=600)
    wait_for(lambda: not engines(engine), "the engines to see their standard input close")
    # The notebook does not record it yet, but the process that could do so is gone.
    found = attempts(notebook)
    assert [each.status for each in found] == ["done", "done", "done", "abandoned"]
    assert "killed" in found[-1].reason
    again = ran("run", tiny, "--notebook", notebook, "--no-report")
    assert again.exit_code == 0, again.output
    statuses = [each.status for each in attempts(notebook)]
    assert statuses == ["done", "done", "done", "abandoned", *["done"] * 5]


def test_a_second_run_on_the_same_notebook_is_refused(engine: FakeEngine, start: Start, notebook: Path) -> None:
    engine.faults(run_1="slow")
    first = start()
    wait_for((engine.folder / "runs").exists, "the first run")
    second = start()
    _, said = second.communicate(timeout=600)
    assert second.returncode == 5
    assert f"another run (process {first.pid}) is writing to this notebook" in said
    assert [each.status for each in attempts(notebook)] == ["running"]


def test_a_terminal_that_hangs_up_interrupts_the_run(
    engine: FakeEngine, notebook: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a broken SSH connection: SIGHUP, and a terminal that accepts no output."""
    monkeypatch.setenv("TERM", "xterm")
    engine.faults(run_4="slow")
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-m", "iotax", "run", str(tiny), str(notebook)])
    runs = engine.folder / "runs"
    wait_for(lambda: runs.exists() and runs.read_text() == "4", "the fourth run")
    os.close(terminal)
    _, ended = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(ended) == 130
    assert [each.status for each in attempts(notebook)] == ["done", "done", "done", "interrupted"]
    assert engines(engine) == []


def test_what_nohup_ignores_does_not_interrupt(engine: FakeEngine, tiny: Path, notebook: Path) -> None:
    engine.faults(run_4="slow")
    command = ["nohup", sys.executable, "-m", "iotax", "run", str(tiny), str(notebook), "--no-report"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    runs = engine.folder / "runs"
    wait_for(lambda: runs.exists() and runs.read_text() == "4", "the fourth run")
    process.send_signal(signal.SIGHUP)
    engine.faults()
    for pid in engines(engine):
        if "load" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=180)
    assert process.returncode == 0
    assert [each.status for each in attempts(notebook)].count("done") == 8


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_stops_the_run_and_room_resumes_it(
    engine: FakeEngine, start: Start, notebook: Path, tiny: Path, tmp_path: Path
) -> None:
    del start
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        notebook = small / "n.iotax"
        words = ["run", str(tiny), "--notebook", str(notebook), "--no-report"]
        engine.faults(run_4="slow")
        process = subprocess.Popen(
            [sys.executable, "-m", "iotax", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: (engine.folder / "runs").exists() and (engine.folder / "runs").read_text() == "4", "run four")
        (small / "ballast").write_bytes(b"\1" * (8 << 20))
        engine.faults()
        for pid in engines(engine):
            if "load" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 5
        assert "the disk is full" in said
        assert [each.status for each in attempts(notebook)] == ["done", "done", "done", "failed"]
        (small / "ballast").unlink()
        again = ran(*words)
        assert again.exit_code == 0, again.output
        assert [each.status for each in attempts(notebook)].count("done") == 8
    finally:
        subprocess.run(["umount", small], check=True)
