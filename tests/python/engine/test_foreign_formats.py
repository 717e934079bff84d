"""The guard for data of a volume manager, a RAID or an encrypted device: refused by name, at any offset."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_guarded_files import Place, lab_of, network_study, served, study_text

from foreign_formats import FORMATS
from needed import program

WHERE = ("file", "device")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.clear()


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.blkid])
def test_others_know_these_bytes_by_the_same_name(tmp_path: Path, name: str) -> None:
    """The test data must be what the formats' own tools write, as far as libblkid can tell."""
    blkid = program("blkid", "util-linux")
    FORMATS[name].write(tmp_path / "disk")
    words = [blkid, "-p", "-o", "value", "-s", "TYPE", tmp_path / "disk"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    assert said == FORMATS[name].blkid


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("where", WHERE)
def test_a_part_of_something_larger_is_refused_by_its_name_and_given_away_by_destroy_alone(
    real_engine: Path, place: Place, where: str, name: str
) -> None:
    del real_engine
    format_, disk = FORMATS[name], place.folder / "disk"
    format_.write(disk)
    before = disk.read_bytes()
    path = place.loop(disk) if where == "device" else disk
    text = study_text("endpoint", path, "zeros", verify=False)
    with contextlib.closing(lab_of(text)) as lab:
        [refused] = [each for each in lab.check() if each.kind in ("error", "refused")]
    assert refused.kind == "refused"
    assert f"holds {format_.title} at byte {format_.at_bytes} that iotax did not write" in refused.message
    assert f"--destroy local:{path}" in refused.message
    with contextlib.closing(lab_of(text, (path,))) as lab:
        assert [each for each in lab.check() if each.kind in ("error", "refused")] == []
    assert disk.read_bytes() == before


@pytest.mark.parametrize("name", ["lvm2-in-sector-1", "raid-1.0", "raid-1.2", "zfs-whose-first-labels-are-gone"])
@pytest.mark.parametrize("protocol", ["iscsi", "nvme-tcp"])
def test_behind_a_network_it_is_refused_by_its_name_too(
    real_engine: Path, place: Place, protocol: str, name: str
) -> None:
    FORMATS[name].write(place.path)
    with served(real_engine, protocol, place.path) as endpoint:
        text = network_study(endpoint, "zeros", verify=False)
        with contextlib.closing(lab_of(text)) as lab:
            [refused] = [each for each in lab.check() if each.kind in ("error", "refused")]
    assert refused.kind == "refused"
    assert f"holds {FORMATS[name].title} at byte" in refused.message
