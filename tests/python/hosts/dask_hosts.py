"""Hosts for tests: Dask workers on this machine, each with its own home folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from waits import wait_for

_PROGRAM = Path(__file__).with_name("dask_without_iotax.py")


class DaskHosts:
    """A Dask scheduler and its workers."""

    def __init__(self, folder: Path, names: list[str], tls: tuple[str, ...] = (), *, with_iotax: bool = False) -> None:
        """`tls` are Dask's command-line options for TLS."""
        self.folder, self.names, self._tls = folder, names, tls
        self._program = [
            sys.executable,
            *(("-m", "distributed.cli.dask_{kind}") if with_iotax else (str(_PROGRAM), "{kind}")),
        ]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.address = ""
        try:
            self.schedule()
            for name in names:
                self.work(name)
            for name in names:
                wait_for(lambda name=name: self._registered(name), f"worker {name}")
        except BaseException:
            self.close()
            raise

    def schedule(self) -> None:
        known = self.folder / "scheduler.json"
        known.unlink(missing_ok=True)
        port = self.address.rpartition(":")[2] or "0"
        self._start("scheduler", "--port", port, "--scheduler-file", str(known))
        wait_for(lambda: known.exists() and '"address"' in known.read_text(), "the scheduler")
        self.address = known.read_text().partition('"address": "')[2].partition('"')[0]

    def work(self, name: str) -> None:
        local = str(self.home(name))
        self._start(name, self.address, "--name", name, "--no-nanny", "--nthreads", "1", "--local-directory", local)

    def home(self, name: str) -> Path:
        return self.folder / f"home-{name}"

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def kill(self, name: str, sent: signal.Signals = signal.SIGKILL) -> None:
        process = self._running[name]
        process.send_signal(sent)
        if sent == signal.SIGKILL:
            process.wait()

    def engines(self, name: str, command: str) -> list[int]:
        """Process ids of the engines of one host whose command line contains `command`."""
        found = []
        for each in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if each.name.isdecimal() and "engine-" in (line := (each / "cmdline").read_bytes().decode()):
                    here = str(self.home(name)) == str((each / "cwd").readlink())
                    found += [int(each.name)] if here and command in line else []
        return found

    def again(self, name: str) -> None:
        """Starts a worker in place of one that was killed."""
        self.work(name)
        wait_for(lambda: self._registered(name), f"worker {name}")

    def close(self) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def _start(self, name: str, *words: str) -> None:
        kind = "scheduler" if name == "scheduler" else "worker"
        self.home(name).mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [
                    *(word.format(kind=kind) for word in self._program),
                    *words,
                    *self._tls,
                    "--host",
                    "127.0.0.1",
                    "--no-dashboard",
                ],
                env={**os.environ, "HOME": str(self.home(name))},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _registered(self, name: str) -> bool:
        assert self._running[name].poll() is None, (self.folder / f"{name}.log").read_text()
        return "Registered to" in (self.folder / f"{name}.log").read_text()
