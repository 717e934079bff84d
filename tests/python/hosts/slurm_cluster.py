"""Slurm on this machine for tests: one controller and one node per name. Jobs use the home folder of their node."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from waits import wait_for

_CONF = """\
ClusterName=iotax
SlurmctldHost={machine}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
"""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")


def need() -> None:
    """Skips the test where Slurm cannot run."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [each for each in _PROGRAMS if shutil.which(each, path=path) is None]
    if os.geteuid():
        pytest.skip("Slurm's daemons need root")
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)} (Debian: slurm-wlm and munge)")


class SlurmCluster:
    """A Slurm cluster; its commands find it through SLURM_CONF."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.names = folder, names
        self.conf = folder / "slurm.conf"
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {
            "SLURM_CONF": str(self.conf),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        machine, ports = socket.gethostname().partition(".")[0], _free_ports(1 + len(names))
        nodes = [
            f"NodeName={name} NodeHostname={machine} NodeAddr=127.0.0.1 Port={port} CPUs={os.cpu_count()}\n"
            for name, port in zip(names, ports[1:], strict=True)
        ]
        head = _CONF.format(machine=machine, folder=folder, ports=ports)
        self.conf.write_text(
            head + "".join(nodes) + "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        )
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        try:
            files = {"socket": "munge.sock", "key-file": key.name, "pid-file": "munge.pid", "seed-file": "munge.seed"}
            words = [f"--{option}={folder / name}" for option, name in files.items()]
            self._start("munged", "--foreground", "--force", *words, f"--log-file={folder / 'munged.txt'}")
            wait_for((folder / "munge.sock").exists, "munged")
            self._start("slurmctld", "-D")
            for name in names:
                self.home(name).mkdir()
                self._start("slurmd", "-D", "-N", name)
            wait_for(lambda: self.idle() == set(names), "Slurm's nodes")
        except BaseException:
            self.close()
            raise

    def home(self, name: str) -> Path:
        return self.folder / f"home-{name}"

    def ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)
        return done.stdout

    def jobs(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return self.ask("squeue", "--noheader", "--format=%j").split()

    def idle(self) -> set[str]:
        return set(self.ask("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())

    def left(self, name: str) -> list[int]:
        """Process ids of jobs on a node: workers and engines."""
        wanted = f"HOME={self.home(name)}".encode()
        found = []
        for each in Path("/proc").iterdir():
            try:
                if each.name.isdecimal() and wanted in (each / "environ").read_bytes().split(b"\0"):
                    found.append(int(each.name))
            except OSError:
                continue
        return found

    def engines(self, name: str) -> list[int]:
        """Process ids of engines among them."""
        found = []
        for each in self.left(name):
            with contextlib.suppress(OSError):
                if "engine-" in Path(f"/proc/{each}/cmdline").read_text():
                    found.append(each)
        return found

    def close(self) -> None:
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            try:
                process.wait(timeout=180)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, *words: str) -> None:
        with (self.folder / f"{len(self._running)}-{words[0]}.log").open("wb") as log:
            program = shutil.which(words[0], path=self._environment["PATH"])
            assert program is not None
            self._running.append(
                subprocess.Popen(
                    [program, *words[1:]],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                )
            )


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports
