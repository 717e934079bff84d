"""Datastores on real kernels: every controller, verified data; what cannot be attached fails alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.notebook import Notebook

from .studies import machines_of, start

pytestmark = pytest.mark.timeout(400)

STUDY = """\
name: kernels
question: Do datastores carry the load?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 16MiB, refill: block}
factors:
  protocol: [iscsi, nvme-tcp]
  attach: [guest, virtio-blk, virtio-scsi, pvscsi, nvme]
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 1200ms}
design:
  replicates: 1
  exclude: [{protocol: nvme-tcp, attach: virtio-blk}, {protocol: nvme-tcp, attach: virtio-scsi}]
baseline: {protocol: iscsi, attach: guest}
"""


def test_datastores_carry_verified_data_and_what_cannot_be_attached_fails_alone(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine, STUDY) as study:
        said, _ = study.communicate(timeout=380)
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = list(notebook.attempts(1))
    cells = {(str(each.trial.treatment["protocol"]), str(each.trial.treatment["attach"])): each for each in attempts}
    for attach in ("pvscsi", "nvme"):
        refused = cells.pop(("nvme-tcp", attach))
        assert refused.status == "failed"
        assert "QEMU has no NVMe/TCP initiator" in refused.reason
    assert set(cells) == {("nvme-tcp", "guest")} | {
        ("iscsi", attach) for attach in ("guest", "virtio-blk", "virtio-scsi", "pvscsi", "nvme")
    }, said
    initiator_ns: dict[tuple[str, str], float] = {}
    for cell, each in cells.items():
        result = each.result
        assert result is not None, each.reason
        assert result.verify is not None
        assert result.verify.wrong_blocks == 0
        assert result.verify.checked_blocks > 0
        assert result.cpu.hypervisor is not None
        assert result.cpu.hypervisor.net_ns > 0
        initiator_ns[cell] = result.cpu_per_io_ns("initiator") or 0.0
    for attach in ("virtio-blk", "virtio-scsi", "pvscsi", "nvme"):  # the protocol's work has left the guest
        assert initiator_ns["iscsi", attach] < 0.7 * initiator_ns["iscsi", "guest"]
    assert machines_of(tmp_path) == []
