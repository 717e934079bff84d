"""What tests of the bench need on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

from bench.process import UnavailableError


@contextmanager
def _available() -> Generator[None]:
    try:
        yield
    except UnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture
def available() -> Callable[[], AbstractContextManager[None]]:
    """A context in which a missing program skips the test; in CI the test fails."""
    return _available
