"""Each example of a published study by `iotax check`, word for word, on a site of eight hosts that are not there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

import yaml

from iotax.cli.app import app
from iotax.cli.exits import Exit
from iotax.places import Binary

TESTS = Path(__file__).parents[1]
FOLDER = Path(__file__).parents[3] / "examples" / "hosts"
INVENTORY = "site.yaml"
EXAMPLES = sorted(each.stem for each in FOLDER.glob("*.yaml") if each.name != INVENTORY)

Check = Callable[..., Result]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """The examples with their inventory, whose addresses alone are other ones."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    engine = tmp_path / "engine"
    engine.write_text("stub")
    engine.chmod(0o755)
    monkeypatch.setenv("IOTAX_HOST_ENGINE", str(engine))
    (tmp_path / "digest").write_text(Binary(engine).digest)
    studies = tmp_path / "studies"
    shutil.copytree(FOLDER, studies)
    inventory = yaml.safe_load((FOLDER / INVENTORY).read_text())
    hosts = inventory["initiators"]
    running: list[subprocess.Popen[str]] = []

    def checked(
        example: str, *, lacks: dict[int, list[str]] | None = None, holds: dict[int, str] | None = None
    ) -> Result:
        site = {"count": len(hosts), "lacks": lacks or {}, "holds": holds or {}}
        (tmp_path / "site.json").write_text(json.dumps(site))
        stubs = subprocess.Popen(
            [sys.executable, "-m", "hosts.stub_site", tmp_path],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(stubs)
        assert stubs.stdout is not None
        for host in hosts:
            host |= {"address": "127.0.0.1", "port": int(stubs.stdout.readline())}
        (studies / INVENTORY).write_text(yaml.safe_dump(inventory))
        return CliRunner().invoke(app, ["check", str(studies / f"{example}.yaml")])

    yield checked
    for each in running:
        each.communicate()


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes_on_hosts_that_have_what_it_names(check: Check, example: str) -> None:
    done = check(example)
    assert done.exit_code == Exit.OK, done.output
    for number in range(1, 9):
        assert f"host{number}: initiator, Linux 6.1.0, 32 cores" in done.output
    study = yaml.safe_load((FOLDER / f"{example}.yaml").read_text())
    for label in study["factors"]["protocol"]:
        assert f"{label} on host8 (" in done.output, label


@pytest.mark.parametrize(
    ("example", "command"), [("tr-3808", "iscsiadm"), ("ip-or-fc", "nvme"), ("nfs-or-fc-cpu", "mount")]
)
def test_a_command_that_an_example_needs_and_a_host_lacks_is_named(check: Check, example: str, command: str) -> None:
    done = check(example, lacks={3: [command]})
    assert done.exit_code == Exit.LAB
    assert f"host3: {command} is missing, and this study needs it there" in done.output


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_volume_of_an_example_that_holds_somebodys_data_is_refused_by_its_host(check: Check, example: str) -> None:
    done = check(example, holds={5: "LVM2 physical volume"})
    assert done.exit_code == Exit.REFUSED
    assert "on host5 (" in done.output
    assert "holds LVM2 physical volume at byte 512 that iotax did not write. Nothing was changed" in done.output
    assert "on host4 (" not in "".join(line for line in done.output.splitlines() if "LVM2" in line)
