"""What tests of the bench need on this machine."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from bench import peers
from bench.process import UnavailableError
from needed import missing


@contextmanager
def _available() -> Generator[None]:
    try:
        yield
    except UnavailableError as reason:
        missing(str(reason))


@pytest.fixture
def available() -> Callable[[], AbstractContextManager[None]]:
    """A context in which a missing program skips the test; in CI the test fails."""
    return _available


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of peers, empty: what is built in this checkout changes no test."""
    folder = tmp_path / "peers"
    monkeypatch.setattr(peers, "FOLDER", folder)
    return folder
