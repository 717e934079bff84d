"""Datastores on real kernels: every controller, and the virtual disk above each kernel initiator. Data are verified,
and a volume that cannot be attached fails only its own trials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from iotax.notebook import Notebook
from iotax.trial import TrialResult

from .studies import machines_of, start

STUDY = """\
name: kernels
question: Do datastores carry the load?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 4MiB, refill: block}
factors:
  protocol: [iscsi, nvme-tcp]
  attach: [guest, vduse, virtio-blk, virtio-scsi, pvscsi, nvme]
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 1200ms}
design:
  replicates: 1
  exclude: [{protocol: nvme-tcp, attach: virtio-blk}, {protocol: nvme-tcp, attach: virtio-scsi}]
baseline: {protocol: iscsi, attach: guest}
"""

ABOVE = """\
name: above
question: Which virtual disk above an initiator costs least?
lab: {vm: {accelerator: tcg}}
volume: {size: 4MiB, refill: block}
factors:
  protocol: PROTOCOLS
topology: {attach: vduse}
load: {read: 75%, outstanding: 4, CLIENTSwarmup: 200ms, runtime: 1200ms}
design: {replicates: 1}
baseline: {protocol: BASELINE}
"""


Cell: TypeAlias = tuple[str, str]
"""Protocol, and level of `attach`."""


@dataclass(frozen=True)
class Ran:
    results: dict[Cell, TrialResult]
    devices: dict[Cell, str]
    failed: dict[Cell, str]
    """Cell → reason of the failure."""
    said: str


def run(tmp_path: Path, engine: Path, study: str) -> Ran:
    with start(tmp_path, engine, study) as running:
        ran = Ran({}, {}, {}, running.communicate(timeout=1100)[0])
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        for each in notebook.attempts(1):
            cell = str(each.trial.treatment["protocol"]), str(each.trial.treatment.get("attach", "vduse"))
            if each.result is None:
                ran.failed[cell] = each.reason
            else:
                ran.results[cell] = each.result
                ran.failed.pop(cell, None)  # an earlier attempt had failed
                ran.devices[cell] = each.connected.found["device"] if each.connected else ""
    assert machines_of(tmp_path) == []
    return ran


def is_verified(result: TrialResult) -> bool:
    checked = result.verify
    return checked is not None and checked.wrong_blocks == 0 < checked.checked_blocks


def test_datastores_carry_verified_data_and_what_cannot_be_attached_fails_alone(tmp_path: Path, engine: Path) -> None:
    ran = run(tmp_path, engine, STUDY)
    assert set(ran.failed) == {("nvme-tcp", "pvscsi"), ("nvme-tcp", "nvme")}, ran.said
    assert all("QEMU has no NVMe/TCP initiator" in reason for reason in ran.failed.values())
    hypervisors = ("virtio-blk", "virtio-scsi", "pvscsi", "nvme")
    assert set(ran.results) == {("nvme-tcp", "guest"), ("nvme-tcp", "vduse")} | {
        ("iscsi", attach) for attach in ("guest", "vduse", *hypervisors)
    }, ran.said
    for result in ran.results.values():
        assert is_verified(result)
        assert result.cpu.hypervisor is not None
        assert result.cpu.hypervisor.net_ns > 0
    initiator_ns = {cell: result.cpu_per_io_ns("initiator") or 0.0 for cell, result in ran.results.items()}
    for attach in hypervisors:  # the hypervisor does the protocol's work
        assert initiator_ns["iscsi", attach] < 0.7 * initiator_ns["iscsi", "guest"]
    for protocol in ("iscsi", "nvme-tcp"):  # the virtual disk's cost is added
        assert initiator_ns[protocol, "vduse"] > 1.2 * initiator_ns[protocol, "guest"]
        disks = {attach: ran.results[protocol, attach].cpu.part("disk", "process") for attach in ("guest", "vduse")}
        assert disks["vduse"] and not disks["guest"]
        assert ran.devices[protocol, "vduse"].startswith("/dev/vd") and not ran.devices[protocol, "guest"].startswith(
            "/dev/vd"
        )


SERVED = """\
name: served
question: Is a virtual disk served as asked?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 4MiB, refill: block}
factors:
  protocol:
    threads: {protocol: nvme-tcp, attach: vduse, aio: threads}
    io_uring: {protocol: nvme-tcp, attach: vduse, aio: io_uring}
    virtio-blk apart: {protocol: iscsi, attach: virtio-blk, iothread: true}
    virtio-scsi apart: {protocol: iscsi, attach: virtio-scsi, iothread: true}
    virtio-scsi: {protocol: iscsi, attach: virtio-scsi}
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 600ms}
design: {replicates: 1}
baseline: {protocol: virtio-scsi}
"""


def found_in(tmp_path: Path, engine: Path, study: str) -> dict[str, dict[str, str]]:
    """What the guests read back for each label of a study, all of whose trials are good."""
    with start(tmp_path, engine, study) as running:
        said = running.communicate(timeout=1100)[0]
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = {str(each.trial.treatment["protocol"]): each for each in notebook.attempts(1)}
    assert all(each.result is not None and is_verified(each.result) for each in attempts.values()), said
    return {name: dict(each.connected.found) for name, each in attempts.items() if each.connected}


def test_a_virtual_disk_is_served_in_the_way_and_the_thread_that_a_study_says(tmp_path: Path, engine: Path) -> None:
    found = found_in(tmp_path, engine, SERVED)
    assert {name: found[name]["aio"] for name in ("threads", "io_uring")} == {
        "threads": "threads",
        "io_uring": "io_uring",
    }
    assert machines_of(tmp_path) == []


QUEUES = """\
name: queues
question: Has a virtual disk the queues and the cache that were asked for?
lab: {vm: {accelerator: tcg, cpus: 2}}
volume: {size: 4MiB, refill: trial}
factors:
  protocol:
    writeback: {protocol: nvme-tcp, attach: vduse, aio: threads, disk_cache: writeback, disk_queues: 2}
    writethrough: {protocol: nfs3, attach: vduse, aio: io_uring, disk_cache: writethrough, disk_queues: 1}
    virtio-blk: {protocol: iscsi, attach: virtio-blk, disk_queues: 2}
    virtio-scsi: {protocol: iscsi, attach: virtio-scsi, disk_queues: 1, iothread: true}
    nvme: {protocol: iscsi, attach: nvme, disk_queues: 2}
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 600ms}
design: {replicates: 1}
baseline: {protocol: virtio-blk}
"""


def test_a_virtual_disk_has_the_queues_and_the_cache_that_a_study_says(tmp_path: Path, engine: Path) -> None:
    found = found_in(tmp_path, engine, QUEUES)
    assert {name: each.get("disk_queues") for name, each in found.items()} == {
        "writeback": "2",
        "writethrough": "1",
        "virtio-blk": "2",
        "virtio-scsi": "1",
        "nvme": "2",
    }
    assert [found[name]["disk_cache"] for name in ("writeback", "writethrough")] == ["writeback", "writethrough"]


FIBRE_CHANNEL = {each: each for each in ("fcp", "fcp-loop", "fc-nvme")}
FILES = {each: each for each in ("nfs3", "nfs4.1")}
RDMA = {each: each for each in ("iser", "nvme-rdma")}
SHAPED = {
    "iscsi": "{protocol: iscsi, paths: 2, path_policy: round-robin}",
    "nvme-tcp": "{protocol: nvme-tcp, paths: 2, path_policy: round-robin, mtu: 9000}",
    "fcp": "{protocol: fcp, link_rate: 200Mbit, link_delay: 100us}",
    "nfs3": "{protocol: nfs3, target: iotax, nconnect: 2}",
}


@pytest.mark.parametrize(
    ("protocols", "clients"),
    [
        (FIBRE_CHANNEL, ""),
        pytest.param(FILES, "", marks=pytest.mark.long),
        pytest.param(RDMA, "", marks=pytest.mark.long),
        pytest.param(SHAPED, "", marks=pytest.mark.long),
        pytest.param({"nfs3": "nfs3", "iscsi": "iscsi"}, "clients: 2, ", marks=pytest.mark.long),
    ],
    ids=["fibre-channel", "files", "rdma", "shaped", "clients"],
)
def test_a_virtual_disk_stands_above_every_initiator_of_the_kernel_and_goes_again(
    tmp_path: Path, engine: Path, protocols: dict[str, str], clients: str
) -> None:
    levels = ", ".join(f"{name}: {setup}" for name, setup in protocols.items())
    asked = ABOVE.replace("PROTOCOLS", f"{{{levels}}}").replace("CLIENTS", clients)
    ran = run(tmp_path, engine, asked.replace("BASELINE", next(iter(protocols))))
    assert ran.failed == {}, ran.said
    assert set(ran.results) == {(protocol, "vduse") for protocol in protocols}
    assert all(is_verified(result) for result in ran.results.values())
    # QEMU's CPU time is measured separately.
    read = [result.cpu.part("disk", "process") for result in ran.results.values()]
    assert all(disk is not None and disk.busy_ns for disk in read)
    assert all(device.startswith("/dev/vd") for device in ran.devices.values())
