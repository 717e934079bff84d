"""The engine as a process: its output, and every way in which it can fail."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import pytest

from faked import FAKE, FakeEngine
from iotax import engine as engine_module
from iotax.engine import EngineError, engine_version, find_engine, find_host_engine
from iotax.places.piped import LOG_LINES_MAX
from iotax.places.waiting import Engine


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "engine.sh"
    path.write_text(f"#!/bin/sh\nread document\n{text}\n")
    path.chmod(0o755)
    return path


def failure(program: Path, wait_s: float = 60.0) -> EngineError:
    with Engine(program, "load", {}) as engine, pytest.raises(EngineError) as caught:
        engine.expect("result", time.monotonic() + wait_s)
    return caught.value


def test_events_come_in_order_and_unknown_ones_are_passed_over(tmp_path: Path) -> None:
    program = script(tmp_path, """echo '{"event":"news"}'; echo '{"event":"result","a":1}'""")
    with Engine(program, "load", {}) as engine:
        assert engine.expect("result", time.monotonic() + 60) == {"event": "result", "a": 1}


def test_an_error_line_keeps_kind_place_and_log(tmp_path: Path) -> None:
    said = """echo why >&2; echo '{"event":"error","kind":"denied","message":"no","where":"login"}'"""
    with Engine(script(tmp_path, said), "load", {}) as engine, pytest.raises(EngineError) as caught:
        engine.expect("result", time.monotonic() + 60)
    assert (caught.value.kind, str(caught.value), engine.log) == ("denied", "no (login)", "why")


def ended(pid: int) -> bool:
    """Whether the process is gone, or a zombie, within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("exit 3", "died", "the load process ended with exit code 3 before its work was done"),
        ("kill -9 $$", "died", "the load process was ended by SIGKILL"),
        ("echo hello", "malformed", "a line that is not an event: 'hello'"),
        ("echo '[1]'", "malformed", "not an event"),
        ("printf '\\377\\376\\n'", "malformed", "not an event"),
        ("""printf '{"event":'""", "malformed", "not an event"),
    ],
)
def test_an_engine_that_breaks_off_is_explained(tmp_path: Path, text: str, kind: str, said: str) -> None:
    error = failure(script(tmp_path, text))
    assert error.kind == kind
    assert said in str(error)


def test_a_silent_engine_is_given_up_and_ended(tmp_path: Path) -> None:
    program = script(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child; sleep 1000")
    began = time.monotonic()
    with Engine(program, "load", {}) as engine:
        with pytest.raises(EngineError, match="fell silent"):
            engine.event(time.monotonic() + 0.5)
        pid = engine.pid
    assert time.monotonic() - began < 60
    assert ended(pid)
    assert ended(int((tmp_path / "child").read_text()))


def test_the_log_is_bounded(tmp_path: Path) -> None:
    program = script(tmp_path, "seq 1 5000 >&2; exit 1")
    log = failure(program).log.splitlines()
    assert len(log) == LOG_LINES_MAX
    assert log[-1] == "5000"


def test_a_program_that_is_none_is_missing(tmp_path: Path) -> None:
    error = failure(tmp_path / "nothing")
    assert (error.kind, error.message) == ("missing", "the load process cannot be started: not found")


def test_the_named_engine_wins_and_must_be_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IOTAX_ENGINE", str(FAKE))
    assert find_engine() == FAKE
    monkeypatch.setenv("IOTAX_ENGINE", str(tmp_path))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("IOTAX_ENGINE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="which is not a program"):
        find_engine()


def test_hosts_get_the_static_engine_of_the_same_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IOTAX_HOST_ENGINE", raising=False)
    package, folder = tmp_path / "python" / "iotax", tmp_path / "target" / "static"
    package.mkdir(parents=True)
    folder.mkdir(parents=True)
    monkeypatch.setattr(engine_module, "__file__", str(package / "engine.py"))
    ours, static = tmp_path / "ours", folder / "iotax-engine"
    for each in (ours, static):
        each.write_text(f"#!/bin/sh\necho {each}\n")
        each.chmod(0o755)
    monkeypatch.setenv("IOTAX_ENGINE", str(ours))
    assert find_host_engine() == ours
    (folder / "iotax-engine.of").write_text(hashlib.sha256(ours.read_bytes()).hexdigest() + "\n")
    assert find_host_engine() == static
    ours.write_text("#!/bin/sh\necho another build\n")
    assert find_host_engine() == ours
    monkeypatch.setenv("IOTAX_HOST_ENGINE", str(static))
    assert find_host_engine() == static
    monkeypatch.setenv("IOTAX_HOST_ENGINE", str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match="which is not a program"):
        find_host_engine()


def test_hosts_get_the_static_engine_that_an_installed_one_has_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("IOTAX_HOST_ENGINE", "IOTAX_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(engine_module, "__file__", str(tmp_path / "site-packages" / "iotax" / "engine.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for name in ("iotax-engine", "iotax-engine-static"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_host_engine() == tmp_path / "iotax-engine-static"
    (tmp_path / "iotax-engine-static").unlink()
    assert find_host_engine() == tmp_path / "iotax-engine"


def test_the_version_is_what_the_program_says(engine: FakeEngine, tmp_path: Path) -> None:
    del engine
    assert engine_version(FAKE) == "iotax-engine 0-fake"
    assert engine_version(tmp_path / "nothing") == ""
