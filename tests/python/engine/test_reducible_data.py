"""Data that compress and repeat: content of a volume, measured with a compressor and by counting equal blocks."""

from __future__ import annotations

import lzma
import zlib
from pathlib import Path
from typing import Any

import pytest

from engine_process import events
from iotax.engine import find_engine

SIZE = 8 << 20
BLOCK = 4096


def load(path: Path, task: str, data: dict[str, float], **more: Any) -> dict[str, Any]:
    document = {"task": task, "endpoint": f"local:{path}", "options": {"direct": False}, "data": data, **more}
    return events(find_engine(), document)[-1]


def overwrite(path: Path, data: dict[str, float], **more: Any) -> dict[str, Any]:
    """Writes every block, several times."""
    asked = {"read_percent": 30, "random_percent": 0, "outstanding": 8, "block_size_bytes": BLOCK, "verify": True}
    return load(path, "run", data, **asked | {"runtime_ns": 400_000_000, "workers": 2} | more)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.write_bytes(bytes(SIZE))
    return path


def compressed(path: Path, chunk: int = 32 << 10) -> float:
    """Compression ratio, measured chunk by chunk as storage does it."""
    data = path.read_bytes()
    return len(data) / sum(len(zlib.compress(data[at : at + chunk], 6)) for at in range(0, len(data), chunk))


def different(path: Path, block: int = BLOCK) -> int:
    """Number of different blocks."""
    data = path.read_bytes()
    return len({data[at : at + block] for at in range(0, len(data), block)})


@pytest.mark.parametrize("ratio", [1.5, 2.0, 4.0, 8.0])
def test_a_fill_and_what_a_load_writes_compress_as_asked(volume: Path, ratio: float) -> None:
    assert load(volume, "fill", {"compress": ratio})["event"] == "filled"
    assert compressed(volume) == pytest.approx(ratio, rel=0.04)
    assert overwrite(volume, {"compress": ratio}, read_percent=0)["event"] == "result"
    assert compressed(volume) == pytest.approx(ratio, rel=0.04)
    result = overwrite(volume, {"compress": ratio})
    assert result["event"] == "result", result
    assert result["verify"]["checked_blocks"] > 0
    assert result["verify"]["wrong_blocks"] == 0
    # Writes of several passes are next to each other, and some have the same content.
    assert compressed(volume) == pytest.approx(ratio, rel=0.12)
    assert different(volume) == SIZE // BLOCK


@pytest.mark.parametrize("block", [4096, 16384])
def test_blocks_repeat_as_asked_at_the_size_that_storage_compares(tmp_path: Path, block: int) -> None:
    data = {"dedupe": 3.0, "block_size_bytes": block}
    blocks, repeated = 2048, 32
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(blocks * block))
    # Random: one block in three is unique, the others repeat. The tolerance is five standard deviations.
    own = pytest.approx(blocks / 3, abs=5 * (blocks * 2 / 9) ** 0.5)
    load(volume, "fill", data)
    assert different(volume, block) - repeated == own
    result = overwrite(volume, data, block_size_bytes=block)
    assert result["event"] == "result", result
    assert result["verify"]["checked_blocks"] > 0
    assert different(volume, block) - repeated == own
    # Equal blocks compress no better when each is compressed alone.
    assert compressed(volume, 4096) < 1.1


@pytest.mark.parametrize("outstanding", [1, 8])
def test_nothing_is_reduced_unless_asked(volume: Path, outstanding: int) -> None:
    load(volume, "fill", {})
    assert different(volume) == SIZE // BLOCK
    assert compressed(volume) < 1.1
    overwrite(volume, {}, outstanding=outstanding, read_percent=0, workers=1)
    assert different(volume) == SIZE // BLOCK
    data = volume.read_bytes()
    records = [data[at : at + (128 << 10)] for at in range(0, len(data), 128 << 10)]
    assert len(data) / sum(len(lzma.compress(each, preset=1)) for each in records) < 1.1


def test_a_later_load_of_other_data_verifies_what_it_finds(volume: Path) -> None:
    load(volume, "fill", {"compress": 3, "dedupe": 2})
    result = overwrite(volume, {}, read_percent=100)
    assert result["verify"]["checked_blocks"] > 0
    assert result["verify"]["wrong_blocks"] == 0
    assert events(find_engine(), {"task": "check", "endpoint": f"local:{volume}"})[-1]["holds"] == "pattern"


def test_ratios_that_cannot_be_are_refused_by_name(volume: Path) -> None:
    refused = load(volume, "fill", {"compress": 9})
    assert (refused["kind"], refused["where"]) == ("usage", "data.compress"), refused


def test_a_filled_block_that_has_turned_to_zeros_is_wrong_data(volume: Path) -> None:
    load(volume, "fill", {})
    with volume.open("r+b") as opened:
        opened.seek(5 * BLOCK)
        opened.write(bytes(BLOCK))
    asked = {"read_percent": 100, "working_set_bytes": SIZE, "workers": 1}
    counted = overwrite(volume, {}, **asked)
    assert counted["verify"]["never_written_blocks"] > 0
    found = overwrite(volume, {}, **asked, filled=True)
    assert (found["event"], found["kind"]) == ("error", "verify"), found
    assert "filled" in found["message"]
