"""The guard for devices of a host, over real SSH: data of others, and device names that change before a trial."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foreign_formats import FORMATS, MIB
from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable, TrialFailed
from iotax.study.read import read_study

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

HOSTS = 1
STUDY = """\
name: guarded
question: Whose is it?
lab: {{hosts: {{initiators: [{{name: h1, address: {address}}}]}}}}
volume: {{size: 8MiB, fill: zeros}}
factors: {{protocol: {{{protocols}}}}}
load: {{outstanding: 4, read: 0%, verify: false, working_set: 1MiB, warmup: 0s, runtime: 1s}}
design: {{replicates: 1}}
baseline: {{protocol: {baseline}}}
"""
# tests/python/engine/test_foreign_formats.py tries every format locally.
OVER_SSH = ("lvm2-in-sector-1", "raid-1.0-below-a-file-system", "zfs-whose-first-labels-are-gone", "luks1")
BEHIND_THE_GLANCE = 7 * MIB
"""Outside the working set, and outside what is checked again before a trial."""


Open = Callable[..., HostsLab]


@pytest.fixture
def opened(network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    with opened_labs(network, real_engine, monkeypatch) as open_lab:
        yield lambda text, *destroy: open_lab(read_study("guarded", text, Path()), frozenset(destroy))


class Loops:
    """Loop devices; all namespaces share them."""

    def __init__(self) -> None:
        self._up: list[Path] = []

    def attach(self, file: Path, device: Path | None = None) -> Path:
        """Attaches `file` to `device`, or to any free loop device. Skips the test where there are none."""
        words = ["losetup", device, file] if device else ["losetup", "--find", "--show", file]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no loop device: {done.stderr.strip()}")
        made = device or Path(done.stdout.strip())
        self._up.append(made)
        return made

    def detach(self, device: Path) -> None:
        subprocess.run(["losetup", "--detach", device], check=True)
        self._up.remove(device)

    def clear(self) -> None:
        for device in list(self._up):
            self.detach(device)


@pytest.fixture
def loops() -> Iterator[Loops]:
    if shutil.which("losetup") is None:
        pytest.skip("losetup is not installed (Debian package mount)")
    made = Loops()
    yield made
    made.clear()


def written(network: Network, protocols: dict[str, Path]) -> str:
    named = ", ".join(f'{name}: "local:{path}"' for name, path in protocols.items())
    return STUDY.format(address=network.address("h1"), protocols=named, baseline=next(iter(protocols)))


def quiet(_: object) -> None:
    pass


def two_disks(folder: Path) -> tuple[Path, Path]:
    """One disk of zeros, and one with data that only a check of the whole disk finds."""
    free, taken = folder / "free", folder / "taken"
    for each in (free, taken):
        with each.open("wb") as file:
            file.truncate(8 * MIB)
    with taken.open("r+b") as file:
        file.seek(BEHIND_THE_GLANCE)
        file.write(b"somebody's thesis")
    return free, taken


def test_what_belongs_to_somebody_is_refused_by_its_name_and_host_and_given_away_by_destroy_alone(
    network: Network, opened: Open, tmp_path: Path
) -> None:
    paths = {name.replace(".", "-"): tmp_path / name for name in OVER_SSH}
    formats = dict(zip(paths, (FORMATS[name] for name in OVER_SSH), strict=True))
    for name, path in paths.items():
        formats[name].write(path)
    before = {name: path.read_bytes() for name, path in paths.items()}
    text = written(network, paths)
    lab = opened(text)
    refused = {each.subject: each for each in lab.check() if each.kind != "ok"}
    lab.close()
    for name, path in paths.items():
        found = refused.pop(f"{name} on h1 (local:{path})")
        assert found.kind == "refused"
        assert found.message.startswith(f"holds {formats[name].title} at byte {formats[name].at_bytes} that iotax did")
        assert f"--destroy local:{path}" in found.message
    assert not refused
    given = [f"local:{path}" for path in paths.values()]
    lab = opened(text, *given)
    assert not [each for each in lab.check() if each.kind in ("error", "refused")]
    lab.close()
    # Only the first volume is listed for destruction.
    with pytest.raises(LabUnusable) as unusable:
        opened(text, given[0]).prepare(quiet)
    assert unusable.value.refused
    assert {name: path.read_bytes() for name, path in paths.items()} == before


def test_device_names_that_change_places_between_check_and_run_are_refused(
    network: Network, opened: Open, loops: Loops, tmp_path: Path
) -> None:
    free, taken = two_disks(tmp_path)
    first = loops.attach(free)
    text = written(network, {"disk": first})
    lab = opened(text)
    lab.prepare(quiet)
    [trial] = make_plan(read_study("guarded", text, Path())).trials
    assert lab.run(trial, quiet).result.ios > 0
    # As after a rescan of the bus: the same name, but a different disk.
    loops.detach(first)
    loops.attach(taken, first)
    before = taken.read_bytes()
    with pytest.raises(
        TrialFailed, match=r"h1: .*what was judged is \d+:\d+ sequence \d+\. Nothing was written"
    ) as failed:
        lab.run(trial, quiet)
    assert (failed.value.kind, failed.value.permanent) == ("swapped", True)
    assert taken.read_bytes() == before


def test_a_link_that_leads_to_another_device_between_check_and_run_is_refused(
    network: Network, opened: Open, loops: Loops, tmp_path: Path
) -> None:
    free, taken = two_disks(tmp_path)
    link = tmp_path / "by-id"
    link.symlink_to(loops.attach(free))
    lab = opened(text := written(network, {"disk": link}))
    lab.prepare(quiet)
    link.unlink()
    link.symlink_to(loops.attach(taken))
    before = taken.read_bytes()
    [trial] = make_plan(read_study("guarded", text, Path())).trials
    with pytest.raises(TrialFailed, match="what was judged is") as failed:
        lab.run(trial, quiet)
    assert failed.value.kind == "swapped"
    assert taken.read_bytes() == before
