"""Volumes that the hypervisor attaches: QEMU's configuration and limits, its monitor, its drivers, its CPU."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iotax.design import plan
from iotax.labs.vm import datastore, initiators, preflight
from iotax.labs.vm.cache import new_entry
from iotax.labs.vm.counters import HypervisorClocks, LoadCost, processor_threads, read_clocks
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.image import Image
from iotax.labs.vm.lab import VmLab
from iotax.labs.vm.packages import Package, Store
from iotax.labs.vm.qemu import PROGRAM
from iotax.labs.vm.qmp import Qmp, QmpError, QmpLost
from iotax.study import Settings
from iotax.study.endpoint import Endpoint
from iotax.study.model import Connection, Load, Topology, Volume
from iotax.study.read import read_study
from iotax.study.topology import refused
from waits import wait_for

from .fakes import answer_lines, write_program


def settings(protocol: str, attach: str, mtu: int = 1500, **connection: bool) -> Settings:
    topology = Topology.model_validate({"attach": attach, "mtu": mtu})
    return Settings(Load(), Volume(), Connection.model_validate(connection), Endpoint(protocol), topology)


@pytest.mark.parametrize(
    ("asked", "guests", "reason"),
    [
        (settings("nvme-tcp", "nvme"), 2, "QEMU has no NVMe/TCP initiator"),
        (settings("fcp", "pvscsi"), 2, "QEMU has no Fibre Channel initiator"),
        (settings("nfs4.1", "pvscsi"), 2, "version 3 only"),
        (settings("iscsi", "pvscsi", data_digest=True), 2, "no data digest"),
        (settings("iscsi", "pvscsi"), 1, "`guests: 2`"),
        (settings("iscsi", "pvscsi", mtu=9000), 2, "`mtu` shapes the way of the guest's own initiator"),
        (settings("iscsi", "virtio-scsi"), 2, "comes without virtio_scsi"),
    ],
)
def test_what_a_hypervisor_cannot_attach_is_said(asked: Settings, guests: int, reason: str) -> None:
    said = datastore.obstacle(asked, guests, {"virtio-scsi": "Linux 6.1 comes without virtio_scsi"})
    assert said is not None
    assert reason in said


@pytest.mark.parametrize(
    "asked",
    [
        settings("iscsi", "pvscsi"),
        settings("nfs3", "nvme"),
        settings("fcp", "guest", 9000),
        settings("nvme-tcp", "vduse", 9000, data_digest=True),
        settings("fc-nvme", "vduse"),
    ],
)
def test_what_can_be_attached_has_no_obstacle(asked: Settings) -> None:
    assert datastore.obstacle(asked, 2, {}) is None


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ({"attach": "pvscsi", "iothread": True}, "iothread: QEMU's pvscsi has none"),
        ({"attach": "guest", "iothread": True}, "iothread: there is no virtual disk"),
        ({"attach": "virtio-blk", "aio": "threads"}, "aio: QEMU's own initiators use sockets"),
        ({"attach": "guest", "aio": "io_uring"}, "aio: there is no virtual disk; say `attach: vduse`"),
        ({"attach": "virtio-scsi", "iothread": True}, ""),
        (
            {"attach": "vduse", "iothread": True},
            "iothread: QEMU's vduse has none; say `attach: virtio-blk or virtio-scsi`",
        ),
        ({"attach": "vduse", "aio": "threads"}, ""),
        ({"attach": "vduse", "aio": "io_uring", "disk_cache": "writeback"}, ""),
        ({"attach": "vduse", "disk_cache": "writeback"}, "disk_cache: QEMU does Linux AIO only without the page cache"),
        ({"attach": "nvme", "disk_cache": "writethrough"}, "disk_cache: QEMU's own initiators have no page cache"),
        ({"attach": "guest", "disk_cache": "writeback"}, "disk_cache: there is no virtual disk"),
        ({"attach": "nvme", "disk_queues": 1}, ""),
        ({"attach": "nvme", "disk_queues": 2}, "disk_queues: Linux uses at most one queue of a disk per processor"),
        ({"attach": "pvscsi", "disk_queues": 1}, "disk_queues: QEMU's pvscsi has one"),
        ({"attach": "guest", "disk_queues": 1}, "disk_queues: there is no virtual disk"),
    ],
)
def test_only_a_virtual_disk_that_can_have_it_is_served_in_another_way(topology: dict[str, Any], reason: str) -> None:
    said = [f"{name}: {why}" for name, why in refused("iscsi", Topology.model_validate(topology), {}, 2, 1, 1)]
    assert [each.startswith(reason) for each in said] == [True] * bool(reason), said


ABOVE = """\
name: above
question: What does a virtual disk cost?
lab: vm
factors:
  protocol: [fcp, nvme-tcp]
  attach: ATTACH
baseline: {attach: guest}
"""


def lab_of(attach: str) -> VmLab:
    study = read_study("s.yaml", ABOVE.replace("ATTACH", attach), Path("/studies"))
    lab = VmLab(study, plan(study), Path("/engine"))
    reason = "Linux 6.1 comes without vduse, and it could not be built: gcc is not there"
    lab._images["stock"] = Image(Path("/k"), Path("/i"), "6.1", packages={}, unavailable={"vduse": reason})
    return lab


def test_a_virtual_disk_whose_modules_could_not_be_built_fails_its_own_trials() -> None:
    lab = lab_of("[guest, vduse]")
    for name, asked in lab._settings.items():
        obstacle = lab._obstacle(asked)
        if asked.topology.attach == "guest":
            assert obstacle is None
        else:
            assert obstacle is not None
            assert obstacle.startswith("vduse is not available: Linux 6.1 comes without vduse"), name


def test_only_an_image_for_virtual_disks_has_what_they_need() -> None:
    above, guest = (lab_of(attach)._settings.values() for attach in ("[guest, vduse]", "[guest]"))
    assert preflight.contents(list(above), "stock").vduse
    assert not preflight.contents(list(guest), "stock").vduse


def test_a_taken_port_of_the_nfs_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(datastore, "_NFS_PORTS", (port,))
        assert f"wants port {port} of 127.0.0.1 (Address already in use)" in str(
            datastore.ports_taken(settings("nfs3", "nvme"))
        )
        assert datastore.ports_taken(settings("nfs3", "guest")) is None
        assert datastore.ports_taken(settings("nfs3", "vduse")) is None
        assert datastore.ports_taken(settings("iscsi", "nvme")) is None


def monitor(path: Path, answer: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> None:
    """QEMU's side of a monitor: answers each command with the lines given."""

    def answer_command(line: bytes) -> bytes:
        command = json.loads(line)
        said = [{"return": {}}] if command["execute"] == "qmp_capabilities" else answer(command)
        return b"".join(json.dumps(each).encode() + b"\n" for each in said)

    answer_lines(path, b'{"QMP": {"version": {}, "capabilities": []}}\n', answer_command)


def test_a_refusal_is_passed_on_in_qemus_words(tmp_path: Path) -> None:
    monitor(tmp_path / "m", lambda _: [{"error": {"class": "GenericError", "desc": "iSCSI: Failed to connect to LUN"}}])
    qmp = Qmp(tmp_path / "m", 5)
    with pytest.raises(QmpError, match="iSCSI: Failed to connect to LUN"):
        qmp.execute("blockdev-add", {"driver": "iscsi"}, timeout_s=5)
    qmp.close()


def test_a_device_is_gone_when_the_guest_has_let_go_of_it(tmp_path: Path) -> None:
    deleted = {"event": "DEVICE_DELETED", "data": {"device": "disk"}}
    other = {"event": "DEVICE_DELETED", "data": {"path": "/machine/peripheral/x"}}
    monitor(tmp_path / "m", lambda _: [other, {"return": {}}, deleted])
    qmp = Qmp(tmp_path / "m", 5)
    qmp.unplug("disk", timeout_s=5)
    qmp.close()


def test_a_guest_that_keeps_its_device_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    monitor(tmp_path / "m", lambda _: [{"return": {}}])
    qmp = Qmp(tmp_path / "m", 5)
    with pytest.raises(QmpLost, match="did not answer in time"):
        qmp.unplug("disk", timeout_s=0.2)
    qmp.close()


def test_no_monitor_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(QmpLost, match="monitor does not answer"):
        Qmp(tmp_path / "nowhere", 0.2)


def test_a_hypervisors_time_is_its_process_less_its_processors() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(stop.is_set, True)])
    thread.start()
    try:
        assert thread.native_id is not None
        before = read_clocks(os.getpid(), [thread.native_id], kvm=False), read_clocks(os.getpid(), [], kvm=False)
        wait_for(lambda: before[1].busy_ns(read_clocks(os.getpid(), [], kvm=False)) > 100_000_000, "work")
        after = read_clocks(os.getpid(), [thread.native_id], kvm=False), read_clocks(os.getpid(), [], kvm=False)
    finally:
        stop.set()
        thread.join()
    without_ns, with_ns = (old.busy_ns(new) for old, new in zip(before, after, strict=True))
    assert without_ns < with_ns / 2


def test_processors_that_share_a_thread_count_once() -> None:
    assert processor_threads([{"cpu-index": 0, "thread-id": 7}, {"cpu-index": 1, "thread-id": 7}]) == [7]


def test_a_hypervisors_idle_work_is_taken_off() -> None:
    cost = LoadCost(HypervisorClocks(0, 0), HypervisorClocks(1_000_000_000, 300_000_000), moved=1_000)
    assert cost.cpu_ns(500, idle_cores=0.1) == 100_000_000


UNKNOWN = """\
for word; do last=$word; done
case "$QEMU_MODULE_DIR" in
"") echo "qemu-system-x86_64: -blockdev $last: Unknown driver" >&2; exit 1 ;;
*) echo "qemu-system-x86_64: -blockdev $last: Failed to connect" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def without_drivers(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A QEMU whose initiator drivers are in a package that is not installed."""
    write_program(programs / PROGRAM, UNKNOWN)
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    with new_entry(tmp_path / "package") as entry:
        (entry / "root/usr/lib/qemu").mkdir(parents=True)
        (entry / "root/usr/lib/qemu/block-iscsi.so").write_bytes(b"")
    root = tmp_path / "package/root"
    package = Package("qemu-block-extra", "1:7.2+dfsg-7", "0" * 64, root, ())
    monkeypatch.setattr(Store, "fetch", lambda _self, names: dict.fromkeys(names, package))
    monkeypatch.setattr(initiators, "package_closure", lambda _store, _modules: {})
    return root


def test_initiators_that_are_not_installed_come_from_the_cache(without_drivers: Path) -> None:
    said: list[str] = []
    found = initiators.environment(["iscsi"], "7.2.22 (Debian 1:7.2+dfsg-7)", said.append)
    assert found["QEMU_MODULE_DIR"] == str(without_drivers / "usr/lib/qemu")
    assert said == ["packages: qemu-block-extra, QEMU's own initiators"]
    assert "will be downloaded, not installed" in initiators.finding(["iscsi"]).message


def test_initiators_of_another_build_of_qemu_are_refused(without_drivers: Path) -> None:
    with pytest.raises(VmFault, match=r"a module must match its QEMU; install both with `apt-get install"):
        initiators.environment(["iscsi"], "8.0.0 (built by hand)", lambda _: None)
