"""Settings of a study for paths of real kernels: two machines with two links between them, over SSH."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.design import plan as make_plan
from iotax.labs.base import TrialFailed
from iotax.labs.hosts.lab import HostsLab
from iotax.labs.vm.qmp import QmpError
from iotax.notebook import Notebook
from iotax.study.read import read_study
from iotax.trial import Attempt
from vm.kernel.nvme_auth import modules
from vm.needed import require

from .guest_hosts import VOLUME_BYTES, GuestHosts

pytestmark = pytest.mark.long

NQN, IQN = "nqn.2026-11.io.iotax:kernel", "iqn.2026-11.io.iotax:kernel"
NVME = f"kernel:nvme-tcp://10.0.0.1/{NQN}?ns=1&portals=10.0.1.1"
ISCSI = f"kernel:iscsi://10.0.0.1/{IQN}/0?portals=10.0.1.1"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:6f746178-0000-4000-8000-000000000002"
AUTHENTICATION = Path(__file__).parents[1] / "vm/kernel/guest/nvme_auth.sh"
STUDY = """\
name: settings
question: What do the kernel's paths cost?
lab: {{hosts: {{initiators: [{initiator}], targets: [{storage}]}}}}
volume: {{size: {size}}}
factors: {{protocol: {{path: "{path}"}}{factors}}}
load: {{outstanding: 4, read: 75%, warmup: 200ms, runtime: {runtime}}}
design: {{replicates: 1}}
baseline: {{protocol: path}}
"""
WWNS = {"free": 0x5000C500A0000001, "taken": 0x5000C500A0000002}
_MAPS = "ls -d /sys/block/dm-* 2>/dev/null; :"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHosts]:
    files = {f"{name}.ko": data for name, data in modules().items()}
    files |= {"nvme_auth.sh": AUTHENTICATION.read_bytes()}
    engine = require("ssh-keygen", "cc", "make", "gcc")
    made = GuestHosts(engine, tmp_path_factory.mktemp("guests"), links=2, files=files)
    yield made
    made.close()


def written(hosts: GuestHosts, path: str, *, runtime: str = "2s", **factors: list[object]) -> str:
    more = "".join(f", {name}: [{', '.join(map(str, levels))}]" for name, levels in factors.items())
    named = {role: hosts.host(role) for role in ("initiator", "storage")}
    return STUDY.format(**named, size=VOLUME_BYTES, path=path, factors=more, runtime=runtime)


class Run:
    """`iotax run` of a study in its own folder."""

    def __init__(self, hosts: GuestHosts, folder: Path, text: str) -> None:
        self._folder = folder
        (folder / "settings.yaml").write_text(text)
        self.environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        self.environment |= {"HOME": str(hosts.home), "IOTAX_ENGINE": str(require())}
        notebook = ["-n", str(folder / "settings.iotax"), "--no-report"]
        self.words = [sys.executable, "-m", "iotax", "run", str(folder / "settings.yaml"), *notebook]

    def whole(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words,
            cwd=self._folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=1100,
        )

    def done(self) -> dict[tuple[str, ...], Attempt]:
        """Attempts that are done, by the levels of all factors but the path."""
        with Notebook(self._folder / "settings.iotax") as notebook:
            attempts = [each for each in notebook.attempts() if each.status == "done"]
        return {tuple(map(str, each.trial.treatment.values()))[1:]: each for each in attempts}


def sound(attempt: Attempt) -> bool:
    result = attempt.result
    return result is not None and result.ios > 0 and result.verify is not None and result.verify.wrong_blocks == 0


def facts(attempt: Attempt) -> dict[str, str]:
    """What the host's kernel reported about the path, as stored in the notebook."""
    assert attempt.connected is not None
    return {**attempt.connected.negotiated.words(), **attempt.connected.found}


def received_mb(attempt: Attempt, link: str) -> float:
    """MB that the initiator received over a link during the window."""
    [line] = [line for line in attempt.log.splitlines() if line.startswith(f"initiator: {link}: ")] or [": : 0 MB"]
    return float(line.split(": ")[2].split(" MB")[0])


def mtus(hosts: GuestHosts) -> list[str]:
    return hosts.guests["initiator"].run("cat /sys/class/net/eth0/mtu /sys/class/net/eth1/mtu")


@pytest.fixture
def jumbo(hosts: GuestHosts) -> Iterator[None]:
    hosts.guests["storage"].run("MTU=9000 PATHS=2 net_up 1")
    yield
    hosts.guests["storage"].run("PATHS=2 net_up 1")


@pytest.mark.usefixtures("jumbo")
def test_mtu_and_policy_of_nvme_paths_are_what_the_study_asks_for_and_are_put_back(
    hosts: GuestHosts, tmp_path: Path
) -> None:
    run = Run(hosts, tmp_path, written(hosts, NVME, path_policy=["numa", "round-robin"], mtu=[1500, 9000]))
    done = run.whole()
    assert done.returncode == 0, done.stdout + done.stderr
    attempts = run.done()
    assert sorted(attempts) == [(policy, mtu) for policy in ("numa", "round-robin") for mtu in ("1500", "9000")]
    for (policy, mtu), attempt in attempts.items():
        assert sound(attempt)
        said = facts(attempt)
        assert (said["path_policy"], said["mtu"], said["paths"]) == (policy, mtu, "2")
        over_each = sorted(received_mb(attempt, link) for link in ("eth0", "eth1"))
        # numa uses one path alone. round-robin uses both, with half of the bytes each; the log rounds to 0.1 MB.
        assert over_each[1] > 0.1
        assert (over_each[0] > 0.5 * over_each[1]) == (policy == "round-robin"), over_each
    assert hosts.attached() == []
    assert mtus(hosts) == ["1500", "1500"]


def test_policy_and_queue_depth_of_iscsi_paths_are_what_the_study_asks_for(hosts: GuestHosts, tmp_path: Path) -> None:
    text = written(hosts, ISCSI, path_policy=["round-robin", "queue-depth"], queue_depth=[8, 64])
    run = Run(hosts, tmp_path, text)
    done = run.whole()
    assert done.returncode == 0, done.stdout + done.stderr
    attempts = run.done()
    assert sorted(attempts) == [(policy, depth) for policy in ("queue-depth", "round-robin") for depth in ("64", "8")]
    for (policy, depth), attempt in attempts.items():
        assert sound(attempt)
        said = facts(attempt)
        assert (said["path_policy"], said["queue_depth"], said["paths"]) == (policy, depth, "2")
        assert said["multipath"]
        assert min(received_mb(attempt, link) for link in ("eth0", "eth1")) > 0.1
    assert hosts.attached() == []
    assert not any(hosts.guests["initiator"].run(_MAPS))


@pytest.mark.usefixtures("jumbo")
def test_a_killed_controller_leaves_neither_paths_nor_settings(hosts: GuestHosts, tmp_path: Path) -> None:
    run = Run(hosts, tmp_path, written(hosts, NVME, runtime="60s", path_policy=["round-robin"], mtu=[9000]))
    with subprocess.Popen(run.words, cwd=tmp_path, env=run.environment, stdout=subprocess.DEVNULL) as process:
        try:
            hosts.until(lambda found: process.poll() is not None or mtus(hosts) == ["9000", "9000"], "both paths")
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
    hosts.until(lambda found: not found, "the host to take everything down")
    assert mtus(hosts) == ["1500", "1500"]


def test_disks_that_change_names_between_check_and_run_are_refused(
    hosts: GuestHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    guest, images = hosts.guests["initiator"], {name: tmp_path / name for name in ("free", "taken")}
    for image in images.values():
        with image.open("wb") as file:
            file.truncate(VOLUME_BYTES)
    with images["taken"].open("r+b") as file:
        file.seek(VOLUME_BYTES - 4096)
        file.write(b"somebody's thesis")
    before = images["taken"].read_bytes()

    def plug(name: str) -> None:
        guest.monitor.execute(
            "device_add",
            {"driver": "scsi-hd", "id": name, "drive": name, "bus": "disks.0", "wwn": WWNS[name]},
            timeout_s=20,
        )

    guest.run("load virtio_scsi sd_mod")
    for name, image in images.items():
        node = {"driver": "raw", "node-name": name, "file": {"driver": "file", "filename": str(image)}}
        guest.monitor.execute("blockdev-add", node, timeout_s=20)
    guest.monitor.execute("device_add", {"driver": "virtio-scsi-pci", "id": "disks"}, timeout_s=20)
    try:
        plug("free")
        guest.run("until_true 20 test -b /dev/sda || die 'no first disk'")
        plug("taken")
        guest.run("until_true 20 test -b /dev/sdb || die 'no second disk'")
        text = written(hosts, "local:/dev/sda", runtime="1s")
        study = read_study("settings", text, tmp_path)
        [trial] = make_plan(study).trials
        lab = HostsLab(study, make_plan(study), require())
        try:
            lab.prepare(lambda _: None)
            assert lab.run(trial, lambda _: None).result.ios > 0
            # As after a reboot or a cable fault: the device names are exchanged.
            for name in images:
                guest.monitor.unplug(name, timeout_s=60)
            guest.run("until_true 20 sh -c '! ls /dev/sd* >/dev/null 2>&1' || die 'a disk stays'")
            plug("taken")
            guest.run("until_true 20 test -b /dev/sda || die 'no disk'")
            plug("free")
            guest.run("until_true 20 test -b /dev/sdb || die 'no second disk'")
            with pytest.raises(
                TrialFailed,
                match=r"is device/wwid naa\.5000c500a0000002 now; what was judged is device/wwid naa\.5000c500a0000001",
            ) as failed:
                lab.run(trial, lambda _: None)
            assert (failed.value.kind, failed.value.permanent) == ("swapped", True)
        finally:
            lab.close()
        assert images["taken"].read_bytes() == before
    finally:
        for name in ("free", "taken", "disks"):
            with contextlib.suppress(QmpError):  # not plugged in
                guest.monitor.unplug(name, timeout_s=60)
        for name in images:
            guest.monitor.execute("blockdev-del", {"node-name": name}, timeout_s=20)


def test_a_target_that_asks_for_dh_hmac_chap_is_reached_by_the_secrets_that_iotax_carries(
    hosts: GuestHosts, tmp_path: Path
) -> None:
    """Must be the last test: it replaces the distribution's drivers, which lack authentication."""
    storage, initiator = hosts.guests["storage"], hosts.guests["initiator"]
    storage.run("step nvme-tcp target_down")
    for guest in (storage, initiator):
        guest.run(". /test/nvme_auth.sh; auth_up")
    storage.run("PATHS=2 step nvme-tcp target_up")
    mine, other, controller = (
        initiator.run(f"nvme gen-dhchap-key -m {transform} -n {HOST_NQN}")[-1] for transform in (1, 1, 2)
    )
    storage.run(f". /test/nvme_auth.sh; only {HOST_NQN} {mine} {controller} sha256 ffdhe2048")
    dhchap = "{secret_env: HOST_KEY, controller: {secret_env: CONTROLLER_KEY}}"
    run = Run(hosts, tmp_path, written(hosts, NVME) + f"connection: {{dhchap: {dhchap}}}\n")
    try:
        for secrets, right in ((other, controller), False), ((mine, other), False), ((mine, controller), True):
            run.environment |= dict(zip(("HOST_KEY", "CONTROLLER_KEY"), secrets, strict=True))
            done = run.whole()
            assert (done.returncode == 0) == right, done.stdout + done.stderr
            assert hosts.attached() == []
            for secret in secrets:
                assert secret not in done.stdout + done.stderr
                initiator.run(f"! grep -rF {secret} /etc /root/.cache /run /tmp 2>/dev/null")
                for kept in tmp_path.iterdir():
                    assert secret.encode() not in kept.read_bytes()
        [attempt] = run.done().values()
        assert sound(attempt)
        assert facts(attempt)["paths"] == "2"
    finally:
        storage.run(f". /test/nvme_auth.sh; anyone {HOST_NQN}")
