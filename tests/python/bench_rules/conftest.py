"""What tests of the bench need on this machine."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

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
