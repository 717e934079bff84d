"""The order of the tests, their cleanup, and fixtures for engines and studies."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any

import pytest
import typer.main
import typer.testing
from hypothesis import settings
from typer.testing import Result

import needed
from command_line import ran
from faked import FAKE, TINY, FakeEngine

# A busy machine is slow, but not wrong.
settings.register_profile("iotax", deadline=None)
settings.load_profile("iotax")
APART = {"engine", "hosts", "serving", "sim"}
LETTERS_OF_AN_ID = 80
NO_PICTURE = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'></svg>"


def pytest_make_parametrize_id(val: object) -> str | None:
    """A parameter of 25 MB would be part of every message between the workers, and of every report."""
    if not isinstance(val, str | bytes) or len(val) <= LETTERS_OF_AN_ID:
        return None
    head = val[: LETTERS_OF_AN_ID // 2]
    return f"{ascii(head)[:LETTERS_OF_AN_ID]} and so on, {len(val)} in all"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files, and tests within each, in an order drawn so")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Decides which tests run in parallel on several workers (`--dist loadgroup`).

    Tests that load this machine or serve on it run one after another on one worker. All other files are distributed.
    The folders in APART are distributed too: their tests have their own networks, ports and files and mostly wait, or
    they are simulated.
    """
    if (seed := config.getoption("shuffle")) is not None:
        drawn = Random(seed)
        places = {path: drawn.random() for path in sorted({item.path for item in items})}
        items.sort(key=lambda item: (places[item.path], drawn.random()))
    for item in items:
        apart = not APART.isdisjoint(item.path.parts)
        loads = "interop" in item.path.parts or ("real_engine" in getattr(item, "fixturenames", ()) and not apart)
        item.add_marker(pytest.mark.xdist_group("this machine" if loads else item.path.stem))


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("this pytest-xdist does not see the groups of tests with this pytest")


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """Typer's runner builds all commands for each call, which takes 50 ms. This builds them once per process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _charts_drawn_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A chart takes a tenth of a second, and many tests draw the same ones. Each is drawn once, for all workers."""
    try:
        import vl_convert
    except ImportError:
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the same folder for all workers
    drawn = folder / "drawn"
    drawn.mkdir(exist_ok=True)

    def once(draw: FunctionType) -> Callable[..., Any]:
        def remembered(of: Any, **how: Any) -> Any:
            path = drawn / hashlib.sha256(repr((draw.__name__, of, how)).encode()).hexdigest()
            if not path.exists():
                with tempfile.NamedTemporaryFile(dir=drawn, delete=False) as file:
                    file.write(pickle.dumps(draw(of, **how)))
                Path(file.name).rename(path)
            return pickle.loads(path.read_bytes())

        return remembered

    with pytest.MonkeyPatch.context() as patched:
        for name in ("vegalite_to_svg", "svg_to_png"):
            patched.setattr(vl_convert, name, once(getattr(vl_convert, name)))
        yield


@pytest.fixture(autouse=True)
def _charts_drawn_where_seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report has dozens of charts, and drawing them takes seconds. Tests of reports, and those with the mark
    `pictures`, draw their charts. In all other tests an empty picture replaces each chart."""
    if "report" in request.path.parts or request.node.get_closest_marker("pictures"):
        return
    from iotax.report import renderer

    if renderer.available():
        monkeypatch.setattr(renderer, "to_svg", lambda _: NO_PICTURE)


@pytest.fixture(scope="session")
def fake_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake engine, compiled and run by this Python without site packages: tests start it thousands of times."""
    program = tmp_path_factory.mktemp("fake") / FAKE.name
    shutil.copy(FAKE, program.with_name("engine_that_is_none.py"))
    program.write_text(f"#!{sys.executable} -SE\nimport engine_that_is_none\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def engine(fake_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    folder = tmp_path / "engine"
    folder.mkdir()
    monkeypatch.setenv("IOTAX_ENGINE", str(fake_program))
    monkeypatch.setenv("FAKE_ENGINE", str(folder))
    return FakeEngine(folder)


@pytest.fixture
def real_engine() -> Path:
    return needed.engine()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def iotax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command line in this process and the test's folder, and checks its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object, code: int = 0) -> Result:
        result = ran(*words)
        assert result.exit_code == code, result.output
        return result

    return run
