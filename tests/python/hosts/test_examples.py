"""`iotax check` on each example for hosts, unchanged, on simulated hosts."""

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
from iotax.design import plan
from iotax.places import Binary
from iotax.study.read import load_study

TESTS = Path(__file__).parents[1]
FOLDER = Path(__file__).parents[3] / "examples" / "hosts"
INVENTORIES = ("site.yaml", "site-esxi.yaml", "site-kvm.yaml")
EXAMPLES = sorted(each.stem for each in FOLDER.glob("*.yaml") if each.name not in INVENTORIES)
"""One example for each published study and each hypervisor."""
HYPERVISORS = ("kubevirt", "libvirt", "libvirt-one-disk", "proxmox")
PARTS = ("initiators", "hypervisors")
ESXI = [name for name in EXAMPLES if name not in ("tr-3808", *HYPERVISORS)]


def hosts_of(example: str) -> list[dict]:
    """Initiators and hypervisors that the study or its inventory lists."""
    lab = yaml.safe_load((FOLDER / f"{example}.yaml").read_text())["lab"]["hosts"]
    inventory = yaml.safe_load((FOLDER / lab["inventory"]).read_text())
    return [host | {"part": part} for part in PARTS for host in lab.get(part, inventory.get(part, []))]


def names_of(example: str, part: str) -> list[str]:
    return [host["name"] for host in hosts_of(example) if host["part"] == part]


def ports_into(document: dict, ports: dict[str, int]) -> dict:
    """The same document with all hosts on this machine."""
    lab = document["lab"]["hosts"] if "lab" in document else document
    for part in PARTS:
        for host in lab.get(part, []):
            host |= {"address": "127.0.0.1", "port": ports.get(host["name"], 1)}
    return document


Check = Callable[..., Result]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """Checks the examples and their inventory; only the addresses are changed."""
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
    running: list[subprocess.Popen[str]] = []

    def checked(
        example: str, *, lacks: dict[int, list[str]] | None = None, holds: dict[int, str] | None = None
    ) -> Result:
        hosts = hosts_of(example)
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
        ports = {host["name"]: int(stubs.stdout.readline()) for host in hosts}
        for name in (*INVENTORIES, f"{example}.yaml"):
            document = yaml.safe_load((FOLDER / name).read_text())
            (studies / name).write_text(yaml.safe_dump(ports_into(document, ports), sort_keys=False))
        return CliRunner().invoke(app, ["check", str(studies / f"{example}.yaml")])

    yield checked
    for each in running:
        each.communicate()


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes_on_hosts_that_have_what_it_names(check: Check, example: str) -> None:
    done = check(example)
    assert done.exit_code == Exit.OK, done.output
    for name in names_of(example, "initiators"):
        assert f"{name}: initiator, Linux 6.1.0, 32 cores" in done.output
    for name in names_of(example, "hypervisors"):
        assert f"{name}: hypervisor, {'Linux 6.1.0' if example in HYPERVISORS else 'VMkernel 7.0.3'}" in done.output
    study = yaml.safe_load((FOLDER / f"{example}.yaml").read_text())
    last = names_of(example, "initiators")[-1]
    volumes: dict[str, list[str]] = {}
    for label, level in study["factors"]["protocol"].items():
        volumes.setdefault(level if isinstance(level, str) else level["protocol"], []).append(label)
    # Only one of the labels that reach a volume in different ways checks the volume.
    for uri, labels in volumes.items():
        assert any(f"{label} on {last} (" in done.output for label in labels), uri


def test_there_is_one_of_each_published_study_with_its_figures() -> None:
    studies = [each for each in EXAMPLES if each not in HYPERVISORS]
    assert studies == [
        "fcp-or-fc-nvme",
        "fcp-or-fc-nvme-database",
        "ip-or-fc",
        "nfs-or-fc-cpu",
        "nfs-or-iscsi",
        "tr-3808",
    ]
    for example in studies:
        published = load_study(str(FOLDER / f"{example}.yaml"))[0].published
        assert published, example
        assert all(each.reason for each in published), example


@pytest.mark.parametrize(
    ("example", "trials", "outstanding"),
    [
        ("tr-3808", 10 * 2 * 3 * 3, {128, 384, 640}),
        ("nfs-or-iscsi", 3 * 5 * 3, {32}),
        ("nfs-or-fc-cpu", 640, {64}),
        ("ip-or-fc", 6 * 4 * 3 * 3, {4 * 160}),
        ("fcp-or-fc-nvme", 2 * 7 * 4 * 3, {120}),
        ("fcp-or-fc-nvme-database", 2 * 4 * 3, {32, 64, 128, 256}),
    ],
)
def test_an_example_has_the_size_of_its_source(example: str, trials: int, outstanding: set[int]) -> None:
    study = load_study(str(FOLDER / f"{example}.yaml"))[0]
    planned = plan(study).trials
    assert len(planned) == trials
    loads = [study.settings(trial.treatment).load for trial in planned]
    assert {(load.clients or 1) * load.workers * load.outstanding for load in loads} == outstanding


@pytest.mark.parametrize("example", ESXI)
def test_what_an_esxi_host_spends_is_told_without_its_guests(example: str) -> None:
    study = load_study(str(FOLDER / f"{example}.yaml"))[0]
    assert study.lab.hosts is not None
    assert study.lab.hosts.virtual() == {host.name for host in study.lab.hosts.initiator_hosts()}
    assert "cpu_hypervisor" in study.responses


def test_an_esxi_host_without_esxtop_is_named(check: Check) -> None:
    done = check("nfs-or-fc-cpu", lacks={2: ["esxtop"]})
    assert done.exit_code == Exit.LAB
    assert "esx1: esxtop is missing" in done.output


@pytest.mark.parametrize(("example", "command"), [("tr-3808", "iscsiadm"), ("ip-or-fc", "nvme"), ("tr-3808", "mount")])
def test_a_command_that_an_example_needs_and_a_host_lacks_is_named(check: Check, example: str, command: str) -> None:
    done = check(example, lacks={3: [command]})
    assert done.exit_code == Exit.LAB
    name = names_of(example, "initiators")[2]
    assert f"{name}: {command} is missing, and this study needs it there" in done.output


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_volume_of_an_example_that_holds_somebodys_data_is_refused_by_its_host(check: Check, example: str) -> None:
    first, *others = names_of(example, "initiators")
    done = check(example, holds={1: "LVM2 physical volume"})
    assert done.exit_code == Exit.REFUSED
    assert f"on {first} (" in done.output
    assert "holds LVM2 physical volume at byte 512 that iotax did not write. Nothing was changed" in done.output
    refused = "".join(line for line in done.output.splitlines() if "LVM2" in line)
    assert not any(f"on {name} (" in refused for name in others)
