"""The guard, case by case, with the real engine: what is at the place of a write, and whether it is unchanged
afterwards.

Loop devices need root and losetup; without them those cases are skipped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_process import ready, started
from iotax.design import plan as make_plan
from iotax.labs.base import CheckItem, LabUnusable, TrialFailed
from iotax.labs.loopback import LoopbackLab
from iotax.study.read import read_study
from iotax.trial import Trial

MIB = 1 << 20
SIZE = 4 * MIB
"""Size of the volume and of the files, except of files that are longer or shorter."""
TRIES_S = 60.0
"""Trials of 0.2 s are repeated for up to this long: a disk may still be writing back data of other tests."""
FOREIGN = b"somebody's thesis, chapter 1. "

STUDY = """\
name: guarded
question: Is it still there?
volume: {{size: 4MiB, fill: {fill}{volume}}}
factors: {{protocol: {protocols}}}
load:
  {{rate_iops: 1000, outstanding: 1, read: {read}, verify: {verify}, working_set: 1MiB, warmup: 0s, runtime: 200ms}}
design: {{replicates: 1}}
baseline: {{protocol: {baseline}}}
"""


class Place:
    """Files and devices of one test, and their earlier content."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "unit"
        self._at_end: list[Callable[[], object]] = []

    def loop(self, file: Path) -> Path:
        if os.geteuid() != 0 or shutil.which("losetup") is None:
            pytest.skip("loop devices need root and losetup")
        done = subprocess.run(["losetup", "--find", "--show", file], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no loop device: {done.stderr.strip()}")
        device = Path(done.stdout.strip())
        self._at_end.append(lambda: subprocess.run(["losetup", "--detach", device], check=False))
        return device

    def mount(self, device: Path) -> None:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not there: apt install e2fsprogs")
        subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device],
            check=True,
            capture_output=True,
        )
        at = self.folder / "mounted"
        at.mkdir()
        done = subprocess.run(["mount", "-o", "ro", device, at], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        self._at_end.append(lambda: subprocess.run(["umount", at], check=False))
        os.sync()

    def clear(self) -> None:
        for undo in reversed(self._at_end):
            undo()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.clear()


def zeros(path: Path, size_bytes: int = SIZE) -> None:
    with path.open("wb") as file:
        file.truncate(size_bytes)


def holding(path: Path, at: int, size_bytes: int = SIZE) -> None:
    zeros(path, size_bytes)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(FOREIGN)


def ours(path: Path) -> None:
    """A file that an iotax study left."""
    zeros(path)
    with contextlib.closing(lab_of(study_text("endpoint", path, "pattern", verify=True))) as lab:
        lab.prepare(lambda _: None)


def ours_at_the_path(place: Place) -> Path:
    ours(place.path)
    return place.path


def found_after(make: Callable[[Place], Path], place: Place) -> dict[str, tuple[int, bytes]]:
    make(place)
    return found(place)


def absent(place: Place) -> Path:
    return place.path


def empty(place: Place) -> Path:
    place.path.write_bytes(b"")
    return place.path


def made_zero(place: Place) -> Path:
    zeros(place.path)
    return place.path


def shorter(place: Place) -> Path:
    zeros(place.path, MIB)
    return place.path


def longer(place: Place) -> Path:
    zeros(place.path, 3 * SIZE)
    return place.path


def foreign_head(place: Place) -> Path:
    holding(place.path, 0)
    return place.path


def foreign_middle(place: Place) -> Path:
    holding(place.path, 2 * MIB + 777)
    return place.path


def foreign_tail(place: Place) -> Path:
    holding(place.path, SIZE - len(FOREIGN))
    return place.path


def foreign_shorter(place: Place) -> Path:
    place.path.write_bytes(FOREIGN)
    return place.path


def foreign_behind_the_volume(place: Place) -> Path:
    holding(place.path, 2 * SIZE, 3 * SIZE)
    return place.path


def backup_gpt(place: Place) -> Path:
    zeros(place.path)
    with place.path.open("r+b") as file:
        file.seek(SIZE - 512)
        file.write(b"EFI PART")
    return place.path


def symlink_to_foreign(place: Place) -> Path:
    holding(place.folder / "thesis", 0)
    place.path.symlink_to(place.folder / "thesis")
    return place.path


def hard_link_to_foreign(place: Place) -> Path:
    holding(place.folder / "thesis", 0)
    place.path.hardlink_to(place.folder / "thesis")
    return place.path


def symlink_to_zeros(place: Place) -> Path:
    zeros(place.folder / "scratch")
    place.path.symlink_to(place.folder / "scratch")
    return place.path


def device(place: Place) -> Path:
    zeros(place.folder / "disk")
    return place.loop(place.folder / "disk")


def foreign_device(place: Place) -> Path:
    holding(place.folder / "disk", 3 * MIB)
    return place.loop(place.folder / "disk")


def mounted_device(place: Place) -> Path:
    zeros(place.folder / "disk")
    loop = place.loop(place.folder / "disk")
    place.mount(loop)
    return loop


def behind_a_loop_device(place: Place) -> Path:
    zeros(place.path)
    place.loop(place.path)
    return place.path


def behind_a_mounted_loop_device(place: Place) -> Path:
    zeros(place.path)
    place.mount(place.loop(place.path))
    return place.path


def locked(place: Place) -> Path:
    zeros(place.path)
    other = place.path.open("r+b")
    fcntl.flock(other, fcntl.LOCK_EX)
    place._at_end.append(other.close)
    return place.path


def locked_by_a_machine(place: Place) -> Path:
    """Locked like the image of a virtual machine: a process holds a lock on one byte."""
    zeros(place.path)
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_SH, 1, 100); "
        "print(flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [shutil.which("python3") or "python3", "-c", script, place.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdin is not None
    other.stdout.readline()
    place._at_end += [other.wait, other.stdout.close, other.stdin.close]
    return place.path


@dataclass(frozen=True)
class Case:
    make: Callable[[Place], Path]
    endpoint: bool
    """Whether a study may write to it as an endpoint."""
    volume: bool
    """Whether it may hold a file volume."""
    in_use: bool = False
    """Whether --destroy does not help."""


CASES = [
    Case(absent, endpoint=False, volume=True),
    Case(empty, endpoint=False, volume=True),
    Case(made_zero, endpoint=True, volume=True),
    Case(shorter, endpoint=True, volume=True),
    Case(longer, endpoint=True, volume=True),
    Case(symlink_to_zeros, endpoint=True, volume=True),
    Case(device, endpoint=True, volume=True),
    Case(foreign_head, endpoint=False, volume=False),
    Case(foreign_middle, endpoint=False, volume=False),
    Case(foreign_tail, endpoint=False, volume=False),
    Case(foreign_shorter, endpoint=False, volume=False),
    Case(foreign_behind_the_volume, endpoint=False, volume=False),
    Case(backup_gpt, endpoint=False, volume=False),
    Case(symlink_to_foreign, endpoint=False, volume=False),
    Case(hard_link_to_foreign, endpoint=False, volume=False),
    Case(foreign_device, endpoint=False, volume=False),
    Case(mounted_device, endpoint=False, volume=False, in_use=True),
    Case(behind_a_loop_device, endpoint=False, volume=False, in_use=True),
    Case(behind_a_mounted_loop_device, endpoint=False, volume=False, in_use=True),
    Case(locked, endpoint=False, volume=False, in_use=True),
    Case(locked_by_a_machine, endpoint=False, volume=False, in_use=True),
]
FILLS = [("pattern", True), ("pattern", False), ("zeros", False)]


def study_text(media: str, path: Path, fill: str, *, verify: bool, read: str = "0%") -> str:
    """A study with all protocols on a file volume at the path, or with the path as an endpoint."""
    named = {"fill": fill, "verify": str(verify).lower(), "read": read}
    if media == "file":
        protocols = "[local, nfs3, iscsi, nvme-tcp]"
        return STUDY.format(volume=f', media: file, path: "{path}"', protocols=protocols, baseline="iscsi", **named)
    return STUDY.format(volume="", protocols=f'{{disk: "{path}"}}', baseline="disk", **named)


def lab_of(text: str, destroy: tuple[Path | str, ...] = ()) -> LoopbackLab:
    """`destroy` contains paths of this machine, and endpoints."""
    from iotax.engine import find_engine

    study = read_study("guarded.yaml", text, Path("/"))
    given = frozenset(f"local:{each}" if isinstance(each, Path) else each for each in destroy)
    return LoopbackLab(study, make_plan(study), find_engine(), given)


def completed(lab: LoopbackLab, trial: Trial) -> None:
    """Runs the trial. Like a runner, repeats it if a busy disk completed no I/O in the window."""
    until_s = time.monotonic() + TRIES_S
    while True:
        try:
            lab.run(trial, lambda _: None)
            return
        except TrialFailed as failed:
            if "no I/O completed" not in failed.reason or time.monotonic() > until_s:
                raise


def trials(lab: LoopbackLab, text: str) -> None:
    """Prepares the lab and runs every trial."""
    lab.prepare(lambda _: None)
    for trial in make_plan(read_study("guarded.yaml", text, Path("/"))).trials:
        completed(lab, trial)


def found(place: Place) -> dict[str, tuple[int, bytes]]:
    """Allocated blocks and content of every file in the test's folder, by name."""
    files = [each for each in sorted(place.folder.iterdir()) if each.is_file()]
    return {each.name: (each.stat().st_blocks, each.read_bytes()) for each in files}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
@pytest.mark.parametrize(
    ("media", "fill", "verify"),
    [
        # The same code guards a file that is an endpoint, for every fill.
        pytest.param(media, *fill, marks=pytest.mark.long if media == "endpoint" and fill != FILLS[0] else ())
        for media in ("file", "endpoint")
        for fill in FILLS
    ],
)
def test_only_what_is_free_and_ours_is_written(
    real_engine: Path, place: Place, media: str, fill: str, verify: bool, case: Case
) -> None:
    del real_engine
    path = case.make(place)
    text = study_text(media, path, fill, verify=verify)
    before = found(place)
    allowed = case.volume if media == "file" else case.endpoint
    with contextlib.closing(lab_of(text)) as lab:
        judged = [each for each in lab.check() if each.kind in ("error", "refused")]
        assert found(place) == before, "check writes nothing"
        assert bool(judged) is not allowed, judged
        if allowed:
            trials(lab, text)
            return
        with pytest.raises(LabUnusable):
            lab.prepare(lambda _: None)
    assert found(place) == before


@pytest.mark.parametrize("case", [case for case in CASES if case.in_use], ids=lambda case: case.make.__name__)
@pytest.mark.parametrize("media", ["file", "endpoint"])
def test_what_others_use_is_kept_although_it_is_given_away(
    real_engine: Path, place: Place, media: str, case: Case
) -> None:
    del real_engine
    path = case.make(place)
    before = found(place)
    with contextlib.closing(lab_of(study_text(media, path, "pattern", verify=True), (path,))) as lab:
        [refused] = [each for each in lab.check() if each.kind in ("error", "refused")]
        assert refused.kind == "refused"
        assert "--destroy does not override this" in refused.message
        with pytest.raises(LabUnusable) as unusable:
            lab.prepare(lambda _: None)
        assert unusable.value.refused
    assert found(place) == before


@pytest.mark.parametrize("make", [foreign_head, foreign_tail, foreign_shorter, foreign_device])
@pytest.mark.parametrize("media", ["file", "endpoint"])
def test_what_is_given_away_is_written(
    real_engine: Path, place: Place, media: str, make: Callable[[Place], Path]
) -> None:
    del real_engine
    path = make(place)
    if make is foreign_shorter and media == "endpoint":
        os.truncate(path, SIZE)
    text = study_text(media, path, "pattern", verify=True)
    with contextlib.closing(lab_of(text, (path,))) as lab:
        said = " ".join(each.message for each in lab.check())
        if media == "file" or make is foreign_head:  # of an endpoint, only the working set is checked and written
            assert "will be destroyed, as --destroy says" in said
        trials(lab, text)


@pytest.mark.parametrize("media", ["file", "endpoint"])
def test_what_a_study_left_may_be_used_again(real_engine: Path, place: Place, media: str) -> None:
    del real_engine
    ours(place.path)
    text = study_text(media, place.path, "pattern", verify=True, read="50%")
    for _ in range(2):
        with contextlib.closing(lab_of(text)) as lab:
            trials(lab, text)


@pytest.mark.parametrize("fill", ["pattern", "zeros"])
@pytest.mark.parametrize("how", ["renamed", "symlink", "written"])
def test_a_file_swapped_between_two_trials_is_not_written(real_engine: Path, place: Place, how: str, fill: str) -> None:
    del real_engine
    first, thesis = place.folder / "first", place.folder / "thesis"
    zeros(first)
    place.path.symlink_to(first)
    holding(thesis, 0)
    text = study_text("endpoint", place.path, fill, verify=False)
    [trial] = make_plan(read_study("guarded.yaml", text, Path("/"))).trials
    with contextlib.closing(lab_of(text)) as lab:
        lab.prepare(lambda _: None)
        completed(lab, trial)
        if how == "written":
            first.write_bytes(thesis.read_bytes())
            thesis = first
        else:
            place.path.unlink()
            place.path.symlink_to(thesis) if how == "symlink" else thesis.rename(place.path)
            thesis = place.path
        before = thesis.read_bytes()
        with pytest.raises(TrialFailed) as failed:
            lab.run(trial, lambda _: None)
    assert failed.value.permanent
    assert failed.value.kind == ("foreign_data" if how == "written" else "swapped")
    assert thesis.read_bytes() == before


def test_a_volume_swapped_under_a_server_that_dies_is_not_written(real_engine: Path, place: Place) -> None:
    del real_engine
    text = study_text("file", place.path, "pattern", verify=True)
    trial = make_plan(read_study("guarded.yaml", text, Path("/"))).trials[0]
    with contextlib.closing(lab_of(text)) as lab:
        lab.prepare(lambda _: None)
        completed(lab, trial)
        server = lab._servers.of(lab._settings[trial.id])
        assert server is not None
        os.kill(server.pid, 9)
        server.ending()
        place.path.rename(place.folder / "moved")
        zeros(place.path)
        with pytest.raises(TrialFailed, match="another file than the one that was judged"):
            lab.run(trial, lambda _: None)
    assert place.path.read_bytes() == bytes(SIZE)


def test_two_studies_on_one_file_do_not_both_run(real_engine: Path, place: Place) -> None:
    del real_engine
    zeros(place.path)
    text = study_text("endpoint", place.path, "pattern", verify=True)
    with contextlib.closing(lab_of(text)) as first, contextlib.closing(lab_of(text)) as second:
        first.prepare(lambda _: None)
        with pytest.raises(LabUnusable, match="another run of iotax"):
            second.prepare(lambda _: None)
        first.close()
        second.prepare(lambda _: None)


@contextlib.contextmanager
def served(real_engine: Path, protocol: str, path: Path) -> Iterator[str]:
    """The endpoint of another server that exports the file or device at `path`. For it, iotax is one of many hosts."""
    document = {
        "volumes": [{"name": "v0", "media": "file", "path": str(path), "size_bytes": 0, "destroy": str(path)}],
        "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
    }
    with started(real_engine, "serve", document) as server:
        yield ready(server)["portals"][0]["endpoint"]
        assert server.stdin
        server.stdin.close()


def network_study(endpoint: str, fill: str, *, verify: bool, read: str = "0%") -> str:
    protocols = f'{{array: "{endpoint}"}}'
    text = STUDY.format(
        volume="", protocols=protocols, baseline="array", fill=fill, verify=str(verify).lower(), read=read
    )
    return text.replace("200ms", "500ms")


NETWORKS = ["iscsi", "nvme-tcp", "nfs3"]
FOREIGN_UNITS = [foreign_head, foreign_middle, foreign_tail, backup_gpt]


@pytest.mark.parametrize("make", FOREIGN_UNITS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("fill", "verify"), FILLS)
@pytest.mark.parametrize("protocol", NETWORKS)
def test_a_unit_reached_over_a_network_keeps_what_others_wrote(
    real_engine: Path, place: Place, protocol: str, fill: str, verify: bool, make: Callable[[Place], Path]
) -> None:
    path = make(place)
    before = found(place)
    with served(real_engine, protocol, path) as endpoint:
        text = network_study(endpoint, fill, verify=verify)
        with contextlib.closing(lab_of(text)) as lab:
            [refused] = [each for each in lab.check() if each.kind in ("error", "refused")]
            assert refused.kind == "refused"
            assert f"--destroy {endpoint}" in refused.message
            with pytest.raises(LabUnusable) as unusable:
                lab.prepare(lambda _: None)
            assert unusable.value.refused
    assert found(place) == before


@pytest.mark.parametrize("make", [foreign_head, made_zero, ours_at_the_path], ids=lambda make: make.__name__)
@pytest.mark.parametrize("protocol", NETWORKS)
def test_a_unit_reached_over_a_network_is_written_where_it_is_given_away_or_free(
    real_engine: Path, place: Place, protocol: str, make: Callable[[Place], Path]
) -> None:
    path = make(place)
    with served(real_engine, protocol, path) as endpoint:
        text = network_study(endpoint, "pattern", verify=True)
        given = (endpoint,) if make is foreign_head else ()
        with contextlib.closing(lab_of(text, given)) as lab:
            assert [each.kind for each in lab.check() if each.kind in ("error", "refused")] == []
            trials(lab, text)
    assert FOREIGN not in path.read_bytes()


@pytest.mark.parametrize("protocol", NETWORKS)
def test_foreign_data_behind_a_network_may_be_read(real_engine: Path, place: Place, protocol: str) -> None:
    before = found_after(foreign_head, place)
    with served(real_engine, protocol, place.path) as endpoint:
        text = network_study(endpoint, "zeros", verify=False, read="100%")
        with contextlib.closing(lab_of(text)) as lab:
            trials(lab, text)
    assert found(place) == before


@pytest.mark.parametrize("media", ["memory", "null"])
def test_volumes_without_a_file_touch_none(
    real_engine: Path, place: Place, monkeypatch: pytest.MonkeyPatch, media: str
) -> None:
    del real_engine
    before = found_after(foreign_head, place)
    monkeypatch.chdir(place.folder)
    # The volume's name, v0, must not be used as a file name.
    text = STUDY.format(
        volume=f", media: {media}",
        protocols="[nfs3, iscsi, nvme-tcp]",
        baseline="iscsi",
        fill="zeros" if media == "null" else "pattern",
        verify="false" if media == "null" else "true",
        read="50%",
    ).replace("200ms", "500ms")
    with contextlib.closing(lab_of(text)) as lab:
        trials(lab, text)
    assert found(place) == before


@pytest.mark.parametrize("media", ["memory", "null"])
def test_volumes_without_a_file_take_no_path(real_engine: Path, place: Place, media: str) -> None:
    before = found_after(foreign_head, place)
    document = {
        "volumes": [{"name": "v0", "media": media, "size_bytes": SIZE, "path": str(place.path), "fill": "pattern"}],
        "exports": [{"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0"}],
    }
    with started(real_engine, "serve", document) as server:
        assert server.stdout
        refused = json.loads(server.stdout.readline())
    assert (refused["kind"], "only a file volume has a path" in refused["message"]) == ("usage", True)
    assert found(place) == before


def errors(text: str) -> list[CheckItem]:
    with contextlib.closing(lab_of(text)) as lab:
        return [each for each in lab.check() if each.kind in ("error", "refused")]


def test_a_volume_larger_than_its_file_system_is_not_begun(real_engine: Path, place: Place) -> None:
    del real_engine
    text = study_text("file", place.path, "pattern", verify=True).replace("size: 4MiB", "size: 900TiB")
    assert "do not fit" in " ".join(each.message for each in errors(text))
    with contextlib.closing(lab_of(text)) as lab, pytest.raises(LabUnusable, match="do not fit"):
        lab.prepare(lambda _: None)
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nowhere/at/all", "its folder is not there"),
        ("/dev/null/unit", "Not a directory"),
        ("/tmp", "neither a file nor a block device"),
        ("/dev/null", "neither a file nor a block device"),
        ("/tmp/" + "x" * 300, "File name too long"),
    ],
)
def test_paths_that_cannot_be_are_found_by_check(real_engine: Path, path: str, says: str) -> None:
    del real_engine
    [error] = errors(study_text("file", Path(path), "pattern", verify=True))
    assert error.kind == "error"
    assert says in error.message


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("block_size: 64MiB", "accepts at most"),
        ("workers: 5000", "keeps 4096 connections"),
        ("outstanding: 5000", "more than one connection can have under way"),
    ],
)
def test_check_refuses_what_no_trial_can_do(real_engine: Path, load: str, says: str) -> None:
    del real_engine
    text = study_text("memory", Path("/"), "pattern", verify=True)
    text = text.replace('{disk: "/"}', "[iscsi, nvme-tcp]").replace(
        "baseline: {protocol: disk}", "baseline: {protocol: iscsi}"
    )
    text = text.replace("rate_iops: 1000, outstanding: 1, ", "").replace("size: 4MiB", "size: 1GiB")
    text = text.replace("working_set: 1MiB", load)
    assert says in " ".join(each.message for each in errors(text))
