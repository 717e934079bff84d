"""Whole studies in a guest of a real libvirt, whose disks are attached and detached where levels begin and end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.notebook import Notebook
from vm.needed import require

from .libvirt_host import GUEST, HYPERVISOR, VOLUME_BYTES, LibvirtHost

pytestmark = pytest.mark.long

STUDY = """\
name: attached
question: Which datastore should the disk of this guest use?
lab:
  hosts:
    initiators: [{{{guest}}}]
    hypervisors: [{{{hypervisor}, guests: [guest1]}}]
    hooks:
{hooks}
volume: {{size: {size}}}
factors: {{protocol: {{File: "guest-disk://file1", iSCSI LUN: "guest-disk://iscsi1"}}, outstanding: [1, 4]}}
load: {{read: 75%, warmup: 200ms, runtime: 1s}}
design: {{replicates: 2, hard_to_change: [protocol]}}
baseline: {{protocol: File}}
responses: [iops, latency, cpu_initiator, cpu_hypervisor]
"""
LEVELS = {"File": "file", "iSCSI LUN": "iscsi"}
GONE = "for _ in $(seq 100); do {virsh} domblklist guest1 | grep -q {device} || exit 0; sleep 0.2; done; exit 1"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibvirtHost]:
    if os.geteuid() != 0:
        pytest.skip("libvirt's system daemon needs root")
    made = LibvirtHost(require("ssh-keygen", "unshare"), tmp_path_factory.mktemp("libvirt"))
    yield made
    made.close()


def hooks(host: LibvirtHost) -> Iterator[str]:
    for level, name in LEVELS.items():
        described = host.disks[name]
        gone = GONE.format(virsh=host.virsh, device={"file": "vdb", "iscsi": "vdc"}[name])
        for at, run in (
            ("before level", f"{host.virsh} attach-device {GUEST} {described}"),
            ("after level", f"{host.virsh} detach-device {GUEST} {described} && ({gone})"),
        ):
            yield f'      - {{at: {at}, host: {HYPERVISOR}, levels: {{protocol: {level}}}, run: "{run}"}}'


def test_disks_come_and_go_with_their_levels_and_the_hypervisors_cpu_is_measured(
    host: LibvirtHost, tmp_path: Path
) -> None:
    study, notebook = tmp_path / "attached.yaml", tmp_path / "attached.iotax"
    study.write_text(
        STUDY.format(
            guest=host.host(GUEST), hypervisor=host.host(HYPERVISOR), size=VOLUME_BYTES, hooks="\n".join(hooks(host))
        )
    )
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(host.home), "IOTAX_ENGINE": str(require())}
    words = [sys.executable, "-m", "iotax", "run", str(study), str(notebook), "--no-report"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=1100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.attached() == []
    with Notebook(notebook) as read:
        attempts = [each for each in read.attempts() if each.status == "done"]
    treatments = sorted((each.trial.treatment["protocol"], each.trial.treatment["outstanding"]) for each in attempts)
    assert treatments == sorted((level, outstanding) for level in LEVELS for outstanding in (1, 4) for _ in range(2))
    for each in attempts:
        assert each.result is not None
        assert each.result.ios > 0
        assert each.result.verify is not None and each.result.verify.wrong_blocks == 0
        assert {(part.host, part.role) for part in each.result.cpu} >= {
            (GUEST, "initiator"),
            (HYPERVISOR, "hypervisor"),
        }
