"""The engine, two guests where virtual machines can run, and a folder for a test's own programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iotax.labs.vm.guests import Guests
from iotax.labs.vm.image import Image, build

from .needed import require


@pytest.fixture
def engine() -> Path:
    return require()


@pytest.fixture
def image(engine: Path) -> Image:
    return build(engine, lambda _: None)


@pytest.fixture
def guests(image: Image) -> Iterator[Guests]:
    both = Guests(image, accelerator="tcg", clock="host", volume_bytes=16 << 20)
    yield both
    both.close()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the front of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder
