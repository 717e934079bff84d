"""The engine, where real machines can be had; a place for programs of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .needed import require


@pytest.fixture
def engine() -> Path:
    return require()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder
