"""Faults of the vm lab before a machine starts: its cache, its packages, its disk. See also test_machines."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.labs.vm.cache import locked, new_entry, sound
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.packages import Store, kernel_of, kernel_package

from .fakes import write_program

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not there")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `apt-get` serves one valid package, tool, and records each download."""
    folder = tmp_path / "archive"
    folder.mkdir()
    write_program(folder / "apt-cache", "exit 0")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    offer(folder, b"tool" * 10_000)
    return folder


def offer(folder: Path, tool: bytes) -> None:
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
    (tree / "DEBIAN/control").write_text(
        "Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: a tool\n"
    )
    (tree / "usr/bin/tool").write_bytes(tool)
    subprocess.run(["dpkg-deb", "--build", tree, folder / "tool_1_all.deb"], check=True, capture_output=True)
    data = (folder / "tool_1_all.deb").read_bytes()
    listed = f"'http://archive/tool_1_all.deb' tool_1_all.deb {len(data)} SHA256:{hashlib.sha256(data).hexdigest()}"
    serve = f"echo download >>{folder}/log; sleep 0.3; cp {folder}/tool_1_all.deb ."
    write_program(folder / "apt-get", f'case "$*" in *print-uris*) echo "{listed}" ;; *) {serve} ;; esac')


def downloads(archive: Path) -> int:
    return (archive / "log").read_text().count("download")


@pytest.mark.parametrize("damage", ["changed", "lost", "added"])
def test_a_damaged_package_is_fetched_anew(archive: Path, tmp_path: Path, damage: str) -> None:
    package = Store(tmp_path / "store").fetch(["tool"])["tool"]
    tool = package.root / "usr/bin/tool"
    match damage:
        case "changed":
            tool.write_bytes(b"tooL" + tool.read_bytes()[4:])
        case "lost":
            tool.unlink()
        case "added":
            (package.root / "usr/bin/other").write_text("x")
    again = Store(tmp_path / "store")
    again.strict = True
    assert again.fetch(["tool"])["tool"].root == package.root
    assert tool.read_bytes() == b"tool" * 10_000
    assert not (package.root / "usr/bin/other").exists()
    assert downloads(archive) == 2


def test_a_package_that_is_whole_is_not_fetched_again(archive: Path, tmp_path: Path) -> None:
    for strict in (False, True):
        store = Store(tmp_path / "store")
        store.strict = strict
        store.fetch(["tool"])
    assert downloads(archive) == 1


def test_a_package_may_be_wanted_in_one_version(archive: Path, tmp_path: Path) -> None:
    """A kernel's source must have its version, and the archive may have a newer one."""
    apt = archive / "apt-get"
    write_program(apt, f'echo "$*" >>{archive}/asked\n{apt.read_text()}')
    store = Store(tmp_path / "store")
    found = store.fetch(["tool=1"])
    assert {name: (each.name, each.version) for name, each in found.items()} == {"tool=1": ("tool", "1")}
    assert (archive / "asked").read_text().splitlines() == ["download --print-uris tool=1", "-q download tool=1"]
    assert store.fetch(["tool=1"]) == found
    assert downloads(archive) == 1


def test_an_index_that_cannot_be_read_is_made_again(archive: Path, tmp_path: Path) -> None:
    Store(tmp_path / "store").fetch(["tool"])
    (tmp_path / "store/index.json").write_text('{"tool": ')
    Store(tmp_path / "store").fetch(["tool"])
    assert downloads(archive) == 1


def test_two_runs_that_share_a_cache_download_once(archive: Path, tmp_path: Path) -> None:
    said: list[str] = []
    found: list[Path] = []

    def run() -> None:
        with locked(tmp_path, said.append):
            found.append(Store(tmp_path / "store").fetch(["tool"])["tool"].root)

    runs = [threading.Thread(target=run) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join(30)
    assert downloads(archive) == 1
    assert len(set(found)) == 1
    assert len(found) == 2
    assert said == [f"waiting for another run that fills {tmp_path}"]


def test_a_half_written_entry_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    with new_entry(tmp_path / "image") as entry:
        (entry / "initramfs").write_bytes(bytes(1000))
    assert sound(tmp_path / "image")
    (tmp_path / "image/initramfs").write_bytes(bytes(999))
    assert not sound(tmp_path / "image")
    assert not sound(tmp_path / "nothing")


def test_a_package_goes_when_a_newer_one_has_come_and_nobody_uses_it(archive: Path, tmp_path: Path) -> None:
    old = Store(tmp_path / "store").fetch(["tool"])["tool"]
    offer(archive, b"newer tool")
    updated = Store(tmp_path / "store", update=True)
    new = updated.fetch(["tool"])["tool"]
    assert new.root != old.root
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, old.root.parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout
        user.stdout.readline()
        updated.prune()
        assert old.root.is_dir()
        user.communicate(timeout=120)
    updated.prune()
    assert not old.root.exists()
    assert Store(tmp_path / "store").fetch(["tool"])["tool"] == new
    assert downloads(archive) == 2


HOLD = """\
import sys
from pathlib import Path
from iotax.labs.vm.cache import keep
keep(Path(sys.argv[1]))
print("kept", flush=True)
sys.stdin.read()
"""

BUILD = """\
import sys
from pathlib import Path
from iotax.labs.vm import image
from iotax.labs.vm.packages import Store
described = '{"release": "6.1", "packages": {}, "unavailable": {}}'
Store.kernel_package = lambda *_: "linux-image-6.1"
image._ingredients = lambda *_: image._Ingredients({}, [], "6.1")
image._assemble = lambda entry, *_: (entry / "image.json").write_text(described)
print(image.build(Path(sys.argv[1]), lambda _: None).kernel.parent.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """A process that builds an image of an engine only, prints its name, and uses it until its input ends."""
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path))
    started: list[subprocess.Popen[str]] = []

    def start(engine: str) -> subprocess.Popen[str]:
        (tmp_path / engine).write_text(engine)
        arguments = [sys.executable, "-c", BUILD, tmp_path / engine]
        started.append(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.communicate(timeout=120)


def test_a_new_image_takes_the_place_of_those_that_nobody_used_lately(
    tmp_path: Path, use: Callable[[str], subprocess.Popen[str]]
) -> None:
    images = tmp_path / "vm/images"
    (images / ".new-killed").mkdir(parents=True)
    user = use("first")
    assert user.stdout
    names = {"first": user.stdout.readline().strip()}
    for engine in ("second", "third", "second", "fourth", "fifth"):
        names[engine] = use(engine).communicate(timeout=120)[0].strip()
    kept = {names[engine] for engine in ("first", "second", "fourth", "fifth")}
    assert {each.name for each in images.iterdir()} == kept
    user.communicate(timeout=120)
    names["sixth"] = use("sixth").communicate(timeout=120)[0].strip()
    kept = {names[engine] for engine in ("fourth", "fifth", "sixth")}
    assert {each.name for each in images.iterdir()} == kept


FULL = """\
import sys
from pathlib import Path
from iotax.labs.vm import packages
from iotax.labs.vm.cache import locked
from iotax.labs.vm.fault import VmFault
root = Path(sys.argv[1])
packages.need_space = lambda *_: None
try:
    with locked(root, print):
        packages.Store(root / "packages").fetch(["tool"])
except VmFault as fault:
    print(fault)
print([each.name for each in (root / "packages").iterdir()])
"""


def test_a_disk_that_fills_up_in_the_middle_is_told(archive: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=24k none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", disk, sys.executable, FULL],
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no disk of our own here: {done.stderr.strip()}")
    assert done.stdout.splitlines() == [
        f"disk space: {disk} is full (No space left on device); make room or name another place in IOTAX_CACHE",
        "[]",
    ], done.stderr


NAMES = """\
linux-image-6.1.0-9-amd64
linux-image-6.1.0-56-amd64
linux-image-6.1.0-56-amd64-unsigned
linux-image-6.1.0-57-cloud-amd64
linux-image-6.12-amd64
linux-image-6.12.95+deb12-amd64
linux-image-6.12.117+deb12-amd64
linux-image-6.12.118+deb12-rt-amd64
linux-image-6.8.0-45-generic
"""


@pytest.mark.parametrize(
    ("release", "package"),
    [
        ("6.1", "6.1.0-56-amd64"),
        ("6.1.0-9", "6.1.0-9-amd64"),
        ("6.1.0-57-cloud-amd64", "6.1.0-57-cloud-amd64"),
        ("6.12", "6.12.117+deb12-amd64"),
        ("6.8", "6.8.0-45-generic"),
    ],
)
def test_a_release_is_its_newest_kernel(archive: Path, release: str, package: str) -> None:
    words = f"""case "$1" in
pkgnames) cat <<'END' | grep "^$2"
{NAMES}END
;;
*) [ "$4" != linux-image-6.12-amd64 ] || echo "  Depends: linux-image-6.12.117+deb12-amd64" ;;
esac"""
    write_program(archive / "apt-cache", words)
    assert kernel_of(release) == f"linux-image-{package}"
    with pytest.raises(VmFault, match=r"the package lists know no kernel 6\.3; .* backports have newer ones"):
        kernel_of("6.3")


def test_a_kernel_that_a_study_named_is_not_taken_for_the_stock_one(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "index.json").write_text('{"linux-image-6.1.0-56-amd64": "a", "linux-image-6.8.0-45-generic": "b"}')
    store = Store(folder)
    store.decide("6.1", "linux-image-6.1.0-56-amd64")
    assert store.kernel_package() == "linux-image-6.8.0-45-generic"
    assert Store(folder).kernel_package("6.1") == "linux-image-6.1.0-56-amd64"
    with pytest.raises(VmFault, match=r"the package lists know no kernel 6\.1"):
        Store(folder, update=True).kernel_package("6.1")


def test_package_lists_without_a_kernel_are_told(archive: Path) -> None:
    with pytest.raises(VmFault, match=r"kernel: the package lists name no kernel .*; run `apt-get update` first"):
        kernel_package()
