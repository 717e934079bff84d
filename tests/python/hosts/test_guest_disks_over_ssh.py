"""Guests' disks by serial number: real SSH, the real engine, loop devices with fake serial numbers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iotax.design import plan as make_plan
from iotax.labs.base import LabUnusable
from iotax.study.read import read_study

from .namespaces import Network

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.lab import HostsLab

from .labs import opened_labs

MIB = 1 << 20
HOSTS = 2
FAKES = True
NAMES = ("h1", "h2")
STUDY = """\
name: guests
question: Which datastore?
lab: {{hosts: {{initiators: [{initiators}]}}}}
volume: {{size: 8MiB}}
factors: {{protocol: {{NFS datastore: "guest-disk://{serial}", same: "guest-disk://{serial} b"}}}}
load: {{outstanding: 4, read: 75%, working_set: 1MiB, warmup: 100ms, runtime: 1s}}
design: {{replicates: 1}}
baseline: {{protocol: NFS datastore}}
"""


class Guests:
    """Hosts whose sysfs lists loop devices under names of virtual disks."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network, self._folder = network, folder
        self._undo = contextlib.ExitStack()

    def disk(self, name: str) -> Path:
        """Makes /dev/NAME, a disk of zeros; skips the test where there are no loop devices. Returns its file."""
        file = self._folder / name
        with file.open("wb") as out:
            out.truncate(8 * MIB)
        done = subprocess.run(["losetup", "--find", "--show", file], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no loop device: {done.stderr.strip()}")
        loop, device = done.stdout.strip(), Path("/dev") / name
        self._undo.callback(subprocess.run, ["losetup", "--detach", loop], check=True)
        os.mknod(device, 0o60600, Path(loop).stat().st_rdev)
        self._undo.callback(device.unlink)
        return file

    def shows(self, host: str, disks: dict[str, str]) -> None:
        """From now on the host has these disks, by device name, with their serial numbers."""
        block, links = (self._network.folder / f"fake-{host}/sys" / place for place in ("block", "class/block"))
        for place in (block, links):
            shutil.rmtree(place, ignore_errors=True)
        links.mkdir(parents=True)
        for name, serial in disks.items():
            (block / name).mkdir(parents=True)
            (block / name / "serial").write_text(f"{serial}\n")
            (links / name).symlink_to(block / name)

    def close(self) -> None:
        self._undo.close()


@pytest.fixture
def guests(network: Network, tmp_path: Path) -> Iterator[Guests]:
    if shutil.which("losetup") is None:
        pytest.skip("losetup is not installed (Debian package mount)")
    with contextlib.closing(Guests(network, tmp_path)) as made:
        yield made


Open = Callable[..., HostsLab]


@pytest.fixture
def opened(network: Network, real_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    with opened_labs(network, real_engine, monkeypatch) as open_lab:
        yield lambda text, *destroy: open_lab(read_study("guests", text, Path()), frozenset(destroy))


def quiet(_: object) -> None:
    pass


def written(network: Network, serial: str) -> str:
    named = ", ".join(f"{{name: {name}, address: {network.address(name)}}}" for name in NAMES)
    return STUDY.format(initiators=named, serial=serial)


def test_each_guest_loads_its_disk_though_names_differ_and_change_places(
    network: Network, guests: Guests, opened: Open
) -> None:
    names = [f"vd{network.here.rpartition('.')[0].replace('.', '-')}{letter}" for letter in "abcd"]
    files = [guests.disk(name) for name in names]
    first, second, third, fourth = names
    guests.shows("h1", {first: "nfs1", second: "nfs1 b"})
    guests.shows("h2", {third: "nfs2 b", fourth: "nfs2"})
    lab = opened(text := written(network, "nfs{client}"))
    lab.prepare(quiet)
    trials = {trial.treatment["protocol"]: trial for trial in make_plan(read_study("guests", text, Path())).trials}
    outcome = lab.run(trials["NFS datastore"], quiet)
    result = outcome.result
    assert result.endpoint == "guest-disk://nfs{client}"
    assert (result.facts.protocol, result.facts.stack, result.facts.served) == ("local", "kernel", "unknown")
    assert [each.host for each in result.clients] == ["h1", "h2"]
    assert min(each.ios for each in result.clients) > 0
    assert result.verify is not None and result.verify.checked_blocks > 0 and result.verify.wrong_blocks == 0
    # As after a boot in another order.
    guests.shows("h1", {first: "nfs1 b", second: "nfs1"})
    before = files[0].read_bytes()
    assert lab.run(trials["NFS datastore"], quiet).result.ios > 0
    assert files[0].read_bytes() == before


def test_data_of_others_and_missing_disks_are_named_by_the_host(network: Network, guests: Guests, opened: Open) -> None:
    names = [f"vd{network.here.rpartition('.')[0].replace('.', '-')}{letter}" for letter in "abc"]
    files = [guests.disk(name) for name in names]
    files[0].write_bytes(b"somebody's thesis".ljust(8 * MIB, b"\0"))
    guests.shows("h1", {names[0]: "nfs1", names[1]: "nfs1 b"})
    guests.shows("h2", {names[2]: "nfs2"})
    lab = opened(text := written(network, "nfs{client}"))
    found = {each.subject: each for each in lab.check() if each.kind in ("error", "refused")}
    refused = found.pop("NFS datastore on h1 (guest-disk://nfs{client})")
    assert refused.kind == "refused"
    assert "--destroy guest-disk://nfs{client}" in refused.message
    [missing] = found.values()
    assert missing.subject == "same on h2 (guest-disk://nfs{client} b)"
    assert "no disk of this host has the serial number nfs2 b; its disks: " in missing.message
    with pytest.raises(LabUnusable):
        opened(text, "guest-disk://nfs{client}").prepare(quiet)
    assert files[0].read_bytes().startswith(b"somebody's thesis")


def test_a_disk_that_appears_after_the_command_that_attaches_it_is_waited_for(
    network: Network, guests: Guests, opened: Open
) -> None:
    names = [f"vd{network.here.rpartition('.')[0].replace('.', '-')}{letter}" for letter in "abcd"]
    for name in names:
        guests.disk(name)
    guests.shows("h1", {names[0]: "late", names[1]: "nfs1 b"})
    guests.shows("h2", {names[2]: "nfs2", names[3]: "nfs2 b"})
    serial = network.folder / "fake-h1/sys/block" / names[0] / "serial"
    # The command ends a second before the disk appears, as those of hypervisors do.
    attach = f"(sleep 1; echo nfs1 >{serial}) >/dev/null 2>&1 &"
    hook = f"hooks: [{{at: before level, host: h1, levels: {{protocol: NFS datastore}}, run: '{attach}'}}]"
    lab = opened(written(network, "nfs{client}").replace("hosts: {", f"hosts: {{{hook}, "))
    [missing] = [each for each in lab.check() if each.kind == "warning" and "no disk of this host" in each.message]
    assert missing.subject == "NFS datastore on h1 (guest-disk://nfs{client})"
    assert missing.message.endswith("`iotax check` does not run them; `iotax run` does, and looks")
    lab.prepare(quiet)
    assert serial.read_text() == "nfs1\n"
