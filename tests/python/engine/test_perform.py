"""`iotax-engine perform`: an event at a given time, and its undo whatever happens to the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from engine_process import started
from waits import wait_for


class Performing:
    """An engine that is armed. Its event makes the file `mark`, and the undo removes it."""

    def __init__(self, engine: Path, folder: Path, lasts_s: float = 600, **changes: str) -> None:
        self.mark = folder / "mark"
        document = {
            "begin": f"touch {self.mark}",
            "undo": f"rm {self.mark}",
            "lasts_ns": round(lasts_s * 1e9),
        } | changes
        self.kept = folder / "home" / ".cache" / "iotax"
        """Where undos stand that have not succeeded."""
        self.process = started(engine, "perform", document, env={**os.environ, "HOME": str(folder / "home")})
        assert self.event()["event"] == "armed"

    def event(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def start(self, in_s: float = 5) -> int:
        """Returns the time of the wall clock at which the event is to begin, ns."""
        at_ns = time.time_ns() + round(in_s * 1e9)
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"command": "start", "at_unix_ns": at_ns}) + "\n")
        self.process.stdin.flush()
        return at_ns


def test_an_event_begins_at_its_time_and_is_undone(real_engine: Path, tmp_path: Path) -> None:
    performing = Performing(real_engine, tmp_path, lasts_s=0.5)
    with performing.process:
        at_ns = performing.start()
        assert performing.event()["event"] == "started"
        began = performing.event()
        assert (began["event"], began["at_unix_ns"] >= at_ns) == ("began", True)
        undone = performing.event()
        assert undone["event"] == "undone"
        assert undone["at_unix_ns"] - began["at_unix_ns"] >= 500_000_000
        assert not performing.mark.exists()
    assert performing.process.returncode == 0
    wait_for(lambda: list(performing.kept.iterdir()) == [], "the undo to be forgotten")


def test_it_is_undone_when_the_engine_is_killed(real_engine: Path, tmp_path: Path) -> None:
    performing = Performing(real_engine, tmp_path)
    with performing.process:
        performing.start()
        wait_for(performing.mark.exists, "the event")
        performing.process.kill()
    wait_for(lambda: not performing.mark.exists(), "the undo")


def test_what_is_still_beginning_ends_before_it_is_undone(real_engine: Path, tmp_path: Path) -> None:
    begun, undone = tmp_path / "begun", tmp_path / "undone"
    begin = f"touch {begun}; sleep 599; touch {tmp_path / 'late'}"
    performing = Performing(real_engine, tmp_path, begin=begin, undo=f"touch {undone}")
    with performing.process:
        performing.start()
        wait_for(begun.exists, "the event to begin")
        performing.process.kill()
    wait_for(undone.exists, "the undo")
    wait_for(lambda: list(performing.kept.iterdir()) == [], "the undo to be forgotten")
    running = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert str(begun) not in running, "nothing of it can happen after the undo"


def test_it_is_undone_early_when_the_caller_is_gone(real_engine: Path, tmp_path: Path) -> None:
    performing = Performing(real_engine, tmp_path)
    with performing.process:
        performing.start()
        wait_for(performing.mark.exists, "the event")
        assert performing.process.stdin
        performing.process.stdin.close()
        assert [performing.event()["event"] for _ in range(2)] == ["started", "began"]
        said = performing.event()
        assert (said["event"], said["kind"]) == ("error", "lost")
        assert "undone early" in said["message"]
        assert not performing.mark.exists()


@pytest.mark.parametrize("how", ["end of input", "kill"])
def test_an_event_that_has_not_begun_is_not_undone(real_engine: Path, tmp_path: Path, how: str) -> None:
    undone = tmp_path / "undone"
    performing = Performing(real_engine, tmp_path, undo=f"touch {undone}")
    with performing.process:
        performing.start(600)
        assert performing.event()["event"] == "started"
        if how == "kill":
            performing.process.kill()
        else:
            assert performing.process.stdin
            performing.process.stdin.close()
        performing.process.wait(60)
    wait_for(lambda: guardians(str(undone)) == [], "the process that would undo it to end")
    assert not undone.exists()
    assert not performing.mark.exists()


def guardians(of: str) -> list[str]:
    found = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in found if "iotax-undo" in line and of in line]


def test_a_command_that_fails_is_undone_and_told(real_engine: Path, tmp_path: Path) -> None:
    undone = tmp_path / "undone"
    performing = Performing(real_engine, tmp_path, begin="echo first >&2; echo why >&2; exit 4", undo=f"touch {undone}")
    with performing.process:
        performing.start()
        assert performing.event()["event"] == "started"
        said = performing.event()
    assert (said["event"], said["kind"], said["where"]) == ("error", "io", "begin")
    assert said["message"].endswith("failed (exit status: 4): why")
    assert undone.exists()


@pytest.mark.slow
def test_a_command_that_does_not_end_is_killed_with_what_it_started_and_undone(
    real_engine: Path, tmp_path: Path
) -> None:
    undone, child = tmp_path / "undone", tmp_path / "pid"
    endless = f"sleep 600 & echo $! >{child}; wait"
    performing = Performing(real_engine, tmp_path, begin=endless, undo=f"touch {undone}")
    with performing.process:
        performing.start()
        assert performing.event()["event"] == "started"
        said = performing.event()
    assert (said["kind"], said["where"]) == ("lost", "begin")
    assert said["message"].endswith("did not end within 30 s")
    assert undone.exists()
    wait_for(lambda: not is_alive(int(child.read_text())), "what it started to end")


def is_alive(pid: int) -> bool:
    """False for a zombie, which nobody may wait for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_a_command_leaves_behind_keeps_no_undo_waiting(real_engine: Path, tmp_path: Path) -> None:
    undone = tmp_path / "undone"
    left = f"sleep 300 & echo $! >{tmp_path}/pid; exit 4"
    performing = Performing(real_engine, tmp_path, begin=left, undo=f"touch {undone}")
    with performing.process:
        performing.start()
        assert performing.event()["event"] == "started"
        assert performing.event()["kind"] == "io"
    assert undone.exists()
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_an_undo_that_fails_is_tried_once_more(real_engine: Path, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    performing = Performing(real_engine, tmp_path, lasts_s=0.2, undo=f"echo try >>{tries}; exit 5")
    with performing.process:
        performing.start()
        assert [performing.event()["event"] for _ in range(2)] == ["started", "began"]
        said = performing.event()
    assert (said["kind"], said["where"]) == ("not_undone", "undo")
    assert said["message"].endswith("It failed twice: run it yourself")
    # The process that guards the undo tries it as well.
    wait_for(lambda: tries.read_text().splitlines() == ["try"] * 3, "the last try")
    wait_for(lambda: guardians(str(tries)) == [], "its end")
    assert [each.read_text() for each in performing.kept.iterdir()] == [f"echo try >>{tries}; exit 5\n"]


def test_an_undo_that_succeeds_at_its_second_try_is_told_and_tried_no_more(real_engine: Path, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    undo = f"echo try >>{tries}; test $(wc -l <{tries}) = 2"
    performing = Performing(real_engine, tmp_path, lasts_s=0.2, undo=undo)
    with performing.process:
        performing.start()
        assert [performing.event()["event"] for _ in range(2)] == ["started", "began"]
        said = performing.event()
    assert (said["kind"], said["where"]) == ("io", "undo")
    assert said["message"].endswith("The second try succeeded")
    wait_for(lambda: guardians(str(tries)) == [], "the process that would undo it to end")
    assert tries.read_text().splitlines() == ["try", "try"]


def test_a_start_that_has_passed_makes_nothing_happen(real_engine: Path, tmp_path: Path) -> None:
    performing = Performing(real_engine, tmp_path)
    with performing.process:
        performing.start(-1)
        said = performing.event()
    assert (said["event"], said["kind"]) == ("error", "late")
    assert not performing.mark.exists()
