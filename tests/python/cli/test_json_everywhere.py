"""`--json`: every command that prints figures has it, with the same meaning."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import commands
from iotax.cli import console, hosts, lab
from iotax.labs.hosts.survey import Interface, Survey

WITHOUT = {
    "completion": "prints a script",
    "export": "prints what --format says",
    "init": "writes a file",
    "lab hosts clean": "removes files",
    "lab vm shell": "prints what the guests say",
    "live": "serves a page until Ctrl-C",
    "report": "writes a file",
}
"""Commands that print no figures of their own."""


ALL = {" ".join(words): command for words, command in commands().items()}


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_json_unless_it_prints_no_figures(name: str) -> None:
    options = {option for each in ALL[name].params for option in each.opts}
    assert ("--json" in options) != (name in WITHOUT)


def test_the_list_of_exceptions_names_commands() -> None:
    assert WITHOUT.keys() <= ALL.keys()


class Lab:
    """A lab with two hosts, one of which does not answer."""

    def survey(self) -> list[Survey]:
        clock = SimpleNamespace(ahead_ns=1_500_000, error_ns=200_000, kernel_error_ns=None)
        found = Survey(
            "h1", "initiator", "6.1.0-28-amd64", "x86_64", 8, allowed=("iscsiadm", "tee", "engine-0011223344556677"),
            protocols=("nfs", "iscsi", "nvme-tcp"), obstacles=("dmsetup is missing",),
            link=Interface("eth0", 9000, 25_000), held=("sda1: ext4 /", "sdb: LVM2_member"), engine="0.1.0+static",
            clock=clock,
        )  # fmt: skip
        return [found, Survey("h2", "target", fault="no route to host")]

    def close(self) -> None: ...


def test_hosts_as_json(tmp_path: Path, iotax, monkeypatch: pytest.MonkeyPatch) -> None:
    import contextlib

    monkeypatch.setattr(hosts, "_opened", lambda _: contextlib.closing(Lab()))
    said = json.loads(iotax("lab", "hosts", "check", "quick", "--json", code=4).stdout)["hosts"]
    assert (said[0]["cores"], said[0]["clock_ahead_ns"], said[0]["clock_kernel_error_ns"]) == (8, 1_500_000, None)
    assert said[0]["holds"] == ["sda1: ext4 /", "sdb: LVM2_member"]
    assert (said[0]["link"], said[0]["obstacles"]) == ("eth0, MTU 9000, 25 Gbit/s", ["dmsetup is missing"])
    assert (said[0]["root"], said[0]["sudo"], said[0]["allowed"][:2]) == (False, False, ["iscsiadm", "tee"])
    assert (said[1]["fault"], said[1]["cores"], said[1]["clock_error_ns"]) == ("no route to host", None, None)
    shown = iotax("lab", "hosts", "check", "quick", "--json", tmp_path / "h.json", code=4).stdout
    assert "h2: no route to host" in shown
    assert "h1: dmsetup is missing" in shown
    assert json.loads((tmp_path / "h.json").read_text())["hosts"] == said


@pytest.mark.parametrize("command", ["check", "build"])
def test_the_vm_lab_as_json(tmp_path: Path, iotax, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    (tmp_path / "initramfs").write_bytes(b"\0" * 4096)
    image = SimpleNamespace(
        release="6.1.0", unavailable={"iser": "no module"}, packages=["a", "b"], initramfs=tmp_path / "initramfs"
    )
    guests = SimpleNamespace(boot_s=12.5, close=lambda: None)
    monkeypatch.setattr(lab, "_built", lambda *, update: image)
    monkeypatch.setattr(lab, "_boot", lambda: SimpleNamespace(image=image, guests=guests, why="TCG"))
    said = json.loads(iotax("lab", "vm", command, "--json").stdout)
    assert said["kernel"] == "6.1.0"
    assert (said["protocols"]["iser"], said["protocols"]["iscsi"]) == ("no module", None)
    assert (said.get("boot_s"), said.get("size_bytes")) == ((12.5, None) if command == "check" else (None, 4096))
    assert "6.1.0" in iotax("lab", "vm", command).stdout


@pytest.mark.parametrize("columns", [80, 160, 240])
def test_the_table_of_hosts_cuts_nothing_on_a_narrow_terminal(
    iotax, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    import contextlib

    monkeypatch.setattr(hosts, "_opened", lambda _: contextlib.closing(Lab()))
    monkeypatch.setattr(console, "PIPE_COLUMNS", columns)
    lines = iotax("lab", "hosts", "check", "quick", code=4).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    said = " ".join(" ".join(lines).split())
    assert "…" not in said
    for each in (
        "initiator yes 6.1.0-28-amd64 x86_64 8",
        "+1.50 ± 0.20 ms",
        "0.1.0+static",
        "LVM2_member",
        "target no",
    ):
        assert each in said
