"""scripts/run-tests and scripts/shake: each part's results are shown; the summary names failed, skipped and retried
tests; a disturbed run can be repeated."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from waits import wait_for

ROOT = Path(__file__).resolve().parents[3]
TESTS = """\
import pathlib
import pytest

def test_done():
    pass

def test_wrong():
    assert 1 + 1 == 3

@pytest.mark.parametrize("number", [1, 2])
def test_not_done(number):
    pytest.skip("no such program")

def test_done_at_the_second_try(tmp_path_factory):
    mark = pathlib.Path(__file__).with_name("tried")
    tried = mark.exists()
    mark.touch()
    assert tried
"""
CARGO = """\
running 2 tests
.
some::test --- FAILED

failures:

---- some::test stdout ----

thread 'some::test' (7) panicked at crates/x/src/lib.rs:1:2:
the answer is 41
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("run_tests", str(ROOT / "scripts" / "run-tests"))
    spec = importlib.util.spec_from_loader("run_tests", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)  # its dataclasses look there
    loader.exec_module(module)
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "OUT", out)
    return module


def test_each_part_keeps_its_results_whatever_becomes_of_others(
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    pytest_part = runner.Part(
        "python", [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reruns", "1", "test_some.py"],
        junit=True,
    )  # fmt: skip
    broken = runner.Part("broken", [sys.executable, "-c", "import sys; print('no compiler'); sys.exit(3)"])
    outcomes = {each.part.name: each for each in runner.run_stage([broken, pytest_part])}
    python = outcomes["python"]
    assert (python.passed, python.retried, python.skipped) == (2, 2, {"no such program": 2})
    [failed] = python.failed
    assert failed == "test_some.test_wrong: assert (1 + 1) == 3"
    assert outcomes["broken"].failed == ["broken: ended with status 3: no compiler"]
    capsys.readouterr()
    runner.summary(list(outcomes.values()))
    said = capsys.readouterr().out
    assert "     2  python: no such program" in said
    assert said.rstrip().endswith("2 passed, 2 failed, 2 skipped")


def test_parts_hear_signals_that_whoever_started_them_ignores(
    runner: ModuleType,
) -> None:
    """A shell ignores SIGINT in its background processes, and everything that tests start would inherit that."""
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGHUP)}
    try:
        asks = "import signal; print(*(signal.getsignal(each) == signal.SIG_IGN for each in (1, 2)))"
        [outcome] = runner.run_stage([runner.Part("asks", [sys.executable, "-c", asks])])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert outcome.failed == []
    assert (runner.OUT / "asks.log").read_text() == "False False\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_no_part_outlives_a_run_that_is_ended(tmp_path: Path, sent: signal.Signals) -> None:
    script, part = tmp_path / "scripts" / "run-tests", tmp_path / ".venv" / "bin" / "pytest"
    for each in (script, part):
        each.parent.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "run-tests", script)
    part.write_text("#!/bin/sh\necho $$ >pid.new && mv pid.new pid && exec sleep 600\n")
    part.chmod(0o755)
    with subprocess.Popen([sys.executable, script, "vm"], stdout=subprocess.PIPE, text=True) as run:
        wait_for((tmp_path / "pid").exists, "the part")
        run.send_signal(sent)
        said, _ = run.communicate(timeout=180)
    assert run.returncode == 130
    assert said.startswith("interrupted")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_a_part_that_starts_while_the_run_is_ended_ends_too(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(runner.Running):
        def __init__(self, part: object) -> None:
            super().__init__(part)
            started.append(self.process)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    monkeypatch.setattr(runner, "Running", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run_stage([runner.Part("waits", ["sleep", "600"])])
    finally:
        signal.signal(signal.SIGINT, before)
    assert [each.poll() is None for each in started] == [False]


def test_cargos_failures_are_named_with_what_they_asserted(runner: ModuleType) -> None:
    found = runner.Outcome(runner.RUST, 101, 1.0)
    runner.read_text(CARGO, found)
    assert (found.passed, found.failed) == (6, ["some::test: the answer is 41"])


def test_every_stage_ends_with_what_measures_the_machine_alone(runner: ModuleType) -> None:
    for name in ("here", "all"):
        [last] = runner.STAGES[name][-1]
        assert any(word.startswith("machine and not long") for word in last.command)


STUB = """#!/bin/sh
test "$1" = shaken || exit 9
echo "$RUN_TESTS_EXTRA on $(grep Cpus_allowed_list /proc/self/status | cut -f2)" >> "$(dirname "$0")/../told"
until test "$(stat -c %s "$(dirname "$0")/../out/shaken" 2>/dev/null || echo 0)" -gt 0; do sleep 0.05; done
exec grep -q -- "--shuffle 7 " "$(dirname "$0")/../told"
"""


def test_a_shaken_run_is_on_one_processor_and_says_its_seed_and_what_became_of_it(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shake = Path(shutil.copy(ROOT / "scripts" / "shake", tmp_path / "scripts"))
    stub = tmp_path / "scripts" / "run-tests"
    stub.write_text(STUB)
    stub.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if name != "RUN_TESTS_EXTRA"}
    done = subprocess.run(
        [shake, "--seed", "7", "--runs", "2"], capture_output=True, text=True, timeout=600, check=False, env=own
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"seed (\d+): (passed|FAILED)", done.stdout) == [("7", "passed"), ("8", "passed")]
    told = (tmp_path / "told").read_text().splitlines()
    assert [re.fullmatch(r"--shuffle (\d+)  on \d+", line) is not None for line in told] == [True, True]
    assert not (tmp_path / "out" / "shaken").exists()
    (tmp_path / "told").unlink()
    done = subprocess.run([shake, "--seed", "9"], capture_output=True, text=True, timeout=600, check=False, env=own)
    assert (done.returncode, "seed 9: FAILED" in done.stdout) == (1, True)


ORDERED = """
import pytest
@pytest.mark.parametrize("number", range(30))
def test_one(number):
    pass
"""


@pytest.mark.slow
def test_a_seed_draws_the_order_of_files_and_of_tests_within_them(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"test_{name}.py").write_text(ORDERED)

    def order(*options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "conftest", *options, str(tmp_path)]
        told = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'tests' / 'python'}:{ROOT / 'python'}"},
            check=True,
            timeout=600,
        )
        return [line for line in told.stdout.splitlines() if "::" in line]

    plain, seven, again, eight = order(), order("--shuffle=7"), order("--shuffle=7"), order("--shuffle=8")
    assert seven == again
    assert len({tuple(plain), tuple(seven), tuple(eight)}) == 3
    assert sorted(plain) == sorted(seven)
    files = [line.split("::")[0] for line in seven]
    assert len({file for file, _ in itertools.groupby(files)}) == len(list(itertools.groupby(files))) == 8


WINDOW = re.compile(r"(?:runtime|slice|round)[\"']?[:=] ?[\"']?(\d+)ms|written\([^)\n]*[\"'](\d+)ms")
MEASURING = ("hosts", "interop", "vm", "whole")
"""Folders whose tests measure with real engines and kernels. Other folders use a fake engine or the simulator."""
SHORTEST_MS = 500
"""In a shorter window a stalled disk or a busy processor can prevent every I/O."""


def short_windows(text: str) -> list[int]:
    found = [int(window or given) for window, given in WINDOW.findall(text)]
    return [each for each in found if each < SHORTEST_MS]


def test_windows_of_real_measurements_outlast_a_stall() -> None:
    assert short_windows('load: {runtime: 250ms}; {"slice": "50ms"}; written(network, "200ms")') == [250, 50, 200]
    assert short_windows('load: {warmup: 100ms, runtime: 500ms}; written(network, runtime="1s")') == []
    modules = [each for folder in MEASURING for each in (ROOT / "tests/python" / folder).rglob("*.py")]
    assert len(modules) > 40
    short = {each.name: short_windows(each.read_text(encoding="utf-8")) for each in modules}
    assert {name: found for name, found in short.items() if found} == {}
