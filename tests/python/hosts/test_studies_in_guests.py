"""Whole studies over SSH on two machines with real kernels, with kernel paths to a kernel's targets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.design import plan as make_plan
from iotax.labs.hosts.lab import HostsLab
from iotax.notebook import Notebook
from iotax.records import IscsiAgreed, NfsAgreed, NvmeAgreed
from iotax.study.read import read_study
from vm.needed import require

from .guest_hosts import VOLUME_BYTES, GuestHosts

pytestmark = pytest.mark.long

NQN, IQN = "nqn.2026-11.io.iotax:kernel", "iqn.2026-11.io.iotax:kernel"
PATHS = {
    "NVMe-TCP": f"kernel:nvme-tcp://10.0.0.1/{NQN}?ns=1&queues=1",
    "iSCSI": f"kernel:iscsi://10.0.0.1/{IQN}/0",
    "NFS": "kernel:nfs://10.0.0.1/volume/data?vers=4.1&nconnect=2",
}
UP = {"NVMe-TCP": "/sys/class/nvme/nvme", "iSCSI": "/sys/class/iscsi_session/session", "NFS": "10.0.0.1:/volume"}
STUDY = """\
name: guests
question: What do the kernel's paths cost?
lab: {{hosts: {{initiators: [{initiator}], targets: [{storage}]}}}}
volume: {{size: {size}}}
factors: {{protocol: {{{paths}}}}}
load: {{outstanding: 4, read: 75%, warmup: 200ms, runtime: {runtime}}}
design: {{replicates: {replicates}}}
baseline: {{protocol: {baseline}}}
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHosts]:
    made = GuestHosts(require("ssh-keygen"), tmp_path_factory.mktemp("guests"))
    yield made
    made.close()


def written(hosts: GuestHosts, *protocols: str, runtime: str = "2s", replicates: int = 2) -> str:
    return STUDY.format(
        initiator=hosts.host("initiator"),
        storage=hosts.host("storage"),
        size=VOLUME_BYTES,
        paths=", ".join(f'{name}: "{PATHS[name]}"' for name in protocols),
        runtime=runtime,
        replicates=replicates,
        baseline=protocols[0],
    )


def command(folder: Path, hosts: GuestHosts, engine: Path, text: str) -> tuple[list[str], dict[str, str]]:
    (folder / "guests.yaml").write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(hosts.home), "IOTAX_ENGINE": str(engine)}
    words = [sys.executable, "-m", "iotax", "run", str(folder / "guests.yaml"), "-n", str(folder / "guests.iotax")]
    return words, environment


def test_a_study_of_kernel_paths_runs_to_its_report_and_leaves_nothing(hosts: GuestHosts, tmp_path: Path) -> None:
    words, environment = command(tmp_path, hosts, require(), written(hosts, *PATHS))
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=1100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert hosts.attached() == []
    with Notebook(tmp_path / "guests.iotax") as notebook:
        attempts = [each for each in notebook.attempts() if each.status == "done"]
    assert sorted(each.trial.id for each in attempts) == sorted(f"{name}/r{turn}" for name in PATHS for turn in (1, 2))
    agreed = {each.trial.treatment["protocol"]: each.connected.negotiated for each in attempts if each.connected}
    nfs, iscsi, nvme = agreed["NFS"], agreed["iSCSI"], agreed["NVMe-TCP"]
    assert isinstance(nfs, NfsAgreed) and (nfs.version, nfs.connections) == ("4.1", 2)
    assert isinstance(iscsi, IscsiAgreed)
    assert isinstance(nvme, NvmeAgreed)
    for each in attempts:
        result = each.result
        assert result is not None
        assert result.ios > 0
        assert result.verify is not None and result.verify.wrong_blocks == 0
        assert [client.host for client in result.clients] == ["initiator"]
        # Costs of kernel paths come from the CPU of whole machines, including the observed target.
        machines = {(part.host, part.role) for part in result.cpu if part.layer == "machine"}
        assert machines == {("initiator", "initiator"), ("storage", "target")}
    assert "1 client (initiator)" in done.stdout
    assert "µs on initiators" in done.stdout
    assert "µs on targets" in done.stdout
    page = next(tmp_path.glob("*.html")).read_text()
    first_screen = page.partition('<section id="verdict">')[2].partition("</section>")[0]
    assert "1 client: initiator." in first_screen
    for column in ("Total", "Initiators", "Targets"):
        assert f">{column}<small>" in first_screen


def test_paths_of_kernels_take_turns_side_by_side_and_leave_nothing(hosts: GuestHosts, tmp_path: Path) -> None:
    in_turns = written(hosts, *PATHS).replace(", warmup: 200ms, runtime: 2s", "")
    in_turns = in_turns.replace("replicates: 2", "sessions: 2, rounds: 4, slice: 500ms, settle: 150ms")
    words, environment = command(tmp_path, hosts, require(), in_turns)
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=1100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert hosts.attached() == []
    with Notebook(tmp_path / "guests.iotax") as notebook:
        attempts = [each for each in notebook.attempts() if each.status == "done"]
    assert len({each.trial.id for each in attempts}) == 6
    for each in attempts:
        result = each.result
        assert result is not None
        # A guest that wakes late misses a slice.
        assert 2 <= len(result.slices) <= 4
        assert result.verify is not None and result.verify.wrong_blocks == 0
        assert each.connected is not None and "clocks_agree_within" in each.connected.found
        machines = {(part.host, part.role): part for part in result.cpu if part.layer == "machine"}
        assert set(machines) == {("initiator", "initiator"), ("storage", "target")}
        # Root reads idle time in nanoseconds, and the use without load is subtracted.
        assert {part.resolution_ns for part in machines.values()} == {0}
        assert all(part.background_ns is not None and part.net_ns > 0 for part in machines.values())
        assert all(part.target_cpu_ns is not None for part in result.slices)
    page = next(tmp_path.glob("*.html")).read_text()
    assert "round by round" in page


def measured_over(path: str, found: list[str]) -> bool:
    """Whether the path is up and under load: one engine holds the lease, another one runs the load."""
    return any(path in line for line in found) and sum("engine-" in line for line in found) > 1


@pytest.mark.parametrize("protocol", PATHS)
def test_a_killed_controller_leaves_nothing_attached_and_the_study_goes_on(
    hosts: GuestHosts, tmp_path: Path, protocol: str
) -> None:
    text = written(hosts, protocol, runtime="20s", replicates=1)
    words, environment = command(tmp_path, hosts, require(), text)
    with subprocess.Popen([*words, "--no-report"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            hosts.until(lambda found: process.poll() is not None or measured_over(UP[protocol], found), "a trial")
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
    hosts.until(lambda found: not found, "the host to take everything down")
    done = subprocess.run(
        [*words, "--no-report"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Notebook(tmp_path / "guests.iotax") as notebook:
        assert [each.status for each in notebook.attempts()].count("done") == 1
    assert hosts.attached() == []


def test_a_target_that_asks_for_chap_is_reached_by_the_hosts_own_record_which_stays(
    hosts: GuestHosts, tmp_path: Path
) -> None:
    storage, initiator = hosts.guests["storage"], hosts.guests["initiator"]
    group, record = f"/sys/kernel/config/target/iscsi/{IQN}/tpgt_1", f"iscsiadm -m node -T {IQN} -p 10.0.0.1:3260"
    words, environment = command(tmp_path, hosts, require(), written(hosts, "iSCSI", replicates=1))
    words.append("--no-report")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=900
        )

    storage.run(f"printf joe >{group}/auth/userid; printf a-secret-of-joe >{group}/auth/password")
    storage.run(f"echo 1 >{group}/attrib/authentication")
    try:
        refused = run()
        assert refused.returncode != 0
        assert "logging in to" in refused.stdout + refused.stderr
        assert hosts.attached() == []
        own = {"authmethod": "CHAP", "username": "joe", "password": "a-secret-of-joe"}
        settings = [f"{record} -o update -n node.session.auth.{name} -v {value}" for name, value in own.items()]
        initiator.run("; ".join([f"{record} -o new", *settings]))
        done = run()
        assert done.returncode == 0, done.stdout + done.stderr
        assert hosts.attached() == []
        assert "node.session.auth.username = joe" in initiator.run(record)
        assert b"a-secret-of-joe" not in (tmp_path / "guests.iotax").read_bytes()
    finally:
        storage.run(f"echo 0 >{group}/attrib/authentication")
        initiator.run(f"{record} -o delete || :")


def test_a_target_that_asks_for_chap_is_reached_by_the_secret_that_iotax_carries_and_nothing_of_it_stays(
    hosts: GuestHosts, tmp_path: Path
) -> None:
    storage, initiator = hosts.guests["storage"], hosts.guests["initiator"]
    group = f"/sys/kernel/config/target/iscsi/{IQN}/tpgt_1"
    text = written(hosts, "iSCSI", replicates=1) + "connection: {chap: {user: joe, secret_env: JOE}}\n"
    words, environment = command(tmp_path, hosts, require(), text)
    storage.run(f"printf joe >{group}/auth/userid; printf a-secret-of-joe >{group}/auth/password")
    storage.run(f"echo 1 >{group}/attrib/authentication")
    try:
        for secret, status in (("another-secret", False), ("a-secret-of-joe", True)):
            done = subprocess.run(
                [*words, "--no-report"], cwd=tmp_path, env={**environment, "JOE": secret}, capture_output=True,
                text=True, check=False, timeout=900,
            )  # fmt: skip
            assert (done.returncode == 0) == status, done.stdout + done.stderr
            assert secret not in done.stdout + done.stderr
            assert hosts.attached() == []
            # No file of the host keeps the secret after the path is down: its record was removed.
            initiator.run(f"! grep -r {secret} /etc/iscsi /var/lib/iscsi /root/.cache 2>/dev/null")
            for kept in tmp_path.iterdir():
                assert secret.encode() not in kept.read_bytes()
    finally:
        storage.run(f"echo 0 >{group}/attrib/authentication")


def test_a_clock_that_is_an_hour_ahead_is_found_and_taken_off(
    hosts: GuestHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    study = read_study("guests", written(hosts, "NFS", replicates=1), tmp_path)
    initiator = hosts.guests["initiator"]
    began_ns = time.time_ns()
    initiator.run("date -s @$(($(date +%s) + 3600))")
    try:
        lab = HostsLab(study, make_plan(study), require())
        try:
            clocks = {each.host: each.clock for each in lab.survey()}
            shifted, other = clocks["initiator"], clocks["storage"]
            assert shifted is not None and other is not None
            # The shell sets whole seconds, and a machine boots with a clock of whole seconds.
            assert 3595e9 < shifted.ahead_ns < 3605e9
            assert abs(other.ahead_ns) < 5e9
            lab.prepare(lambda _: None)
            lab.background(1)
            [trial] = make_plan(study).trials
            window = lab.run(trial, lambda _: None).result.window
            assert began_ns < window.start_unix_ns < time.time_ns()
        finally:
            lab.close()
    finally:
        initiator.run("date -s @$(($(date +%s) - 3600))")
