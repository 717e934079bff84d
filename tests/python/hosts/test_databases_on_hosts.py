"""PostgreSQL on hosts: the script that runs there, on a fake host; and whole studies on real kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.generators.pgbench import measured
from iotax.labs.hosts.databases import SCRIPT, used_in
from iotax.labs.hosts.paths import attached_of
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.rules import broken_rules
from vm.needed import require
from waits import wait_for

from .fake_host import FakeHost
from .guest_hosts import GuestHosts
from .test_kernel_paths import SCRIPT as PATHS_SH

MIB = 1 << 20
VOLUME_BYTES = 160 * MIB
NQN, IQN = "nqn.2026-11.io.iotax:kernel", "iqn.2026-11.io.iotax:kernel"
STUDY = """\
name: databases
question: What does a transaction cost over each path?
lab: {{hosts: {{initiators: [{initiator}], targets: [{storage}]}}}}
volume: {{size: 160MiB}}
factors:
  protocol:
    NVMe-TCP: "kernel:nvme-tcp://10.0.0.1/{nqn}?ns=1&queues=1"
    iSCSI: "kernel:iscsi://10.0.0.1/{iqn}/0"
    NFS: "kernel:nfs://10.0.0.1/volume/data?vers=4.1"
load: {{generator: pgbench, workers: 2, working_set: 64MiB, warmup: 500ms, runtime: 4s}}
design: {{replicates: 1}}
baseline: {{protocol: iSCSI}}
responses: [transactions, latency, cpu_per_transaction, disk_iops]
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHosts]:
    folder = tmp_path_factory.mktemp("guests")
    made = GuestHosts(require("ssh-keygen"), folder, database=True, volume_bytes=VOLUME_BYTES)
    # The folder with the volume's file also holds a database.
    made.guests["storage"].run("mount -o remount,size=400m /volume")
    # busybox has its own mke2fs.
    made.guests["initiator"].run(
        "load ext4; mount -t cgroup2 cgroup /sys/fs/cgroup || die 'no control groups'; chmod 1777 /dev/shm /tmp; "
        "ln -s /usr/sbin/mke2fs /opt/host/mke2fs"
    )
    yield made
    made.close()


@pytest.mark.long
def test_databases_commit_over_each_path_of_a_host_and_leave_nothing(hosts: GuestHosts, tmp_path: Path) -> None:
    text = STUDY.format(initiator=hosts.host("initiator"), storage=hosts.host("storage"), nqn=NQN, iqn=IQN)
    (tmp_path / "databases.yaml").write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(hosts.home), "IOTAX_ENGINE": str(require())}
    words = [sys.executable, "-m", "iotax", "run", "databases.yaml", "-n", "databases.iotax", "--no-report"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=1100
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert hosts.attached() == []
    with Notebook(tmp_path / "databases.iotax") as notebook:
        results = {
            each.trial.treatment["protocol"]: each.result for each in notebook.attempts() if each.status == "done"
        }
    assert sorted(results) == ["NFS", "NVMe-TCP", "iSCSI"]
    for result in results.values():
        assert result is not None
        assert (result.generator, result.rate_unit) == ("pgbench", "transactions/s")
        assert result.ios > 0
        assert result.database is not None
        assert result.database.checkpoints >= 1
        assert result.database.writes > 0
        machines = {(part.host, part.role) for part in result.cpu if part.layer == "machine"}
        assert machines == {("initiator", "initiator"), ("storage", "target")}
        assert result.cpu_ns("initiator")


PROGRAMS = {
    "initdb": 'while [ "$1" != -D ]; do shift; done; mkdir -p "$2/base"; echo "initdb $*" >>"$FAKE/log"',
    "psql": """
while [ $# -gt 0 ]; do
    [ "$1" != -c ] || case "$2" in
    *server_version_num*) echo 150004 ;;
    *checkpoints_timed*) cat "$FAKE/checkpoints" ;;
    checkpoint) echo $(($(cat "$FAKE/checkpoints") + 1)) >"$FAKE/checkpoints" ;;
    *pg_stat_activity*) if grep -q '^pgbench ' "$FAKE/log"; then echo 3; else echo 0; fi ;;
    *clock_timestamp*) date +%s.%N ;;
    *pg_database_size*) echo 67108864 ;;
    esac
    shift
done""",
    "pgbench": """
case "$*" in
--version) echo "pgbench (PostgreSQL) 15.4"; exit ;;
*" -i "*) exit ;;
esac
trap 'exit 0' ALRM
echo "pgbench $*" >>"$FAKE/log"
while :; do echo "0 1 2000 0 $(date '+%s %6N' | sed 's/ 0*\\(.\\)/ \\1/')" >>pgbench_log.$$; sleep 0.02; done""",
}

# A shell starts background processes with SIGINT ignored. PostgreSQL installs its own handler.
POSTGRES = f"""#!{sys.executable}
import os, signal, sys, time
from pathlib import Path
data = Path(sys.argv[sys.argv.index("-D") + 1])
if not (data / "base").exists():
    sys.exit(f"FATAL:  no database in {{data}}")
def end(*_):
    (data / "postmaster.pid").unlink()
    os._exit(0)
signal.signal(signal.SIGINT, end)
(data / "postmaster.pid").write_text(f"{{os.getpid()}}\\nready\\n")
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DatabaseHost]:
    made = DatabaseHost(tmp_path)
    yield made
    made.run(PATHS_SH, "down")


class DatabaseHost(FakeHost):
    """A fake host with PostgreSQL as shell scripts, and an NFS path that is up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "export" / "data").write_text("zeros")
        (folder / "checkpoints").write_text("5\n")
        (folder / "pg").mkdir()
        programs = {name: f"#!/bin/sh\n{script}\n" for name, script in PROGRAMS.items()}
        for name, text in (programs | {"postgres": POSTGRES}).items():
            program = folder / "pg" / name
            program.write_text(text)
            program.chmod(0o755)
        for name in ("mkdir", "rm", "chown"):
            self.add(name, f'exec /usr/bin/{name} "$@"')
        # Removing a control group removes the files in it.
        self.add("rmdir", 'exec /usr/bin/rm -r "$@"')
        self.cgroups = folder / "cgroups"
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").write_text("cpu io memory\n")
        (self.cgroups / "cgroup.subtree_control").write_text("cpu\n")
        self.vm = {
            "dirty_bytes": "0",
            "dirty_background_bytes": "4096",
            "dirty_ratio": "20",
            "dirty_background_ratio": "0",
        }
        (folder / "proc/sys/vm").mkdir(parents=True)
        for name, value in self.vm.items():
            (folder / "proc/sys/vm" / name).write_text(f"{value}\n")
        self.script = folder / "home" / "database.sh"
        self.script.write_text(SCRIPT.text)
        self.device = ""

    @property
    def environment(self) -> dict[str, str]:
        more = {"PG": str(self.folder / "pg"), "CGROUPS": str(self.cgroups)}
        # No test waits for something that never comes, so a long limit costs nothing.
        return {**super().environment, **more, "WAIT_S": "60"}

    def up(self) -> None:
        done = self.run(PATHS_SH, "up", "nfs", "10.0.0.5", "2049", "/export", "data", "4.1", "")
        assert done.returncode == 0, done.stderr
        self.device = attached_of("h1", done.stdout).device

    def does(self, *words: str | int) -> list[str]:
        done = self.run(PATHS_SH, "with", str(self.script), *map(str, words))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def fails(self, *words: str | int) -> str:
        done = self.run(PATHS_SH, "with", str(self.script), *map(str, words))
        assert done.returncode != 0
        return done.stderr.splitlines()[-1]

    def begin(self) -> None:
        self.does("database_begin", self.device, 32 * MIB, "-c fsync=on", 3, "-M prepared -j 1")

    def kernel(self) -> dict[str, str]:
        return {name: (self.folder / "proc/sys/vm" / name).read_text().strip() for name in self.vm}

    def left(self) -> list[Path]:
        """What remains of a database that is up."""
        return [
            *self.home.glob(".cache/iotax/using-*"),
            *self.home.glob(".cache/iotax/run-*"),
            *self.cgroups.glob("*/"),
        ]


def test_a_database_tells_what_happened_in_the_window_and_leaves_the_host_as_it_was(host: DatabaseHost) -> None:
    host.up()
    host.does("database_ready", host.device)
    assert host.does("database_build", host.device, 160 * MIB, 4, "-k") == ["DATABASE_BYTES 67108864"]
    assert host.left() == []
    assert host.does("database_holds", host.device) == ["OURS"]
    host.begin()
    assert (host.cgroups / "iotax-database/memory.max").read_text() == f"{32 * MIB}\n"
    assert "memory" in (host.cgroups / "cgroup.subtree_control").read_text()
    assert host.kernel()["dirty_bytes"] == f"{4 * MIB}"
    begin_us = time.time_ns() // 1000

    def transactions() -> int:
        return sum(
            len(each.read_text().splitlines()) for each in host.home.glob(".cache/iotax/run-*/pgbench/pgbench_log.*")
        )

    earlier = transactions()
    wait_for(lambda: transactions() > earlier + 10, "transactions")
    end_us = time.time_ns() // 1000
    host.does("database_checkpoint")
    said = host.does("database_end", begin_us, end_us)
    found = measured(said, begin_us, end_us, used_in(said, begin_us, end_us))
    assert (found.version, found.checkpoints) == ("(PostgreSQL) 15.4", 1)
    ended_us = [int(line.split()[4]) * 1_000_000 + int(line.split()[5]) for line in found.log]
    assert len(ended_us) >= 5
    assert all(begin_us <= each < end_us + 2000 for each in ended_us)
    assert any("-c 3 -M prepared -j 1" in line for line in host.log)
    assert host.left() == []
    # dirty_ratio was in force before, so it is restored; writing it sets the byte limits to 0.
    assert host.kernel()["dirty_ratio"] == "20"
    assert host.kernel()["dirty_background_bytes"] == "4096"


def test_whoever_takes_a_path_down_ends_the_database_on_it_first(host: DatabaseHost) -> None:
    host.up()
    host.does("database_build", host.device, 160 * MIB, 4, "")
    host.begin()
    [postmaster] = host.folder.rglob("postmaster.pid")
    pids = [
        int(postmaster.read_text().split()[0]),
        int(next(host.home.glob(".cache/iotax/run-*/pgbench/pid")).read_text()),
    ]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert host.run(PATHS_SH, "down").stdout.startswith("DOWN nfs ")
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "both programs to end")
    assert host.left() == host.journal == []


def test_a_folder_that_iotax_did_not_make_is_left_alone(host: DatabaseHost) -> None:
    host.up()
    host.add("dd", 'exec /usr/bin/dd "$@"')
    assert host.does("database_holds", host.device) == []
    # The same volume held a database when it was reached over iSCSI.
    Path(host.device).write_bytes(bytes(1144) + b"iotax-pgbench\0\0\0" + bytes(100))
    assert host.does("database_holds", host.device) == ["OURS"]
    theirs = Path(f"{host.device}.database") / "precious"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    said = host.fails("database_build", host.device, 160 * MIB, 4, "")
    assert said == f"in_use {host.device}.database is there, and iotax did not make it: nothing was changed"
    assert theirs.read_text() == "theirs"


def test_a_database_that_does_not_start_says_why(host: DatabaseHost) -> None:
    host.up()
    host.does("database_build", host.device, 160 * MIB, 4, "")
    shutil.rmtree(Path(f"{host.device}.database") / "data" / "base")
    said = host.fails("database_begin", host.device, 32 * MIB, "", 3, "")
    assert said.startswith("PostgreSQL does not start: FATAL:  no database in ")


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("pg/pgbench", "missing {folder}/pg has no pgbench"),
        ("cgroups/cgroup.controllers", "missing no control group of this host limits memory"),
    ],
)
def test_a_host_says_what_it_lacks_for_a_database(host: DatabaseHost, lacks: str, said: str) -> None:
    host.up()
    (host.folder / lacks).unlink()
    assert host.fails("database_ready", host.device) == said.format(folder=host.folder)
    assert host.fails("database_ready", "/srv/volume").startswith(said.format(folder=host.folder))


def test_a_file_of_the_host_takes_no_database(host: DatabaseHost) -> None:
    assert host.fails("database_ready", "/srv/volume").startswith("usage /srv/volume is a file of this host")


def test_what_was_read_and_written_is_that_of_the_window() -> None:
    # The host booted at 1000 s. The window is from 10.5 s to 12 s after that.
    samples = [(10, 0, 0, 0, 0), (11, 10, 4096, 20, 8192), (12, 20, 8192, 60, 16384), (13, 90, 90, 90, 99999)]
    said = ["CLOCK 10.00 1010.01 10.02", *(f"USE {' '.join(map(str, each))}" for each in samples), "USE 13.2 4"]
    assert used_in(said, 1_010_500_000, 1_012_000_000) == [15, 6144, 50, 12288]


@pytest.mark.parametrize("said", [[], ["CLOCK 1 2"], ["CLOCK 1 2 3", "USE a b c d e"], ["CLOCK 1 2 3"]])
def test_samples_in_an_unknown_form_are_refused(said: list[str]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong, the trial fails with one message
        used_in(said, 0, 1)


ISCSI_OF_EACH = "kernel:iscsi://10.0.0.5/iqn.2001-05.org.example:vol{client}/0"


@pytest.mark.parametrize(
    ("uri", "hosts", "said"),
    [
        (ISCSI_OF_EACH, ["h1", "h2"], []),
        ("local:/dev/sdb", ["h1", "h2"], []),
        ("kernel:nfs://10.0.0.5/export/data", ["h1"], []),
        ("kernel:nfs://10.0.0.5/export/data", ["h1", "h2"], ["each host has a database of its own"]),
        ("iscsi://10.0.0.5/iqn.2001-05.org.example:vol/0", ["h1"], ["PostgreSQL needs a path of the host's kernel"]),
        ("local:/srv/file", ["h1"], ["PostgreSQL needs a path of the host's kernel"]),
    ],
)
def test_a_database_has_a_device_or_mount_of_its_own(uri: str, hosts: list[str], said: list[str]) -> None:
    found = refused(uri, hosts)
    assert [message[: len(want)] for message, want in zip(found, said, strict=True)] == said


def test_a_volume_with_a_database_is_not_preconditioned() -> None:
    assert refused("local:/dev/sdb", ["h1"], precondition={}) == [
        "it would write over PostgreSQL's file system; leave it out"
    ]


def refused(uri: str, hosts: list[str], **more: Any) -> list[str]:
    document: dict[str, Any] = {
        "name": "x",
        "question": "?",
        "lab": {"hosts": {"initiators": hosts}},
        "volume": {"size": "160MiB"},
        "factors": {"protocol": {"a": uri}},
        "load": {"generator": "pgbench", "workers": 2, "working_set": "64MiB"},
        "baseline": {"protocol": "a"},
        "responses": ["transactions"],
    }
    return [message for _, message in broken_rules(Study.model_validate(document | more))]
